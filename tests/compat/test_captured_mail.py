"""`catch`: messages of other services' clients to a sandbox team are accepted and not sent."""

import smtplib
import socket
from base64 import b64encode
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from heliograph.domain.setup.keys import make_token
from tests.service import PATIENCE_S, Answer, Service, free_port, until

TOKEN = make_token(bytes([77]) * 64)
ACCOUNT = "AC" + 32 * "1"
MAIL = {
    "from": "Acme <onboarding@resend.dev>",
    "to": "delivered@resend.dev",
    "subject": "Hi",
    "html": "<p>It works</p>",
}
SETUP = """
[[carriers]]
id = "relay"
channel = "email"
kind = "smtp"
host = "127.0.0.1"
port = {port}
tls = "none"

[[carriers]]
id = "texts"
channel = "sms"
kind = "http"
url = "http://127.0.0.1:{port}/"
body = '{{"to": "{{{{to}}}}", "text": "{{{{text}}}}"}}'
accepted = {{ status = [200], id = "$.id" }}

[[carriers]]
id = "chats"
channel = "whatsapp"
kind = "cloud_api"
base_url = "http://127.0.0.1:{port}"
phone_number_id = "1"
access_token = "t"
app_secret = "s"
verify_token = "v"

[[teams]]
id = "team_catch"
name = "Catch"
catch = true
features = ["verify"]
verify = {{ inbox = true, min_interval_s = 0 }}

  [[teams.keys]]
  name = "k"
  token = "{token}"
  scopes = ["send", "manage"]

  [[teams.recipients]]
  address = "real@example.com"

  [[teams.recipients]]
  address = "+14155550123"
"""


@pytest.fixture(scope="module")
def world() -> Iterator[socket.socket]:
    """The servers to which real carriers would connect; none may be contacted."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening
        with pytest.raises(BlockingIOError):
            listening.accept()


@pytest.fixture(scope="module")
def catching(tmp_path_factory: pytest.TempPathFactory, world: socket.socket) -> Iterator[Service]:
    folder, mails = tmp_path_factory.mktemp("catch"), free_port()
    file = folder / "setup.toml"
    file.write_text(SETUP.format(port=world.getsockname()[1], token=TOKEN))
    url = f"sqlite:///{folder / 'heliograph.db'}"
    with Service(url, folder / "data", submission_listen=f"127.0.0.1:{mails}") as running:
        running.apply(file)
        running.start()
        running.mails = mails  # type: ignore[attr-defined]
        yield running


def resend(service: Service, **fields: Any) -> Answer:
    return service.post("/compat/resend/emails", MAIL | fields, key=TOKEN)


def twilio(service: Service, path: str, **form: str) -> Answer:
    basic = b64encode(f"{ACCOUNT}:{TOKEN}".encode()).decode()
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Authorization": f"Basic {basic}"}
    return service.post(f"/compat/twilio{path}", urlencode(form).encode(), key=None, headers=headers)


def text(service: Service, **form: str) -> Answer:
    return twilio(service, f"/2010-04-01/Accounts/{ACCOUNT}/Messages.json", **form)


def ended(service: Service, id_: str, channel: str = "emails") -> Any:
    """Return the record once its state is final; a real carrier would be in its timeline."""
    final = until(
        lambda: (
            record
            if (record := service.get(f"/v1/{channel}/{id_}", key=TOKEN).json)["status"]
            not in ("queued", "sending", "sent")
            else None
        )
    )
    assert not any(carrier in str(final["events"]) for carrier in ("relay", "texts", "chats"))
    return final


@pytest.mark.parametrize(
    ("to", "last"),
    [
        ("delivered@resend.dev", "delivered"),
        ("bounced@resend.dev", "bounced"),
        ("complained+label@resend.dev", "complained"),
        ("suppressed@resend.dev", "suppressed"),
        ("somebody@gmail.com", "delivered"),
        ("real@example.com", "delivered"),
    ],
)
def test_resend_test_addresses_have_resends_outcomes(catching: Service, to: str, last: str) -> None:
    for _ in range(2):
        sent = resend(catching, to=[to])
        assert sent.status == 200, sent.raw
        path = f"/compat/resend/emails/{sent.json['id']}"
        assert until(lambda: catching.get(path, key=TOKEN).json["last_event"] == last)  # noqa: B023
        email = catching.get(path, key=TOKEN).json
        assert (email["from"], email["to"]) == ("Acme <onboarding@resend.dev>", [to])
    assert catching.get("/v1/suppressions", key=TOKEN).json["data"] == []


def test_captured_mail_is_in_the_inbox(catching: Service) -> None:
    sent = resend(catching, to="inbox@gmail.com", subject="For the inbox").json["id"]
    entries = catching.get("/v1/inbox?to=inbox@gmail.com&wait=10", key=TOKEN).json["data"]
    assert [(entry["id"], entry["subject"]) for entry in entries] == [(sent, "For the inbox")]


@pytest.mark.parametrize(
    ("path", "headers", "body", "id_"),
    [
        (
            "/compat/postmark/email",
            {"X-Postmark-Server-Token": TOKEN},
            {"From": "Any Name <sender@example.org>", "To": "x@gmail.com", "Subject": "Hi", "TextBody": "Hello"},
            lambda told: told["MessageID"],
        ),
        (
            "/compat/postal/api/v1/send/message",
            {"X-Server-API-Key": TOKEN},
            {"from": "Any Name <test@example.com>", "to": ["x@gmail.com"], "subject": "Hi", "plain_body": "Hello"},
            lambda told: told["data"]["message_id"],
        ),
    ],
    ids=["postmark", "postal"],
)
def test_mail_of_other_services_is_captured(
    catching: Service, path: str, headers: dict[str, str], body: Any, id_: Any
) -> None:
    sent = catching.post(path, body, key=None, headers=headers)
    assert sent.status == 200, sent.raw
    assert ended(catching, id_(sent.json))["status"] == "delivered"


def test_smtp_submissions_are_captured(catching: Service) -> None:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = '"Fred Foo" <fred@foo.example>', "bar@gmail.com", "Hello"
    mail.set_content("Hello?")
    with smtplib.SMTP("127.0.0.1", catching.mails, timeout=PATIENCE_S) as client:  # type: ignore[attr-defined]
        client.login("heliograph", TOKEN)
        assert client.send_message(mail) == {}
    emails = catching.get("/v1/emails?to=bar@gmail.com", key=TOKEN).json["data"]
    assert [ended(catching, email["id"])["from"] for email in emails] == ["fred@foo.example"]


@pytest.mark.parametrize(
    ("given", "channel", "status"),
    [
        ({"To": "+15558675310", "From": "+15017122661"}, "sms", "delivered"),
        ({"To": "+14155550123", "From": "+15017122661"}, "sms", "delivered"),  # verified: sent by a real carrier on /v1
        ({"To": "+15005550006", "From": "+15005550006"}, "sms", "delivered"),
        ({"To": "whatsapp:+15558675310", "From": "whatsapp:+14155238886"}, "whatsapp", "read"),
    ],
)
def test_free_text_by_twilio_is_captured(catching: Service, given: dict[str, str], channel: str, status: str) -> None:
    sent = text(catching, Body="This is the ship that made the Kessel Run?", **given)
    assert sent.status == 201, sent.raw
    message = sent.json
    assert (message["body"], message["to"], message["from"]) == (
        "This is the ship that made the Kessel Run?",
        given["To"],
        given["From"],
    )
    assert until(lambda: catching.get(f"/v1/{channel}/{message['sid']}", key=TOKEN).json["status"] == status)
    ended(catching, message["sid"], channel)


@pytest.mark.parametrize(("last", "code"), [("1", 21211), ("2", 21612), ("3", 21408), ("4", 21610), ("9", 21614)])
def test_twilios_test_numbers_are_refused_at_once(catching: Service, last: str, code: int) -> None:
    refused = text(catching, To=f"+1500555000{last}", From="+15005550006", Body="All in the game, yo")
    assert (refused.status, refused.json["code"], refused.json["status"]) == (400, code, 400)


def test_verification_by_twilio_is_captured_and_checked(catching: Service) -> None:
    created = twilio(catching, "/v2/Services", FriendlyName="My First Verify Service")
    assert (created.status, created.json["friendly_name"]) == (201, "My First Verify Service")
    service = f"/v2/Services/{created.json['sid']}"
    for to in ("+15017122661", "+14155550123"):  # the second would be sent by a real carrier on /v1
        started = twilio(catching, f"{service}/Verifications", To=to, Channel="sms").json
        assert started["status"] == "pending"
        resent = catching.post(f"/v1/verify/{started['sid']}/resend", {}, key=TOKEN)
        assert (resent.status, resent.json["status"]) == (202, "pending")
        entries = catching.get(f"/v1/inbox?to={to.replace('+', '%2B')}", key=TOKEN).json["data"]
        (code,) = (entry["code"] for entry in entries if entry["id"] == started["sid"])
        checked = twilio(catching, f"{service}/VerificationCheck", To=to, Code=code).json
        assert (checked["status"], checked["valid"]) == ("approved", True)


def test_a_scheduled_message_stays_captured_after_capture_is_off(catching: Service, tmp_path: Path) -> None:
    sent = resend(catching, to="real@example.com", scheduled_at="in 1 min").json["id"]
    file = tmp_path / "off.toml"
    file.write_text('[[teams]]\nid = "team_catch"\ncatch = false\n')
    catching.apply(file)
    try:
        until(lambda: resend(catching, to="stranger@gmail.com").status == 403)
        moved = catching.ask("PATCH", f"/v1/emails/{sent}", {"scheduled_at": "2020-01-01T00:00:00Z"}, key=TOKEN)
        assert moved.status == 200, moved.raw
        assert ended(catching, sent)["status"] == "delivered"
    finally:
        file.write_text('[[teams]]\nid = "team_catch"\ncatch = true\n')
        catching.apply(file)
        until(lambda: resend(catching, to="stranger@gmail.com").status == 200)


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/v1/emails", {"to": "x@gmail.com", "subject": "Hi", "text": "x"}, "recipient_not_allowed"),
        ("/v1/emails", MAIL | {"to": "real@example.com"}, "sandbox_from_locked"),
        ("/v1/sms", {"to": "+15558675310"}, "template_id_required"),
        ("/v1/verify", {"to": "+15558675310"}, "recipient_not_allowed"),
    ],
)
def test_v1_sends_are_not_captured(catching: Service, path: str, body: Any, code: str) -> None:
    assert catching.post(path, body, key=TOKEN).code == code


def test_postmarks_test_token_is_invalid_outside_the_demo(catching: Service) -> None:
    headers = {"X-Postmark-Server-Token": "POSTMARK_API_TEST"}
    refused = catching.post("/compat/postmark/email", {}, key=None, headers=headers)
    assert (refused.status, refused.json["ErrorCode"]) == (401, 10)


@pytest.mark.parametrize("given", ['mode = "live"', 'mode = "live"\ncatch = true'])
def test_a_capturing_team_cannot_be_live(catching: Service, tmp_path: Path, given: str) -> None:
    file = tmp_path / "live.toml"
    file.write_text(f'[[teams]]\nid = "team_catch"\n{given}\n')
    refused = catching.run("apply", str(file))
    assert refused.returncode != 0
    assert "teams[0].catch: expected false" in refused.stderr
