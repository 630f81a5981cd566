"""Events in other services' formats: which are sent, and how the unmodified libraries of those services parse them."""

import hashlib
import hmac
import json
import time
from base64 import b64decode, b64encode
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import pytest
import resend
import standardwebhooks
import svix
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from heliograph.domain.events import EVENT_TYPES, SCHEDULED, StoredEvent, scheduled_data
from heliograph.domain.setup.records import Webhook
from heliograph.webhooks.policy.formats.formats import FORMATS, is_subscribed
from heliograph.webhooks.policy.signature import SignatureInput, make_secret
from tests.compat.site import anymail, track
from tests.domain.test_event import STORED_EVENT, TEAM
from tests.fast_crypto import RSA_KEYS

SECRET, OLD = make_secret(bytes(range(24))), make_secret(bytes(range(24, 48)))
RECORD = {
    "id": "eml_1",
    "to": "first@b.test",
    "to_addresses": ["first@b.test", "a@b.test"],
    "cc": [],
    "bcc": ["blind@b.test"],
    "from": "hello@acme.test",
    "subject": "Grüße",
    "created_at": "2026-11-15T06:37:44.000Z",
    "tags": {"kind": "receipt"},
    "headers": {"X-Tags": '["receipt", "eu"]', "X-Metadata": '{"order": 17}'},
}
BOUNCE = '{"code":"550","enhanced":"5.1.1","text":"550 5.1.1 No such user"}'


def event(type_: str, detail: str | None = None, **extra: Any) -> StoredEvent:
    status = type_.partition(".")[2]
    record = json.dumps(RECORD) if type_.startswith("email.") else None
    return msgspec.structs.replace(STORED_EVENT, type=type_, status=status, detail=detail, record=record, **extra)


def request_for(
    stored_event: StoredEvent, secrets: tuple[str, ...] = (SECRET,), format_name: str = "resend"
) -> tuple[bytes, dict[str, str]]:
    webhook_format = FORMATS[format_name]
    body = webhook_format.body(stored_event, TEAM)
    key = RSA_KEYS[0].decode()
    signing = SignatureInput(
        secrets=secrets,
        private_key=key,
        url="https://a.test",
        event_id=stored_event.id,
        timestamp_s=int(time.time()),
        body=body,
    )
    return body, webhook_format.headers(signing)


def is_service_signed(secret: str, signature: str, body: bytes) -> bool:
    """Verify the signature as docs/webhooks.md describes."""
    (_, t), *signatures = [part.split("=") for part in signature.split(",")]
    return ["v1", hmac.digest(secret.encode(), t.encode() + b"." + body, "sha256").hex()] in signatures


@pytest.mark.parametrize(
    ("format_", "asked", "reason", "is_told"),
    [
        ("heliograph", (), "canceled", True),
        ("twilio", (), "canceled", False),  # Twilio's format has no email events
        ("postmark", (), "canceled", False),
        ("postal", (), "canceled", False),
        ("postal", (), "expired", True),
        ("postmark", (), "expired", True),
        ("resend", (), "canceled", False),
        ("resend", (), "suppressed", True),
        ("resend", ("email.failed",), None, True),
        ("resend", ("email.failed",), "canceled", False),
        ("resend", ("email.failed",), "suppressed", False),
        ("resend", ("email.canceled",), "canceled", True),
        ("resend", ("email.canceled",), None, False),
        ("resend", ("email.suppressed",), "suppressed", True),
    ],
)
def test_failed_event_is_filtered_by_the_names_of_the_format(
    format_: str, asked: tuple[str, ...], reason: str | None, is_told: bool
) -> None:
    hook = Webhook(id="w", team="t", url="", secret="", format=format_, asked=asked)
    assert is_subscribed(hook, "email.failed", reason) == is_told


@pytest.mark.parametrize(
    ("format_", "events", "asked", "is_told"),
    [
        ("heliograph", ("*",), (), False),
        ("postmark", ("*",), (), False),
        ("resend", ("*",), (), True),
        ("resend", ("email.sent",), (), False),
        ("resend", ("email.sending",), ("email.scheduled",), True),
        ("resend", ("email.sending",), ("email.sent",), False),
    ],
)
def test_scheduled_event_exists_only_in_the_resend_format(
    format_: str, events: tuple[str, ...], asked: tuple[str, ...], is_told: bool
) -> None:
    hook = Webhook(id="w", team="t", url="", secret="", format=format_, events=events, asked=asked)
    assert is_subscribed(hook, SCHEDULED) == is_told


@pytest.mark.parametrize(("kind", "to"), [("to", ["ann@example.com"]), ("bcc", [])])
def test_a_scheduled_mail_names_one_recipient_and_no_blind_copy(kind: str, to: list[str]) -> None:
    detail = scheduled_data(event("email.sent").record or "", "ann@example.com", kind)
    item = msgspec.structs.replace(STORED_EVENT, type=SCHEDULED, sequence=None, status=None, detail=detail, record=None)
    body = json.loads(request_for(item)[0])
    assert (body["type"], body["data"]["to"], body["data"]["email_id"]) == (SCHEDULED, to, json.loads(detail)["id"])
    assert "bcc" not in body["data"]


def test_canceled_event_has_its_own_name() -> None:
    body = json.loads(request_for(event("email.failed", '{"reason":"canceled","text":"x"}'))[0])
    assert (body["type"], "failed" in body["data"]) == ("email.canceled", False)


@pytest.mark.parametrize(
    ("format_", "untold"),
    [
        ("heliograph", ()),
        ("resend", [name for name in EVENT_TYPES if name.startswith(("sms.", "whatsapp.", "verification."))]),
        ("resend", ["email.sending", "credit.low"]),
        ("postmark", [name for name in EVENT_TYPES if not name.startswith(("email.", "suppression."))]),
        ("postmark", ["email.sending", "email.sent", "email.received"]),
    ],
)
def test_endpoint_gets_only_events_that_its_format_knows(format_: str, untold: list[str]) -> None:
    hook = Webhook(id="whk_1", team="team_1", url="https://a.test", secret="s", format=format_)
    assert not any(is_subscribed(hook, name) for name in untold)
    assert is_subscribed(hook, "email.bounced") and is_subscribed(hook, "suppression.created")
    assert not is_subscribed(msgspec.structs.replace(hook, events=("email.sent",)), "email.bounced")


@pytest.mark.parametrize("format_", FORMATS)
def test_every_format_of_a_webhook_carries_the_service_signature(format_: str) -> None:
    type_ = "sms.delivered" if format_ == "twilio" else "email.delivered"
    body, headers = request_for(event(type_), (SECRET, OLD), format_)
    for secret in (SECRET, OLD):
        assert is_service_signed(secret, headers["X-Service-Signature"], body)
        assert not is_service_signed(secret, headers["X-Service-Signature"], body + b" ")


def test_resend_format_of_a_bounce_has_the_expected_body() -> None:
    body, headers = request_for(event("email.bounced", BOUNCE))
    assert json.loads(body) == {
        "type": "email.bounced",
        "created_at": "2026-11-15T06:37:45.047Z",
        "data": {
            "email_id": "eml_1",
            "created_at": "2026-11-15T06:37:44.000Z",
            "from": "hello@acme.test",
            "to": ["a@b.test"],
            "subject": "Grüße",
            "tags": {"kind": "receipt"},
            "headers": [
                {"name": "X-Tags", "value": '["receipt", "eu"]'},
                {"name": "X-Metadata", "value": '{"order": 17}'},
            ],
            "bounce": {
                "type": "Permanent",
                "subType": "General",
                "message": "The recipient's email provider sent a hard bounce message: 550 5.1.1 No such user",
                "diagnosticCode": ["smtp; 550 5.1.1 No such user"],
            },
        },
    }
    assert headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("type_", "detail", "name", "part"),
    [
        ("email.failed", '{"reason":"expired","text":"too late"}', "email.failed", {"failed": {"reason": "expired"}}),
        ("email.failed", '{"text":"554 no"}', "email.failed", {"failed": {"reason": "554 no"}}),
        ("email.failed", None, "email.failed", {"failed": {"reason": "failed"}}),
        ("email.complained", '{"text":"abuse"}', "email.complained", {"email_id": "eml_1"}),
        ("domain.verified", '{"id":"dom_1","name":"a.test"}', "domain.updated", {"status": "verified"}),
        ("domain.failed", '{"id":"dom_1","name":"a.test"}', "domain.updated", {"id": "dom_1", "status": "failed"}),
        (
            "suppression.created",
            '{"email":"a@b.test","reason":"bounce","source_message_id":"eml_1","detail":null,"created_at":"2026"}',
            "suppression.added",
            {"id": "a@b.test", "email": "a@b.test", "origin": "bounce", "source_id": "eml_1", "created_at": "2026"},
        ),
        ("webhook.test", '{"id":"whk_1"}', "webhook.test", {"id": "whk_1"}),
        ("sms.sent", '{"id":"sms_1"}', "sms.sent", {"id": "sms_1"}),  # queued before the format was changed
    ],
)
def test_resend_format_maps_each_event_type(type_: str, detail: str | None, name: str, part: dict[str, Any]) -> None:
    body = json.loads(request_for(event(type_, detail))[0])
    assert body["type"] == name
    assert body["data"] | part == body["data"]


def test_resend_format_hides_bcc_recipients() -> None:
    body, _ = request_for(event("email.bounced", BOUNCE, kind="bcc", recipient="blind@b.test"))
    assert b"blind" not in body
    assert json.loads(body)["data"]["to"] == []


@pytest.mark.parametrize("secret", [SECRET, OLD])
def test_resend_library_verifies_our_signature(secret: str) -> None:
    body, headers = request_for(event("email.delivered"), (SECRET, OLD))
    values = {name: headers[f"svix-{name}"] for name in ("id", "timestamp", "signature")}
    options = {"payload": body.decode(), "headers": values, "webhook_secret": secret}
    verified = resend.Webhooks.verify(options)  # type: ignore[arg-type]
    assert verified["type"] == "email.delivered"
    svix.Webhook(secret).verify(body, headers)  # raises an error if the signature is invalid
    assert standardwebhooks.Webhook(secret).verify(body, headers)["data"]["email_id"] == "eml_1"
    with pytest.raises(ValueError, match="no matching signature"):
        resend.Webhooks.verify({**options, "payload": body.decode() + " "})  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("type_", "detail", "event_type", "reason"),
    [
        ("email.sent", None, "sent", None),
        ("email.delivered", None, "delivered", None),
        ("email.bounced", BOUNCE, "bounced", "bounced"),
        ("email.bounced", None, "bounced", "bounced"),
        ("email.complained", None, "complained", None),
        ("email.failed", '{"reason":"suppressed","text":"on the list"}', "unknown", "blocked"),
    ],
)
def test_anymail_parses_the_resend_format(type_: str, detail: str | None, event_type: str, reason: str | None) -> None:
    with anymail(RESEND_SIGNING_SECRET=SECRET):
        (received,) = track("resend", *request_for(event(type_, detail)))
    assert (received.event_type, received.reject_reason) == (event_type, reason)
    assert (received.message_id, received.event_id, received.recipient) == ("eml_1", "evt_1", "a@b.test")
    assert (received.tags, received.metadata) == (["receipt", "eu"], {"order": 17})
    assert received.timestamp.isoformat() == "2026-11-15T06:37:45.047000+00:00"


# -- Postal ------------------------------------------------------------------------------------------------------------

KEY = load_pem_private_key(RSA_KEYS[0], None).public_key()
PUBLIC = b64encode(KEY.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).decode()
FAILED = '{"reason":"expired","text":"too late"}'


def test_postal_format_of_a_delivery_has_the_expected_body() -> None:
    record = RECORD | {"tags": {"tag": "receipt"}}
    body, headers = request_for(
        msgspec.structs.replace(event("email.delivered"), record=json.dumps(record)), format_name="postal"
    )
    assert json.loads(body) == {
        "event": "MessageSent",
        "timestamp": 1794724665.047,
        "payload": {
            "message": {
                "id": "eml_1",
                "token": "eml_1",
                "direction": "outgoing",
                "message_id": "eml_1@acme.test",
                "to": "a@b.test",
                "from": "hello@acme.test",
                "subject": "Grüße",
                "timestamp": 1794724664.0,
                "spam_status": "NotChecked",
                "tag": "receipt",
            },
            "status": "Sent",
            "details": "",
            "output": "",
            "sent_with_ssl": False,
            "timestamp": 1794724665.047,
            "time": None,
        },
        "uuid": "evt_1",
    }
    KEY.verify(b64decode(headers["X-Postal-Signature-256"]), body, PKCS1v15(), SHA256())  # type: ignore[union-attr, call-arg, arg-type]
    named = hashlib.sha256(KEY.public_bytes(Encoding.DER, PublicFormat.PKCS1)).hexdigest()
    assert headers["X-Postal-Signature-KID"] == named


@pytest.mark.parametrize(
    ("type_", "detail", "event_type", "reason", "output"),
    [
        ("email.delivered", None, "delivered", None, ""),
        ("email.delayed", '{"delay":{}}', "deferred", None, ""),
        ("email.failed", FAILED, "failed", None, "too late"),
        ("email.bounced", BOUNCE, "bounced", "bounced", None),
    ],
)
def test_anymail_parses_the_postal_format(
    type_: str, detail: str | None, event_type: str, reason: str | None, output: str | None
) -> None:
    with anymail(POSTAL_WEBHOOK_KEY=PUBLIC):
        (received,) = track("postal", *request_for(event(type_, detail), format_name="postal"))
    assert (received.event_type, received.reject_reason, received.mta_response) == (event_type, reason, output)
    assert (received.message_id, received.event_id, received.recipient) == ("eml_1", "evt_1", "a@b.test")


def test_postal_format_covers_email_only_and_hides_bcc() -> None:
    hook = Webhook(id="w", team="t", url="", secret="", format="postal")
    assert [name for name in EVENT_TYPES if is_subscribed(hook, name)] == sorted(
        ["email.delivered", "email.bounced", "email.failed", "email.delayed"], key=EVENT_TYPES.index
    )
    body, _ = request_for(event("email.bounced", BOUNCE, kind="bcc", recipient="blind@b.test"), format_name="postal")
    assert b"blind" not in body


# -- Twilio ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "detail", "from_"),
    [
        ("sms.delivered", None, "Acme"),  # before a carrier accepted the message, and from simulators
        ("sms.delivered", '{"sender":"+12025550123"}', "+12025550123"),
        ("sms.delivered", '{"sender":"12025550123"}', "+12025550123"),  # sender as in SMPP
        ("sms.failed", '{"sender":"70707","reason":"expired"}', "70707"),
        ("sms.sent", '{"sender":"MG0123456789"}', "Acme"),  # a messaging service of Twilio: the sender is unknown
        ("whatsapp.delivered", '{"sender":"1234567890"}', "whatsapp:Acme"),  # Meta's id of the number, not the number
    ],
)
def test_twilios_format_names_the_sender_that_the_carrier_used(type_: str, detail: str | None, from_: str) -> None:
    channel, _, status = type_.partition(".")
    id_ = {"sms": "sms_1", "whatsapp": "wam_1"}[channel]
    record = json.dumps({"id": id_, "to": "+447700900123", "sender_id": "Acme"})
    item = msgspec.structs.replace(STORED_EVENT, type=type_, status=status, detail=detail, record=record)
    form = dict(parse_qsl(request_for(item, format_name="twilio")[0].decode()))
    assert form["From"] == from_


# -- Postmark ----------------------------------------------------------------------------------------------------------


def test_postmark_format_of_a_bounce_has_the_expected_body() -> None:
    record = RECORD | {"tags": {"tag": "receipt"}, "metadata": {"order": "17"}}
    item = msgspec.structs.replace(event("email.bounced", BOUNCE), record=json.dumps(record))
    body, headers = request_for(item, format_name="postmark")
    received = json.loads(body)
    assert 0 < received.pop("ID") < 2**53
    assert received == {
        "RecordType": "Bounce",
        "ServerID": TEAM.record.ref,
        "MessageStream": "outbound",
        "MessageID": "eml_1",
        "Metadata": {"order": "17"},
        "Tag": "receipt",
        "Type": "HardBounce",
        "TypeCode": 1,
        "Name": "Hard bounce",
        "Description": "The server was unable to deliver your message (ex: unknown user).",
        "Details": "550 5.1.1 No such user",
        "Email": "a@b.test",
        "From": "hello@acme.test",
        "Subject": "Grüße",
        "BouncedAt": "2026-11-15T06:37:45.047Z",
        "Inactive": True,
        "CanActivate": True,
        "DumpAvailable": False,
    }
    assert headers["Content-Type"] == "application/json"


REFUSED = '{"code":"554","enhanced":"5.7.1","text":"554 5.7.1 blocked","suppressed":false}'


def test_a_bounce_that_does_not_suppress_is_soft_in_postmarks_format() -> None:
    told_ = json.loads(request_for(event("email.bounced", REFUSED), format_name="postmark")[0])
    assert (told_["Type"], told_["Inactive"], told_["Details"]) == ("SoftBounce", False, "554 5.7.1 blocked")


def test_a_bounce_that_does_not_suppress_is_transient_in_resends_format() -> None:
    bounce = json.loads(request_for(event("email.bounced", REFUSED))[0])["data"]["bounce"]
    assert (bounce["type"], bounce["diagnosticCode"]) == ("Transient", ["smtp; 554 5.7.1 blocked"])
    assert bounce["message"] == "The recipient's email provider sent a bounce message: 554 5.7.1 blocked"


SUPPRESSED = '{"email":"a@b.test","reason":"%s","source_message_id":"eml_1","detail":null,"created_at":"2026"}'


@pytest.mark.parametrize(
    ("type_", "detail", "event_type", "reason"),
    [
        ("email.delivered", None, "delivered", None),
        ("email.bounced", BOUNCE, "bounced", "bounced"),
        ("email.complained", None, "complained", "spam"),
        ("email.failed", '{"text":"450 try later"}', "bounced", "bounced"),
        ("email.failed", '{"reason":"suppressed","text":"on the list"}', "rejected", "blocked"),
        ("suppression.created", SUPPRESSED % "bounce", "bounced", "bounced"),
        ("suppression.created", SUPPRESSED % "manual", "unsubscribed", "unsubscribed"),
        ("suppression.deleted", SUPPRESSED % "complaint", "subscribed", None),
    ],
)
def test_anymail_parses_the_postmark_format(
    type_: str, detail: str | None, event_type: str, reason: str | None
) -> None:
    with anymail(WEBHOOK_SECRET=f"heliograph:{SECRET}"):
        (received,) = track("postmark", *request_for(event(type_, detail), format_name="postmark"))
    assert (received.event_type, received.reject_reason) == (event_type, reason)
    assert (received.message_id, received.recipient) == ("eml_1", "a@b.test")
    assert received.timestamp.isoformat() == "2026-11-15T06:37:45.047000+00:00"


def test_postmark_format_hides_bcc_recipients() -> None:
    blind = event("email.bounced", BOUNCE, kind="bcc", recipient="blind@b.test")
    assert b"blind" not in request_for(blind, format_name="postmark")[0]
    assert json.loads(request_for(event("sms.sent", '{"id":"sms_1"}'), format_name="postmark")[0])["id"] == "sms_1"


RECEIVED = {
    "object": "received",
    "id": "rcv_1",
    "from": "ann@b.test",
    "to": ["support+7@in.acme.test"],
    "cc": ["bob@b.test"],
    "recipients": ["support+7@in.acme.test"],
    "subject": "Re: Grüße",
    "text": "Thanks!\n> Hello",
    "html": "<p>Thanks!</p>",
    "reply_text": "Thanks!",
    "message_id": "<1@b.test>",
    "in_reply_to": None,
    "automatic": False,
    "headers": [["Date", "Sun, 15 Nov 2026 06:37:44 +0000"], ["Reply-To", "ann@c.test"]],
    "attachments": [
        {"id": "att_1", "filename": "a.png", "content_type": "image/png", "size": 9, "content_id": None},
        {"id": "att_2", "filename": "b.png", "content_type": "image/png", "size": 9, "content_id": "b"},
    ],
    "authentication": {"spf": "pass", "dkim": "pass", "dmarc": "pass"},
    "truncated": False,
}
RECEIVED_EVENT = msgspec.structs.replace(
    STORED_EVENT, type="email.received", status=None, detail=json.dumps(RECEIVED), record=None
)


def test_resend_format_of_inbound_mail_has_the_expected_body() -> None:
    received = json.loads(request_for(RECEIVED_EVENT)[0])
    assert received["type"] == "email.received"
    assert {name: received["data"][name] for name in ("email_id", "from", "to", "cc", "message_id", "subject")} == {
        "email_id": "rcv_1",
        "from": "ann@b.test",
        "to": ["support+7@in.acme.test"],
        "cc": ["bob@b.test"],
        "message_id": "<1@b.test>",
        "subject": "Re: Grüße",
    }
    assert [item["content_disposition"] for item in received["data"]["attachments"]] == ["attachment", "inline"]
    assert not {"text", "html"} & set(received["data"])


def test_postmark_format_of_inbound_mail_has_the_expected_body() -> None:
    body, _ = request_for(RECEIVED_EVENT, format_name="postmark")
    received = json.loads(body)
    assert {
        name: received[name] for name in ("MessageID", "MailboxHash", "StrippedTextReply", "TextBody", "ReplyTo")
    } == {
        "MessageID": "rcv_1",
        "MailboxHash": "7",
        "StrippedTextReply": "Thanks!",
        "TextBody": "Thanks!\n> Hello",
        "ReplyTo": "ann@c.test",
    }
    assert received["ToFull"] == [{"Email": "support+7@in.acme.test", "Name": "", "MailboxHash": "7"}]
    assert received["Headers"][0] == {"Name": "Date", "Value": "Sun, 15 Nov 2026 06:37:44 +0000"}
    assert [(item["Name"], item["ContentLength"]) for item in received["Attachments"]] == [("a.png", 9), ("b.png", 9)]


def test_anymail_parses_inbound_mail() -> None:
    """anymail's view for Postmark; its view for Resend fetches the mail (tests/journeys/test_received.py)."""
    with anymail(WEBHOOK_SECRET=f"heliograph:{SECRET}"):
        (received,) = track("postmark", *request_for(RECEIVED_EVENT, format_name="postmark"), about="inbound")
    message = received.message
    assert (received.event_id, message.envelope_recipient) == ("rcv_1", "support+7@in.acme.test")
    assert (message.from_email.addr_spec, message.subject) == ("ann@b.test", "Re: Grüße")
    assert (message.text, message.html, message.stripped_text) == ("Thanks!\n> Hello", "<p>Thanks!</p>", "Thanks!")
    assert [item.addr_spec for item in message.to + message.cc] == ["support+7@in.acme.test", "bob@b.test"]
    # Without their content (webhooks.md). Postmark documents the empty ContentID; anymail takes it for an inline part.
    assert [item.get_filename() for item in message.inlines] == ["a.png", "b.png"]
    assert message["Reply-To"] == "ann@c.test"


@pytest.mark.parametrize(("events", "is_told"), [(("*",), False), (("email.*",), False), (("email.received",), True)])
def test_postmark_format_sends_inbound_mail_only_to_webhooks_subscribed_by_name(
    events: tuple[str, ...], is_told: bool
) -> None:
    """A receiver of bounces would not understand inbound mail: it gets it only if subscribed by name."""
    hook = Webhook(id="whk_1", team="team_1", url="https://a.test", secret="s", format="postmark", events=events)
    assert is_subscribed(hook, "email.received") is is_told
    assert is_subscribed(msgspec.structs.replace(hook, format="resend"), "email.received")
