"""Chips: names of variables without example values, highlighted in a preview in place of the values."""

import re

from heliograph.templates.policy.markup import tags

# Private-use characters around a variable's name: as plain text, and percent-encoded in a URL.
_CHIP = re.compile("\ue000([a-z0-9_.]{1,64})\ue001")
_QUOTED = re.compile("%EE%80%80([a-z0-9_.]{1,64})%EE%80%81")
_STYLE = "background:#eef0ff;color:#4338ca;border-radius:4px;padding:0 4px;font-family:monospace"


def chip(name: str) -> str:
    return f"\ue000{name}\ue001"


def pieces(text: str) -> list[str]:
    """Split a text into plain text and variable names, alternating."""
    return _CHIP.split(text)


def drawn(html: str) -> str:
    """Replace marked names in the text of the HTML by chips; inside tags, only remove the marks."""
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
