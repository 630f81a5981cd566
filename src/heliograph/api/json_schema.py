"""JSON Schemas of the API's structs, from their types and the annotations of `domain/field_docs.py`.

A few schemas are handwritten, because no struct describes the value.
"""

from collections.abc import Collection
from typing import Any

import msgspec

from heliograph.api.webhooks import EVENT_IDS_MAX
from heliograph.domain.field_docs import SCHEMA_REF_PREFIX, TIME, Schema
from heliograph.domain.ids import id_pattern
from heliograph.domain.mail.attachments import ALLOWED_TYPES

NULL: Schema = {"type": "null"}
NO_NULL = r"^[^\u0000]*$"  # pattern of strings without null characters

# keys of a field's schema that are not limits
ANNOTATION_KEYS = ("anyOf", "default", "description", "example", "fixed", "needed", "maybe")

EVENT_ID: Schema = {
    "description": "Id of an event to replay.",
    "type": "string",
    "pattern": id_pattern("event"),
}


def _request_alternative(title: str, required: dict[str, Schema], **optional: Schema) -> Schema:
    """Return the schema of one allowed form of a request body."""
    return {
        "title": title,
        "type": "object",
        "required": list(required),
        "additionalProperties": False,
        "properties": required | optional,
    }


HANDWRITTEN_SCHEMAS: dict[str, Schema] = {
    "Attachment": {
        "type": "object",
        "required": ["filename", "content"],
        "additionalProperties": False,
        "properties": {
            "filename": {"description": "Name of the file.", "type": "string", "minLength": 1},
            "content": {
                "description": "The file as standard base64, padded, without white space.",
                "type": "string",
                "format": "byte",
                "contentEncoding": "base64",
            },
            "content_type": {
                "description": "Media type; parameters such as `; charset=utf-8` are allowed. Optional if the "
                "filename extension implies it. Operators can allow more types (`attachment_types`).",
                "type": "string",
                "enum": sorted(ALLOWED_TYPES),
            },
            "content_id": {
                "description": "Makes the file an inline part, `cid:…` in the HTML; unique within the message.",
                "type": "string",
                "pattern": "^[A-Za-z0-9._@-]{1,128}$",
            },
        },
    },
    "Variables": {
        "type": "object",
        "propertyNames": {"pattern": NO_NULL},
        "additionalProperties": {
            "anyOf": [
                {"type": ["string", "number", "boolean", "null"], "pattern": NO_NULL},
                {"type": "array", "items": {"$ref": f"{SCHEMA_REF_PREFIX}Variables"}},
                {"$ref": f"{SCHEMA_REF_PREFIX}Variables"},
            ]
        },
    },
    "ReplayRequest": {
        "description": "One of three forms: one event, a list of events, or a time range.",
        "oneOf": [
            _request_alternative("One event", {"event_id": EVENT_ID}),
            _request_alternative(
                "List of events",
                {"event_ids": {"type": "array", "items": EVENT_ID, "minItems": 1, "maxItems": EVENT_IDS_MAX}},
            ),
            _request_alternative(
                "Time range",
                {
                    "created_after": {
                        "description": "Start of the time range, exclusive.",
                        "type": "string",
                        **TIME,
                    },
                    "created_before": {"description": "End of the time range, exclusive.", "type": "string", **TIME},
                },
                failed_only={"description": "Only events that were not delivered.", "type": ["boolean", "null"]},
            ),
        ],
    },
}


def make_schemas(types: Collection[Any], *, is_response: bool) -> dict[str, Schema]:
    """Return name → schema, for these structs and all structs in their fields."""
    _, components = msgspec.json.schema_components(types, ref_template=f"{SCHEMA_REF_PREFIX}{{name}}")
    return {
        name: _refine_schema(schema, is_response)
        for name, schema in components.items()
        if name not in HANDWRITTEN_SCHEMAS
    }


def schema_ref(name: str) -> Schema:
    return {"$ref": SCHEMA_REF_PREFIX + name}


def with_defs(schema: Schema, components: dict[str, Schema]) -> Schema:
    """Return the schema, complete with `$defs` of all components to which it refers."""
    defs: dict[str, Schema] = {}

    def use_local_refs(part: Any) -> Any:
        if isinstance(part, list):
            return [use_local_refs(item) for item in part]
        if not isinstance(part, dict):
            return part
        if ref := part.get("$ref"):
            name = ref.removeprefix(SCHEMA_REF_PREFIX)
            if name not in defs:
                defs[name] = {}  # entered before it is converted, because the schema may refer to itself
                defs[name] = use_local_refs((components | HANDWRITTEN_SCHEMAS)[name])
            part = part | {"$ref": f"#/$defs/{name}"}
        return {name: value if name == "$ref" else use_local_refs(value) for name, value in part.items()}

    schema_with_local_refs: Schema = use_local_refs(schema)
    return {**schema_with_local_refs, "$defs": defs} if defs else schema_with_local_refs


def inline_refs(schema: Any, components: dict[str, Schema]) -> Any:
    """Return the schema with references replaced by their components, which must not be recursive."""
    if isinstance(schema, list):
        return [inline_refs(item, components) for item in schema]
    if not isinstance(schema, dict):
        return schema
    referenced = components[schema["$ref"].removeprefix(SCHEMA_REF_PREFIX)] if "$ref" in schema else {}
    rest = {name: value for name, value in schema.items() if name != "$ref"}
    return {name: inline_refs(value, components) for name, value in {**referenced, **rest}.items()}


def _refine_schema(schema: Schema, is_response: bool) -> Schema:
    properties = {name: _refine_property(base, is_response) for name, base in schema["properties"].items()}
    explicitly_required = [name for name, base in schema["properties"].items() if base.get("needed")]
    # A response has all fields, except those that only some records have (`maybe`).
    always_present = [name for name, base in schema["properties"].items() if not base.get("maybe")]
    required_names = always_present if is_response else [*schema["required"], *explicitly_required]
    return {**schema, "properties": properties, "required": required_names}


def _refine_property(base: Schema, is_response: bool) -> Schema:
    """Return the schema of a field, in which each alternative except null has the field's limits."""
    limits = {key: value for key, value in base.items() if key not in ANNOTATION_KEYS}
    if base.get("fixed"):
        limits["const"] = base["default"]
    alternatives = base.get("anyOf", [{}])
    variants = [alternative | limits for alternative in alternatives if alternative != NULL]
    for variant in variants if not is_response else ():
        if variant.get("type") == "string" and variant.keys().isdisjoint(("pattern", "enum", "format")):
            variant["pattern"] = NO_NULL
    if NULL in alternatives and not base.get("needed"):
        variants.append(NULL)
    examples = {"examples": [base["example"]]} if "example" in base else {}
    return {
        **(variants[0] if len(variants) == 1 else {"anyOf": variants}),
        "description": base["description"],
        **examples,
    }
