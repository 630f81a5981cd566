"""Programs for Twilio's Messages API with our service, by Twilio's own library (compat.md)."""

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl

import pytest
from anyio.from_thread import start_blocking_portal
from twilio.request_validator import RequestValidator

from tests.carriers.hook_receiver import Receiver
from tests.compat.test_twilio_verify import MAGIC, refused
from tests.compat.twilio_client import client_for
from tests.service import Service, until

NUMBERS = (f"+44740060{number:04}" for number in itertools.count())
PARCEL = {"content_sid": "tpl_sms", "content_variables": json.dumps({"parcel": "4711"})}


@pytest.fixture
def messages(shared_service: Service) -> Any:
    return client_for(shared_service).messages


@pytest.fixture
def phone() -> str:
    return next(NUMBERS)


def ended(messages: Any, sid: str) -> Any:
    return until(lambda: (m := messages(sid).fetch()) and m.date_sent and m.status != "sent" and m)


def test_an_sms_from_a_template(messages: Any) -> None:
    sent = messages.create(to=MAGIC, from_="+15005550000", **PARCEL)
    assert (sent.to, sent.direction, sent.num_segments, sent.error_code) == (MAGIC, "outbound-api", "1", None)
    assert sent.status in ("sending", "sent", "delivered")
    assert sent.body == "Acme: parcel 4711 is on its way. "
    assert sent.account_sid == "AC0123456789"
    assert abs(sent.date_created - datetime.now(UTC)) < timedelta(minutes=1)
    message = ended(messages, sent.sid)
    assert (message.status, message.price) == ("delivered", None)


def test_price_and_positional_variables(messages: Any, phone: str) -> None:
    variables = json.dumps({"1": "4711", "2": "Soon."})
    sent = messages.create(to=phone, content_sid="tpl_sms", content_variables=variables)
    assert sent.body == "Acme: parcel 4711 is on its way. Soon."
    assert (ended(messages, sent.sid).price, sent.price_unit) == ("-0.0350", "USD")


def test_a_whatsapp_message(messages: Any) -> None:
    sent = messages.create(to=f"whatsapp:{MAGIC}", content_sid="tpl_whatsapp", content_variables='{"parcel": "1"}')
    assert sent.to == f"whatsapp:{MAGIC}"
    assert sent.sid.startswith("wam_")
    assert until(lambda: messages(sent.sid).fetch().status == "read")


@pytest.mark.parametrize(
    ("key", "given", "body"),
    [
        ("UDH", {"messaging_service_sid": "tpl_udh_sms"}, "Any words"),
        ("UDH", {"messaging_service_sid": "MG0123456789abcdef"}, "Service: Any words"),
        ("UDH", {"messaging_service_sid": "MG00"}, "Any words"),  # set for the team
        ("UDH", {"from_": "+15005550000"}, "Any words"),
        ("ACME_SEND", {"from_": "+15005550000"}, "Your code: Any words"),  # set for the key
    ],
)
def test_a_body_for_a_template_with_one_variable(
    shared_service: Service, key: str, given: dict[str, str], body: str
) -> None:
    messages = client_for(shared_service, key).messages
    sent = messages.create(to=MAGIC, body="Any words", **given)
    assert (sent.body, sent.account_sid) == (body, "AC0123456789")
    assert sent.messaging_service_sid == messages(sent.sid).fetch().messaging_service_sid
    assert sent.messaging_service_sid == given.get("messaging_service_sid")
    plain = shared_service.get(f"/v1/sms/{sent.sid}", key=key).json
    assert plain.get("metadata", {}) == {} and "origin" not in plain


def test_an_imported_template_by_its_twilio_sid(shared_service: Service) -> None:
    variables = json.dumps({"1": "Ada", "2": "Tea"})
    messages = client_for(shared_service, "UDH").messages
    assert messages.create(to=MAGIC, content_sid="HX0123", content_variables=variables).body == "Tea for Ada"


def test_undeclared_variables_are_ignored(messages: Any) -> None:
    variables = json.dumps({"parcel": "4711", "nobody": "x", "17": "y", "list": [1]})
    assert messages.create(to=MAGIC, content_sid="tpl_sms", content_variables=variables, body="", media_url=[]).sid


@pytest.mark.parametrize(
    ("given", "status", "code"),
    [
        ({"to": "123"}, 400, 21211),
        ({"content_sid": "", "body": "Hello"}, 400, 21654),
        ({"content_sid": "", "body": "Hello", "messaging_service_sid": "MG123"}, 400, 21654),
        ({"content_sid": "", "body": "Hello", "messaging_service_sid": "tpl_sms"}, 400, 21654),
        ({"content_sid": "HX123"}, 400, 21655),
        ({"content_sid": "HX" + "0" * 32}, 400, 21655),
        ({"content_sid": "nothing"}, 400, 21655),
        ({"media_url": ["https://shop.test/a.png"]}, 400, 20001),
        ({"content_sid": "tpl_whatsapp"}, 400, 21655),
        ({"content_variables": "{}"}, 400, 21656),
        ({"content_variables": '{"nobody": "x"}'}, 400, 21656),
        ({"content_variables": "[1"}, 400, 21656),
        ({"content_variables": "[]"}, 400, 21656),
        ({"to": "+15005550007"}, 503, 21612),
        ({"status_callback": "http://127.0.0.1:1/"}, 400, 21609),
        ({"send_at": datetime.now(UTC) + timedelta(days=90), "schedule_type": "fixed"}, 400, 35111),
        ({"send_at": datetime.now(UTC)}, 400, 20001),
        ({"validity_period": "x"}, 400, 20001),
    ],
)
def test_refused_message_has_the_error_code_of_twilio(
    messages: Any, given: dict[str, Any], status: int, code: int
) -> None:
    refused(lambda: messages.create(**{"to": MAGIC} | PARCEL | given), status, code)


def test_free_text_is_refused_with_our_reason(messages: Any) -> None:
    error = refused(lambda: messages.create(to=MAGIC, body="Hello"), 400, 21654)
    assert "approved templates" in error.msg


def test_an_accepted_but_undeliverable_message_is_undelivered(messages: Any) -> None:
    sent = messages.create(to="+15005550004", **PARCEL)
    message = until(lambda: (m := messages(sent.sid).fetch()).error_code and m)
    assert (message.status, message.error_code, message.error_message) == (
        "undelivered",
        30008,
        "could not be delivered (simulator)",
    )
    refusal = messages.create(to="+15005550001", **PARCEL)
    assert until(lambda: messages(refusal.sid).fetch().status == "failed")


def test_scheduled_message_is_canceled_once(messages: Any) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    sent = messages.create(to=MAGIC, send_at=at, schedule_type="fixed", **PARCEL)
    assert sent.status == "scheduled"
    assert messages(sent.sid).update(status="canceled").status == "canceled"
    refused(lambda: messages(sent.sid).update(status="canceled"), 409, 20409)


def test_finished_message_is_redacted_and_deleted(messages: Any) -> None:
    waiting = messages.create(to=MAGIC, send_at=datetime.now(UTC) + timedelta(hours=1), schedule_type="fixed", **PARCEL)
    refused(lambda: messages(waiting.sid).update(body=""), 409, 20409)
    sent = messages.create(to=MAGIC, **PARCEL)
    ended(messages, sent.sid)
    assert messages(sent.sid).update(body="").body == ""
    assert messages(sent.sid).delete() is True
    refused(lambda: messages(sent.sid).fetch(), 404, 20404)
    refused(lambda: messages(sent.sid).delete(), 404, 20404)
    refused(lambda: messages("eml_1").fetch(), 404, 20404)
    refused(lambda: messages(waiting.sid).update(body="Other"), 400, 20001)


def test_lists_are_paginated(messages: Any, phone: str) -> None:
    sids = [messages.create(to=phone, **PARCEL).sid for _ in range(5)]
    assert [message.sid for message in messages.list(to=phone, page_size=2)] == sids[::-1]
    assert [message.sid for message in messages.list(to=phone, limit=3)] == sids[:1:-1]
    today = datetime.now(UTC)
    assert len(messages.list(to=phone, date_sent=today.date())) == 5
    assert messages.list(to=phone, date_sent_after=today + timedelta(days=1)) == []
    assert messages.list(to=phone, date_sent_before=today - timedelta(hours=1)) == []
    assert len(messages.list(to=phone, date_sent_before=today + timedelta(hours=1))) == 5
    sender = messages.list(to=phone, limit=1)[0].from_
    assert len(messages.list(to=phone, from_=sender, page_size=2)) == 5
    assert messages.list(to=phone, from_="+15005559999") == []
    assert messages.list(to=f"whatsapp:{phone}") == []
    both = messages.list(limit=100)
    assert {sids[0][:4]} <= {message.sid[:4] for message in both} <= {"sms_", "wam_"}


# -- callbacks ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(Receiver()) as running:
        yield running


def test_callbacks_pass_twilios_validator(shared_service: Service, messages: Any, receiver: Receiver) -> None:
    everywhere, message_url = f"{receiver.url}/all", f"{receiver.url}/own?for=one"
    created = shared_service.post(
        "/v1/webhooks", {"url": everywhere, "events": ["sms.sent", "sms.failed"], "format": "twilio"}
    ).json
    validator = RequestValidator(created["secret"])

    def callbacks_to(sid: str, url: str) -> list[dict[str, str]]:
        forms = [(dict(parse_qsl(request.body)), request) for request in receiver.received]
        matching = [(form, request) for form, request in forms if form.get("MessageSid") == sid]
        for form, request in matching:
            assert url.endswith(request.path)
            assert validator.validate(url, form, request.headers["x-twilio-signature"])
        return [form for form, _ in matching]

    try:
        failing = messages.create(to="+15005550004", **PARCEL).sid
        arriving = messages.create(to=MAGIC, status_callback=message_url, **PARCEL).sid
        callbacks = until(lambda: len(received := callbacks_to(failing, everywhere)) == 2 and received)
        assert [callback["MessageStatus"] for callback in callbacks] == ["sent", "undelivered"]
        last = callbacks[-1]
        assert (last["SmsStatus"], last["ErrorCode"], last["To"]) == ("undelivered", "30008", "+15005550004")
        assert (last["SmsSid"], last["ApiVersion"]) == (failing, "2010-04-01")
        message = messages(failing).fetch()
        assert (last["From"], last["AccountSid"]) == (message.from_, message.account_sid)
        assert (message.from_, message.account_sid) == ("Heliograph", "AC0123456789")
        assert until(
            lambda: (
                [callback["MessageStatus"] for callback in callbacks_to(arriving, message_url)] == ["sent", "delivered"]
            )
        )
        steered = {"to": MAGIC, "template_id": PARCEL["content_sid"], "variables": {"parcel": "1"}}
        steered["metadata"] = {"StatusCallback": message_url}
        plain = shared_service.post("/v1/sms", steered).json["id"]
        assert until(lambda: [callback["MessageStatus"] for callback in callbacks_to(plain, everywhere)] == ["sent"])
        refused(lambda: messages.create(to=MAGIC, status_callback="http://10.0.0.1/", **PARCEL), 400, 21609)
    finally:
        shared_service.ask("DELETE", f"/v1/webhooks/{created['id']}")


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("GET", "/v2/Services", 405, "Each team is one service"),
        ("GET", "/v2/Services/VA1/RateLimits", 404, "The team's limits are in the dashboard"),
        ("GET", "/v2/Services/VA1/Webhooks", 404, "POST /v1/webhooks"),
        ("GET", "/2010-04-01/Accounts/AC1/Messages/SM1/Media.json", 404, "Media are not supported"),
        ("GET", "/2010-04-01/Accounts/AC1.json", 404, "returns the team"),
        ("GET", "/v3/Nothing", 404, "This call is not supported"),
    ],
)
def test_unsupported_calls_explain_why(
    shared_service: Service, method: str, path: str, status: int, words: str
) -> None:
    response = shared_service.ask(method, f"/compat/twilio{path}", key="ACME")
    assert (response.status, response.json["status"], response.json["code"] // 1000) == (status, status, 20)
    assert words in response.json["message"]
