"""Django's own mail functions with the backend, and the mails that arrive."""

import email.mime.image
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import django
import pytest
from anymail.signals import AnymailTrackingEvent
from django.conf import settings
from django.core import mail
from django.core.checks import run_checks
from django.test import RequestFactory
from django.test.utils import override_settings

from heliograph_client import Heliograph, codes
from heliograph_client.django import tracking, webhook
from tests.clients.test_webhook_views import SECRET, signed
from tests.service import TOKENS

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 20
SENDER, TO = "Demo <hello@demo.test>", "delivered@simulator.test"


@pytest.fixture(autouse=True)
def backend(environment: None) -> Iterator[None]:
    if not settings.configured:
        settings.configure()
        django.setup()
    with override_settings(EMAIL_BACKEND="heliograph_client.django.EmailBackend", DEFAULT_FROM_EMAIL=SENDER):
        yield


def test_everything_of_a_message_is_sent(client: Heliograph) -> None:
    image = email.mime.image.MIMEImage(PNG, "png")
    image.add_header("Content-ID", "<logo>")
    message: Any = mail.EmailMultiAlternatives(
        "Hello",
        "It works.",
        to=[f"Ada <{TO}>"],
        cc=["delivered+cc@simulator.test"],
        bcc=["delivered+bcc@simulator.test"],
        reply_to=["a@example.com", "B <b@example.com>"],
        headers={"X-Order": "4711"},
    )
    message.attach_alternative('<img src="cid:logo">', "text/html")
    message.attach("note.txt", "hello", "text/plain")
    message.attach(image)
    message.tags, message.metadata = ["welcome", "first"], {"n": 1}
    message.esp_extra = {"priority": "bulk"}
    assert message.send() == 1
    stored = client.emails.get(message.heliograph_id)
    assert (stored.to, stored.cc, stored.bcc) == (TO, ["delivered+cc@simulator.test"], ["delivered+bcc@simulator.test"])
    assert (stored.from_, stored.subject, stored.attachments_count) == ("hello@demo.test", "Hello", 2)
    assert (stored.reply_to_addresses, stored.headers) == (["a@example.com", "b@example.com"], {"X-Order": "4711"})
    assert (stored.tags, stored.metadata) == ({"tag": "welcome", "tag_2": "first"}, {"n": 1})


def test_a_scheduled_template_send(client: Heliograph) -> None:
    message: Any = mail.EmailMessage(to=[TO])
    message.template_id, message.merge_global_data = "tpl_demo_welcome", {"name": "Ada"}
    message.send_at = datetime.now(UTC) + timedelta(hours=1)
    message.send()
    stored = client.emails.get(message.heliograph_id)
    assert (stored.subject, stored.status) == ("Welcome, Ada", "queued")
    client.emails.cancel(stored.id)


def test_several_recipients_and_html_only(client: Heliograph) -> None:
    assert mail.send_mass_mail([("One", "x", SENDER, [TO]), ("Two", "x", SENDER, [TO])]) == 2
    message: Any = mail.EmailMessage("HTML", "<p>Hi</p>", to=[TO])
    message.content_subtype = "html"
    assert message.send() == 1
    assert mail.EmailMessage("Nobody", "x").send() == 0


def test_refusals_are_raised_unless_fail_silently() -> None:
    with pytest.raises(codes.InvalidEmail):
        mail.send_mail("Hello", "x", SENDER, ["nobody"])
    assert mail.send_mail("Hello", "x", SENDER, ["nobody"], fail_silently=True) == 0


def test_settings_come_before_the_environment() -> None:
    with override_settings(HELIOGRAPH={"key": TOKENS["OTHER"]}), pytest.raises(codes.InvalidApiKey):
        mail.send_mail("Hello", "x", SENDER, [TO])


def post_event(type_: str, **data: Any) -> tuple[int, list[Any]]:
    """Return the view's response to a signed event, and the signals that receivers got."""
    received: list[Any] = []
    data = {"id": "eml_1", "recipient": TO, **data}
    event = {"id": "evt_1", "team_id": "team_1", "created_at": "2026-11-15T09:30:00.000Z"}
    body = json.dumps(event | {"type": type_, "data": data})

    def receive(event: Any, **_: object) -> None:
        received.append(event)

    tracking.connect(receive)
    try:
        with override_settings(HELIOGRAPH_WEBHOOK_SECRET=SECRET):
            request = RequestFactory().post("/hooks", body, "application/json", headers=signed(body))
            return webhook(request).status_code, received
    finally:
        tracking.disconnect(receive)


def test_a_bounce_in_anymails_format() -> None:
    reply = {"code": "550", "text": "550 5.1.1 No such user"}
    status, [event] = post_event("email.bounced", bounce=reply, tags={"tag": "welcome"}, metadata={"n": 1})
    assert (status, event.event_type, event.reject_reason) == (204, "bounced", "bounced")
    assert (event.message_id, event.recipient, event.event_id) == ("eml_1", TO, "evt_1")
    assert (event.mta_response, event.tags, event.metadata) == (reply["text"], ["welcome"], {"n": 1})
    assert event.timestamp == datetime(2026, 11, 15, 9, 30, tzinfo=UTC)
    by_anymail = vars(AnymailTrackingEvent(event_type="bounced", timestamp=None))
    assert by_anymail.keys() == vars(event).keys()


@pytest.mark.parametrize(
    ("type_", "reasons"),
    [
        ("email.sent", [None]),
        ("email.delivered", [None]),
        ("email.complained", ["spam"]),
        ("email.failed", ["other"]),
        ("email.sending", []),
        ("sms.sent", []),
    ],
)
def test_supported_event_types(type_: str, reasons: list[str | None]) -> None:
    status, received = post_event(type_)
    assert (status, [event.reject_reason for event in received]) == (204, reasons)


def test_a_suppressed_address_is_a_rejection() -> None:
    _, [event] = post_event("email.failed", error={"reason": "suppressed", "text": "the address was suppressed"})
    assert (event.event_type, event.reject_reason) == ("rejected", "blocked")


def test_unsigned_or_foreign_events_are_refused() -> None:
    body = json.dumps({"type": "email.sent", "data": {"email_id": "eml_1"}})
    with override_settings(HELIOGRAPH_WEBHOOK_SECRET=SECRET):
        assert webhook(RequestFactory().post("/hooks", "{}", "application/json")).status_code == 400
        assert webhook(RequestFactory().get("/hooks")).status_code == 405
        resends = RequestFactory().post("/hooks", body, "application/json", headers=signed(body))
        assert webhook(resends).status_code == 400


def test_the_system_check_validates_the_key() -> None:
    assert run_checks(tags=["heliograph"], include_deployment_checks=True) == []
    with override_settings(HELIOGRAPH={"key": TOKENS["OTHER"]}):
        [error] = run_checks(tags=["heliograph"], include_deployment_checks=True)
    assert error.id == "heliograph.E001" and "settings.HELIOGRAPH" in error.hint
