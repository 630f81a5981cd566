"""Converts the placeholders of templates between our syntax and those of other services."""

import re
from collections.abc import Iterable, Mapping

from heliograph.templates.policy.placeholders import NAME, PLACEHOLDER, expand_short_forms

_FOREIGN_PLACEHOLDER = re.compile(r"\{\{\{?\s*([A-Za-z][A-Za-z0-9_.]{0,200})\s*\}?\}\}")


def to_foreign_placeholders(text: str, spellings: Mapping[str, str]) -> str:
    """Convert `{{customer.first_name}}` to `{{{FIRST_NAME}}}`, or to its spelling in `spellings`.

    Placeholders of `brand.*` are unchanged.
    """

    def convert(match: re.Match[str]) -> str:
        return match[0] if match[1] == "brand" else f"{{{{{{{foreign_name(match[2], spellings)}}}}}}}"

    return PLACEHOLDER.sub(convert, expand_short_forms(text))


def to_short_placeholders(text: str) -> str:
    """Convert `{{customer.first_name}}` to `{{first_name}}`, but no other scope and no placeholder with a format."""

    def convert(match: re.Match[str]) -> str:
        return f"{{{{{match[2]}}}}}" if match[1] == "customer" and not match[3] else match[0]

    return PLACEHOLDER.sub(convert, text)


def foreign_name(name: str, spellings: Mapping[str, str]) -> str:
    return spellings.get(name, name.upper())


def original_spellings(texts: Iterable[str], keys: Iterable[str]) -> dict[str, str]:
    """Map our variable names to their spelling in the foreign texts, except spellings that are all upper case."""
    foreign_names = [*keys, *(slot[1] for text in texts for slot in _FOREIGN_PLACEHOLDER.finditer(text))]
    return {
        key.lower(): key for key in foreign_names if key != key.upper() and not key.startswith(("customer.", "brand."))
    }


def from_foreign_placeholders(text: str) -> str:
    """Convert `{{{FIRST_NAME}}}` and `{{first_name}}` to `{{customer.first_name}}`.

    Other placeholders are left unchanged, and rejected when the template is saved.
    """

    def convert(match: re.Match[str]) -> str:
        name = match[1].lower()
        if name.startswith(("customer.", "brand.")) or not NAME.fullmatch(name):
            return match[0]
        return f"{{{{customer.{name}}}}}"

    return _FOREIGN_PLACEHOLDER.sub(convert, text)
