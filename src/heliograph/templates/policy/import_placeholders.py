"""Converts the placeholders of templates between our syntax and those of other services."""

import re
from collections.abc import Iterable, Mapping

from heliograph.templates.policy.placeholders import NAME, PLACEHOLDER

_PLACEHOLDER = re.compile(r"\{\{\{?\s*([A-Za-z][A-Za-z0-9_.]{0,200})\s*\}?\}\}")


def foreign_placeholders(text: str, written: Mapping[str, str]) -> str:
    """Convert `{{customer.first_name}}` to `{{{FIRST_NAME}}}`, or to the spelling in `written`; `brand.*` is kept."""

    def whole(found: re.Match[str]) -> str:
        return found[0] if found[1] == "brand" else f"{{{{{{{key_of(found[2], written)}}}}}}}"

    return PLACEHOLDER.sub(whole, text)


def short_placeholders(text: str) -> str:
    """Convert `{{customer.first_name}}` to `{{first_name}}`; other scopes and placeholders with a format are kept."""

    def short(found: re.Match[str]) -> str:
        return f"{{{{{found[2]}}}}}" if found[1] == "customer" and not found[3] else found[0]

    return PLACEHOLDER.sub(short, text)


def key_of(name: str, written: Mapping[str, str]) -> str:
    return written.get(name, name.upper())


def spelled(texts: Iterable[str], keys: Iterable[str]) -> dict[str, str]:
    """Map our variable name to its original spelling, for variables not written in capitals."""
    found = [*keys, *(slot[1] for text in texts for slot in _PLACEHOLDER.finditer(text))]
    return {key.lower(): key for key in found if key != key.upper() and not key.startswith(("customer.", "brand."))}


def own_placeholders(text: str) -> str:
    """Convert `{{{FIRST_NAME}}}` and `{{first_name}}` to `{{customer.first_name}}`.

    Other placeholders are kept and rejected later.
    """

    def whole(found: re.Match[str]) -> str:
        name = found[1].lower()
        if name.startswith(("customer.", "brand.")) or not NAME.fullmatch(name):
            return found[0]
        return f"{{{{customer.{name}}}}}"

    return _PLACEHOLDER.sub(whole, text)
