"""Declarations of variables as written in setup files: a name, or a table with a name and a type (contract 18)."""

from typing import Any

import msgspec

from heliograph.domain.setup.records import Template
from heliograph.templates.policy.placeholders import ItemFields

Declaration = str | dict[str, Any]


def to_record_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Replace the declarations in `variables` by names, and store their types in the record's field `shapes`."""
    if "variables" not in fields:
        return fields
    shapes = {
        declaration["name"]: {key: value for key, value in declaration.items() if key != "name"}
        for declaration in fields["variables"]
        if isinstance(declaration, dict) and len(declaration) > 1
    }
    return {
        **fields,
        "variables": [declared_name(declaration) for declaration in fields["variables"]],
        "shapes": shapes,
    }


def declarations_of(template: Template) -> list[Declaration]:
    """Return the declarations of the template's variables in setup-file format."""
    return [declaration_of(template, name) for name in template.variables]


def declaration_of(template: Template, name: str) -> Declaration:
    shape = template.shapes.get(name)
    return {"name": name, **msgspec.to_builtins(shape)} if shape else name


def declared_name(declaration: Declaration) -> str:
    return str(declaration["name"]) if isinstance(declaration, dict) else declaration


def item_fields_of(template: Template) -> ItemFields:
    """Return the declared fields of the template's lists."""
    return tuple((name, shape.list) for name, shape in template.shapes.items() if shape.list)
