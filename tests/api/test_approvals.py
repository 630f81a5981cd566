"""Messages of keys with `approval: "required"` (contract 20): held for every API, decided once, by platform keys."""

import json
import smtplib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from email.message import EmailMessage
from typing import Any

import pytest

from heliograph.domain.ids import parse_timestamp, timestamp
from heliograph.domain.setup.keys import make_token
from tests.api.sends import EMAIL, SMS, VERIFY, WELCOME, WHATSAPP, Body, assert_refused, settled, without
from tests.api.test_key_restrictions import limits, restricted
from tests.api.test_mcp import call
from tests.api.test_platform_keys import platform_token
from tests.api.test_scheduled import time_from_now
from tests.api.test_teams_by_api import Platform
from tests.compat.test_key_restrictions import postal, postmark, resend, twilio
from tests.service import PATIENCE_S, Answer, Service, until
from tests.submission.conftest import HOST, free_port

SUBMISSION_PORT = free_port()
BY = {"by": "ada@example.com"}
FIELDS = {"id", "message_id", "team_id", "channel", "created_at", "expires_at", "status"}
PAID_SMS: Body = {"to": "+447400123456", "template_id": "tpl_sms", "variables": {"parcel": "1"}}
MAIL = without(EMAIL, "from")  # as a sandbox team sends
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("approvals")
    settings: dict[str, Any] = {"mcp": "on", "submission_listen": f"{HOST}:{SUBMISSION_PORT}"}
    with Service(f"sqlite:///{folder / 'heliograph.db'}", folder / "data", **settings) as running:
        running.apply()
        running.start()
        yield running


@pytest.fixture(scope="module")
def platform(service: Service) -> Platform:
    return Platform(service, platform_token(service))


@pytest.fixture(scope="module")
def key(service: Service) -> str:
    return restricted(service, scopes=("send", "manage"), approval="required")


def in_two_hours() -> str:
    return timestamp(parse_timestamp(time_from_now(hours=2)) or 0)


def newest(platform: Platform) -> Any:
    """Return the newest approval."""
    return platform.get("/v1/approvals?limit=1").json["data"][0]


def hold(service: Service, key: str, path: str = "/v1/emails", **fields: Any) -> tuple[str, str]:
    """Send a message that is held; return the path of the message, and of its approval."""
    body = {"/v1/emails": EMAIL, "/v1/sms": SMS, "/v1/whatsapp": WHATSAPP}[path] | fields
    answer = service.post(path, body, key=key)
    assert (answer.status, answer.json.get("status")) == (202, "queued"), answer.raw
    id_ = answer.json["id"]
    return f"{path}/{id_}", f"/v1/approvals/apr_{id_.partition('_')[2]}"


@pytest.mark.parametrize(
    ("path", "body"), [("/v1/emails", EMAIL), ("/v1/emails", WELCOME), ("/v1/sms", SMS), ("/v1/whatsapp", WHATSAPP)]
)
def test_message_is_held_until_it_is_released(
    service: Service, platform: Platform, key: str, path: str, body: Body
) -> None:
    answer = service.post(path, body, key=key)
    assert (answer.status, answer.json["status"]) == (202, "queued"), answer.raw
    message = service.get(f"{path}/{answer.json['id']}", key=key).json
    approval = newest(platform)
    assert approval.keys() == FIELDS
    assert (approval["message_id"], approval["status"]) == (message["id"], "pending")
    assert (approval["team_id"], f"/v1/{approval['channel']}") == (
        "team_acme",
        path.removesuffix("s") if "emails" in path else path,
    )
    assert approval["created_at"] == message["created_at"]
    until_ = datetime.fromisoformat(approval["expires_at"])
    assert until_ - datetime.fromisoformat(approval["created_at"]) == DAY
    assert message["held"] == {"reason": "approval", "until": approval["expires_at"]}
    assert message["recipients"][0]["held"] == message["held"]
    assert message["recipients"][0]["explanation"]["cause"] == "approval"
    released = platform.post(f"/v1/approvals/{approval['id']}/approve", BY)
    assert (released.status, released.json) == (200, approval | {"status": "approved"})
    after = settled(service, f"{path}/{message['id']}")
    assert (after["status"] in ("delivered", "read"), after["held"]) == (True, None)
    assert [event["type"] for event in after["events"]][:2] == ["message.held", "released"]
    assert platform.entries("team_acme")[0] == ("message.release", platform.actor, message["id"])


def test_every_message_of_a_batch_is_held(service: Service, platform: Platform, key: str) -> None:
    sent = service.post("/v1/emails/batch", {"messages": [EMAIL] * 3}, key=key)
    assert sent.status == 202, sent.raw
    ids = {entry["id"] for entry in sent.json["data"]}
    approvals = platform.get("/v1/approvals?limit=3").json
    assert ({item["message_id"] for item in approvals["data"]}, approvals["has_more"]) == (ids, True)
    for item in approvals["data"]:
        assert platform.post(f"/v1/approvals/{item['id']}/reject", BY).status == 200
    assert service.get(f"/v1/batches/{sent.json['id']}", key=key).json["counts"]["failed"] == 3


def send_by_smtp(_: Service, key: str) -> None:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = EMAIL["from"], EMAIL["to"], "Hello"
    mail.set_content("Hi")
    with smtplib.SMTP(HOST, SUBMISSION_PORT, timeout=PATIENCE_S) as client:
        client.login("heliograph", key)
        assert client.send_message(mail) == {}


def send_by_mcp(service: Service, key: str) -> None:
    assert call(service, key, "send_email", **EMAIL)["status"] == "queued"


@pytest.mark.parametrize("send", [resend, postmark, postal, twilio, send_by_smtp, send_by_mcp])
def test_message_of_every_other_way_in_is_held(
    service: Service, platform: Platform, key: str, send: Callable[[Service, str], Answer | None]
) -> None:
    before = newest(platform)["id"] if platform.get("/v1/approvals").json["data"] else None
    answer = send(service, key)
    assert answer is None or answer.status in (200, 201), answer.raw
    approval = newest(platform)
    assert (approval["id"] != before, approval["status"]) == (True, "pending")
    path = f"/v1/{'emails' if approval['channel'] == 'email' else approval['channel']}/{approval['message_id']}"
    assert service.get(path).json["held"]["reason"] == "approval"
    assert platform.post(f"/v1/approvals/{approval['id']}/approve", BY).status == 200
    assert settled(service, path)["status"] == "delivered"


def test_verify_is_refused(service: Service, key: str) -> None:
    assert_refused(service.post("/v1/verify", VERIFY, key=key), 403, "channel_not_permitted")
    assert_refused(service.post("/v1/verify/vrf_x/resend", None, key=key), 403, "channel_not_permitted")


def test_dry_run_holds_nothing(service: Service, platform: Platform, key: str) -> None:
    before = platform.get("/v1/approvals?limit=1").json["data"]
    assert service.post("/v1/emails?dry_run=true", EMAIL, key=key).status == 200
    assert platform.get("/v1/approvals?limit=1").json["data"] == before


def test_rejected_message_fails_and_gives_its_spend_back(service: Service, platform: Platform) -> None:
    key = restricted(service, approval="required", spend_per_day="1.0000", per_day=2)
    credit = service.get("/v1/me").json["credit"]
    sent = service.post("/v1/sms", PAID_SMS, key=key)
    assert sent.status == 202, sent.raw
    assert limits(service, key)["spend_per_day"]["left"] != "1.0000"
    rejected = platform.post(f"/v1/approvals/{newest(platform)['id']}/reject", BY)
    assert (rejected.status, rejected.json["status"]) == (200, "rejected")
    message = service.get(f"/v1/sms/{sent.json['id']}").json
    assert (message["status"], message["held"]) == ("failed", None)
    assert message["recipients"][0]["explanation"]["cause"] == "approval_rejected"
    left = limits(service, key)
    assert (left["spend_per_day"]["left"], left["per_day"]["left"]) == ("1.0000", 1)
    assert service.get("/v1/me").json["credit"] == credit
    entry = platform.get("/v1/audit?team=team_acme&limit=1").json["data"][0]
    assert (entry["action"], entry["subject"], entry["detail"]) == ("message.reject", sent.json["id"], BY["by"])


@pytest.mark.parametrize("first", ["approve", "reject"])
def test_a_decision_is_final(service: Service, platform: Platform, key: str, first: str) -> None:
    _, approval = hold(service, key)
    assert platform.post(f"{approval}/{first}", BY).status == 200
    entries = len(platform.entries("team_acme"))
    for decision in ("approve", "reject"):
        assert_refused(platform.post(f"{approval}/{decision}", BY), 409, "already_decided")
    assert len(platform.entries("team_acme")) == entries


def test_canceled_message_cannot_be_released(service: Service, platform: Platform, key: str) -> None:
    message, approval = hold(service, key)
    canceled = service.post(f"{message}/cancel", None, key=key)
    assert (canceled.status, canceled.json["status"]) == (200, "failed"), canceled.raw
    assert_refused(platform.post(f"{approval}/approve", BY), 409, "already_decided")
    assert newest(platform)["status"] == "canceled"
    assert service.get(message).json["held"] is None


def test_invalid_decisions_are_refused(service: Service, platform: Platform, key: str) -> None:
    _, approval = hold(service, key)
    for body in ({}, {"by": ""}, {"by": "two\nlines"}, {"by": 1}):
        assert_refused(platform.post(f"{approval}/approve", body), 400, "invalid_request", "by")
    assert_refused(platform.post(f"{approval}/approve", BY | {"why": ""}), 400, "invalid_request", "why")
    for decision in ("approve", "reject"):
        assert_refused(platform.post(f"/v1/approvals/apr_none/{decision}", BY), 404, "approval_not_found")
    for other in (key, "ACME"):
        assert_refused(service.post(f"{approval}/approve", BY, key=other), 403, "insufficient_scope")
        assert_refused(service.get("/v1/approvals", key=other), 403, "insufficient_scope")
    assert_refused(platform.get("/v1/approvals?after=eml_x"), 400, "invalid_request", "after")


def test_released_message_is_delivered_at_its_schedule(service: Service, platform: Platform, key: str) -> None:
    at = in_two_hours()
    message, approval = hold(service, key, scheduled_at=at)
    assert platform.post(f"{approval}/approve", BY).status == 200
    result = service.get(message).json
    assert (result["status"], result["held"], result["scheduled_at"]) == ("queued", None, at)
    assert service.post(f"{message}/cancel", None, key=key).status == 200


def test_expires_at_of_the_message_ends_the_hold_first(service: Service, platform: Platform, key: str) -> None:
    at = in_two_hours()
    message, _ = hold(service, key, expires_at=at)
    assert service.get(message).json["held"]["until"] == at == newest(platform)["expires_at"]


def test_recipient_suppressed_meanwhile_gets_no_email(service: Service, platform: Platform, key: str) -> None:
    message, approval = hold(service, key, to="later@example.com")
    assert service.post("/v1/suppressions", {"email": "later@example.com"}).status == 201
    assert platform.post(f"{approval}/approve", BY).status == 200
    result = settled(service, message)
    assert (result["status"], result["recipients"][0]["detail"]["reason"]) == ("failed", "suppressed")


def test_team_suspended_meanwhile_sends_nothing(service: Service, platform: Platform) -> None:
    assert platform.post("/v1/teams", {"id": "team_held", "name": "Held"}).status == 201
    body = {"name": "agent", "scopes": ["send"], "restrictions": {"approval": "required"}}
    key = platform.post("/v1/teams/team_held/keys", body).json["token"]
    sent = until(lambda: (answer := service.post("/v1/emails", MAIL, key=key)).status == 202 and answer.json)
    assert platform.patch("/v1/teams/team_held", {"suspended": True}).status == 200
    assert platform.post(f"/v1/approvals/{newest(platform)['id']}/approve", BY).status == 200
    query = (
        "SELECT r.detail FROM recipient r JOIN message m ON m.key = r.message WHERE m.id = ? AND r.status = 'failed'"
    )
    with closing(sqlite3.connect(service.database.removeprefix("sqlite:///"))) as database:
        detail = until(lambda: database.execute(query, (sent["id"],)).fetchone())
    assert json.loads(detail[0])["reason"] == "suspended"


def test_webhooks_receive_one_event_per_message(service: Service, platform: Platform, key: str) -> None:
    names = {"message.*", "*", "email.*"}
    hooks = {
        name: service.post("/v1/webhooks", {"url": "https://hooks.example.com/in", "events": [name]}).json["id"]
        for name in names
    }
    message, approval = hold(service, key, to=["a@example.com", "b@example.com"], bcc=["c@example.com"])
    event = service.get("/v1/events?order=newest&limit=1").json["data"][0]
    assert (event["type"], event["sequence"]) == ("message.held", 1)
    data = event["data"]
    assert (data["channel"], data["status"], f"/v1/approvals/{data['approval_id']}") == ("email", "queued", approval)
    assert data["held"] == service.get(message).json["held"]
    assert (data["to_addresses"], data["bcc"]) == (["a@example.com", "b@example.com"], [])
    received = {name: len(service.get(f"/v1/webhooks/{id_}/deliveries").json["data"]) for name, id_ in hooks.items()}
    assert received == {"message.*": 1, "*": 1, "email.*": 0}
    for id_ in hooks.values():
        service.ask("DELETE", f"/v1/webhooks/{id_}")


def test_hours_of_the_team_are_counted(service: Service, platform: Platform, key: str) -> None:
    assert platform.get("/v1/teams/team_acme").json["approval_hours"] == 24
    for hours in (0, 169):
        refused = platform.patch("/v1/teams/team_acme", {"approval_hours": hours})
        assert_refused(refused, 400, "invalid_request", "approval_hours")
    assert platform.patch("/v1/teams/team_acme", {"approval_hours": 2}).json["approval_hours"] == 2

    def lasts_two_hours() -> bool:
        hold(service, key)
        approval = newest(platform)
        span = datetime.fromisoformat(approval["expires_at"]) - datetime.fromisoformat(approval["created_at"])
        return span == timedelta(hours=2)

    until(lasts_two_hours)
    assert platform.patch("/v1/teams/team_acme", {"approval_hours": 24}).status == 200


def test_test_clock_moves_the_expiry(service: Service, platform: Platform) -> None:
    token = make_token(bytes([78]) * 64)
    file = service.data / "clocked.toml"
    file.write_text(
        '[[teams]]\nid = "team_waiting"\nmode = "sandbox"\ntest_clock = true\napproval_hours = 3\n'
        f'[[teams.keys]]\nname = "agent"\ntoken = "{token}"\n[teams.keys.restrictions]\napproval = "required"\n'
    )
    service.apply(file)
    sent = service.post("/v1/emails", MAIL, key=token)
    assert sent.status == 202, sent.raw
    path = f"/v1/emails/{sent.json['id']}"
    assert service.post("/v1/test-clock", {"advance_s": 3 * 3600 - 60}, key=token).status == 200
    assert service.get(path, key=token).json["held"]["reason"] == "approval"
    assert service.post("/v1/test-clock", {"advance_s": 3600}, key=token).status == 200
    message = service.get(path, key=token).json
    assert (message["status"], message["recipients"][0]["detail"]["reason"]) == ("failed", "approval_expired")
    failed = [event for event in message["events"] if event["status"] == "failed"]
    late = datetime.fromisoformat(failed[0]["created_at"]) - datetime.fromisoformat(newest(platform)["expires_at"])
    assert timedelta(0) <= late < timedelta(minutes=1)
    assert newest(platform)["status"] == "expired"
