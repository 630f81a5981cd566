"""Email through a relay: built, signed, delivered, and returned as a bounce or complaint."""

import asyncio
import base64
import email
import json
import smtplib
import socket
from collections.abc import Iterator
from pathlib import Path

import dkim
import pytest

from tests.carriers.dns_peer import DnsPeer, Zone
from tests.journeys.smtp_sink import Sink
from tests.service import PATIENCE_S, SETUP, Service, until

pytestmark = pytest.mark.anyio

CARRIER = """
[[carriers]]
id = "relay"
channel = "email"
kind = "smtp"
host = "127.0.0.1"
port = {port}
tls = "none"
password = "canary-password"
"""

MX = """
[[carriers]]
id = "direct"
channel = "email"
kind = "mx"
helo = "mail.acme.test"
port = {port}
resolver = "{resolver}"
allow_private = ["127.0.0.0/8"]
"""

ZONE: Zone = {
    ("example.com", "MX"): ["10 mx.example.com."],
    ("mx.example.com", "A"): ["127.0.0.1"],
    ("inside.example", "MX"): ["10 mx.inside.example."],
    ("mx.inside.example", "A"): ["10.0.0.1"],
}

DSN = """From: mailer-daemon@mx.example
To: {to}
Subject: Undelivered Mail Returned to Sender
MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status; boundary="b"

--b
Content-Type: text/plain

The address does not exist.
--b
Content-Type: message/delivery-status

Reporting-MTA: dns; mx.example

Final-Recipient: rfc822; someone@example.com
Action: failed
Status: 5.1.1
Diagnostic-Code: smtp; 550 5.1.1 no such user
--b--
"""

ARF = """From: fbl@provider.example
To: {to}
Subject: complaint
MIME-Version: 1.0
Content-Type: multipart/report; report-type=feedback-report; boundary="b"

--b
Content-Type: text/plain

This is an abuse report.
--b
Content-Type: message/feedback-report

Feedback-Type: abuse
User-Agent: Provider/1.0
Version: 1
--b--
"""


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as running:
        yield running


@pytest.fixture
def bounces() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def mailing(tmp_path: Path, sink: Sink, bounces: int) -> Iterator[Service]:
    """Run the service with a relay that leads to the sink, and a listener for bounces."""
    database = f"sqlite:///{tmp_path / 'heliograph.db'}"
    with Service(database, tmp_path / "data", bounce_listen=f"127.0.0.1:{bounces}") as running:
        running.apply()
        carrier = tmp_path / "carrier.toml"
        carrier.write_text(CARRIER.format(port=sink.port))
        running.apply(carrier)
        running.start()
        yield running


def send(service: Service, **fields: object) -> str:
    body = {"to": "Someone@example.com", "from": "hello@acme.test", "subject": "Hello", "text": "Hi"} | fields
    answer = service.post("/v1/emails", body)
    assert answer.status == 202, answer.raw
    id_: str = answer.json["id"]
    return id_


def status(service: Service, id_: str) -> str:
    found: str = service.get(f"/v1/emails/{id_}").json["status"]
    return found


def test_mail_arrives_signed_complete_and_without_bcc(mailing: Service, sink: Sink) -> None:
    content = bytes(range(256)) * 2000  # above 256 KiB: stored as a file
    small = b"a,b\r\n1,2\r\n"
    files = [
        {"filename": "räkning.pdf", "content": base64.b64encode(content).decode(), "content_type": "application/pdf"},
        {"filename": "a.csv", "content": base64.b64encode(small).decode(), "content_type": "text/csv"},
    ]
    id_ = send(mailing, bcc=["canary@example.net"], subject="Räkning ✓", html="<p>Hi</p>", attachments=files)
    until(lambda: len(sink.mails) == 2)
    until(lambda: status(mailing, id_) == "sent")

    assert sorted(to for _, (to,), _ in sink.mails) == ["Someone@example.com", "canary@example.net"]
    assert len({sender for sender, _, _ in sink.mails}) == 2  # each recipient has an envelope sender of its own
    raw = sink.mails[0][2]
    assert raw == sink.mails[1][2]  # built and signed once
    assert b"canary" not in raw

    mail = email.message_from_bytes(raw)
    assert mail["From"] == '"Acme" <hello@acme.test>'
    assert mail["Message-ID"] == f"<{id_}@acme.test>"
    parts = [part for part in mail.walk() if not part.is_multipart()]
    assert [part.get_content_type() for part in parts] == ["text/plain", "text/html", "application/pdf", "text/csv"]
    assert [part.get_payload(decode=True) for part in parts[2:]] == [content, small]

    shown = json.loads(mailing.run("domain", "dns", "acme.test", "--json").stdout)["records"]
    zone = {record["name"] + ".": record["value"].encode() for record in shown if record["type"] == "TXT"}
    signed = [value for name, value in mail.items() if name == "DKIM-Signature"]
    assert len(signed) == 2
    for index in range(2):
        verifier = dkim.DKIM(raw)
        assert verifier.verify(idx=index, dnsfunc=lambda name, timeout=5: zone[name.decode()])


def test_timeline_shows_the_relay_reply(mailing: Service, sink: Sink) -> None:
    id_ = send(mailing)
    until(lambda: status(mailing, id_) == "sent")
    (event,) = mailing.get(f"/v1/emails/{id_}").json["events"]
    assert event["recipient"] == "Someone@example.com"
    detail = event["detail"]
    assert (detail["code"], detail["host"], detail["carrier"]) == ("250", "127.0.0.1", "smtp")
    assert detail["duration_ms"] >= 0


@pytest.mark.parametrize(("mail", "ends", "reason"), [(DSN, "bounced", "bounce"), (ARF, "complained", "complaint")])
def test_bounce_is_matched_to_its_recipient(
    mailing: Service, sink: Sink, bounces: int, mail: str, ends: str, reason: str
) -> None:
    id_ = send(mailing)
    until(lambda: status(mailing, id_) == "sent")
    sender = sink.mails[0][0]
    forged = sender[:40] + ("x" if sender[40] != "x" else "y") + sender[41:]
    with smtplib.SMTP("127.0.0.1", bounces, timeout=PATIENCE_S) as client:
        for other in (forged, "someone@acme.test"):
            with pytest.raises(smtplib.SMTPRecipientsRefused):
                client.sendmail("", [other], mail.format(to=other))
        assert status(mailing, id_) == "sent"
        client.sendmail("", [sender], mail.format(to=sender))
    until(lambda: status(mailing, id_) == ends)
    suppressed = mailing.get("/v1/suppressions/someone@example.com").json
    assert (suppressed["reason"], suppressed["source_message_id"]) == (reason, id_)


def test_code_by_email_arrives_and_its_bounce_is_recorded(
    mailing: Service, sink: Sink, bounces: int, tmp_path: Path
) -> None:
    verify = 'verify = { magic = true, channels = ["email"], min_interval_s = 0 }'
    (tmp_path / "setup.toml").write_text(SETUP.read_text().replace("verify = { magic = true }", verify, 1))
    mailing.apply(tmp_path / "setup.toml")
    start = {"to": "Someone@example.com", "channel": "email"}
    until(lambda: mailing.post("/v1/verify?dry_run=true", start).status == 200)

    started = mailing.post("/v1/verify", start).json
    assert (started["status"], started["error_message"]) == ("pending", None)
    assert mailing.post(f"/v1/verify/{started['id']}/resend", {}).status == 202
    first, second = (email.message_from_bytes(raw) for _, _, raw in sink.mails)
    assert first["Subject"] == second["Subject"]
    assert first["Message-ID"] != second["Message-ID"]  # otherwise some clients would treat them as duplicates
    sender = sink.mails[0][0]
    with smtplib.SMTP("127.0.0.1", bounces, timeout=PATIENCE_S) as client:
        client.sendmail("", [sender], DSN.format(to=sender))
    code = first["Subject"].partition(" ")[0]
    assert mailing.post(f"/v1/verify/{started['id']}/check", {"code": code}).json["verified"]


def test_complaint_to_the_abuse_address_is_matched_by_the_enclosed_mail(
    mailing: Service, sink: Sink, bounces: int
) -> None:
    id_ = send(mailing)
    until(lambda: status(mailing, id_) == "sent")
    sender = sink.mails[0][0]
    forged = sender[:40] + ("x" if sender[40] != "x" else "y") + sender[41:]
    with smtplib.SMTP("127.0.0.1", bounces, timeout=PATIENCE_S) as client:
        for original, expected in ((forged, "sent"), (sender, "complained")):
            report = ARF.replace("Version: 1", f"Version: 1\nOriginal-Mail-From: <{original}>")
            client.sendmail("fbl@provider.example", ["abuse@acme.test"], report.format(to="abuse@acme.test"))
            assert status(mailing, id_) == expected


async def test_mail_is_delivered_directly_to_the_mx(tmp_path: Path, sink: Sink) -> None:
    """Delivery, an unknown domain, which is looked up again before it bounces, and a denied address."""
    carrier = tmp_path / "carrier.toml"
    async with DnsPeer(ZONE) as names:
        carrier.write_text(MX.format(port=sink.port, resolver=names.address))
        await asyncio.to_thread(_straight, tmp_path, carrier, sink)


def _straight(tmp_path: Path, carrier: Path, sink: Sink) -> None:
    with Service(f"sqlite:///{tmp_path / 'heliograph.db'}", tmp_path / "data") as service:
        service.apply()
        service.apply(carrier)
        service.start()
        to = ["Someone@example.com", "lost@nowhere.example", "spy@inside.example"]
        id_ = send(service, to=to)

        def ended() -> dict[str, str]:
            found = service.get(f"/v1/emails/{id_}").json["recipients"]
            return {r["address"]: r["status"] for r in found if r["status"] not in ("sending", "sent")}

        def deferred_addresses() -> list[str]:
            events = service.get(f"/v1/emails/{id_}").json["events"]
            return [event["recipient"] for event in events if event["type"] == "deferred"]

        until(lambda: len(ended()) == 2 and deferred_addresses())
        assert ended() == {to[0]: "delivered", to[2]: "failed"}
        assert deferred_addresses() == ["lost@nowhere.example"]
        assert [recipients for _, recipients, _ in sink.mails] == [["Someone@example.com"]]
        suppressed = [entry["email"] for entry in service.get("/v1/suppressions").json["data"]]
        assert not {"lost@nowhere.example", "spy@inside.example"} & set(suppressed)


def test_relay_password_is_stored_and_logged_nowhere_in_plain_text(mailing: Service, tmp_path: Path) -> None:
    found = [path for path in tmp_path.rglob("*") if path.is_file() and b"canary-password" in path.read_bytes()]
    assert [path.name for path in found] == ["carrier.toml"]
    assert mailing.apply(tmp_path / "carrier.toml")["changed"] == []
