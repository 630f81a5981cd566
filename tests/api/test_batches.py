"""Batches (contract 16): strict or permissive, in one transaction, with an event when all messages are final."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.api.sends import EMAIL, SMS, WELCOME, WHATSAPP, Body, assert_refused, idle_me, settled, without
from tests.service import Answer, Service, until

CHANNELS = {"/v1/emails": EMAIL, "/v1/sms": SMS, "/v1/whatsapp": WHATSAPP}
by_channel = pytest.mark.parametrize(("path", "body"), CHANNELS.items(), ids=["email", "sms", "whatsapp"])
UNKNOWN = "bat_01JCQ8Z6V3M2N7T0K4H9R5B1XA"
POOR = {"to": "+14155550123", "template_id": "tpl_poor_sms"}  # costs 0.0450 of a credit of 0.4500
MIB = 1024 * 1024


def batch(
    service: Service, path: str, messages: Any, key: str = "ACME", idempotency_key: str = "", **more: Any
) -> Answer:
    headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
    return service.post(f"{path}/batch", {"messages": messages, **more}, key=key, headers=headers)


def finished_batch(service: Service, id_: str, key: str = "ACME") -> Any:
    """Return the batch once all its messages are final."""

    def check() -> Any:
        batch_record = service.get(f"/v1/batches/{id_}", key=key).json
        return batch_record if not batch_record["counts"].keys() & {"queued", "sending", "sent"} else None

    return until(check)


def batch_events(service: Service, id_: str) -> list[Any]:
    """Return the batch's events in the feed, once the feed is up to date."""
    mark = service.post("/v1/suppressions", {"email": f"{uuid4()}@example.com", "reason": "manual"}).json["email"]
    events: list[Any] = []

    def check() -> bool:
        after = f"&after={events[-1]['id']}" if events else ""
        events.extend(service.get(f"/v1/events?limit=100{after}").json["data"])
        return any(event["data"].get("email") == mark for event in events)

    until(check)
    return [event for event in events if event["type"] == "batch.done" and event["data"]["id"] == id_]


@by_channel
def test_messages_of_a_batch_are_sent_in_order_and_counted(shared_service: Service, path: str, body: Body) -> None:
    answer = batch(shared_service, path, [body | {"metadata": {"n": n}} for n in range(3)])
    assert answer.status == 202, answer.raw
    assert answer.json.keys() == {"object", "id", "data"} and answer.json["object"] == "batch"
    assert answer.json["id"].startswith("bat_") and all(entry.keys() == {"id"} for entry in answer.json["data"])
    for n, entry in enumerate(answer.json["data"]):
        assert settled(shared_service, f"{path}/{entry['id']}")["metadata"] == {"n": n}
    end = "read" if path == "/v1/whatsapp" else "delivered"
    record = {"object": "batch", "id": answer.json["id"], "total": 3, "counts": {end: 3}}
    until(lambda: shared_service.get(f"/v1/batches/{answer.json['id']}").json == record)


def test_a_batch_of_500_is_sent_and_publishes_one_event(shared_service: Service) -> None:
    answer = batch(shared_service, "/v1/emails", [EMAIL] * 500).json
    assert len({entry["id"] for entry in answer["data"]}) == 500
    record = finished_batch(shared_service, answer["id"])
    assert record["counts"] == {"delivered": 500}
    (event,) = batch_events(shared_service, answer["id"])
    assert event["data"] == record


@by_channel
def test_a_strict_batch_is_refused_as_a_whole(shared_service: Service, path: str, body: Body) -> None:
    before = shared_service.get(path).json
    messages = [body, body | {"to": "nobody"}, body | {"template_id": 1}]
    for mode in ({}, {"mode": None}, {"mode": "strict"}):
        answer = batch(shared_service, path, messages, **mode)
        assert_refused(answer, 400, "invalid_email" if path == "/v1/emails" else "invalid_phone", "messages[1].to")
        assert answer.json["error"]["details"]["index"] == 1
    assert shared_service.get(path).json == before


@by_channel
def test_a_permissive_batch_sends_the_valid_messages(shared_service: Service, path: str, body: Body) -> None:
    messages = [body | {"to": "nobody"}, body, without(body, "to"), body, "text", body | {"surprise": 1}]
    answer = batch(shared_service, path, messages, mode="permissive")
    assert answer.status == 202, answer.raw
    data = answer.json["data"]
    errors = {index: entry["error"] for index, entry in enumerate(data) if "error" in entry}
    error_code = "invalid_email" if path == "/v1/emails" else "invalid_phone"
    codes = {0: error_code, 2: error_code, 4: "invalid_request", 5: "invalid_request"}
    assert {index: error["code"] for index, error in errors.items()} == codes
    assert {index: error["details"]["index"] for index, error in errors.items()} == {n: n for n in codes}
    params = ["messages[0].to", "messages[2].to", "messages[4]", "messages[5].surprise"]
    assert [error["param"] for error in errors.values()] == params
    assert {error["request_id"] for error in errors.values()} == {answer.headers["x-request-id"]}
    assert errors[0].keys() == shared_service.post(path, messages[0]).json["error"].keys()
    for index in (1, 3):
        settled(shared_service, f"{path}/{data[index]['id']}")
    assert finished_batch(shared_service, answer.json["id"])["total"] == 2


def test_a_batch_of_refused_messages_is_finished_at_once(shared_service: Service) -> None:
    answer = batch(shared_service, "/v1/emails", [{}, {}], mode="permissive")
    assert answer.status == 202 and [entry["error"]["code"] for entry in answer.json["data"]] == ["missing_body"] * 2
    record = shared_service.get(f"/v1/batches/{answer.json['id']}").json
    assert (record["total"], record["counts"]) == (0, {})
    assert batch_events(shared_service, answer.json["id"]) == []


@pytest.mark.parametrize("path", CHANNELS)
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": [{}] * 501}, "messages"),
        ({"messages": [{}], "mode": "loose"}, "mode"),
        ({"messages": [{}], "surprise": 1}, "surprise"),
        ([{}], None),
    ],
)
def test_invalid_batches_are_refused(shared_service: Service, path: str, body: Any, param: str | None) -> None:
    answer = shared_service.post(f"{path}/batch", body)
    assert_refused(answer, 400, "invalid_request", param)


def test_an_idempotency_key_covers_the_whole_batch(shared_service: Service) -> None:
    messages = [EMAIL, EMAIL | {"to": "nobody"}]
    first = batch(shared_service, "/v1/emails", messages, idempotency_key="whole batch", mode="permissive")
    repeated = batch(shared_service, "/v1/emails", messages, idempotency_key="whole batch", mode="permissive")
    assert (repeated.status, repeated.raw, repeated.headers["idempotency-replayed"]) == (202, first.raw, "true")
    other = batch(shared_service, "/v1/emails", messages[:1], idempotency_key="whole batch", mode="permissive")
    assert_refused(other, 409, "idempotency_key_reused")
    # strict: nothing is stored
    assert_refused(batch(shared_service, "/v1/emails", messages, idempotency_key=""), 400, "invalid_email")
    assert_refused(batch(shared_service, "/v1/emails", messages, idempotency_key="strict batch"), 400, "invalid_email")
    assert batch(shared_service, "/v1/emails", [EMAIL], idempotency_key="strict batch").status == 202


def test_credit_that_runs_out_refuses_the_remaining_messages(service: Service) -> None:
    """On both databases; the credit suffices for ten messages."""
    strict = batch(service, "/v1/sms", [POOR] * 11, key="POOR")
    assert_refused(strict, 400, "insufficient_credit", "messages[10]")
    assert strict.json["error"]["details"] == {"price": "0.0450", "credit": "0.0000", "index": 10}
    me = service.get("/v1/me", key="POOR").json
    assert (me["credit"], me["held"], service.get("/v1/sms", key="POOR").json["data"]) == ("0.4500", "0.0000", [])
    # A refusal without the database does not hide an earlier one by the transaction.
    partly_invalid = batch(service, "/v1/sms", [*[POOR] * 11, POOR | {"to": "nobody"}], key="POOR")
    assert partly_invalid.json["error"]["details"]["index"] == 10
    magic = POOR | {"to": "+15005550006"}  # free
    mixed = batch(service, "/v1/sms", [*[POOR] * 9, POOR | {"to": "no"}, POOR, POOR, magic], "POOR", mode="permissive")
    refused = [index for index, entry in enumerate(mixed.json["data"]) if "error" in entry]
    assert refused == [9, 11]
    assert finished_batch(service, mixed.json["id"], "POOR") == {
        "object": "batch",
        "id": mixed.json["id"],
        "total": 11,
        "counts": {"delivered": 11},
    }
    assert idle_me(service, "POOR")["credit"] == "0.0000"


def test_quota_is_used_in_message_order(service: Service) -> None:
    """The team has a quota of 3 and 0.30 of credit; its template costs 0.25."""
    message = {"to": "a@example.com", "from": "a@quota.test", "template_id": "tpl_quota"}
    assert_refused(batch(service, "/v1/emails", [message] * 5, key="QUOTA"), 400, "insufficient_credit", "messages[4]")
    assert idle_me(service, "QUOTA")["email_quota"]["used"] == 0
    assert batch(service, "/v1/emails", [message] * 4, key="QUOTA").status == 202
    me = idle_me(service, "QUOTA")
    assert (me["email_quota"]["used"], me["credit"]) == (4, "0.0500")


def test_the_marketing_limit_counts_within_a_batch(service: Service) -> None:
    offer = {"to": "+447400123456", "template_id": "tpl_broke_free"}  # one is allowed per day
    strict = batch(service, "/v1/whatsapp", [offer, offer], key="BROKE")
    assert_refused(strict, 429, "marketing_limit_reached", "messages[1].to")
    assert int(strict.headers["retry-after"]) > 1 and strict.headers["heliograph-should-retry"] == "true"
    mixed = batch(service, "/v1/whatsapp", [offer, offer], key="BROKE", mode="permissive").json["data"]
    assert "id" in mixed[0] and mixed[1]["error"]["code"] == "marketing_limit_reached"


def test_suppressed_recipient_refuses_a_strict_batch_and_its_own_message_only(shared_service: Service) -> None:
    shared_service.post("/v1/suppressions", {"email": "batched@example.com", "reason": "manual"})
    suppressed = EMAIL | {"to": "batched@example.com"}
    assert_refused(
        batch(shared_service, "/v1/emails", [EMAIL, suppressed]), 403, "recipient_suppressed", "messages[1].to"
    )
    mixed = batch(shared_service, "/v1/emails", [suppressed, EMAIL], mode="permissive").json["data"]
    assert mixed[0]["error"]["code"] == "recipient_suppressed" and "id" in mixed[1]


def test_attachment_limits_apply_to_each_message(shared_service: Service) -> None:
    def with_file(size: int) -> Body:
        content = base64.b64encode(b"x" * size).decode()
        return EMAIL | {"attachments": [{"filename": "a.txt", "content": content, "content_type": "text/plain"}]}

    answer = batch(shared_service, "/v1/emails", [with_file(9 * MIB), with_file(9 * MIB), with_file(9 * MIB)])
    assert answer.status == 202
    message = settled(shared_service, f"/v1/emails/{answer.json['data'][2]['id']}")
    assert (message["attachments_count"], message["status"]) == (1, "delivered")
    large = batch(shared_service, "/v1/emails", [EMAIL, with_file(10 * MIB + 1)])
    assert_refused(large, 400, "attachment_too_large", "messages[1].attachments[0].content")


def test_rendered_size_of_a_batch_is_limited(shared_service: Service) -> None:
    repeats = WELCOME | {"template_id": "tpl_many", "variables": {"name": "x" * 200 * 1024}}  # 18 times: 3.5 MiB
    answer = batch(shared_service, "/v1/emails", [repeats] * 20)
    assert_refused(answer, 400, "body_too_long", "messages[18]")


@by_channel
def test_a_batch_body_may_have_40_mib_on_every_channel(shared_service: Service, path: str, body: Body) -> None:
    def filled(size: int) -> bytes:
        start, end = json.dumps({"messages": [body, {"x": "!"}]}).split("!")
        return f"{start}{'x' * (size - len(start) - len(end))}{end}".encode()

    assert_refused(shared_service.post(f"{path}/batch", filled(40 * MIB)), 400, "invalid_request", "messages[1].x")
    assert_refused(shared_service.post(f"{path}/batch", filled(40 * MIB + 1)), 413, "payload_too_large")


def test_a_batch_takes_one_token(shared_service: Service) -> None:
    single = shared_service.post("/v1/emails", WELCOME, key="SLOW").headers["ratelimit-remaining"]
    second = batch(shared_service, "/v1/emails", [WELCOME] * 20, key="SLOW", mode="permissive")
    assert int(single) - int(second.headers["ratelimit-remaining"]) <= 1


def test_a_batch_is_visible_to_its_team_only(shared_service: Service) -> None:
    id_ = batch(shared_service, "/v1/emails", [EMAIL]).json["id"]
    others = [shared_service.get(f"/v1/batches/{name}", key="OTHER") for name in (id_, UNKNOWN)]
    for answer in others:
        assert_refused(answer, 404, "batch_not_found", "id")
    same = [
        answer.raw.replace(name.encode(), b"").replace(answer.headers["x-request-id"].encode(), b"")
        for answer, name in zip(others, (id_, UNKNOWN), strict=True)
    ]
    assert same[0] == same[1]
    assert_refused(shared_service.get("/v1/batches/nothing"), 404, "batch_not_found")


def test_a_batch_with_scheduled_messages_is_finished_after_they_end(shared_service: Service) -> None:
    later = EMAIL | {"scheduled_at": "2999-01-01T00:00:00Z"}
    assert_refused(batch(shared_service, "/v1/emails", [later]), 400, "invalid_schedule", "messages[0].scheduled_at")
    soon = without(later, "scheduled_at") | {"scheduled_at": (datetime.now(UTC) + timedelta(days=1)).isoformat()}
    answer = batch(shared_service, "/v1/emails", [EMAIL, soon]).json
    settled(shared_service, f"/v1/emails/{answer['data'][0]['id']}")
    record = shared_service.get(f"/v1/batches/{answer['id']}").json
    assert record["counts"] == {"delivered": 1, "queued": 1}
    assert batch_events(shared_service, answer["id"]) == []
    assert shared_service.post(f"/v1/emails/{answer['data'][1]['id']}/cancel", None).status == 200
    (event,) = batch_events(shared_service, answer["id"])
    assert event["data"]["counts"] == {"delivered": 1, "failed": 1}
