"""Variables as people declare them: a name, or a table that says more (contract 18)."""

from typing import Any

import msgspec

from heliograph.domain.setup.records import Template

Declared = str | dict[str, Any]


def with_shapes(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a template's fields as a record has them: the names, and apart from them what their tables say."""
    if "variables" not in fields:
        return fields
    tables = [one for one in fields["variables"] if isinstance(one, dict) and len(one) > 1]
    shapes = {one["name"]: {key: value for key, value in one.items() if key != "name"} for one in tables}
    return {**fields, "variables": [name_of(one) for one in fields["variables"]], "shapes": shapes}


def declared(template: Template) -> list[Declared]:
    """List its variables as a setup file writes them."""
    return [as_declared(template, name) for name in template.variables]


def as_declared(template: Template, name: str) -> Declared:
    shape = template.shapes.get(name)
    return {"name": name, **msgspec.to_builtins(shape)} if shape else name


def name_of(one: Declared) -> str:
    return str(one["name"]) if isinstance(one, dict) else one
