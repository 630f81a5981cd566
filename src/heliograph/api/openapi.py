"""The OpenAPI 3.1 document, generated from the routes, their structs and the refusals.

Descriptions and limits of fields are annotations of the structs (`domain/field_docs.py`); schemas without a struct
are written out here.
"""

from typing import Any

import msgspec

from heliograph import __version__
from heliograph.api.webhooks import EVENT_IDS_MAX
from heliograph.domain import refusals as r
from heliograph.domain.field_docs import EMAIL, REF, TIME, ULID, Schema
from heliograph.domain.ids import PREFIXES, id_pattern
from heliograph.domain.limits import IDEMPOTENCY_KEY_MAX
from heliograph.domain.mail.attachments import ALLOWED_TYPES
from heliograph.domain.sending.idempotency import HEADER
from heliograph.web.errors import Error, Problem
from heliograph.web.route import Route
from heliograph.web.status import status_of

NULL: Schema = {"type": "null"}
OCTETS = "application/octet-stream"  # responses without a response struct
NO_NULL = r"^[^\u0000]*$"  # strings of a request must not contain U+0000

# First path segment after /v1/ → kind of its ids.
RESOURCES = {
    "emails": "email",
    "sms": "sms",
    "whatsapp": "whatsapp",
    "batches": "batch",
    "verify": "verification",
    "layouts": "layout",
    "templates": "template",
    "domains": "domain",
    "webhooks": "webhook",
    "events": "event",
    "received": "received",
}
OTHER_IDS: dict[str, Schema] = {
    "suppressions": {
        "schema": {"type": "string", **EMAIL},
        "description": "The email address.",
        "example": "ada@example.com",
    },
    "opt-outs": {
        "schema": {"type": "string", "pattern": r"^\+[0-9]{7,15}$"},
        "description": "The phone number, in E.164.",
        "example": "+4915112345678",
    },
    "keys": {
        "schema": {"type": "string", "pattern": "^[0-9A-Za-z]{10}$"},
        "description": "The key's public id: the 10 characters after `hk_`.",
        "example": "4fTzQ8kW1b",
    },
    "inbox": {
        "schema": {"type": "string", "pattern": "^(eml|sms|wam|vrf)_[0-9A-Z]{26}$"},
        "description": "Id of a message or verification.",
        "example": f"eml_{ULID}",
    },
    "attachment": {
        "schema": {"type": "string", "pattern": "^att_[0-9]{1,3}$"},
        "description": "Id of an attachment of the mail.",
        "example": "att_1",
    },
}
SAID = ("anyOf", "default", "description", "example", "fixed", "needed", "maybe")  # keys of a field other than limits
TAGS = {
    "sms": "SMS",
    "inbox": "Test inbox",
    "whatsapp": "WhatsApp",
    "me": "Account",
    "healthz": "Health",
    "readyz": "Health",
}
SET_UP = {
    "template": "tpl_demo_welcome",
    "layout": "lay_letter",
    "domain": "dom_demo",
}  # example ids of kinds whose ids an operator may choose

EVENT_ID: Schema = {
    "description": "An event to send again.",
    "type": "string",
    "pattern": id_pattern("event"),
}


def _form(title: str, needed: dict[str, Schema], **more: Schema) -> Schema:
    """Return the schema of one alternative of a request body."""
    return {
        "title": title,
        "type": "object",
        "required": list(needed),
        "additionalProperties": False,
        "properties": needed | more,
    }


WRITTEN_OUT: dict[str, Schema] = {
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
                "description": "Its type; parameters such as `; charset=utf-8` may follow. May be absent when the "
                "filename's ending says it. Operators may allow others (`attachment_types`).",
                "type": "string",
                "enum": sorted(ALLOWED_TYPES),
            },
            "content_id": {
                "description": "Makes it an inline part that the HTML names as `cid:…`; unique in its message.",
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
                {"type": "array", "items": {"$ref": f"{REF}Variables"}},
                {"$ref": f"{REF}Variables"},
            ]
        },
    },
    "ReplayRequest": {
        "description": "One of three forms: an event, a list of events, a span of time.",
        "oneOf": [
            _form("An event", {"event_id": EVENT_ID}),
            _form(
                "Events", {"event_ids": {"type": "array", "items": EVENT_ID, "minItems": 1, "maxItems": EVENT_IDS_MAX}}
            ),
            _form(
                "A span of time",
                {
                    "created_after": {
                        "description": "All its events of a span of time: after this moment",
                        "type": "string",
                        **TIME,
                    },
                    "created_before": {"description": "and before this one.", "type": "string", **TIME},
                },
                failed_only={"description": "Only events that were not delivered.", "type": ["boolean", "null"]},
            ),
        ],
    },
}
HEADERS: dict[str, Schema] = {
    "X-Request-Id": {"description": "The request's id.", "required": True, "schema": {"type": "string"}},
    "RateLimit-Limit": {"description": "The key's burst.", "schema": {"type": "integer"}},
    "RateLimit-Remaining": {"description": "Requests left at this moment.", "schema": {"type": "integer"}},
    "RateLimit-Reset": {
        "description": "Seconds until the whole burst is available again.",
        "schema": {"type": "integer"},
    },
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}},
    "Heliograph-Should-Retry": {
        "description": "Whether the same request may succeed later.",
        "schema": {"type": "string", "enum": ["true", "false"]},
    },
    "Idempotency-Replayed": {
        "description": "`true` when this is the answer to an earlier request with the same key.",
        "schema": {"const": "true"},
    },
    "WWW-Authenticate": {"description": "How to authenticate.", "schema": {"const": "Bearer"}},
}

KEY_HEADER: Schema = {
    "name": HEADER,
    "in": "header",
    "description": "Makes a retry safe: for 24 hours, the same key and body get the first answer.",
    "schema": {"type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_MAX, "pattern": "^[ -~]+$"},
}

EVERY = (r.InternalError,)
KEYED = (
    r.MissingApiKey,
    r.InvalidApiKey,
    r.TeamSuspended,
    r.InsufficientScope,
    r.RateLimitExceeded,
    r.InvalidRequest,  # at least for an unknown query parameter
    r.ServiceUnavailable,
)
BODY = (r.UnsupportedMediaType, r.PayloadTooLarge, r.InvalidJson)


def openapi_document(routes: list[Route], base_url: str) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, routes)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Heliograph",
            "version": __version__,
            "summary": "Transactional email, SMS, WhatsApp and one-time codes.",
        },
        "externalDocs": {"url": f"{base_url}/docs"},
        "servers": [{"url": base_url}],
        "tags": [{"name": name} for name in dict.fromkeys(tag(route) for route in routes)],
        "paths": paths,
        "components": {
            "schemas": _schemas(routes),
            "headers": HEADERS,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key, `hk_…`, in `Authorization: Bearer <key>`.",
                }
            },
        },
    }


def operation_id(route: Route) -> str:
    """Return a name like `post_emails` or `get_emails_id`, unique because method and path are."""
    words = route.path.removeprefix("/v1/").strip("/").translate({ord("/"): "_", ord("{"): None, ord("}"): None})
    return f"{route.method.lower()}_{words}"


def tag(route: Route) -> str:
    name = resource_of(route)
    return TAGS.get(name, name.capitalize())


def refusals_of(route: Route) -> dict[int, list[type[r.Refusal]]]:
    """Return all refusals that the route can respond with, by status."""
    possible = [*(KEYED if route.scopes is not None else ()), *(BODY if route.body else ())]
    if "{" in route.path:
        possible.append(r.NotFound)
    found: dict[int, list[type[r.Refusal]]] = {}
    for refusal in dict.fromkeys((*possible, *route.refusals, *EVERY)):
        found.setdefault(status_of(refusal), []).append(refusal)
    return dict(sorted(found.items()))


def resource_of(route: Route) -> str:
    return route.path.removeprefix("/v1").split("/")[1]


def _operation(route: Route, routes: list[Route]) -> Schema:
    operation: Schema = {
        "operationId": operation_id(route),
        "summary": route.summary,
        "tags": [tag(route)],
        "security": [{"bearer": [scope]} for scope in route.scopes or ()],  # any one of the scopes is sufficient
        "parameters": _parameters(route),
        "responses": _responses(route, routes),
    }
    if route.body is not None:
        content: Schema = {"schema": _ref(route.body)}
        if route.example is not None:
            content["example"] = route.example
        operation["requestBody"] = {"required": True, "content": {"application/json": content}}
    return operation


def _parameters(route: Route) -> list[Schema]:
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    found = [{"name": name, "in": "path", "required": True, **_path_value(route, name)} for name in names]
    for query in route.query:
        found.append({"name": query.name, "in": "query", "description": query.meaning, "schema": query.schema})
    return [*found, KEY_HEADER] if route.idempotent else found


def _path_value(route: Route, name: str) -> Schema:
    if name in OTHER_IDS:
        return OTHER_IDS[name]
    if resource_of(route) not in RESOURCES:
        return OTHER_IDS[resource_of(route)]
    kind = RESOURCES[resource_of(route)]
    prefix = PREFIXES[kind]
    schema = {"type": "string", "pattern": id_pattern(kind)}
    words = f"Its id, which begins with `{prefix}`."
    return {"schema": schema, "description": words, "example": SET_UP.get(kind, prefix + ULID)}


def _responses(route: Route, routes: list[Route]) -> Schema:
    told: dict[str, Schema] = {OCTETS: {"type": "string"}}
    if route.answer:
        several = {"anyOf": [_ref(route.answer), _ref(route.several)]} if route.several else _ref(route.answer)
        told = {"application/json": several}
    done = _response(route, route.status, route.summary, told)
    links = _links(route, routes)
    if links:
        done["links"] = links
    responses = {str(route.status): done}
    if route.preview is not None:
        content = {"application/json": _ref(route.preview)}
        responses["200"] = _response(route, 200, "A dry run: what would happen.", content)
    for status, refusals in refusals_of(route).items():
        words = "\n".join(f"- `{refusal.code}`: {refusal.meaning()}" for refusal in refusals)
        code: Schema = {"properties": {"code": {"enum": [refusal.code for refusal in refusals]}}}
        content = {
            "application/json": {"allOf": [_ref(Error), {"properties": {"error": code}}]},
            "application/problem+json": {"allOf": [_ref(Problem), code]},
        }
        responses[str(status)] = _response(route, status, words, content)
    return responses


def _response(route: Route, status: int, words: str, content: dict[str, Schema]) -> Schema:
    names = ["X-Request-Id"]
    if route.scopes is not None and status != 401:
        names += ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"]
    if status in (409, 429, 500, 503):
        names.append("Retry-After")
    if status >= 400:
        names.append("Heliograph-Should-Retry")
    if status == 401:
        names.append("WWW-Authenticate")
    if route.idempotent and status == route.status:
        names.append("Idempotency-Replayed")
    return {
        "description": words,
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in names},
        "content": {kind: {"schema": schema} for kind, schema in content.items()},
    }


def _links(route: Route, routes: list[Route]) -> Schema:
    """Return OpenAPI links from the record that a POST creates to the routes that take its id."""
    if route.method != "POST" or "{" in route.path:
        return {}
    links = {}
    for other in routes:
        rest = other.path.removeprefix(f"{route.path}/").split("/")[0]
        if rest.startswith("{"):
            name = rest[1:-1]
            links[operation_id(other)] = {
                "operationId": operation_id(other),
                "parameters": {name: f"$response.body#/{name}"},
            }
    return links


def _ref(kind: Any) -> Schema:
    return {"$ref": REF + kind.__name__}


def _schemas(routes: list[Route]) -> dict[str, Schema]:
    requests = {route.body for route in routes} - {None}
    answers = {kind for route in routes for kind in (route.answer, route.several, route.preview)} - {None}
    answers |= {Error, Problem}
    schemas = dict(WRITTEN_OUT)
    for kinds, answered in ((requests, False), (answers, True)):
        _, found = msgspec.json.schema_components(kinds, ref_template=f"{REF}{{name}}")
        schemas |= {name: _refined(schema, answered) for name, schema in found.items() if name not in schemas}
    return dict(sorted(schemas.items()))


def _refined(schema: Schema, answered: bool) -> Schema:
    properties = {name: _property(base, answered) for name, base in schema["properties"].items()}
    needed = [name for name, base in schema["properties"].items() if base.get("needed")]
    # A response has all fields except those that only some records have (`maybe`).
    every = [name for name, base in schema["properties"].items() if not base.get("maybe")]
    required = every if answered else [*schema["required"], *needed]
    return {**schema, "properties": properties, "required": required}


def _property(base: Schema, answered: bool) -> Schema:
    """Return the schema of a field, with its limits in each non-null alternative."""
    limits = {key: value for key, value in base.items() if key not in SAID}
    if base.get("fixed"):
        limits["const"] = base["default"]
    forms = base.get("anyOf", [{}])
    kinds = [form | limits for form in forms if form != NULL]
    for kind in kinds if not answered else ():
        if kind.get("type") == "string" and kind.keys().isdisjoint(("pattern", "enum", "format")):
            kind["pattern"] = NO_NULL
    if NULL in forms and not base.get("needed"):
        kinds.append(NULL)
    shown = {"examples": [base["example"]]} if "example" in base else {}
    return {**(kinds[0] if len(kinds) == 1 else {"anyOf": kinds}), "description": base["description"], **shown}
