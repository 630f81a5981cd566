"""Examples of requests and responses, generated from the routes and the OpenAPI document.

The requests can be sent to `heliograph demo` as they are written. In a response, a field has its documented example
(`domain/field_docs.py`), otherwise a value that its schema allows.
"""

from typing import Any

from heliograph.api.openapi import ID_KIND_BY_RESOURCE, resource_of
from heliograph.domain.field_docs import EXAMPLE_ULID, Schema
from heliograph.domain.ids import PREFIXES
from heliograph.web.route import Route
from heliograph.web.snippets import DOCS_LANGUAGES, client_snippet, snippet

PHONE = "+15005550006"


def request_examples(route: Route, base_url: str, operation: Schema) -> dict[str, str]:
    """Return the example request as source code, by language."""
    path = route.path
    for parameter in operation["parameters"]:
        path = path.replace(f"{{{parameter['name']}}}", parameter.get("example", ""))
    url = base_url + path
    has_client = bool(client_snippet(route.method, url, route.example))
    return {
        language: snippet(language, route.method, url, route.example, with_key=route.scopes is not None)
        for language in DOCS_LANGUAGES
        if language != "urllib" or has_client
    }


def response_example(route: Route, struct: Any, schemas: dict[str, Schema]) -> Any:
    """Return an example of a route's response. `struct`: type of the response, dry run or not."""
    resource = resource_of(route)
    values = {"id": PREFIXES[ID_KIND_BY_RESOURCE[resource]] + EXAMPLE_ULID} if resource in ID_KIND_BY_RESOURCE else {}
    phones: dict[str, Any] = {}
    if resource in ("sms", "whatsapp", "verify"):
        phones = {"to": PHONE, "recipient": PHONE, "address": PHONE, "type": f"{resource}.delivered"}
    return _object(struct.__name__, schemas, values, phones) | {
        field: value for field, value in route.example_values.items() if field in schemas[struct.__name__]["properties"]
    }


def _object(name: str, schemas: dict[str, Schema], values: dict[str, Any], phones: dict[str, Any]) -> dict[str, Any]:
    """Return an example object.

    The value of a field comes from `phones`, else from the field's documented example, else from `values`, else from
    its schema.
    """
    return {
        field: _value(field, schema, schemas, values, phones) for field, schema in schemas[name]["properties"].items()
    }


def _value(
    field: str, schema: Schema, schemas: dict[str, Schema], values: dict[str, Any], phones: dict[str, Any]
) -> Any:
    if "const" in schema:
        return schema["const"]
    nested = _nested_schema_name(schema, schemas)
    if nested is not None and "examples" not in schema:
        nested_example = _object(nested, schemas, values, phones)
        return [nested_example] if schema.get("type") == "array" else nested_example
    documented_value = {field: schema["examples"][0]} if "examples" in schema else {}
    candidates = values | documented_value | phones
    if field in candidates and candidates[field] in schema.get("enum", [candidates[field]]):
        return candidates[field]
    if "anyOf" in schema:
        return None if {"type": "null"} in schema["anyOf"] else _value(field, schema["anyOf"][0], schemas, {}, {})
    return schema["enum"][0] if "enum" in schema else EMPTY_BY_TYPE.get(schema.get("type", ""))


EMPTY_BY_TYPE: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {}}


def _nested_schema_name(schema: Schema, schemas: dict[str, Schema]) -> str | None:
    """Return the schema name of an object field, or of a list's items; None if they are not objects."""
    for branch in schema.get("anyOf", [schema]):
        name = str(branch.get("items", branch).get("$ref", "")).rpartition("/")[2]
        if "properties" in schemas.get(name, {}):
            return name
    return None
