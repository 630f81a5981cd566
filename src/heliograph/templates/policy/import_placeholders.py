"""A template as another service has it, made one of ours: its placeholders, and what we cannot keep."""

import re
from collections.abc import Iterable, Mapping

from heliograph.templates.policy.placeholders import NAME, PLACEHOLDER

_PLACEHOLDER = re.compile(r"\{\{\{?\s*([A-Za-z][A-Za-z0-9_.]{0,200})\s*\}?\}\}")


def foreign_placeholders(text: str, written: Mapping[str, str]) -> str:
    """Write `{{customer.first_name}}` as `{{{FIRST_NAME}}}`, or as `written` says; the brand's stay."""

    def whole(found: re.Match[str]) -> str:
        return found[0] if found[1] == "brand" else f"{{{{{{{key_of(found[2], written)}}}}}}}"

    return PLACEHOLDER.sub(whole, text)


def short_placeholders(text: str) -> str:
    """`{{customer.first_name}}` → `{{first_name}}`; those of others, and those with a format, stay."""

    def short(found: re.Match[str]) -> str:
        return f"{{{{{found[2]}}}}}" if found[1] == "customer" and not found[3] else found[0]

    return PLACEHOLDER.sub(short, text)


def key_of(name: str, written: Mapping[str, str]) -> str:
    return written.get(name, name.upper())


def spelled(texts: Iterable[str], keys: Iterable[str]) -> dict[str, str]:
    """Return the variables that these texts and declarations do not write in capitals, by our name of them."""
    found = [*keys, *(slot[1] for text in texts for slot in _PLACEHOLDER.finditer(text))]
    return {key.lower(): key for key in found if key != key.upper() and not key.startswith(("customer.", "brand."))}


def own_placeholders(text: str) -> str:
    """Write `{{{FIRST_NAME}}}` and `{{first_name}}` as
    `{{customer.first_name}}`; all else stays, and is refused later.
    """

    def whole(found: re.Match[str]) -> str:
        name = found[1].lower()
        if name.startswith(("customer.", "brand.")) or not NAME.fullmatch(name):
            return found[0]
        return f"{{{{customer.{name}}}}}"

    return _PLACEHOLDER.sub(whole, text)
