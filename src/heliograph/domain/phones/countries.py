"""Country names for display and input."""

import re
from functools import cache

from babel import Locale

from heliograph.domain.phones.phone import COUNTRIES

_COUNTRY_CODE = re.compile(r"(?:.*\()?([A-Z]{2})\)?")


@cache
def country_names() -> dict[str, str]:
    """Return country code → name, ordered by name."""
    names = Locale("en").territories
    return dict(
        sorted(((code, names.get(code, code)) for code in COUNTRIES), key=lambda code_and_name: code_and_name[1])
    )


def country_name(code: str) -> str:
    """Format GB as 'United Kingdom (GB)' and `*` as 'All others'."""
    if code == "*":
        return "All others"
    name = country_names().get(code)
    return f"{name} ({code})" if name else code


def country_code(text: str) -> str:
    """Return the country code for 'gb', 'United Kingdom' or 'United Kingdom (GB)'; other text stays unchanged."""
    text = text.strip()
    if match := _COUNTRY_CODE.fullmatch(text.upper() if len(text) == 2 else text):
        return match[1]
    return next((code for code, name in country_names().items() if name.lower() == text.lower()), text)
