"""Lints the templates of a setup file or of an HTML file, without a store."""

from typing import Any

import msgspec

from heliograph.domain.setup.plan import FileProblem
from heliograph.domain.setup.records import Layout, Template, VariableType
from heliograph.domain.setup.setup_file import SetupFile
from heliograph.templates.policy.check import TemplateProblem
from heliograph.templates.policy.lint import find_layout_problems, find_problems
from heliograph.templates.policy.mjml import compile_mjml
from heliograph.templates.policy.placeholders import guess_item_fields
from heliograph.templates.policy.source import compile_source
from heliograph.templates.policy.variable_types import to_record_fields


def lint_file(file: SetupFile) -> list[FileProblem]:
    """Return the problems of all layouts and templates in a setup file, whose templates may be incomplete."""
    problems = []
    for team in file.teams:
        layouts: dict[str, Layout] = {}
        for index, fields in enumerate(team.get("layouts", [])):
            layout = msgspec.convert(_with_identity(team, fields, f"layouts[{index}]"), Layout)
            layouts[layout.id] = layout
            problems += _to_file_problems(layout.id, find_layout_problems(layout))
        for index, fields in enumerate(team.get("templates", [])):
            channel = {"channel": "sms" if "body" in fields else "email"}
            template = msgspec.convert(
                channel | to_record_fields(_with_identity(team, fields, f"templates[{index}]")), Template
            )
            problems += _to_file_problems(template.id, find_problems(template, layouts.get(template.layout or "")))
    return problems


def lint_html(name: str, source: str) -> list[FileProblem]:
    """Return the problems of an HTML body, treating used variables as declared; raises ValueError on invalid MJML."""
    source = compile_mjml(source)
    uses = compile_source(source, True, guess_item_fields([source], ())).uses
    shapes = {
        use.name: VariableType(
            list=tuple(dict.fromkeys(field.name for field in uses if field.list == use.name)) or ("item",)
        )
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
    return _to_file_problems(name, [problem for problem in find_problems(template) if problem.part == "html"])


def _with_identity(team: dict[str, Any], fields: dict[str, Any], default_id: str) -> dict[str, Any]:
    id_ = fields.get("id") or fields.get("name") or default_id
    return {"name": id_} | fields | {"id": id_, "team": team["id"]}


def _to_file_problems(id_: str, problems: list[TemplateProblem]) -> list[FileProblem]:
    return [FileProblem(template_id=id_, **msgspec.structs.asdict(problem)) for problem in problems]
