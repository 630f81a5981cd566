"""The OpenAPI document agrees with the routes and the refusals."""

import asyncio
import json
import re
from collections.abc import Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jsonschema_rs
import msgspec
import pytest
from clients import openapi_document
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from heliograph.api import openapi, pages
from heliograph.api.documents import CauseList, ErrorList, document_routes, list_errors
from heliograph.api.event_schemas import event_schema_name
from heliograph.api.routes import V1
from heliograph.domain.events import EVENT_TYPES
from heliograph.domain.ids import PREFIXES
from heliograph.domain.refusals import all_refusals
from heliograph.settings import Settings
from heliograph.texts.explain import CAUSES
from heliograph.web.request import Request, Response
from heliograph.web.route import Call, Route
from heliograph.web.status import status_of
from tests.service import Service

BASE = "http://127.0.0.1:8700"
DOCUMENT = openapi.openapi_document(V1, BASE)
SCHEMAS = DOCUMENT["components"]["schemas"]
CODES = [refusal.code for refusal in all_refusals()]


def route_id(route: Route) -> str:
    return f"{route.method} {route.path}"


def operation(route: Route) -> dict[str, Any]:
    return cast(dict[str, Any], DOCUMENT["paths"][route.path][route.method.lower()])


def refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for inner in value.values():
            yield from refs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from refs(inner)


def is_valid(schema: str, value: Any) -> bool:
    resolved_schema = {"$ref": f"#/components/schemas/{schema}", "components": DOCUMENT["components"]}
    return jsonschema_rs.Draft202012Validator(resolved_schema).is_valid(value)


# -- the document ------------------------------------------------------------------------------------------


def test_the_document_is_openapi_3_1() -> None:
    assert [error.message for error in OPENAPI_31_VALIDATOR.iter_errors(DOCUMENT)] == []


def test_every_reference_resolves() -> None:
    for ref in set(refs(DOCUMENT)):
        value: Any = DOCUMENT
        for part in ref.removeprefix("#/").split("/"):
            value = value[part]


def test_operation_ids_are_unique() -> None:
    ids = [openapi.operation_id(route) for route in V1]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("route", V1, ids=route_id)
def test_a_route_is_described_completely(route: Route) -> None:
    described = operation(route)
    assert described["summary"] == route.summary
    assert described["security"] == [{"bearer": [scope]} for scope in route.scopes or ()]
    assert ("requestBody" in described) == (route.body is not None)
    assert str(route.status) in described["responses"]
    names = {parameter["name"] for parameter in described["parameters"]}
    expected = {*re.findall(r"\{(.+?)\}", route.path), *route.query_names}
    assert names == expected | ({"Idempotency-Key"} if route.idempotent else set())


@pytest.mark.parametrize("route", V1, ids=route_id)
def test_every_refusal_of_a_route_is_declared_under_its_status(route: Route) -> None:
    responses = operation(route)["responses"]
    for refusal in route.refusals:
        response = responses[str(status_of(refusal))]
        if "$ref" in response:
            response = DOCUMENT["components"]["responses"][response["$ref"].rpartition("/")[2]]
        schema = response["content"]["application/json"]["schema"]
        assert refusal.code in schema["allOf"][1]["properties"]["error"]["properties"]["code"]["enum"]


def test_every_field_has_a_meaning() -> None:
    silent = [
        f"{name}.{field}"
        for name, schema in SCHEMAS.items()
        for field, inner in schema.get("properties", {}).items()
        if "description" not in inner
    ]
    assert silent == []


@pytest.mark.parametrize("route", [route for route in V1 if route.body], ids=route_id)
def test_examples_fit_their_schema(route: Route) -> None:
    assert is_valid(route.body.__name__, route.example)


FIXED = {
    "Health": {"status"},
    "TestEvent": {"type"},
    **{event_schema_name(name): {"type"} for name in EVENT_TYPES},
    **{name: {"status"} for name in SCHEMAS if re.fullmatch("(Email|Sms|Whatsapp)[A-Z][a-z]+Data", name)},
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_default_is_not_the_only_value(name: str) -> None:
    fixed = {field for field, inner in SCHEMAS[name].get("properties", {}).items() if "const" in inner}
    assert fixed <= {"object", "deleted", "dry_run"} | FIXED.get(name, set())


@pytest.mark.parametrize("route", [route for route in V1 if "{" in route.path], ids=route_id)
def test_example_ids_match_their_pattern(route: Route) -> None:
    parameter, *others = [candidate for candidate in operation(route)["parameters"] if candidate["in"] == "path"]
    assert [candidate["name"] for candidate in others] in ([], ["attachment"], ["key_id"], ["person_id"])
    kind = route.path.split("/")[2]
    if kind in openapi.ID_KIND_BY_RESOURCE:
        assert parameter["example"].startswith(PREFIXES[openapi.ID_KIND_BY_RESOURCE[kind]])
    assert jsonschema_rs.Draft202012Validator(parameter["schema"]).is_valid(parameter["example"])


EVENT = "evt_01JCQ8Z6V3M2N7T0K4H9R5B1XA"
TIME_RANGE = {"created_after": "2026-11-15T00:00:00Z", "created_before": "2026-11-16T00:00:00Z"}
HOOK = {"events": ["*"]}
FILE = {"filename": "a.txt", "content": "YQ==", "content_type": "text/plain"}


@pytest.mark.parametrize(
    ("schema", "value", "valid"),
    [
        ("EmailRequest", {"to": "a@b.test"}, True),
        ("EmailRequest", {"to": ["a@b.test"] * 50, "cc": None, "from": None}, True),
        ("EmailRequest", {"to": ["a@b.test"] * 51}, False),
        ("EmailRequest", {"to": []}, False),
        ("EmailRequest", {"to": None}, False),
        ("EmailRequest", {}, False),
        ("EmailRequest", {"to": "a@b.test", "from_": "x"}, False),
        ("EmailRequest", {"to": "a@b.test", "subject": "é" * 200}, True),
        ("EmailRequest", {"to": "a@b.test", "subject": "é" * 201}, False),
        ("EmailRequest", {"to": "a@b.test", "subject": "two\nlines"}, False),
        ("EmailRequest", {"to": "a@b.test", "attachments": [FILE] * 20}, True),
        ("EmailRequest", {"to": "a@b.test", "attachments": [FILE] * 21}, False),
        ("EmailRequest", {"to": "a@b.test", "attachments": [FILE | {"content_type": "a/b"}]}, False),
        ("EmailRequest", {"to": "a@b.test", "attachments": [FILE | {"size": 1}]}, False),
        ("EmailRequest", {"to": "a@b.test", "variables": {"a": {"b": 1}, "c": None}}, True),
        ("EmailRequest", {"to": "a@b.test", "variables": {"a": [1]}}, False),
        ("PhoneRequest", {"to": "+14155550123", "template_id": "tpl_x"}, True),
        ("PhoneRequest", {"to": "+14155550123", "template_id": None}, False),
        ("PhoneRequest", {"to": "14155550123", "template_id": "tpl_x"}, False),
        ("VerifyRequest", {"to": "+14155550123", "channel": None}, True),
        ("VerifyRequest", {"to": "+14155550123", "channel": "call"}, False),
        ("ReplayRequest", {"event_id": EVENT}, True),
        ("ReplayRequest", {"event_ids": [EVENT]}, True),
        ("ReplayRequest", TIME_RANGE | {"failed_only": True}, True),
        ("ReplayRequest", {"event_id": EVENT, "event_ids": [EVENT]}, False),
        ("ReplayRequest", {"event_ids": []}, False),
        ("ReplayRequest", {"created_after": TIME_RANGE["created_after"]}, False),
        ("ReplayRequest", {"failed_only": True}, False),
        ("ReplayRequest", {}, False),
        ("WebhookRequest", HOOK | {"url": "https://example.com/hooks?a=b"}, True),
        ("WebhookRequest", HOOK | {"url": "https://"}, False),
        ("WebhookRequest", HOOK | {"url": "https://user@example.com/"}, False),
        ("WebhookRequest", HOOK | {"url": "https://example.com/#a"}, False),
        ("DomainRequest", {"name": "acme.test", "brand": None}, True),
        ("DomainRequest", {"name": "acme.test", "brand": "¬ Örtli"}, True),
        ("DomainRequest", {"name": "acme.test", "brand": "  "}, False),
        ("DomainRequest", {"name": "not a domain"}, False),
        ("CheckRequest", {"code": "1234"}, True),
        ("CheckRequest", {"code": "12\u000034"}, False),
        ("CheckRequest", {"code": "123"}, False),
        ("CheckRequest", {"code": 123456}, False),
        ("CheckRequest", {}, False),
    ],
)
def test_request_schema_accepts_exactly_the_valid_requests(schema: str, value: Any, valid: bool) -> None:
    assert is_valid(schema, value) is valid


def test_fix_texts_do_not_refer_to_error_fields() -> None:
    """Fixes are also used in other services' formats and SMTP replies, which have no `param` and no `details`."""
    assert [
        refusal_type.code for refusal_type in all_refusals() if re.search(r"\bparam\b|\bdetails\b", refusal_type.fix)
    ] == []


def test_errors_md_is_current() -> None:
    stored = Path(__file__).parents[2] / "docs" / "errors.md"
    assert stored.read_text() == pages.errors_markdown(), (
        "run: PYTHONPATH=src python -m heliograph.api.pages > docs/errors.md"
    )


def test_openapi_json_is_what_a_running_service_answers(shared_service: Service) -> None:
    assert openapi_document.TARGET.read_text("utf-8") == openapi_document.openapi_json(), "make clients"
    stored = json.loads(openapi_document.TARGET.read_text("utf-8"))
    answer = shared_service.get("/openapi.json").json
    assert [server["url"] for server in stored["servers"]] == [Settings().base_url]
    for address in ("servers", "externalDocs"):  # the service's own address
        stored[address] = answer[address]
    assert answer == stored
    assert list(answer["paths"]) == list(stored["paths"])


# -- the routes that answer them ---------------------------------------------------------------------------


def get_document(route: Route) -> Response:
    context = cast(Any, SimpleNamespace(base_url=BASE))
    call = Call(context, cast(Any, None), route, Request("GET", route.path, []), {}, None)
    return asyncio.run(cast(Coroutine[Any, Any, Response], route.call(call)))


def test_the_document_is_built_once() -> None:
    route = next(route for route in document_routes(V1) if route.path == "/openapi.json")
    response = get_document(route)
    assert (response.status, response.content_type) == (200, b"application/json")
    assert response.body == msgspec.json.encode(DOCUMENT)
    assert get_document(route) is response


def test_the_list_of_causes_has_every_cause() -> None:
    response = get_document(next(route for route in V1 if route.path == "/v1/causes"))
    assert [entry.cause for entry in msgspec.json.decode(response.body, type=CauseList).data] == [*CAUSES]
    assert is_valid("CauseList", msgspec.json.decode(response.body))


def test_the_error_list_has_every_code() -> None:
    route = next(route for route in V1 if route.path == "/v1/errors")
    response = get_document(msgspec.structs.replace(route, call=list_errors))
    assert [entry.code for entry in msgspec.json.decode(response.body, type=ErrorList).data] == CODES
    assert is_valid("ErrorList", msgspec.json.decode(response.body))
