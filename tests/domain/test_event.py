"""The event types and bodies of contract 10."""

import json
from typing import Any

import msgspec
import pytest

from heliograph.domain.events import BODY_MAX, EVENT_TYPES, SUBSCRIPTION_NAMES, StoredEvent, event_body, event_type
from heliograph.domain.setup.records import Channel, Team, TeamRecord, Webhook
from heliograph.webhooks.policy.formats.formats import is_subscribed

EXPECTED = """
email.sending email.sent email.delivered email.bounced email.complained email.failed email.delayed
email.received
sms.sending sms.sent sms.delivered sms.failed
whatsapp.sending whatsapp.sent whatsapp.delivered whatsapp.read whatsapp.failed
verification.verified verification.failed verification.exhausted suppression.created suppression.deleted
sms.received whatsapp.received opt_out.created opt_out.deleted recipient.unsubscribed recipient.resubscribed
domain.verified domain.failed template.status_changed credit.low batch.done message.held webhook.test
""".split()


def test_event_types_are_the_documented_ones() -> None:
    assert sorted(EVENT_TYPES) == sorted(EXPECTED)


@pytest.mark.parametrize(
    ("channel", "status", "name"),
    [("email", "bounced", "email.bounced"), ("whatsapp", "read", "whatsapp.read")],
)
def test_event_type_is_derived_from_channel_and_status(channel: Channel, status: str, name: str) -> None:
    assert event_type(channel, status) == name


@pytest.mark.parametrize(("channel", "status"), [("sms", "read"), ("email", "queued"), ("email", "lost")])
def test_event_type_for_an_impossible_status_raises(channel: Channel, status: str) -> None:
    with pytest.raises(ValueError, match="no event"):
        event_type(channel, status)


@pytest.mark.parametrize(
    ("events", "heard", "unheard"),
    [
        (("*",), EVENT_TYPES, ()),
        (("email.*",), ("email.sent", "email.bounced"), ("sms.sent", "suppression.created")),
        (("sms.failed",), ("sms.failed",), ("sms.sent", "email.failed")),
        (("sms.failed", "credit.*"), ("sms.failed", "credit.low"), ("webhook.test",)),
    ],
)
def test_webhook_subscription_matches_its_events(
    events: tuple[str, ...], heard: tuple[str, ...], unheard: tuple[str, ...]
) -> None:
    hook = Webhook(id="whk_1", team="team_1", url="https://a.test", secret="s", events=events)
    assert set(events) <= set(SUBSCRIPTION_NAMES)
    assert all(is_subscribed(hook, type_) for type_ in heard)
    assert not any(is_subscribed(hook, type_) for type_ in unheard)


TEAM = Team(record=TeamRecord(ref=1, id="team_acme", name="Acme", mode="sandbox"))
RECORD = {"id": "eml_1", "to": "a@b.test", "bcc": ["blind@b.test"], "status": "sending", "sandbox": False}
STORED_EVENT = StoredEvent(
    id="evt_1",
    type="email.bounced",
    sequence=4,
    created_at=1_794_724_665_047,
    recipient="a@b.test",
    status="bounced",
    previous_status="sent",
    message_status="bounced",
    detail='{"code":550}',
    record=json.dumps(RECORD),
    sandbox=0,
    kind="to",
)


def body(**changes: Any) -> dict[str, Any]:
    actual: dict[str, Any] = json.loads(event_body(msgspec.structs.replace(STORED_EVENT, **changes), TEAM))
    return actual


def test_the_body_of_a_messages_event() -> None:
    assert body() == {
        "id": "evt_1",
        "type": "email.bounced",
        "created_at": "2026-11-15T06:37:45.047Z",
        "team_id": "team_acme",
        "sandbox": False,
        "sequence": 4,
        "data": {
            "id": "eml_1",
            "to": "a@b.test",
            "bcc": [],
            "status": "bounced",
            "sandbox": False,
            "message_status": "bounced",
            "previous_status": "sent",
            "recipient": "a@b.test",
            "recipient_kind": "to",
            "bounce": {"code": 550},
        },
    }


@pytest.mark.parametrize(
    ("status", "words"), [("bounced", "bounce"), ("failed", "error"), ("delivered", None), ("sent", None)]
)
def test_only_failure_events_carry_the_carrier_reply(status: str, words: str | None) -> None:
    actual = body(status=status)["data"]
    assert [name for name in ("bounce", "error") if name in actual] == ([words] if words else [])
    assert "detail" not in actual


def test_local_failure_reason_has_the_field_name_of_reads() -> None:
    actual = body(status="failed", detail='{"reason":"canceled","text":"it was canceled"}')["data"]
    assert actual["detail"] == actual["error"] == {"reason": "canceled", "text": "it was canceled"}


def test_a_blind_copy_is_not_named() -> None:
    actual = event_body(msgspec.structs.replace(STORED_EVENT, kind="bcc", recipient="blind@b.test"), TEAM)
    assert b"blind" not in actual
    assert json.loads(actual)["data"]["recipient_kind"] == "bcc"


def test_event_omits_texts_that_are_too_long() -> None:
    assert "bounce" not in body(detail=json.dumps({"text": "x" * 5000}))["data"]


def test_the_body_of_another_event() -> None:
    actual = body(type="credit.low", sequence=1, record=None, sandbox=None, detail='{"credit":"4.9000"}')
    assert actual["data"] == {"credit": "4.9000"}
    assert actual["sandbox"] is True  # the mode of the team
    assert body(type="verification.failed", record=None, sandbox=None, detail='{"sandbox":false}')["sandbox"] is False


def test_headers_are_in_the_event_if_they_fit() -> None:
    headers = {"X-Order": "17"}
    assert body(record=json.dumps(RECORD | {"headers": headers}))["data"]["headers"] == headers
    large = {"headers": {"X-A": '"' * 8000}, "tags": {f"tag{n}": "é" * 256 for n in range(10)}}
    full = event_body(msgspec.structs.replace(STORED_EVENT, record=json.dumps(RECORD | large)), TEAM)
    assert len(full) <= BODY_MAX and "headers" not in json.loads(full)["data"]
