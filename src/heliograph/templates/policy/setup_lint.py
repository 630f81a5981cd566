"""Lints the templates of a setup file or of an HTML file, without a store."""

from typing import Any

import msgspec

from heliograph.domain.setup.plan import FileProblem
from heliograph.domain.setup.records import Layout, Shape, Template
from heliograph.domain.setup.setup_file import SetupFile
from heliograph.templates.policy.check import TemplateProblem
from heliograph.templates.policy.lint import problems_of, problems_of_layout
from heliograph.templates.policy.mjml import read_html
from heliograph.templates.policy.source import compiled
from heliograph.templates.policy.variable_types import with_shapes


def lint_file(file: SetupFile) -> list[FileProblem]:
    """Return the problems of all layouts and templates in the file. Templates may be incomplete."""
    found = []
    for own in file.teams:
        layouts: dict[str, Layout] = {}
        for i, given in enumerate(own.get("layouts", [])):
            layout = msgspec.convert(_known(own, given, f"layouts[{i}]"), Layout)
            layouts[layout.id] = layout
            found += _of(layout.id, problems_of_layout(layout))
        for i, given in enumerate(own.get("templates", [])):
            channel = {"channel": "sms" if "body" in given else "email"}
            template = msgspec.convert(channel | with_shapes(_known(own, given, f"templates[{i}]")), Template)
            found += _of(template.id, problems_of(template, layouts.get(template.layout or "")))
    return found


def lint_html(name: str, source: str) -> list[FileProblem]:
    """Return the problems of an HTML email body, treating every used variable as declared.

    Raises ValueError on invalid MJML.
    """
    source = read_html(source)
    uses = compiled(source, True).uses
    shapes = {
        use.name: Shape(list=tuple(dict.fromkeys(field.name for field in uses if field.list == use.name)) or ("item",))
        for use in uses
        if use.is_list
    }
    names = tuple(dict.fromkeys(use.name for use in uses if use.list is None))
    template = Template(
        id=name,
        team="",
        channel="email",
        name=name,
        subject=name,
        html=source,
        text="-",
        variables=names,
        shapes=shapes,
    )
    return _of(name, [one for one in problems_of(template) if one.part == "html"])


def _known(own: dict[str, Any], given: dict[str, Any], where: str) -> dict[str, Any]:
    id_ = given.get("id") or given.get("name") or where
    return {"name": id_} | given | {"id": id_, "team": own["id"]}


def _of(id_: str, problems: list[TemplateProblem]) -> list[FileProblem]:
    return [FileProblem(template_id=id_, **msgspec.structs.asdict(one)) for one in problems]
