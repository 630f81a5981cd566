"""Chips: in a preview, highlighted names of variables that have no example value."""

import re

from heliograph.templates.policy.markup import parse_tags

# private-use characters around a variable's name, plain and percent-encoded in a URL
_MARKED_NAME = re.compile("\ue000([a-z0-9_.]{1,64})\ue001")
_PERCENT_ENCODED_NAME = re.compile("%EE%80%80([a-z0-9_.]{1,64})%EE%80%81")
_CHIP_STYLE = "background:#eef0ff;color:#4338ca;border-radius:4px;padding:0 4px;font-family:monospace"


def mark_name(name: str) -> str:
    return f"\ue000{name}\ue001"


def split_names(text: str) -> list[str]:
    """Split a text into plain texts and variable names, which alternate."""
    return _MARKED_NAME.split(text)


def draw_chips(html: str) -> str:
    """Replace each variable name marked by `mark_name` with a chip; inside a tag, only remove the marks."""
    html = _PERCENT_ENCODED_NAME.sub(r"\1", html)
    remaining_tags = iter(parse_tags(html, len(html)))
    tag = next(remaining_tags, None)

    def draw(match: re.Match[str]) -> str:
        nonlocal tag
        while tag and tag.content_end <= match.start():
            tag = next(remaining_tags, None)
        is_text = tag is None or match.start() < tag.start
        return f'<span style="{_CHIP_STYLE}">{{{{{match[1]}}}}}</span>' if is_text else match[1]

    return _MARKED_NAME.sub(draw, html)
