"""/v1/webhooks (contract 12): create, change and delete webhooks; secrets, tests, replays, deliveries."""

from collections.abc import Iterator
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from heliograph import verify_webhook
from heliograph.webhooks.policy.webhook import WEBHOOKS_MAX
from tests.api.sends import SMS, Body, assert_refused, send
from tests.carriers.hook_receiver import Receiver
from tests.service import Answer, Service, until

FIELDS = (
    *("id", "url", "events", "enabled", "description", "created_at"),
    *("disabled_reason", "secret_rotates_until", "format", "public_key"),
)
HOOK: Body = {"url": "http://127.0.0.1:9/hook", "events": ["webhook.test"]}  # without a receiver
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
UNKNOWN_PATH = "/v1/webhooks/whk_01JCQ8Z6V3M2N7T0K4H9R5B1XA"


def create_webhook(service: Service, **more: Any) -> Any:
    answer = service.post("/v1/webhooks", HOOK | more)
    assert answer.status == 201, answer.raw
    return answer.json


def path(hook: Any, *parts: str) -> str:
    return "/".join(("/v1/webhooks", hook["id"], *parts))


def patch(service: Service, hook: Any, **fields: Any) -> Answer:
    return service.ask("PATCH", path(hook), fields)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(Receiver()) as running:
        yield running


def remove_all(service: Service) -> None:
    for hook in service.get("/v1/webhooks?limit=100").json["data"]:
        service.ask("DELETE", path(hook))


@pytest.fixture(autouse=True)
def _tidy(shared_service: Service) -> Iterator[None]:
    """Remove all webhooks before and after each test, because they would receive other tests' events."""
    remove_all(shared_service)
    yield
    remove_all(shared_service)


# -- the record --------------------------------------------------------------------------------------------


def test_webhook_is_created_read_listed_changed_and_deleted(shared_service: Service) -> None:
    added = shared_service.post("/v1/webhooks", HOOK | {"description": "Orders"})
    assert (added.status, tuple(added.json)) == (201, (*FIELDS, "secret"))
    hook = {name: added.json[name] for name in FIELDS}
    assert hook["id"].startswith("whk_") and added.json["secret"].startswith("whsec_")
    assert (hook["url"], hook["events"], hook["enabled"]) == (HOOK["url"], HOOK["events"], True)
    assert (hook["description"], hook["disabled_reason"], hook["secret_rotates_until"]) == ("Orders", None, None)
    assert shared_service.get(path(hook)).json == hook
    assert shared_service.get("/v1/webhooks").json == {"object": "list", "has_more": False, "data": [hook]}
    changed = patch(shared_service, hook, url="http://127.0.0.2:9/", events=["*"], enabled=False, description="")
    expected = hook | {"url": "http://127.0.0.2:9/", "events": ["*"], "enabled": False, "description": None}
    assert (changed.status, changed.json) == (200, expected)
    assert shared_service.get(path(hook)).json == expected
    deleted = shared_service.ask("DELETE", path(hook))
    assert (deleted.status, deleted.json) == (200, {"object": "webhook", "id": hook["id"], "deleted": True})
    assert_refused(shared_service.ask("DELETE", path(hook)), 404, "webhook_not_found", "id")
    assert shared_service.get("/v1/webhooks").json["data"] == []


def test_the_list_is_paged_newest_first(shared_service: Service) -> None:
    ids = [create_webhook(shared_service)["id"] for _ in range(5)][::-1]
    first = shared_service.get("/v1/webhooks?limit=2").json
    assert ([hook["id"] for hook in first["data"]], first["has_more"]) == (ids[:2], True)
    rest = shared_service.get(f"/v1/webhooks?limit=3&after={ids[1]}").json
    assert ([hook["id"] for hook in rest["data"]], rest["has_more"]) == (ids[2:], False)


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        ({}, {}),
        ({"url": None, "events": None, "enabled": None, "description": None}, {}),
        ({"events": ["sms.sent", "sms.sent", "email.*"]}, {"events": ["sms.sent", "email.*"]}),
        ({"format": "resend"}, {"format": "resend"}),
        ({"enabled": False}, {"enabled": False}),
        ({"url": "http://127.0.0.1:9/hook?a=%20b"}, {"url": "http://127.0.0.1:9/hook?a=%20b"}),
    ],
)
def test_only_fields_in_the_request_change(shared_service: Service, fields: Body, changed: Body) -> None:
    create_webhook(shared_service)
    (hook,) = shared_service.get("/v1/webhooks").json["data"]
    assert patch(shared_service, hook, **fields).json == hook | changed


INVALID_REQUESTS: list[tuple[Body, str]] = [
    ({"events": []}, "events"),
    ({"events": ["email.opened"]}, "events"),
    ({"events": "*"}, "events"),
    ({"events": [1]}, "events"),
    ({"format": "mailgun"}, "format"),
    ({"format": 1}, "format"),
    ({"url": ""}, "url"),
    ({"url": "https://example.com/" + "x" * 2048}, "url"),
    ({"url": "http://127.0.0.1:9/\r\nX: y"}, "url"),
    ({"url": 5}, "url"),
    ({"description": "x" * 501}, "description"),
    ({"description": "two\nlines"}, "description"),
    ({"id": "whk_mine"}, "id"),
]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        *INVALID_REQUESTS,
        ({"url": None}, "url"),
        ({"events": None}, "events"),
        ({"enabled": True}, "enabled"),
        ({"secret": "hunter2hunter2"}, "secret"),
        ({"secret": "whsec_c2hvcnQ="}, "secret"),
        ({"secret": "whsec_" + "A" * 88}, "secret"),
    ],
)
def test_invalid_webhooks_are_refused(shared_service: Service, fields: Body, param: str) -> None:
    answer = shared_service.post("/v1/webhooks", HOOK | fields)
    assert_refused(answer, 400, "invalid_request", param)
    if isinstance(fields.get("secret"), str):
        assert fields["secret"].encode() not in answer.raw
    assert shared_service.get("/v1/webhooks").json["data"] == []


@pytest.mark.parametrize(
    ("fields", "param"), [*INVALID_REQUESTS, ({"secret": SECRET}, "secret"), ({"enabled": "yes"}, "enabled")]
)
def test_invalid_changes_are_refused(shared_service: Service, fields: Body, param: str) -> None:
    hook = create_webhook(shared_service)
    assert_refused(patch(shared_service, hook, **fields), 400, "invalid_request", param)
    assert shared_service.get(path(hook)).json["url"] == HOOK["url"]


# The tests' operator allows 127.0.0.0/8 only.
@pytest.mark.parametrize(
    "url",
    [
        "ftp://127.0.0.1/",
        "http://a:b@c@127.0.0.1/",
        "http://a:b@10.0.0.1/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://10.0.0.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://192.168.0.1./",
        "http://0.0.0.0/",
    ],
)
def test_webhook_urls_that_must_not_be_called_are_refused(shared_service: Service, url: str) -> None:
    assert_refused(shared_service.post("/v1/webhooks", HOOK | {"url": url}), 400, "invalid_request", "url")
    assert_refused(patch(shared_service, create_webhook(shared_service), url=url), 400, "invalid_request", "url")


def test_an_unresolvable_host_is_accepted(shared_service: Service) -> None:
    assert shared_service.post("/v1/webhooks", HOOK | {"url": "https://no-such-host.invalid/hook"}).status == 201


def test_the_number_of_webhooks_is_limited(shared_service: Service) -> None:
    for _ in range(WEBHOOKS_MAX):
        create_webhook(shared_service)
    refused = shared_service.post("/v1/webhooks", HOOK)
    assert_refused(refused, 400, "invalid_request")
    assert f"at most {WEBHOOKS_MAX} webhooks" in refused.json["error"]["message"]


@pytest.mark.parametrize(
    ("method", "parts", "body"),
    [
        ("GET", (), None),
        ("PATCH", (), {}),
        ("DELETE", (), None),
        ("POST", ("rotate",), None),
        ("POST", ("test",), None),
        ("POST", ("replay",), {"event_id": "evt_none"}),
        ("GET", ("deliveries",), None),
    ],
)
def test_unknown_webhooks_return_404(
    shared_service: Service, method: str, parts: tuple[str, ...], body: Body | None
) -> None:
    assert_refused(shared_service.ask(method, "/".join((UNKNOWN_PATH, *parts)), body), 404, "webhook_not_found", "id")
    foreign_path = path(create_webhook(shared_service), *parts)
    assert_refused(shared_service.ask(method, foreign_path, body, key="OTHER"), 404, "webhook_not_found", "id")


def test_lists_hold_only_the_teams_own(shared_service: Service) -> None:
    id_ = create_webhook(shared_service)["id"]
    assert id_ not in [item["id"] for item in shared_service.get("/v1/webhooks", key="OTHER").json["data"]]


# -- secrets -----------------------------------------------------------------------------------------------


def test_a_secret_is_shown_once(shared_service: Service) -> None:
    hook = create_webhook(shared_service, secret=SECRET)
    assert hook["secret"] == SECRET
    rotated = shared_service.post(path(hook, "rotate"), None)
    assert (rotated.status, tuple(rotated.json)) == (200, (*FIELDS, "secret"))
    assert rotated.json["secret"].startswith("whsec_") and rotated.json["secret"] != SECRET
    assert rotated.json["secret_rotates_until"] > hook["created_at"]
    answers = [
        shared_service.get(path(hook)),
        shared_service.get("/v1/webhooks"),
        patch(shared_service, hook, description="x"),
        shared_service.get(path(hook, "deliveries")),
        shared_service.ask("DELETE", path(hook)),
    ]
    for answer in answers:
        assert answer.status == 200
        assert b"whsec_" not in answer.raw


def test_at_most_two_secrets_sign_during_a_rotation(shared_service: Service, receiver: Receiver) -> None:
    hook = create_webhook(shared_service, url=receiver.url, secret=SECRET)
    secrets = [SECRET, *(shared_service.post(path(hook, "rotate"), None).json["secret"] for _ in range(2))]
    shared_service.post(path(hook, "test"), None)
    (got,) = until(lambda: receiver.received)
    assert [part.partition("=")[0] for part in got.headers["x-service-signature"].split(",")] == ["t", "v1", "v1"]
    for secret in secrets[1:]:
        assert verify_webhook(got.body.encode(), got.headers, secret)["type"] == "webhook.test"
    with pytest.raises(ValueError, match="no signature matches"):
        verify_webhook(got.body.encode(), got.headers, secrets[0])


# -- test events, deliveries, replays ----------------------------------------------------------------------


def delivered(service: Service, hook: Any, count: int = 1) -> Any:
    """Return the webhook's deliveries once there are `count`."""

    def check() -> Any:
        deliveries = service.get(path(hook, "deliveries")).json["data"]
        return deliveries if [delivery["state"] for delivery in deliveries].count("delivered") == count else None

    return until(check)


def test_a_test_event_arrives_and_is_listed(shared_service: Service, receiver: Receiver) -> None:
    hook = create_webhook(shared_service, url=receiver.url, events=["sms.*"])
    response = shared_service.post(path(hook, "test"), None)
    assert response.status == 202
    assert response.json == {"object": "event", "id": response.json["id"], "type": "webhook.test"}
    (delivery,) = delivered(shared_service, hook)
    assert (delivery["event_id"], delivery["type"]) == (response.json["id"], "webhook.test")
    assert delivery["next_attempt_at"] is None
    (attempt,) = delivery["attempts"]
    assert tuple(attempt) == ("number", "at", "status", "error", "duration_ms", "answer")
    assert (attempt["number"], attempt["status"], attempt["error"]) == (1, 200, None)
    event = verify_webhook(receiver.received[0].body.encode(), receiver.received[0].headers, hook["secret"])
    assert (event["id"], event["data"]["id"]) == (response.json["id"], hook["id"])


def test_a_failed_delivery_has_error_and_next_attempt(shared_service: Service) -> None:
    hook = create_webhook(shared_service)
    shared_service.post(path(hook, "test"), None)

    def tried() -> Any:
        (delivery,) = shared_service.get(path(hook, "deliveries")).json["data"]
        return delivery if delivery["attempts"] else None

    delivery = until(tried)
    assert delivery["state"] == "waiting"
    assert delivery["next_attempt_at"] > delivery["created_at"]
    assert (delivery["attempts"][0]["status"], delivery["attempts"][0]["answer"]) == (None, "")
    assert "Connection refused" in delivery["attempts"][0]["error"]


def test_deliveries_are_paged_newest_first(shared_service: Service, receiver: Receiver) -> None:
    hook = create_webhook(shared_service, url=receiver.url)
    events = [shared_service.post(path(hook, "test"), None).json["id"] for _ in range(3)][::-1]
    delivered(shared_service, hook, 3)
    first = shared_service.get(path(hook, "deliveries?limit=2")).json
    assert ([delivery["event_id"] for delivery in first["data"]], first["has_more"]) == (events[:2], True)
    rest = shared_service.get(path(hook, f"deliveries?after={first['data'][-1]['event_id']}")).json
    assert ([delivery["event_id"] for delivery in rest["data"]], rest["has_more"]) == (events[2:], False)


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "after=evt_1", "state=waiting"])
def test_invalid_delivery_pages_are_refused(shared_service: Service, query: str) -> None:
    hook = create_webhook(shared_service)
    assert_refused(shared_service.get(path(hook, f"deliveries?{query}")), 400, "invalid_request", query.split("=")[0])


def test_events_are_replayed(shared_service: Service, receiver: Receiver) -> None:
    start = send(shared_service, "/v1/sms", SMS)["created_at"]
    message = send(shared_service, "/v1/sms", SMS)
    published = [event for event in message["events"] if event["sequence"]]
    hook = create_webhook(shared_service, url=receiver.url, events=["sms.*"])
    end = hook["created_at"].replace("20", "21", 1)  # a century later

    def replayed(**selection: Any) -> int:
        answer = shared_service.post(path(hook, "replay"), selection)
        assert (answer.status, tuple(answer.json), answer.json["object"]) == (202, ("object", "count"), "replay")
        return int(answer.json["count"])

    ids = [event["id"] for event in published]
    assert len(ids) == 2
    assert replayed(event_id=ids[0]) == 1
    assert replayed(event_ids=[*ids, ids[0]]) == 2
    delivered(shared_service, hook, 2)
    spanned = replayed(created_after=start, created_before=end)
    assert spanned == 4  # from both messages
    delivered(shared_service, hook, spanned)
    assert replayed(created_after=start, created_before=end, failed_only=True) == 0
    assert replayed(created_after="2020-01-01T00:00:00Z", created_before="2020-01-02T00:00:00Z") == 0
    assert replayed(created_after=end, created_before=end) == 0  # an empty range
    bodies = {body.body for body in receiver.received if ids[0] in body.body}
    assert len(bodies) == 1


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "event_id"),
        ({"event_id": "evt_none", "event_ids": ["evt_none"]}, "event_id"),
        ({"event_id": "evt_none", "failed_only": True}, "event_id"),
        ({"event_ids": []}, "event_ids"),
        ({"event_ids": ["evt_none"] * 1001}, "event_ids"),
        ({"event_ids": ["evt_none"]}, "event_ids"),
        ({"event_id": "evt_none"}, "event_id"),
        ({"created_after": "2026-01-01T00:00:00Z"}, "created_before"),
        ({"created_before": "2026-01-01T00:00:00Z"}, "created_after"),
        ({"created_after": "yesterday", "created_before": "2026-01-01T00:00:00Z"}, "created_after"),
        ({"failed_only": True}, "created_after"),
        ({"created_after": "2026-01-02T00:00:00Z", "created_before": "2026-01-01T00:00:00Z"}, "created_after"),
        ({"failed_only": "yes"}, "failed_only"),
        ({"since": 1}, "since"),
    ],
)
def test_invalid_replays_are_refused(shared_service: Service, body: Body, param: str) -> None:
    hook = create_webhook(shared_service)
    assert_refused(shared_service.post(path(hook, "replay"), body), 400, "invalid_request", param)


def test_a_disabled_webhook_receives_nothing(shared_service: Service) -> None:
    hook = create_webhook(shared_service)
    patch(shared_service, hook, enabled=False)
    assert_refused(shared_service.post(path(hook, "test"), None), 400, "invalid_request", "id")
    assert_refused(shared_service.post(path(hook, "replay"), {"event_id": "evt_x"}), 400, "invalid_request", "id")


def test_enabling_clears_the_disabled_reason(shared_service: Service, receiver: Receiver) -> None:
    receiver.scripts[""] = ["410", "200"]
    hook = create_webhook(shared_service, url=receiver.url)
    shared_service.post(path(hook, "test"), None)
    disabled = until(lambda: (webhook := shared_service.get(path(hook)).json)["disabled_reason"] and webhook)
    assert disabled["enabled"] is False
    enabled = patch(shared_service, hook, enabled=True).json
    assert (enabled["enabled"], enabled["disabled_reason"]) == (True, None)
    shared_service.post(path(hook, "test"), None)
    delivered(shared_service, hook)
