"""Django's own mail functions with the backend, and what arrives."""

import email.mime.image
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import django
import pytest
from django.conf import settings
from django.core import mail
from django.test.utils import override_settings

from heliograph_client import Heliograph, codes
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
    found = client.emails.get(message.heliograph_id)
    assert (found.to, found.cc, found.bcc) == (TO, ["delivered+cc@simulator.test"], ["delivered+bcc@simulator.test"])
    assert (found.from_, found.subject, found.attachments_count) == ("hello@demo.test", "Hello", 2)
    assert (found.reply_to_addresses, found.headers) == (["a@example.com", "b@example.com"], {"X-Order": "4711"})
    assert (found.tags, found.metadata) == ({"tag": "welcome", "tag_2": "first"}, {"n": 1})


def test_a_template_for_later(client: Heliograph) -> None:
    message: Any = mail.EmailMessage(to=[TO])
    message.template_id, message.merge_global_data = "tpl_demo_welcome", {"name": "Ada"}
    message.send_at = datetime.now(UTC) + timedelta(hours=1)
    message.send()
    found = client.emails.get(message.heliograph_id)
    assert (found.subject, found.status) == ("Welcome, Ada", "queued")
    client.emails.cancel(found.id)


def test_many_and_html_alone(client: Heliograph) -> None:
    assert mail.send_mass_mail([("One", "x", SENDER, [TO]), ("Two", "x", SENDER, [TO])]) == 2
    message: Any = mail.EmailMessage("HTML", "<p>Hi</p>", to=[TO])
    message.content_subtype = "html"
    assert message.send() == 1
    assert mail.EmailMessage("Nobody", "x").send() == 0


def test_refusals_are_raised_unless_they_are_to_be_silent() -> None:
    with pytest.raises(codes.InvalidEmail):
        mail.send_mail("Hello", "x", SENDER, ["nobody"])
    assert mail.send_mail("Hello", "x", SENDER, ["nobody"], fail_silently=True) == 0


def test_settings_come_before_the_environment() -> None:
    with override_settings(HELIOGRAPH={"key": TOKENS["OTHER"]}), pytest.raises(codes.InvalidApiKey):
        mail.send_mail("Hello", "x", SENDER, [TO])
