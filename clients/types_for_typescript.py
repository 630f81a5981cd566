"""Writes clients/typescript/src/types.ts: records, operations and error codes, from the OpenAPI document."""

import json
from pathlib import Path
from typing import Any

from heliograph.api.event_schemas import event_schema_name
from heliograph.api.openapi import openapi_document
from heliograph.api.routes import V1
from heliograph.domain.refusals import all_refusals

TARGET = Path(__file__).parent / "typescript" / "src" / "types.ts"
HEAD = "// Made by `make clients` from the OpenAPI document. Do not edit."


def typescript() -> str:
    document = openapi_document(V1, "http://localhost")
    schemas: dict[str, Any] = document["components"]["schemas"]
    codes = " | ".join(json.dumps(refusal.code) for refusal in all_refusals())
    parts = [HEAD, f"export type ErrorCode = {codes};"]
    parts += [_declared(name, schema) for name, schema in sorted(schemas.items())]
    operations = [
        f"  {json.dumps(f'{method.upper()} {path}')}: {_operation(operation)};"
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    parts.append("\n".join(["export interface Operations {", *operations, "}"]))
    parts.append(f"export type WebhookEvent = {' | '.join(event_schema_name(name) for name in document['webhooks'])};")
    return "\n\n".join(parts) + "\n"


def _declared(name: str, schema: dict[str, Any]) -> str:
    if schema.get("type") != "object":
        return f"export type {name} = {_type(schema)};"
    fields = _fields(schema.get("properties", {}), schema.get("required", []))
    if "properties" not in schema:  # it may hold itself, which an alias could not
        fields = [f"  [name: string]: {_type(schema['additionalProperties'])};"]
    return "\n".join([f"export interface {name} {{", *fields, "}"])


def _fields(properties: dict[str, Any], required: list[str]) -> list[str]:
    lines = []
    for name, schema in properties.items():
        if said := schema.get("description"):
            lines.append(f"  /** {said} */")
        lines.append(f"  {name}{'' if name in required else '?'}: {_type(schema)};")
    return lines


def _operation(operation: dict[str, Any]) -> str:
    """Its body, its query and its answer."""
    parts = []
    if body := operation.get("requestBody"):
        parts.append(f"body: {_type(body['content']['application/json']['schema'])}")
    query = [one for one in operation.get("parameters", []) if one.get("in") == "query"]
    if query:
        fields = (f"{one['name']}?: {_type(one['schema'])}" for one in query)
        parts.append(f"query: {{ {'; '.join(fields)} }}")
    status = min((s for s in operation["responses"] if s.startswith("2")), key=lambda s: -int(s))
    content = operation["responses"][status]["content"]
    parts.append(
        f"answer: {_type(content['application/json']['schema']) if 'application/json' in content else 'ArrayBuffer'}"
    )
    return f"{{ {'; '.join(parts)} }}"


def _type(schema: dict[str, Any]) -> str:
    match schema:
        case {"$ref": ref}:
            return str(ref).rpartition("/")[2]
        case {"contentEncoding": "base64"}:
            return "string | Uint8Array"  # the client encodes octets
        case {"const": value}:
            return json.dumps(value)
        case {"enum": values}:
            return " | ".join(json.dumps(value) for value in values)
        case {"anyOf": some} | {"oneOf": some}:
            return " | ".join(dict.fromkeys(_type(one) for one in some))
        case {"type": [*several]}:
            return " | ".join(_type({**schema, "type": one}) for one in several)
        case {"type": "array"}:
            return f"Array<{_type(schema.get('items', {}))}>"
        case {"type": "object", "properties": properties}:
            return " ".join(["{", *(line.strip() for line in _fields(properties, schema.get("required", []))), "}"])
        case {"type": "object"}:
            inner = schema.get("additionalProperties")
            return f"Record<string, {_type(inner) if isinstance(inner, dict) and inner else 'unknown'}>"
        case {"type": "integer" | "number"}:
            return "number"
        case {"type": "string" | "boolean" | "null" as name}:
            return str(name)
    return "unknown"


if __name__ == "__main__":
    TARGET.write_text(typescript(), encoding="utf-8")
