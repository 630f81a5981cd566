"""Pages from templates: everything escaped, nothing undefined passes."""

import re

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from heliograph.web.icons import SHOWN

# The name of a field; else a text, a number, or a word for a value.
TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"(\s*:)?|(?<=[\s\[])(?:true|false|null|True|False|None|\d+(?:\.\d+)?)\b')


def environment(package: str) -> Environment:
    """Make the environment of the templates that lie in a package."""
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
    """Mark the values in code, which have a colour of their own."""
    parts, end = list[Markup](), 0
    for found in TOKEN.finditer(code):
        if not found[1]:
            parts += [escape(code[end : found.start()]), Markup("<span>{}</span>").format(found[0])]
            end = found.end()
    return Markup("").join([*parts, escape(code[end:])])
