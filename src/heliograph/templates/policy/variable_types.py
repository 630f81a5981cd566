"""Variable declarations as written in setup files: a name, or a table with a name and further fields (contract 18)."""

from typing import Any

import msgspec

from heliograph.domain.setup.records import Template

Declared = str | dict[str, Any]


def with_shapes(fields: dict[str, Any]) -> dict[str, Any]:
    """Convert declared variables to record fields: `variables` (the names) and `shapes` (other table fields)."""
    if "variables" not in fields:
        return fields
    tables = [one for one in fields["variables"] if isinstance(one, dict) and len(one) > 1]
    shapes = {one["name"]: {key: value for key, value in one.items() if key != "name"} for one in tables}
    return {**fields, "variables": [name_of(one) for one in fields["variables"]], "shapes": shapes}


def declared(template: Template) -> list[Declared]:
    """Return the template's variables in setup-file format."""
    return [as_declared(template, name) for name in template.variables]


def as_declared(template: Template, name: str) -> Declared:
    shape = template.shapes.get(name)
    return {"name": name, **msgspec.to_builtins(shape)} if shape else name


def name_of(one: Declared) -> str:
    return str(one["name"]) if isinstance(one, dict) else one
