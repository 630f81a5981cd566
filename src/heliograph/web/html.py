"""The Jinja environment of HTML pages: autoescaping is on, and undefined variables raise errors."""

import re

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from heliograph.web.icons import SHOWN

# A field name (group 1 is its colon); otherwise a string, number or literal.
TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"(\s*:)?|(?<=[\s\[])(?:true|false|null|True|False|None|\d+(?:\.\d+)?)\b')


def environment(package: str) -> Environment:
    """Return the Jinja environment of the templates in a package."""
    made = Environment(
        loader=PackageLoader(package),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["icons"] = SHOWN.__getitem__
    made.filters["coloured"] = coloured
    return made


def coloured(code: str) -> Markup:
    """Return code as HTML with each value in a `<span>`, which the style sheet colours."""
    parts, end = list[Markup](), 0
    for found in TOKEN.finditer(code):
        if not found[1]:
            parts += [escape(code[end : found.start()]), Markup("<span>{}</span>").format(found[0])]
            end = found.end()
    return Markup("").join([*parts, escape(code[end:])])
