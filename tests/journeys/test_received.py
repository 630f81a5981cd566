"""Mail for teams, from SMTP to the event and the API (contract 17)."""

import asyncio
import base64
import json
import os
import smtplib
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from anymail.signals import inbound

from tests.carriers.dns_peer import DnsPeer, Zone
from tests.compat import site
from tests.journeys.test_webhooks import Hooks
from tests.npm import install
from tests.service import PATIENCE_S, TOKENS, Service, free_port, until

INBOUND = """
[[teams]]
id = "team_acme"
[[teams.inbound]]
address = "*@in.acme.test"
[[teams.inbound]]
address = "support@acme.test"
"""
TEXT = "Where is it?\n\nOn 16 Nov 2026, Acme <a@acme.test> wrote:\n> It left.\n"
ZONE: Zone = {
    ("example.org", "TXT"): ['"v=spf1 ip4:127.0.0.0/8 -all"'],
    ("_dmarc.example.org", "TXT"): ['"v=DMARC1; p=reject"'],
}
PICTURE = bytes(range(256)) * 10
LINK = ("download_url", "expires_at")
FORWARD = """
import { Resend } from 'resend';
const to = { from: 'hello@acme.test', to: 'delivered@simulator.test' };
console.log(JSON.stringify(await new Resend().emails.receiving.forward({ emailId: process.argv[2], ...to })));
"""


@contextmanager
def name_server(zone: Zone) -> Iterator[str]:
    """Run a name server in a thread of its own, because these tests have no event loop."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    peer = DnsPeer(zone)
    try:
        asyncio.run_coroutine_threadsafe(peer.__aenter__(), loop).result()
        yield peer.address
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


@pytest.fixture(scope="module")
def receiving(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Receiving"]:
    folder, port = tmp_path_factory.mktemp("received"), free_port()
    database, data = f"sqlite:///{folder / 'heliograph.db'}", folder / "data"
    with name_server(ZONE) as names, Receiving(database, data, port, names) as running:
        running.apply()
        more = folder / "inbound.toml"
        more.write_text(INBOUND)
        running.apply(more)
        running.start()
        yield running


class Receiving(Service):
    def __init__(self, database: str, data: Path, port: int, resolver: str) -> None:
        super().__init__(
            database,
            data,
            bounce_listen=f"127.0.0.1:{port}",
            resolver=resolver,
            webhook_allow_private="127.0.0.0/8",
        )
        self.port = port

    def mail(self, message: EmailMessage | bytes, *to: str, sender: str = "ann@example.org") -> None:
        with smtplib.SMTP("127.0.0.1", self.port, timeout=60) as client:
            client.sendmail(sender, list(to), message if isinstance(message, bytes) else message.as_bytes(policy=SMTP))

    def fetch(self, link: str) -> tuple[int, bytes]:
        """Return what the link returns without an API key."""
        told = self.ask("GET", link.partition(f":{self.ports[0]}")[2], key=None)
        return told.status, told.raw

    def received(self) -> list[Any]:
        found: list[Any] = self.get("/v1/received?limit=100").json["data"]
        return found

    def events(self) -> list[Any]:
        feed: list[Any] = self.get("/v1/events?limit=100").json["data"]
        return [event for event in feed if event["type"] == "email.received"]


def letter(subject: str, text: str = "Hi", **headers: str) -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "Ann <Ann@example.org>", "support@acme.test", subject
    message["Message-ID"] = f"<{len(subject)}.{subject.encode().hex()}@example.org>"
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    message.set_content(text)
    return message


def test_inbound_mail_is_published_as_event_and_readable_by_api(receiving: Receiving, tmp_path: Path) -> None:
    message = letter("Räksmörgås", TEXT, Cc="b@c.test")
    message.add_alternative("<p>Where is it?</p><img src=cid:pic>", subtype="html")
    message.add_attachment(PICTURE, maintype="image", subtype="png", filename="p.png", cid="<pic>")
    receiving.mail(message, "support@acme.test", "x.y@in.acme.test")
    receiving.mail(message, "support@acme.test")  # the same mail again
    event = until(lambda: [one for one in receiving.events() if one["data"]["subject"] == "Räksmörgås"])
    assert len(event) == 1
    data = event[0]["data"]
    headers, attachment = data.pop("headers"), data["attachments"][0]
    assert ["Subject", "Räksmörgås"] in headers
    assert data == {
        "object": "received",
        "id": data["id"],
        "from": "Ann@example.org",
        "to": ["support@acme.test"],
        "cc": ["b@c.test"],
        "recipients": ["support@acme.test", "x.y@in.acme.test"],
        "subject": "Räksmörgås",
        "text": TEXT,
        "html": "<p>Where is it?</p><img src=cid:pic>\n",
        "reply_text": "Where is it?",
        "message_id": message["Message-ID"],
        "in_reply_to": None,
        "automatic": False,
        "attachments": [
            {"id": "att_1", "filename": "p.png", "content_type": "image/png", "size": 2560, "content_id": "pic"}
        ],
        "authentication": {"spf": "pass", "dkim": "none", "dmarc": "pass"},
        "truncated": False,
    }
    place = f"/v1/received/{data['id']}"
    assert receiving.get(place).json == data | {"headers": headers}
    raw = receiving.get(f"{place}/raw")
    assert (raw.status, raw.headers["content-type"]) == (200, "application/octet-stream")
    assert raw.raw == message.as_bytes(policy=SMTP)
    file = receiving.get(f"{place}/attachments/{attachment['id']}")
    assert (file.raw, file.headers["content-type"]) == (PICTURE, "application/octet-stream")
    assert [one["id"] for one in receiving.received() if one["subject"] == "Räksmörgås"] == [data["id"]]
    assert receiving.get(place, key="ACME_MANAGE").status == 200
    resend = f"/compat/resend/emails/receiving/{data['id']}"
    told = receiving.get(resend).json
    assert (told["from"], told["headers"]["Subject"], told["html"]) == (data["from"], "Räksmörgås", data["html"])
    (listed,) = receiving.get(f"{resend}/attachments").json["data"]
    assert {**told["attachments"][0], **dict.fromkeys(LINK)} == {**listed, **dict.fromkeys(LINK)}
    assert receiving.get(f"{resend}/attachments/att_1").json["content_id"] == "pic"
    assert receiving.fetch(told["raw"]["download_url"]) == (200, raw.raw)
    assert receiving.fetch(listed["download_url"]) == (200, PICTURE)
    for before, after in (("until=", "until=9"), ("team=", "team=9"), ("att_1", "raw"), ("signature=", "signature=x")):
        assert receiving.fetch(listed["download_url"].replace(before, after))[0] == 404
    for suspended, status in (("true", 404), ("false", 200)):
        setup = tmp_path / "suspended.toml"
        setup.write_text(f'[[teams]]\nid = "team_acme"\nsuspended = {suspended}\n')
        receiving.run("apply", str(setup))
        until(lambda status=status: receiving.fetch(listed["download_url"])[0] == status)
    assert data["id"] in [one["id"] for one in receiving.get("/compat/resend/emails/receiving").json["data"]]
    for path, key in ((resend, "OTHER"), (f"{resend}/attachments/att_2", "ACME")):
        assert receiving.get(path, key=key).json["name"] == "not_found"
    for path, key in (
        (place, "OTHER"),
        (f"{place}/attachments/att_2", "ACME"),
        ("/v1/received/rcv_none", "ACME"),
        (f"{place}/raw", "OTHER"),
    ):
        assert receiving.get(path, key=key).code == "received_not_found"


@pytest.mark.parametrize(
    ("format_", "of"),
    [
        ("heliograph", lambda body: (body["type"], body["data"]["subject"], body["data"]["reply_text"])),
        ("resend", lambda body: (body["type"], body["data"]["subject"])),
        ("postmark", lambda body: (body["Subject"], body["StrippedTextReply"])),
    ],
)
def test_webhook_carries_the_inbound_mail(
    receiving: Receiving, tmp_path: Path, format_: str, of: Callable[[Any], tuple[str, ...]]
) -> None:
    hooks = Hooks(tmp_path)
    try:
        made = {"url": hooks.start(), "events": ["email.received"], "format": format_}
        assert receiving.post("/v1/webhooks", made).status == 201
        receiving.mail(letter(f"To {format_}", TEXT), "support@acme.test")
        (told,) = until(hooks.received)
        assert set(of(json.loads(told["body"]))) <= {"email.received", f"To {format_}", "Where is it?"}
    finally:
        hooks.stop()


def test_anymail_fetches_inbound_mail_announced_in_the_resend_format(receiving: Receiving) -> None:
    """anymail's unmodified view fetches the record with the API key, and the raw mail by its link."""
    message = letter("With a file", TEXT)
    message.add_attachment(PICTURE, maintype="image", subtype="png", filename="p.png")
    base = f"http://127.0.0.1:{receiving.ports[0]}/compat/resend/"
    given = {"RESEND_API_URL": base, "RESEND_API_KEY": TOKENS["ACME"], "WEBHOOK_SECRET": "a:b"}
    with site.listening(inbound, **given) as (address, heard):
        url = address.replace("//", "//a:b@") + "/resend/inbound/"
        made = receiving.post("/v1/webhooks", {"url": url, "events": ["email.received"], "format": "resend"})
        receiving.mail(message, "support@acme.test")
        (event,) = until(lambda: heard)
        receiving.ask("DELETE", f"/v1/webhooks/{made.json['id']}")
    assert (event.message.subject, event.message.text) == ("With a file", TEXT)
    assert [one.get_content_bytes() for one in event.message.attachments] == [PICTURE]


@pytest.mark.slow
def test_resend_library_forwards_inbound_mail(receiving: Receiving, tmp_path: Path) -> None:
    """Resend's library fetches the mail by its link, and forwards it with its attachments."""
    node = install(tmp_path, "Resend's library for Node")
    message = letter("Forward me", TEXT)
    message.add_attachment(PICTURE, maintype="image", subtype="png", filename="p.png")
    receiving.mail(message, "support@acme.test")
    (came,) = until(lambda: [one for one in receiving.received() if one["subject"] == "Forward me"])
    (node / "forward.mjs").write_text(FORWARD)
    base = f"http://127.0.0.1:{receiving.ports[0]}/compat/resend"
    env = os.environ | {"RESEND_BASE_URL": base, "RESEND_API_KEY": TOKENS["ACME"]}
    command = ["node", str(node / "forward.mjs"), came["id"]]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    sent = receiving.get(f"/v1/emails/{json.loads(ran.stdout)['data']['id']}").json
    assert (sent["subject"], sent["attachments_count"]) == ("Forward me", 1)


def test_long_texts_are_truncated_in_the_event_only(receiving: Receiving) -> None:
    text = "äö€" * 60_000
    receiving.mail(letter("long", text), "support@acme.test")
    (event,) = until(lambda: [one for one in receiving.events() if one["data"]["subject"] == "long"])
    data = event["data"]
    assert data["truncated"]
    assert 60 * 1024 < len(data["text"].encode()) <= 64 * 1024
    whole = receiving.get(f"/v1/received/{data['id']}").json
    assert (whole["text"].strip(), whole["truncated"]) == (text, False)


@pytest.mark.slow
def test_mail_up_to_the_size_limit_is_accepted_and_larger_refused(receiving: Receiving) -> None:
    content = base64.b64decode(base64.b64encode(b"0123456789abcdef" * 1024 * 1024))  # 16 MiB, 22 as base64
    message = letter("large")
    message.add_attachment(content, maintype="application", subtype="zip", filename="a.zip")
    receiving.mail(message, "support@acme.test")
    (found,) = [one for one in receiving.received() if one["subject"] == "large"]
    assert receiving.get(f"/v1/received/{found['id']}/attachments/att_1").raw == content
    with pytest.raises(smtplib.SMTPDataError) as refused:
        receiving.mail(b"Subject: larger\r\n\r\n" + b"x" * 76 * 440_000, "support@acme.test")
    assert refused.value.smtp_code == 552


def test_inbound_mail_for_unknown_recipients_is_refused(receiving: Receiving) -> None:
    for address in ("other@acme.test", "support@other.test", "support@example.org", "x@y.in.acme.test"):
        with pytest.raises(smtplib.SMTPRecipientsRefused) as refused:
            receiving.mail(letter("no"), address)
        assert refused.value.recipients[address] == (550, b"5.1.1 No such address here")


def test_automatic_mail_is_marked_and_a_mail_loop_is_held(receiving: Receiving) -> None:
    for number in range(12):
        receiving.mail(letter(f"away {number}", Auto_Submitted="auto-replied"), "support@acme.test")
    mine = [one for one in receiving.received() if one["subject"].startswith("away")]
    assert [one["automatic"] for one in mine] == [True] * 12
    told = until(lambda: [one for one in receiving.events() if one["data"]["subject"] == "away 9"])
    assert len(told) == 1
    assert not [one for one in receiving.events() if one["data"]["subject"] in ("away 10", "away 11")]


def send(service: Receiving, **fields: Any) -> Any:
    body = {"to": "reply@simulator.test", "from": "hello@acme.test", "subject": "Hello", "text": "Hi\nyou"} | fields
    return service.post("/v1/emails", body)


def test_reply_is_matched_to_the_mail_that_it_answers(receiving: Receiving) -> None:
    first, second = (send(receiving, replies=True, subject=f"Sent {number}").json for number in (1, 2))
    assert first["reply_to"].endswith("@in.acme.test") and first["reply_to"] != second["reply_to"]
    answers = until(lambda: [one for one in receiving.events() if one["data"]["subject"] == "Re: Sent 1"])
    data = answers[0]["data"]
    assert (data["in_reply_to"], data["recipients"]) == (first["id"], [first["reply_to"]])
    assert (data["reply_text"], data["from"]) == ("Thank you, I received it. (simulator)", "reply@simulator.test")

    local, _, domain = first["reply_to"].partition("@")
    forged = [
        f"{second['reply_to'][:27]}{local[27:]}@{domain}",  # another message with this signature
        f"{local[:-1]}{'a' if local[-1] != 'a' else 'b'}@{domain}",
        f"r{'0' * 26}{'a' * 24}@{domain}",
    ]
    claims = {"In_Reply_To": f"<{first['id']}@acme.test>", "References": f"<{first['id']}@acme.test>"}
    for number, address in enumerate((*forged, first["reply_to"].upper())):
        receiving.mail(letter(f"Forged {number}", **claims), address)
    found = {one["subject"]: one["in_reply_to"] for one in receiving.received()}
    expected = {"Forged 0": None, "Forged 1": None, "Forged 2": None, "Forged 3": first["id"]}
    assert expected.items() <= found.items()


def test_reply_address_needs_a_wildcard_inbound_address_and_no_own_reply_to(receiving: Receiving) -> None:
    both = send(receiving, replies=True, reply_to="a@acme.test")
    assert (both.code, both.json["error"]["param"]) == ("invalid_request", "replies")
    bare = {"to": "reply@simulator.test", "subject": "S", "text": "T", "replies": True}
    none = receiving.post("/v1/emails", bare, key="SANDBOX")
    assert (none.code, none.json["error"]["param"]) == ("invalid_request", "replies")
    assert send(receiving, replies=False, reply_to="a@acme.test").json["reply_to"] == "a@acme.test"
