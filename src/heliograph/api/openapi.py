"""The OpenAPI 3.1 document, generated from the routes, their structs and their refusals.

Descriptions and limits of fields are annotations of the structs (`domain/field_docs.py`).
"""

from collections.abc import Iterator
from typing import Any

from heliograph import __version__
from heliograph.api.event_schemas import event_components, event_schema_name
from heliograph.api.json_schema import HANDWRITTEN_SCHEMAS, make_schemas, schema_ref
from heliograph.domain import refusals as r
from heliograph.domain.events import EVENT_TYPES
from heliograph.domain.field_docs import EMAIL, EXAMPLE_ULID, Schema
from heliograph.domain.ids import PREFIXES, id_pattern
from heliograph.domain.limits import IDEMPOTENCY_KEY_MAX
from heliograph.domain.sending.idempotency import HEADER
from heliograph.domain.setup.keys import PUBLIC_ID
from heliograph.web.errors import Error, Problem
from heliograph.web.route import Route
from heliograph.web.status import status_of

CODES_PER_SHARED_RESPONSE_MAX = 3  # an error response with more codes is rarely the same for two routes
OCTET_STREAM = "application/octet-stream"  # content type of responses without a struct

# first path segment after /v1/ → kind of its ids
ID_KIND_BY_RESOURCE = {
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
    "teams": "team",
    "approvals": "approval",
}
_ADDRESS = {"schema": {"type": "string", **EMAIL}, "description": "The email address.", "example": "ada@example.com"}
_KEY_ID = {
    "schema": {"type": "string", "pattern": f"^{PUBLIC_ID.pattern}$"},
    "description": "The key's public id: the part of its token between `hk_` and the last `_`.",
    "example": "4fTzQ8kW1b",
}
# path parameter, or first path segment after /v1/ → its schema
PATH_PARAMETERS: dict[str, Schema] = {
    "suppressions": _ADDRESS,
    "opt-outs": {
        "schema": {"type": "string", "pattern": r"^\+[0-9]{7,15}$"},
        "description": "The phone number, in E.164.",
        "example": "+4915112345678",
    },
    "unsubscribes": _ADDRESS,
    "keys": _KEY_ID,
    "key_id": _KEY_ID,
    "person_id": {
        "schema": {"type": "string", "pattern": "^usr_[0-9A-Z]{26}$"},
        "description": "Id of the person, beginning with `usr_`.",
        "example": f"usr_{EXAMPLE_ULID}",
    },
    "inbox": {
        "schema": {"type": "string", "pattern": "^(eml|sms|wam|vrf)_[0-9A-Z]{26}$"},
        "description": "Id of a message or verification.",
        "example": f"eml_{EXAMPLE_ULID}",
    },
    "attachment": {
        "schema": {"type": "string", "pattern": "^att_[0-9]{1,3}$"},
        "description": "Id of an attachment of the email.",
        "example": "att_1",
    },
}
TAG_BY_RESOURCE = {
    "sms": "SMS",
    "inbox": "Test inbox",
    "whatsapp": "WhatsApp",
    "me": "Account",
    "healthz": "Health",
    "readyz": "Health",
}
# example ids of kinds whose ids an operator may choose
EXAMPLE_ID_BY_KIND = {"template": "tpl_demo_welcome", "layout": "lay_letter", "domain": "dom_demo"}

RESPONSE_HEADERS: dict[str, Schema] = {
    "X-Request-Id": {"description": "The request's id.", "required": True, "schema": {"type": "string"}},
    "RateLimit-Limit": {"description": "The key's burst.", "schema": {"type": "integer"}},
    "RateLimit-Remaining": {"description": "Requests left at this moment.", "schema": {"type": "integer"}},
    "RateLimit-Reset": {
        "description": "Seconds until the full burst is available again.",
        "schema": {"type": "integer"},
    },
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}},
    "Heliograph-Should-Retry": {
        "description": "Whether the same request may succeed later.",
        "schema": {"type": "string", "enum": ["true", "false"]},
    },
    "Idempotency-Replayed": {
        "description": "`true` if this is the stored response to an earlier request with the same key.",
        "schema": {"const": "true"},
    },
    "WWW-Authenticate": {"description": "How to authenticate.", "schema": {"const": "Bearer"}},
}

KEY_HEADER: Schema = {
    "name": HEADER,
    "in": "header",
    "description": "Makes retries safe: for 24 hours, the same key and body return the first response.",
    "schema": {"type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_MAX, "pattern": "^[ -~]+$"},
}

COMMON_ERRORS = (r.InternalError,)
KEY_ERRORS = (
    r.MissingApiKey,
    r.InvalidApiKey,
    r.WrongCell,
    r.TeamSuspended,
    r.InsufficientScope,
    r.RateLimitExceeded,
    r.InvalidRequest,  # every route raises it for an unknown query parameter
    r.ServiceUnavailable,
)
BODY_ERRORS = (r.UnsupportedMediaType, r.PayloadTooLarge, r.InvalidJson)


def openapi_document(routes: list[Route], base_url: str) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, routes)
    shared_responses = {name: response for route in routes for name, response in _shared_errors(route)}
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
        "webhooks": {name: {"post": _webhook(name)} for name in EVENT_TYPES},
        "components": {
            "schemas": _schemas(routes),
            "responses": dict(sorted(shared_responses.items())),
            "headers": RESPONSE_HEADERS,
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
    """Return a unique name from method and path, such as `post_emails` or `get_emails_id`."""
    name = route.path.removeprefix("/v1/").strip("/").translate({ord("/"): "_", ord("{"): None, ord("}"): None})
    return f"{route.method.lower()}_{name}"


def tag(route: Route) -> str:
    name = resource_of(route)
    return TAG_BY_RESOURCE.get(name, name.capitalize())


def refusals_of(route: Route) -> dict[int, list[type[r.Refusal]]]:
    """Return status → refusals, for all refusals with which the route may respond."""
    possible = [*(KEY_ERRORS if route.scopes is not None else ()), *(BODY_ERRORS if route.body else ())]
    if "{" in route.path:
        possible.append(r.NotFound)
    by_status: dict[int, list[type[r.Refusal]]] = {}
    for refusal in dict.fromkeys((*possible, *route.refusals, *COMMON_ERRORS)):
        by_status.setdefault(status_of(refusal), []).append(refusal)
    return dict(sorted(by_status.items()))


def resource_of(route: Route) -> str:
    return route.path.removeprefix("/v1").split("/")[1]


def _operation(route: Route, routes: list[Route]) -> Schema:
    operation: Schema = {
        "operationId": operation_id(route),
        "summary": route.summary,
        "tags": [tag(route)],
        "security": [{"bearer": [scope]} for scope in route.scopes or ()],  # one of the scopes suffices
        "parameters": _parameters(route),
        "responses": _responses(route, routes),
    }
    if route.body is not None:
        content: Schema = {"schema": schema_ref(route.body.__name__)}
        if route.example is not None:
            content["example"] = route.example
        operation["requestBody"] = {"required": True, "content": {"application/json": content}}
    return operation


def _webhook(type_: str) -> Schema:
    return {
        "operationId": f"webhook_{type_}",
        "summary": f"Event `{type_}`",
        "tags": ["Events"],
        "security": [],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": schema_ref(event_schema_name(type_))}},
        },
        "responses": {"2XX": {"description": "The event was received. Any other response is retried."}},
    }


def _parameters(route: Route) -> list[Schema]:
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    parameters = [{"name": name, "in": "path", "required": True, **_path_value(route, name)} for name in names]
    for query in route.query:
        parameters.append({"name": query.name, "in": "query", "description": query.meaning, "schema": query.schema})
    return [*parameters, KEY_HEADER] if route.idempotent else parameters


def _path_value(route: Route, name: str) -> Schema:
    if name in PATH_PARAMETERS:
        return PATH_PARAMETERS[name]
    if resource_of(route) not in ID_KIND_BY_RESOURCE:
        return PATH_PARAMETERS[resource_of(route)]
    kind = ID_KIND_BY_RESOURCE[resource_of(route)]
    return {
        "schema": {"type": "string", "pattern": id_pattern(kind)},
        "description": f"Id, beginning with `{PREFIXES[kind]}`.",
        "example": EXAMPLE_ID_BY_KIND.get(kind, PREFIXES[kind] + EXAMPLE_ULID),
    }


def _responses(route: Route, routes: list[Route]) -> Schema:
    success_content: dict[str, Schema] = {OCTET_STREAM: {"type": "string"}}
    if route.answer:
        schema = (
            {"anyOf": [schema_ref(route.answer.__name__), schema_ref(route.alternative_answer.__name__)]}
            if route.alternative_answer
            else schema_ref(route.answer.__name__)
        )
        success_content = {"application/json": schema}
    success = _response(route, route.status, route.summary, success_content)
    if links := _links(route, routes):
        success["links"] = links
    responses = {str(route.status): success}
    if route.preview is not None:
        content = {"application/json": schema_ref(route.preview.__name__)}
        responses["200"] = _response(route, 200, "Dry run: what would be sent.", content)
    for status, refusals in refusals_of(route).items():
        name = _shared_name(route, status, refusals)
        shared = {"$ref": f"#/components/responses/{name}"}
        responses[str(status)] = shared if name else _error_response(route, status, refusals)
    return responses


def _shared_errors(route: Route) -> Iterator[tuple[str, Schema]]:
    for status, refusals in refusals_of(route).items():
        if name := _shared_name(route, status, refusals):
            yield name, _error_response(route, status, refusals)


def _shared_name(route: Route, status: int, refusals: list[type[r.Refusal]]) -> str | None:
    """Return the name of an error response that routes share; None if the route describes its own."""
    if route.scopes is None or len(refusals) > CODES_PER_SHARED_RESPONSE_MAX:
        return None
    return "-".join([str(status), *(refusal.code for refusal in refusals)])


def _error_response(route: Route, status: int, refusals: list[type[r.Refusal]]) -> Schema:
    description = "\n".join(f"- `{refusal.code}`: {refusal.meaning()}" for refusal in refusals)
    code: Schema = {"properties": {"code": {"enum": [refusal.code for refusal in refusals]}}}
    content = {
        "application/json": {"allOf": [schema_ref(Error.__name__), {"properties": {"error": code}}]},
        "application/problem+json": {"allOf": [schema_ref(Problem.__name__), code]},
    }
    return _response(route, status, description, content)


def _response(route: Route, status: int, description: str, content: dict[str, Schema]) -> Schema:
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
        "description": description,
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in names},
        "content": {media_type: {"schema": schema} for media_type, schema in content.items()},
    }


def _links(route: Route, routes: list[Route]) -> Schema:
    """Return OpenAPI links from a created record to the routes that take its id."""
    if route.method != "POST" or "{" in route.path:
        return {}
    links = {}
    for other in routes:
        segment = other.path.removeprefix(f"{route.path}/").split("/")[0]
        if segment.startswith("{"):
            name, target = segment[1:-1], operation_id(other)
            links[target] = {"operationId": target, "parameters": {name: f"$response.body#/{name}"}}
    return links


def _schemas(routes: list[Route]) -> dict[str, Schema]:
    request_types = {route.body for route in routes} - {None}
    response_types = {
        struct for route in routes for struct in (route.answer, route.alternative_answer, route.preview)
    } - {None}
    response_types |= {Error, Problem}
    schemas = make_schemas(response_types, is_response=True) | make_schemas(request_types, is_response=False)
    return dict(sorted((event_components() | schemas | HANDWRITTEN_SCHEMAS).items()))
