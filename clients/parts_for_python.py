"""Writes what heliograph-client shares with the service: error codes, types of events, and the check of webhooks."""

import json
from pathlib import Path
from typing import Any

from heliograph.api.event_schemas import event_components, event_schema_name
from heliograph.domain.events import EVENT_TYPES
from heliograph.web.errors import error_list
from heliograph.webhooks import verification as receiving

PACKAGE = Path(__file__).parent / "python" / "src" / "heliograph_client"
MADE = "Made by `make clients` from"


def generated() -> dict[Path, str]:
    return {PACKAGE / "codes.py": codes(), PACKAGE / "events.py": events(), PACKAGE / "webhooks.py": webhooks()}


def codes() -> str:
    lines = [f'"""A class for each code. {MADE} what GET /v1/errors answers."""', ""]
    lines += ["from heliograph_client import errors as e", "", "", "# fmt: off", "# ruff: noqa: E501, E701"]
    kinds = {"permission_error": "PermissionDenied", "api_error": "ServerError"}
    for entry in error_list():
        kind = kinds.get(entry["type"]) or _camel(entry["type"])
        lines.append(f"""class {_camel(entry["code"])}(e.{kind}): {json.dumps(entry["meaning"], ensure_ascii=False)}""")
    return "\n".join([*lines, ""])


def events() -> str:
    """Return a TypedDict for each event, its data and the objects in it."""
    components = event_components()
    lines = [f'"""The types of events, for type checkers. {MADE} the schemas of GET /v1/events/schema."""', ""]
    lines += [
        "from __future__ import annotations",
        "",
        "from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union",
    ]
    lines += [
        "",
        "if TYPE_CHECKING:",
        "    from typing_extensions import NotRequired",
        "",
        "# fmt: off",
        "# ruff: noqa",
    ]
    for name in sorted(components, key=lambda name: (name.endswith("Event"), name.endswith("Data"), name)):
        schema = components[name]
        required = schema["required"]
        lines.append(f"{name} = TypedDict({name!r}, {{")
        for field, inner in schema["properties"].items():
            type_ = python_type(inner)
            lines.append(f"    {field!r}: {type_ if field in required else f'NotRequired[{type_}]'!r},")
        lines.append("})")
    lines.append(f"EventType = Literal[{', '.join(map(repr, EVENT_TYPES))}]")
    lines.append(f"WebhookEvent = Union[{', '.join(map(event_schema_name, EVENT_TYPES))}]")
    return "\n".join([*lines, ""])


def python_type(schema: dict[str, Any]) -> str:
    match schema:
        case {"$ref": ref}:
            return str(ref).rpartition("/")[2]
        case {"const": value}:
            return f"Literal[{value!r}]"
        case {"enum": values}:
            return f"Literal[{', '.join(map(repr, values))}]"
        case {"anyOf": some}:
            return " | ".join(dict.fromkeys(map(python_type, some)))
        case {"type": "array", "items": dict(items)}:
            return f"list[{python_type(items)}]"
        case {"type": "object", "additionalProperties": dict(inner)}:
            return f"dict[str, {python_type(inner)}]"
    names = {"array": "list[Any]", "boolean": "bool", "integer": "int", "object": "dict[str, Any]", "string": "str"}
    return "None" if schema.get("type") == "null" else names.get(schema.get("type", ""), "Any")


def webhooks() -> str:
    return f"# {MADE} src/heliograph/webhooks/verification.py.\n" + Path(receiving.__file__).read_text("utf-8")


def _camel(code: str) -> str:
    return "".join(map(str.capitalize, code.split("_")))


if __name__ == "__main__":
    for file, text in generated().items():
        file.write_text(text, "utf-8")
