"""Many sends in one request (contract 16): all or what is not refused, in one transaction, told when all are done."""

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
POOR = {"to": "+14155550123", "template_id": "tpl_poor_sms"}  # 0.0450 of 0.4500
MIB = 1024 * 1024


def batch(service: Service, path: str, messages: Any, key: str = "ACME", once: str = "", **more: Any) -> Answer:
    headers = {"Idempotency-Key": once} if once else {}
    return service.post(f"{path}/batch", {"messages": messages, **more}, key=key, headers=headers)


def done(service: Service, id_: str, key: str = "ACME") -> Any:
    """The batch when all its messages have come to their end."""

    def check() -> Any:
        found = service.get(f"/v1/batches/{id_}", key=key).json
        return found if not found["counts"].keys() & {"queued", "sending", "sent"} else None

    return until(check)


def told(service: Service, id_: str) -> list[Any]:
    """What the feed says about the batch, once everything of now is in it."""
    mark = service.post("/v1/suppressions", {"email": f"{uuid4()}@example.com", "reason": "manual"}).json["email"]
    events: list[Any] = []

    def check() -> bool:
        after = f"&after={events[-1]['id']}" if events else ""
        events.extend(service.get(f"/v1/events?limit=100{after}").json["data"])
        return any(event["data"].get("email") == mark for event in events)

    until(check)
    return [event for event in events if event["type"] == "batch.done" and event["data"]["id"] == id_]


@by_channel
def test_all_are_sent_in_order_and_counted(shared_service: Service, path: str, body: Body) -> None:
    answer = batch(shared_service, path, [body | {"metadata": {"n": n}} for n in range(3)])
    assert answer.status == 202, answer.raw
    assert answer.json.keys() == {"object", "id", "data"} and answer.json["object"] == "batch"
    assert answer.json["id"].startswith("bat_") and all(entry.keys() == {"id"} for entry in answer.json["data"])
    for n, entry in enumerate(answer.json["data"]):
        assert settled(shared_service, f"{path}/{entry['id']}")["metadata"] == {"n": n}
    end = "read" if path == "/v1/whatsapp" else "delivered"
    record = {"object": "batch", "id": answer.json["id"], "total": 3, "counts": {end: 3}}
    until(lambda: shared_service.get(f"/v1/batches/{answer.json['id']}").json == record)


def test_500_are_sent_and_one_event_tells_it(shared_service: Service) -> None:
    answer = batch(shared_service, "/v1/emails", [EMAIL] * 500).json
    assert len({entry["id"] for entry in answer["data"]}) == 500
    found = done(shared_service, answer["id"])
    assert found["counts"] == {"delivered": 500}
    (event,) = told(shared_service, answer["id"])
    assert event["data"] == found


@by_channel
def test_strict_refuses_all_for_the_first_refusal(shared_service: Service, path: str, body: Body) -> None:
    before = shared_service.get(path).json
    messages = [body, body | {"to": "nobody"}, body | {"template_id": 1}]
    for mode in ({}, {"mode": None}, {"mode": "strict"}):
        answer = batch(shared_service, path, messages, **mode)
        assert_refused(answer, 400, "invalid_email" if path == "/v1/emails" else "invalid_phone", "messages[1].to")
        assert answer.json["error"]["details"]["index"] == 1
    assert shared_service.get(path).json == before


@by_channel
def test_permissive_sends_the_others(shared_service: Service, path: str, body: Body) -> None:
    messages = [body | {"to": "nobody"}, body, without(body, "to"), body, "text", body | {"surprise": 1}]
    answer = batch(shared_service, path, messages, mode="permissive")
    assert answer.status == 202, answer.raw
    data = answer.json["data"]
    errors = {index: entry["error"] for index, entry in enumerate(data) if "error" in entry}
    wrong = "invalid_email" if path == "/v1/emails" else "invalid_phone"
    codes = {0: wrong, 2: wrong, 4: "invalid_request", 5: "invalid_request"}
    assert {index: error["code"] for index, error in errors.items()} == codes
    assert {index: error["details"]["index"] for index, error in errors.items()} == {n: n for n in codes}
    params = ["messages[0].to", "messages[2].to", "messages[4]", "messages[5].surprise"]
    assert [error["param"] for error in errors.values()] == params
    assert {error["request_id"] for error in errors.values()} == {answer.headers["x-request-id"]}
    assert errors[0].keys() == shared_service.post(path, messages[0]).json["error"].keys()
    for index in (1, 3):
        settled(shared_service, f"{path}/{data[index]['id']}")
    assert done(shared_service, answer.json["id"])["total"] == 2


def test_when_all_are_refused_there_is_nothing_to_wait_for(shared_service: Service) -> None:
    answer = batch(shared_service, "/v1/emails", [{}, {}], mode="permissive")
    assert answer.status == 202 and [entry["error"]["code"] for entry in answer.json["data"]] == ["missing_body"] * 2
    found = shared_service.get(f"/v1/batches/{answer.json['id']}").json
    assert (found["total"], found["counts"]) == (0, {})
    assert told(shared_service, answer.json["id"]) == []


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
def test_what_is_no_batch(shared_service: Service, path: str, body: Any, param: str | None) -> None:
    answer = shared_service.post(f"{path}/batch", body)
    assert_refused(answer, 400, "invalid_request", param)


def test_one_key_makes_the_whole_once(shared_service: Service) -> None:
    messages = [EMAIL, EMAIL | {"to": "nobody"}]
    first = batch(shared_service, "/v1/emails", messages, once="whole batch", mode="permissive")
    again = batch(shared_service, "/v1/emails", messages, once="whole batch", mode="permissive")
    assert (again.status, again.raw, again.headers["idempotency-replayed"]) == (202, first.raw, "true")
    other = batch(shared_service, "/v1/emails", messages[:1], once="whole batch", mode="permissive")
    assert_refused(other, 409, "idempotency_key_reused")
    assert_refused(batch(shared_service, "/v1/emails", messages, once=""), 400, "invalid_email")  # strict: not kept
    assert_refused(batch(shared_service, "/v1/emails", messages, once="strict batch"), 400, "invalid_email")
    assert batch(shared_service, "/v1/emails", [EMAIL], once="strict batch").status == 202


def test_credit_runs_out_in_the_middle(service: Service) -> None:
    """On both databases: there is credit for ten."""
    strict = batch(service, "/v1/sms", [POOR] * 11, key="POOR")
    assert_refused(strict, 400, "insufficient_credit", "messages[10]")
    assert strict.json["error"]["details"] == {"price": "0.0450", "credit": "0.0000", "index": 10}
    me = service.get("/v1/me", key="POOR").json
    assert (me["credit"], me["held"], service.get("/v1/sms", key="POOR").json["data"]) == ("0.4500", "0.0000", [])
    # A refusal in memory does not hide an earlier one that only the transaction sees.
    behind = batch(service, "/v1/sms", [*[POOR] * 11, POOR | {"to": "nobody"}], key="POOR")
    assert behind.json["error"]["details"]["index"] == 10
    magic = POOR | {"to": "+15005550006"}  # free
    mixed = batch(service, "/v1/sms", [*[POOR] * 9, POOR | {"to": "no"}, POOR, POOR, magic], "POOR", mode="permissive")
    refused = [index for index, entry in enumerate(mixed.json["data"]) if "error" in entry]
    assert refused == [9, 11]
    assert done(service, mixed.json["id"], "POOR") == {
        "object": "batch",
        "id": mixed.json["id"],
        "total": 11,
        "counts": {"delivered": 11},
    }
    assert idle_me(service, "POOR")["credit"] == "0.0000"


def test_the_quota_is_counted_in_order(service: Service) -> None:
    """The team has a quota of 3 and 0.30 of credit; its template costs 0.25."""
    one = {"to": "a@example.com", "from": "a@quota.test", "template_id": "tpl_quota"}
    assert_refused(batch(service, "/v1/emails", [one] * 5, key="QUOTA"), 400, "insufficient_credit", "messages[4]")
    assert idle_me(service, "QUOTA")["email_quota"]["used"] == 0
    assert batch(service, "/v1/emails", [one] * 4, key="QUOTA").status == 202
    me = idle_me(service, "QUOTA")
    assert (me["email_quota"]["used"], me["credit"]) == (4, "0.0500")


def test_marketing_to_one_person_is_counted_in_the_batch(service: Service) -> None:
    offer = {"to": "+447400123456", "template_id": "tpl_broke_free"}  # one a day
    strict = batch(service, "/v1/whatsapp", [offer, offer], key="BROKE")
    assert_refused(strict, 429, "marketing_limit_reached", "messages[1].to")
    assert int(strict.headers["retry-after"]) > 1 and strict.headers["heliograph-should-retry"] == "true"
    mixed = batch(service, "/v1/whatsapp", [offer, offer], key="BROKE", mode="permissive").json["data"]
    assert "id" in mixed[0] and mixed[1]["error"]["code"] == "marketing_limit_reached"


def test_suppressed_recipients(shared_service: Service) -> None:
    shared_service.post("/v1/suppressions", {"email": "batched@example.com", "reason": "manual"})
    gone = EMAIL | {"to": "batched@example.com"}
    assert_refused(batch(shared_service, "/v1/emails", [EMAIL, gone]), 403, "recipient_suppressed", "messages[1].to")
    mixed = batch(shared_service, "/v1/emails", [gone, EMAIL], mode="permissive").json["data"]
    assert mixed[0]["error"]["code"] == "recipient_suppressed" and "id" in mixed[1]


def test_attachments_count_for_each_message(shared_service: Service) -> None:
    def with_file(size: int) -> Body:
        content = base64.b64encode(b"x" * size).decode()
        return EMAIL | {"attachments": [{"filename": "a.txt", "content": content, "content_type": "text/plain"}]}

    answer = batch(shared_service, "/v1/emails", [with_file(9 * MIB), with_file(9 * MIB), with_file(9 * MIB)])
    assert answer.status == 202
    found = settled(shared_service, f"/v1/emails/{answer.json['data'][2]['id']}")
    assert (found["attachments_count"], found["status"]) == (1, "delivered")
    large = batch(shared_service, "/v1/emails", [EMAIL, with_file(10 * MIB + 1)])
    assert_refused(large, 400, "attachment_too_large", "messages[1].attachments[0].content")


def test_what_templates_make_of_a_batch_fits_into_memory(shared_service: Service) -> None:
    repeats = WELCOME | {"template_id": "tpl_many", "variables": {"name": "x" * 200 * 1024}}  # 18 times: 3.5 MiB
    answer = batch(shared_service, "/v1/emails", [repeats] * 20)
    assert_refused(answer, 400, "body_too_long", "messages[18]")


@by_channel
def test_a_batch_of_any_channel_may_have_40_mib(shared_service: Service, path: str, body: Body) -> None:
    def filled(size: int) -> bytes:
        start, end = json.dumps({"messages": [body, {"x": "!"}]}).split("!")
        return f"{start}{'x' * (size - len(start) - len(end))}{end}".encode()

    assert_refused(shared_service.post(f"{path}/batch", filled(40 * MIB)), 400, "invalid_request", "messages[1].x")
    assert_refused(shared_service.post(f"{path}/batch", filled(40 * MIB + 1)), 413, "payload_too_large")


def test_a_batch_takes_one_token(shared_service: Service) -> None:
    single = shared_service.post("/v1/emails", WELCOME, key="SLOW").headers["ratelimit-remaining"]
    many = batch(shared_service, "/v1/emails", [WELCOME] * 20, key="SLOW", mode="permissive")
    assert int(single) - int(many.headers["ratelimit-remaining"]) <= 1


def test_a_batch_is_its_teams(shared_service: Service) -> None:
    id_ = batch(shared_service, "/v1/emails", [EMAIL]).json["id"]
    others = [shared_service.get(f"/v1/batches/{one}", key="OTHER") for one in (id_, UNKNOWN)]
    for answer in others:
        assert_refused(answer, 404, "batch_not_found", "id")
    same = [
        answer.raw.replace(one.encode(), b"").replace(answer.headers["x-request-id"].encode(), b"")
        for answer, one in zip(others, (id_, UNKNOWN), strict=True)
    ]
    assert same[0] == same[1]
    assert_refused(shared_service.get("/v1/batches/nothing"), 404, "batch_not_found")


def test_scheduled_ones_are_waited_for_and_may_be_canceled(shared_service: Service) -> None:
    later = EMAIL | {"scheduled_at": "2999-01-01T00:00:00Z"}
    assert_refused(batch(shared_service, "/v1/emails", [later]), 400, "invalid_schedule", "messages[0].scheduled_at")
    soon = without(later, "scheduled_at") | {"scheduled_at": (datetime.now(UTC) + timedelta(days=1)).isoformat()}
    answer = batch(shared_service, "/v1/emails", [EMAIL, soon]).json
    settled(shared_service, f"/v1/emails/{answer['data'][0]['id']}")
    found = shared_service.get(f"/v1/batches/{answer['id']}").json
    assert found["counts"] == {"delivered": 1, "queued": 1}
    assert told(shared_service, answer["id"]) == []
    assert shared_service.post(f"/v1/emails/{answer['data'][1]['id']}/cancel", None).status == 200
    (event,) = told(shared_service, answer["id"])
    assert event["data"]["counts"] == {"delivered": 1, "failed": 1}
