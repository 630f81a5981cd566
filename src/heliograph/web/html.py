"""Pages from templates: everything escaped, nothing undefined passes."""

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from heliograph.web.icons import SHOWN


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
    return made
