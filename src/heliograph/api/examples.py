"""Examples of requests and responses, generated from the routes and the OpenAPI document.

Requests run unchanged against `heliograph demo`. A field of a response has the example documented with the field
(`domain/field_docs.py`), else a value that its schema allows.
"""

from typing import Any

from heliograph.api.openapi import RESOURCES, resource_of
from heliograph.domain.field_docs import ULID, Schema
from heliograph.domain.ids import PREFIXES
from heliograph.web.route import Route
from heliograph.web.snippets import LANGUAGES, snippet

PHONE = "+15005550006"


def request_examples(route: Route, base_url: str, operation: Schema) -> dict[str, str]:
    """Return the example request as source code, by language."""
    path = route.path
    for one in operation["parameters"]:
        path = path.replace(f"{{{one['name']}}}", one.get("example", ""))
    return {
        language: snippet(language, route.method, base_url + path, route.example, keyed=route.scopes is not None)
        for language in LANGUAGES
    }


def answer_example(route: Route, kind: Any, schemas: dict[str, Schema]) -> Any:
    """Return an example response; `kind` is the struct of the route's response or of its dry run."""
    resource = resource_of(route)
    values = {"id": PREFIXES[RESOURCES[resource]] + ULID} if resource in RESOURCES else {}
    phones: dict[str, Any] = {}
    if resource in ("sms", "whatsapp", "verify"):
        phones = {"to": PHONE, "recipient": PHONE, "address": PHONE, "type": f"{resource}.delivered"}
    return _object(kind.__name__, schemas, values, phones) | {
        field: value for field, value in route.shows.items() if field in schemas[kind.__name__]["properties"]
    }


def _object(name: str, schemas: dict[str, Schema], values: dict[str, Any], phones: dict[str, Any]) -> dict[str, Any]:
    """Build an example object. `phones` override the examples of fields, which override `values`."""
    return {
        field: _value(field, schema, schemas, values, phones) for field, schema in schemas[name]["properties"].items()
    }


def _value(
    field: str, schema: Schema, schemas: dict[str, Schema], values: dict[str, Any], phones: dict[str, Any]
) -> Any:
    if "const" in schema:
        return schema["const"]
    held = _held(schema, schemas)
    if held is not None and "examples" not in schema:
        inner = _object(held, schemas, values, phones)
        return [inner] if schema.get("type") == "array" else inner
    own = {field: schema["examples"][0]} if "examples" in schema else {}
    known = values | own | phones
    if field in known and known[field] in schema.get("enum", [known[field]]):
        return known[field]
    if "anyOf" in schema:
        return None if {"type": "null"} in schema["anyOf"] else _value(field, schema["anyOf"][0], schemas, {}, {})
    return schema["enum"][0] if "enum" in schema else EMPTY.get(schema.get("type", ""))


EMPTY: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {}}


def _held(schema: Schema, schemas: dict[str, Schema]) -> str | None:
    """Return the schema name of a field's object, or of its list items; None if they are not objects."""
    for branch in schema.get("anyOf", [schema]):
        name = str(branch.get("items", branch).get("$ref", "")).rpartition("/")[2]
        if "properties" in schemas.get(name, {}):
            return name
    return None
