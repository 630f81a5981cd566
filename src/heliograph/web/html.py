"""The Jinja environment of HTML pages: autoescaping is on, and undefined variables raise errors."""

import re

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from heliograph.web.icons import ICON_BY_NAME

# Matches a string, a number or a literal. Group 1: the colon after a string that is a field name.
TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"(\s*:)?|(?<=[\s\[])(?:true|false|null|True|False|None|\d+(?:\.\d+)?)\b')


def create_environment(package: str) -> Environment:
    """Return the Jinja environment of the templates in a package."""
    env = Environment(
        loader=PackageLoader(package),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.globals["icons"] = ICON_BY_NAME.__getitem__
    env.filters["coloured"] = colour_values
    return env


def colour_values(code: str) -> Markup:
    """Return the code as HTML, with each value in a `<span>` that the style sheet colours."""
    parts, end = list[Markup](), 0
    for match in TOKEN.finditer(code):
        if not match[1]:
            parts += [escape(code[end : match.start()]), Markup("<span>{}</span>").format(match[0])]
            end = match.end()
    return Markup("").join([*parts, escape(code[end:])])
