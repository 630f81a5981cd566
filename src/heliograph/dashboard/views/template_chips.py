"""Chips: the names of variables that have no example, drawn into a preview where their values would stand."""

import re

from heliograph.templates.policy.markup import tags

# Characters of private use around a name, as it is and as an address writes it.
_CHIP = re.compile("\ue000([a-z0-9_.]{1,64})\ue001")
_QUOTED = re.compile("%EE%80%80([a-z0-9_.]{1,64})%EE%80%81")
_STYLE = "background:#eef0ff;color:#4338ca;border-radius:4px;padding:0 4px;font-family:monospace"


def chip(name: str) -> str:
    return f"\ue000{name}\ue001"


def pieces(text: str) -> list[str]:
    """Return text and names in turn."""
    return _CHIP.split(text)


def drawn(html: str) -> str:
    """Draw chips in the text; inside of tags a name stays a name."""
    html = _QUOTED.sub(r"\1", html)
    inside = iter(tags(html, len(html)))
    tag = next(inside, None)

    def draw(found: re.Match[str]) -> str:
        nonlocal tag
        while tag and tag.whole <= found.start():
            tag = next(inside, None)
        is_text = tag is None or found.start() < tag.start
        return f'<span style="{_STYLE}">{found[1]}</span>' if is_text else found[1]

    return _CHIP.sub(draw, html)
