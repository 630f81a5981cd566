"""Optional fields of a send are returned by reads, lists and events, but not by the send (contract 16)."""

from typing import Any
from urllib.parse import quote

import pytest

from tests.api.sends import EMAIL, SMS, VERIFY, WELCOME, WHATSAPP, Body, assert_refused, settled, without
from tests.service import Service, until

ADDED: Body = {"tags": {"kind": "receipt"}, "metadata": {"order": 4711, "lines": [{"a": None}]}}
SENDS = {"/v1/emails": EMAIL, "/v1/sms": SMS, "/v1/whatsapp": WHATSAPP}
by_channel = pytest.mark.parametrize(("path", "body"), SENDS.items(), ids=["email", "sms", "whatsapp"])


@by_channel
def test_tags_and_metadata_are_returned(shared_service: Service, path: str, body: Body) -> None:
    plain, answer = (shared_service.post(path, fields).json for fields in (body, body | ADDED))
    assert plain.keys() == answer.keys()  # exactly the record of the spec
    message = settled(shared_service, f"{path}/{answer['id']}")
    assert {name: message[name] for name in ADDED} == ADDED
    messages = shared_service.get(f"{path}?limit=100").json["data"]
    (line,) = [fields for fields in messages if fields["id"] == answer["id"]]
    assert {name: line[name] for name in ADDED} == ADDED
    bare = shared_service.get(f"{path}/{plain['id']}").json
    assert (bare["tags"], bare["metadata"]) == ({}, {})


@by_channel
def test_lists_filter_by_a_tag(shared_service: Service, path: str, body: Body) -> None:
    ids = [shared_service.post(path, body | {"tags": {"run": path, "n": str(n)}}).json["id"] for n in range(3)]
    tag = quote(f"run:{path}", safe="")
    assert listed_ids(shared_service, f"{path}?tag={tag}") == ids[::-1]
    first = shared_service.get(f"{path}?tag={tag}&limit=2").json
    assert first["has_more"] is True
    assert listed_ids(shared_service, f"{path}?tag={tag}&limit=2&after={first['data'][-1]['id']}") == ids[:1]
    settled(shared_service, f"{path}/{ids[0]}")
    assert ids[0] not in listed_ids(shared_service, f"{path}?tag={tag}&status=failed")
    assert listed_ids(shared_service, f"{path}?tag={tag}&to={quote(body['to'], safe='')}") == ids[::-1]
    unused_recipient = "nobody@acme.test" if "@" in body["to"] else "+447400000099"
    assert listed_ids(shared_service, f"{path}?tag={tag}&to={unused_recipient}") == []
    assert listed_ids(shared_service, f"{path}?tag=run:nothing") == []
    for bad in ("run", "a%20b:c", "run:"):
        assert_refused(shared_service.get(f"{path}?tag={bad}"), 400, "invalid_request", "tag")


def listed_ids(service: Service, path: str) -> list[str]:
    return [item["id"] for item in service.get(path).json["data"]]


def test_a_verification_has_tags_and_metadata(shared_service: Service) -> None:
    plain = shared_service.post("/v1/verify", VERIFY | {"to": "+15005551080"}).json
    answer = shared_service.post("/v1/verify", VERIFY | ADDED | {"to": "+15005551081"}).json
    assert answer.keys() == plain.keys()
    id_ = answer["id"]
    assert shared_service.get(f"/v1/verify/{plain['id']}").json == plain
    assert shared_service.get(f"/v1/verify/{id_}").json == answer | ADDED
    assert listed_ids(shared_service, "/v1/verify?tag=kind:receipt") == [id_]
    assert listed_ids(shared_service, "/v1/verify?tag=kind:receipt&status=pending&to=%2B15005551081") == [id_]
    assert listed_ids(shared_service, "/v1/verify?tag=kind:receipt&status=verified") == []
    assert_refused(shared_service.post("/v1/verify", VERIFY | {"tags": {"a b": "c"}}), 400, "invalid_tags", "tags")
    large = {"metadata": {"a": "x" * 4096}}
    assert_refused(shared_service.post("/v1/verify", VERIFY | large), 400, "invalid_metadata", "metadata")
    assert shared_service.post(f"/v1/verify/{id_}/check", {"code": "551081"}).json["verified"]

    def published_events() -> list[Any]:
        events = shared_service.get("/v1/events?limit=100&order=newest").json["data"]
        return [event["data"] for event in events if event["data"].get("id") == id_]

    (event,) = until(published_events)
    assert {name: event[name] for name in ADDED} == ADDED


@by_channel
def test_priority_defaults_to_the_templates_then_normal(shared_service: Service, path: str, body: Body) -> None:
    for priority in ("critical", "normal", "bulk"):
        answer = shared_service.post(path, body | {"priority": priority}).json
        assert settled(shared_service, f"{path}/{answer['id']}")["priority"] == priority
    plain = shared_service.post(path, body).json
    assert shared_service.get(f"{path}/{plain['id']}").json["priority"] == "normal"


@pytest.mark.parametrize(("own", "shown"), [({}, "bulk"), ({"priority": "critical"}, "critical")])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/emails", WELCOME | {"template_id": "tpl_many"}),
        ("/v1/sms", without(SMS, "variables") | {"template_id": "tpl_short"}),
    ],
)
def test_template_options_are_defaults(shared_service: Service, path: str, body: Body, own: Body, shown: str) -> None:
    answer = shared_service.post(path, body | own).json
    assert shared_service.get(f"{path}/{answer['id']}").json["priority"] == shown


@by_channel
@pytest.mark.parametrize(
    ("added", "code", "param"),
    [
        ({"tags": []}, "invalid_request", "tags"),
        ({"tags": {"a": 1}}, "invalid_request", None),
        ({"tags": {"a": ""}}, "invalid_tags", "tags"),
        ({"metadata": "x"}, "invalid_request", "metadata"),
        ({"metadata": {"a": "x" * 4096}}, "invalid_metadata", "metadata"),
        ({"priority": "urgent"}, "invalid_request", "priority"),
        ({"priority": 1}, "invalid_request", "priority"),
    ],
)
def test_invalid_options_are_refused(
    shared_service: Service, path: str, body: Body, added: Body, code: str, param: str | None
) -> None:
    assert_refused(shared_service.post(path, body | added), 400, code, param)


@pytest.mark.parametrize(
    ("added", "code"),
    [
        ({"headers": {"X-A": 1}}, "invalid_request"),
        ({"headers": {"From": "x"}}, "invalid_header"),
        ({"reply_to": []}, "invalid_email"),
        ({"reply_to": ["a@acme.test"] * 11}, "invalid_email"),
        ({"attachments": [{"filename": "a.exe", "content": "QQ=="}]}, "unsupported_attachment_type"),
        ({"attachments": [{"filename": "a.png", "content": "QQ==", "content_id": 1}]}, "invalid_request"),
        ({"attachments": [{"filename": "a.png", "content": "QQ==", "content_id": "<a>"}]}, "invalid_attachment"),
    ],
)
def test_invalid_email_options_are_refused(shared_service: Service, added: Body, code: str) -> None:
    assert_refused(shared_service.post("/v1/emails", EMAIL | added), 400, code)


@pytest.mark.parametrize(
    ("given", "first", "every"),
    [
        (None, None, []),
        ("a@acme.test", "a@acme.test", ["a@acme.test"]),
        (["a@acme.test", "b@acme.test"], "a@acme.test", ["a@acme.test", "b@acme.test"]),
    ],
)
def test_reply_to_is_returned_with_every_address(
    shared_service: Service, given: Any, first: str | None, every: list[str]
) -> None:
    answer = shared_service.post("/v1/emails", EMAIL | {"reply_to": given}).json
    assert answer["reply_to"] == first
    message = shared_service.get(f"/v1/emails/{answer['id']}").json
    assert (message["reply_to"], message["reply_to_addresses"]) == (first, every)


def test_headers_are_returned(shared_service: Service) -> None:
    headers = {"X-Order": "4711", "List-Unsubscribe": "<https://acme.test/u>"}
    answer = shared_service.post("/v1/emails", EMAIL | {"headers": headers}).json
    assert shared_service.get(f"/v1/emails/{answer['id']}").json["headers"] == headers
    assert shared_service.get(f"/v1/emails/{answer['id']}").json["tags"] == {}


@pytest.mark.parametrize(
    ("path", "body", "status", "retry"),
    [("/v1/emails", without(EMAIL, "to"), 400, "false"), ("/v1/nothing", EMAIL, 404, "false")],
)
def test_should_retry_header_is_true_for_retryable_errors_only(
    shared_service: Service, path: str, body: Body, status: int, retry: str
) -> None:
    answer = shared_service.post(path, body)
    assert (answer.status, answer.headers["heliograph-should-retry"]) == (status, retry)
