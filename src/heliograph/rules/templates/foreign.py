"""A template as another service has it, made one of ours: its placeholders, and what we cannot keep."""

import re

from heliograph.rules.templates.placeholders import NAME

_PLACEHOLDER = re.compile(r"\{\{\{?\s*([A-Za-z][A-Za-z0-9_.]{0,200})\s*\}?\}\}")


def own_placeholders(text: str) -> str:
    """`{{{FIRST_NAME}}}` and `{{first_name}}` → `{{customer.first_name}}`; all else stays, and is refused later."""

    def whole(found: re.Match[str]) -> str:
        name = found[1].lower()
        if name.startswith(("customer.", "brand.")) or not NAME.fullmatch(name):
            return found[0]
        return f"{{{{customer.{name}}}}}"

    return _PLACEHOLDER.sub(whole, text)
