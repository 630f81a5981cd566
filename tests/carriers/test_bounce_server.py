"""The SMTP server for bounces and inbound mail: what it accepts, and what it rejects before it uses resources."""

import asyncio
import logging.config
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from heliograph.domain.delivery.outcome import Report
from heliograph.domain.ids import ulid
from heliograph.domain.mail.dkim import Signer, SigningKey, generate_key
from heliograph.domain.mail.feedback_id import FeedbackSource, feedback_id_suffix, hash_team
from heliograph.domain.mail.verp import ANY_RECIPIENT, sign_return_path, sign_unsubscribe_address
from heliograph.inbound.policy.mail_parts import READ_MAX
from heliograph.inbound.server.bounce_server import InboundMailHandler, InboundSmtpLimits, create_inbound_server
from tests.carriers.smtp_peer import Authority
from tests.service import PATIENCE_S

pytestmark = pytest.mark.anyio

KEY, NOW = b"k" * 32, 1_800_000_000_000
ID = "eml_01HZX3V7Q9K2M4N6P8R0S2T4V6"
AWAY = 5
OF_TEAM = "help@acme.test"
OURS = sign_return_path(KEY, ID, 7, "bounce.example.com", NOW)
NOTICE = b"From: MAILER-DAEMON@mx.example\r\nSubject: failure notice\r\n\r\n%b\r\n"
BOUNCE = NOTICE % b"Could not deliver: 550 5.1.1 no such user"

SIGNING = SigningKey(selector="hg1", algorithm="rsa-sha256", private=generate_key("rsa-sha256"))
OTHER = SigningKey(selector="hg1", algorithm="rsa-sha256", private=generate_key("rsa-sha256"))
ALONE = "eml_" + ulid(NOW - 86_400_000, 0)  # id of a message with one recipient
SEVERAL = "eml_" + ulid(NOW - 86_400_000, 1)
OLD = "eml_" + ulid(NOW - 31 * 86_400_000, 0)
COMPLAINT = (
    "From: fbl@provider.example\r\nTo: abuse@acme.test\r\nSubject: FW: Hi\r\n"
    "Content-Type: multipart/report; report-type=feedback-report; boundary=b\r\n\r\n"
    "--b\r\n\r\nThis is an abuse report.\r\n--b\r\nContent-Type: message/feedback-report\r\n\r\n"
    "Feedback-Type: abuse\r\nUser-Agent: x/1\r\nVersion: 1\r\n--b\r\nContent-Type: {type}\r\n\r\n{mail}\r\n--b--\r\n"
)


def sent(id_: str = ALONE, key: SigningKey = SIGNING, domain: str = "acme.test") -> str:
    """Return one of our mails as its recipient received it."""
    head = (
        f"From: Shop <hi@{domain}>\r\nTo: ann@example.com\r\nSubject: Hi\r\nDate: x\r\n"
        f"Message-ID: <{id_}@{domain}>\r\nMIME-Version: 1.0\r\nContent-Type: text/plain\r\n"
    )
    signature = Signer(domain, [key]).sign(head.encode(), [b"Hi\r\n"], time_ms=NOW).decode()
    return f"Received: from us by them; now\r\n{signature}{head}\r\nHi\r\n"


class Mailbox:
    """The mailbox of a team."""

    def find_team_id(self, address: str) -> str | None:
        return "tm_acme" if address == OF_TEAM else None

    async def deliver(self, *_: object) -> None:
        raise AssertionError("nothing is to come so far")


class Peer:
    """A client of the server, and the results that the server recorded."""

    def __init__(
        self,
        port: int,
        reports: list[tuple[str, int, Report]],
        stop: Callable[[], Coroutine[Any, Any, None]],
        unsubscribed: list[str],
        sources: list[FeedbackSource],
    ) -> None:
        self.sources = sources
        self.unsubscribed = unsubscribed
        self.port = port
        self.reports = reports
        self.stop = stop

    @asynccontextmanager
    async def connect(self) -> AsyncIterator["Talk"]:
        dialogue = Talk(*await asyncio.open_connection("127.0.0.1", self.port))
        try:
            yield dialogue
        finally:
            dialogue.writer.close()


class Talk:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, *lines: str) -> list[str]:
        """Send all lines together and return the code of each reply."""
        self.writer.write("".join(f"{line}\r\n" for line in lines).encode())
        return [await self.answer() for _ in lines]

    async def answer(self) -> str:
        while (line := await self.reader.readline())[3:4] == b"-":
            pass
        return line[:3].decode()

    async def begin(self, *recipients: str) -> None:
        assert await self.answer() == "220"
        assert await self.ask("EHLO peer") == ["250"]
        assert await self.ask("MAIL FROM:<>", *(f"RCPT TO:<{to}>" for to in recipients)) == ["250"] * (
            1 + len(recipients)
        )
        assert await self.ask("DATA") == ["354"]

    async def trickle(self) -> None:
        while True:
            self.writer.write(b"x")
            await self.writer.drain()
            await asyncio.sleep(0.001)

    async def send(self, mail: bytes) -> str:
        self.writer.write(mail)
        return await self.answer()


@asynccontextmanager
async def listening(
    tls: ssl.SSLContext | None = None, folder: Path | None = None, report_mailbox: Any = None, **limits: float
) -> AsyncIterator[Peer]:
    reports: list[tuple[str, int, Report]] = []

    async def receive(message_id: str, position: int, report: Report) -> None:
        if position == AWAY:
            raise OSError("the database is away")
        reports.append((message_id, position, report))

    async def address_of(message_id: str, position: int) -> str | None:
        if message_id == SEVERAL:
            return dict(enumerate(["ann@example.com", "bob@example.com"])).get(position)
        is_there = position in (0, 1, AWAY, 7) and (message_id, position) not in ((ALONE, 1), (OLD, 1))
        return "ann@example.com" if is_there else None

    def keys_of(domain: str) -> list[SigningKey]:
        return [SIGNING] if domain == "acme.test" else []

    def is_own(domain: str) -> bool:
        return domain == "acme.test"

    unsubscribed: list[str] = []

    async def unsubscribe(message_id: str) -> None:
        unsubscribed.append(message_id)

    sources: list[FeedbackSource] = []

    async def count_complaint(source: FeedbackSource) -> None:
        sources.append(source)

    incoming = InboundMailHandler(
        KEY,
        lambda: NOW,
        address_of,
        receive,
        keys_of,
        is_own,
        unsubscribe,
        count_complaint,
        InboundSmtpLimits(**limits),  # type: ignore[arg-type]
        Mailbox(),
        folder,
        report_mailbox=report_mailbox,
    )
    server = create_inbound_server("mx.example", lambda: tls, incoming)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        await server.listen(bound, 100)
        try:
            yield Peer(bound.getsockname()[1], reports, partial(server.drain, PATIENCE_S), unsubscribed, sources)
        finally:
            await server.drain(PATIENCE_S)
    assert incoming.spooled_octets == 0


@pytest.mark.parametrize(
    "mail",
    [
        BOUNCE,
        NOTICE % (b"x" * 1500 + b"\r\nCould not deliver: 550 5.1.1 no such user"),
        NOTICE % (b"Could not deliver: 550 5.1.1 no such user\r\n" + b"x" * 200_000),
        NOTICE % (b"Could not deliver: 550 5.1.1 no such user\r\n" + b"a line of the original\r\n" * 200_000),
        NOTICE % b"Could not deliver: 550 5.1.1 no such user\r\n..\r\n..x",
        b"Subject: failure notice\r\n\r\n..not the end\r\nCould not deliver: 550 5.1.1 no such user\r\n",
    ],
    ids=["short", "long line", "longer line", "longer than what is read", "dots", "dots first"],
)
async def test_bounce_is_accepted_and_reported(mail: bytes) -> None:
    async with listening() as peer, peer.connect() as dialogue:
        await dialogue.begin(OURS)
        assert await dialogue.send(mail + b".\r\n") == "250"
        assert await dialogue.ask("NOOP", "QUIT") == ["250", "221"]
    assert [(id_, position, report.status) for id_, position, report in peer.reports] == [(ID, 7, "bounced")]


@pytest.mark.parametrize(
    ("mail", "complained"),
    [
        (sent(), True),
        (sent().partition("\r\n\r\n")[0] + "\r\n\r\nSomething else\r\n", True),  # a truncated body is accepted
        (sent().partition("\r\n\r\n")[0], True),
        (sent(key=OTHER), False),
        (sent(domain="evil.test"), False),
        (sent(OLD), False),
        (sent().replace("DKIM-Signature", "X-Signature"), False),
        (sent().replace(ALONE, SEVERAL), False),
        (sent().replace("ann@", "bob@"), False),
        (sent().replace("Subject: Hi", "Subject: Ho"), False),
        (sent().replace("From: Shop", f"Message-ID: <{SEVERAL}@acme.test>\r\nFrom: Shop"), False),
        (sent().replace(" b=", " b=A"), False),
        (
            "DKIM-Signature: d=acme.test; s=hg1; a=rsa-sha256; h=; b=\r\nMessage-ID: <" + ALONE + "@acme.test>\r\n",
            False,
        ),
    ],
    ids=map(str, range(13)),
)
@pytest.mark.parametrize("type_", ["message/rfc822", "text/rfc822-headers"])
async def test_complaint_is_matched_by_our_signature(mail: str, complained: bool, type_: str) -> None:
    async with listening() as peer, peer.connect() as dialogue:
        await dialogue.begin("abuse@acme.test")
        assert await dialogue.send(COMPLAINT.format(type=type_, mail=mail).encode() + b".\r\n") == "250"
    expected = [(ALONE, 0, "complained")] if complained else []
    assert [(id_, position, report.status) for id_, position, report in peer.reports] == expected


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("Original-Rcpt-To: <bob@example.com>", (1, "complained", "complaint")),
        ("Original-Rcpt-To: rfc822;bob@example.com", (1, "complained", "complaint")),
        ("Removal-Recipient: BOB@example.com", (1, "complained", "complaint")),
        ("Original-Rcpt-To: x@hidden.example\r\nRemoval-Recipient: ann@example.com", (0, "complained", "complaint")),
        ("Original-Rcpt-To: redacted@example.com", (0, "complaint", None)),
        ("Source-IP: 192.0.2.1", (0, "complaint", None)),
    ],
)
async def test_complaint_with_several_recipients_applies_to_the_named_one(
    named: str, told: tuple[int, str, str | None]
) -> None:
    async with listening() as peer, peer.connect() as dialogue:
        await dialogue.begin("abuse@acme.test")
        mail = COMPLAINT.replace("Version: 1", f"Version: 1\r\n{named}").format(
            type="message/rfc822", mail=sent(SEVERAL)
        )
        assert await dialogue.send(mail.encode() + b".\r\n") == "250"
    assert [(position, report.status, report.suppress) for _, position, report in peer.reports] == [told]


async def test_bounce_is_accepted_inside_tls() -> None:
    authority = Authority()
    async with listening(tls=authority.server("mx.example")[0]) as peer, peer.connect() as dialogue:
        assert await dialogue.answer() == "220"
        # Plaintext sent together with STARTTLS is not executed after the handshake.
        dialogue.writer.write(f"EHLO peer\r\nSTARTTLS\r\nMAIL FROM:<>\r\nRCPT TO:<{OURS}>\r\n".encode())
        assert [await dialogue.answer(), await dialogue.answer()] == ["250", "220"]
        await dialogue.writer.start_tls(authority.trusted(), server_hostname="mx.example")
        assert await dialogue.ask("DATA") == ["503"]
        assert await dialogue.ask("EHLO peer", "MAIL FROM:<>", f"RCPT TO:<{OURS}>", "DATA") == [
            "250",
            "250",
            "250",
            "354",
        ]
        assert await dialogue.send(BOUNCE + b".\r\n") == "250"
        assert await dialogue.ask("QUIT") == ["221"]
    assert [report.status for *_, report in peer.reports] == ["bounced"]


async def test_bounce_that_cannot_be_recorded_is_deferred() -> None:
    async with listening() as peer, peer.connect() as dialogue:
        await dialogue.begin(sign_return_path(KEY, ID, AWAY, "bounce.example.com", NOW))
        assert await dialogue.send(BOUNCE + b".\r\n") == "451"


async def test_untrusted_clients_write_nothing_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": False})  # as Django does
    caplog.set_level("DEBUG", "mail.log")
    async with listening() as peer, peer.connect() as dialogue:
        assert await dialogue.answer() == "220"
        assert await dialogue.ask("EHLO \x1b[2J", "\x1b[31mROOT", "QUIT") == ["500", "500", "221"]
    assert not [record for record in caplog.records if record.name != "asyncio"]


@pytest.mark.parametrize("mail", [b".\r\n", b"\r\n.\r\n", b"\r\n\r\n.\r\n"])
async def test_mail_without_a_report_is_accepted_and_ignored(mail: bytes) -> None:
    async with listening() as peer, peer.connect() as dialogue:
        await dialogue.begin(OURS)
        assert await dialogue.send(mail) == "250"
    assert peer.reports == []


@pytest.mark.parametrize("cut", [1, 3, 4, len(BOUNCE), len(BOUNCE) + 1, len(BOUNCE) + 2])
async def test_mail_end_in_several_chunks_is_recognised(cut: int) -> None:
    mail = BOUNCE + b".\r\n"
    async with listening() as peer, peer.connect() as dialogue:
        await dialogue.begin(OURS)
        dialogue.writer.write(mail[:cut])
        await dialogue.writer.drain()
        await asyncio.sleep(0)
        assert await dialogue.send(mail[cut:]) == "250"
    assert len(peer.reports) == 1


async def test_mail_that_is_too_large_is_refused() -> None:
    async with listening(mail_size=2 * READ_MAX) as peer, peer.connect() as dialogue:
        await dialogue.begin(OURS)
        assert await dialogue.send(BOUNCE + b"x" * 2 * READ_MAX + b"\r\n.\r\n") == "552"
        assert await dialogue.ask("MAIL FROM:<>", f"RCPT TO:<{OURS}>", "DATA") == ["250", "250", "354"]
        assert await dialogue.send(BOUNCE + b".\r\n") == "250"
    assert len(peer.reports) == 1


async def test_recipients_of_a_mail_are_limited() -> None:
    async with listening(recipients=2) as peer, peer.connect() as dialogue:
        assert await dialogue.answer() == "220"
        commands = ["EHLO peer", "MAIL FROM:<>", *[f"RCPT TO:<{OURS}>"] * 3, "RCPT TO:<nobody@example.com>"]
        assert await dialogue.ask(*commands) == ["250", "250", "250", "250", "452", "452"]


@pytest.mark.parametrize("line", ["RCPT TO:<nobody@example.com>", "NOOP", "", "\u00e9"])
async def test_commands_of_a_connection_are_limited(line: str) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with listening(commands=50) as peer, peer.connect() as dialogue:
        assert await dialogue.answer() == "220"
        assert await dialogue.ask("EHLO peer", "MAIL FROM:<>") == ["250", "250"]
        others = asyncio.create_task(count())
        dialogue.writer.write(f"{line}\r\n".encode() * 200)
        answers = (await dialogue.reader.read()).split(b"\r\n")
        others.cancel()
    assert answers[-2].startswith(b"421 4.7.0")
    assert len(answers) <= 50
    assert turns >= len(answers)


async def test_connections_to_the_bounce_server_are_limited() -> None:
    async with listening(connections=3, per_network=2) as peer, peer.connect() as first, peer.connect() as second:
        assert [await first.answer(), await second.answer()] == ["220", "220"]
        async with peer.connect() as three:
            assert (await three.reader.read()).startswith(b"421 4.7.0 ")
        assert await first.ask("NOOP") == ["250"]
        await first.ask("QUIT")
        await first.reader.read()
        async with peer.connect() as three:  # a slot is free again
            assert await three.answer() == "220"
    async with listening(connections=1) as peer, peer.connect() as first, peer.connect() as second:
        assert await first.answer() == "220"
        assert (await second.reader.read()).startswith(b"421 4.7.0 ")


async def test_session_is_closed_after_its_time_limit() -> None:
    async with listening(session_s=0.05) as peer, peer.connect() as dialogue:
        await dialogue.begin(OURS)
        with pytest.raises(ConnectionResetError):
            await dialogue.trickle()
    assert peer.reports == []


async def test_full_disk_is_reported_at_the_end_of_the_mail(tmp_path: Path) -> None:
    """Otherwise the server would read the rest of the mail as commands."""
    async with listening(folder=tmp_path / "gone") as peer, peer.connect() as dialogue:
        await dialogue.begin(OF_TEAM)
        long = BOUNCE + b"MAIL FROM:<>\r\n" * (READ_MAX // 10)
        assert await dialogue.send(long + b".\r\n") == "451"
        assert await dialogue.ask("NOOP", "QUIT") == ["250", "221"]
    assert peer.reports == []


async def test_stop_finishes_the_current_mail() -> None:
    async with listening() as peer, peer.connect() as idle, peer.connect() as sending:
        assert await idle.answer() == "220"
        await sending.begin(OURS)
        stopping = asyncio.create_task(peer.stop())
        assert await idle.answer() == "421"
        assert await sending.send(BOUNCE + b".\r\n") == "250"
        assert await sending.answer() == "421"
        await stopping
    assert len(peer.reports) == 1


@pytest.mark.parametrize(
    ("recipient", "reply"),
    [
        ("postmaster@acme.test", "250"),
        ("PostMaster@ACME.test", "250"),
        ("abuse@acme.test", "250"),
        ("postmaster", "250"),
        ("postmaster@elsewhere.test", "550"),
        ("abuse@elsewhere.test", "550"),
        ("postmaster@acme.test.evil.test", "550"),
        ("postmasters@acme.test", "550"),
    ],
)
async def test_postmaster_is_accepted_for_own_domains_only(recipient: str, reply: str) -> None:
    async with listening() as peer, peer.connect() as dialogue:
        assert await dialogue.answer() == "220"
        assert await dialogue.ask("EHLO peer", "MAIL FROM:<>", f"RCPT TO:<{recipient}>") == ["250", "250", reply]


def sent_with_cfbl(id_: str = ALONE, day: int = 0) -> str:
    """Return a mail of ours as a provider returns it: without its signature, with the signed address for complaints."""
    address = sign_return_path(KEY, id_, ANY_RECIPIENT, "bounce.acme.test", NOW - day * 86_400_000)
    return f"From: hi@acme.test\r\nCFBL-Address: {address}; report=arf\r\nMessage-ID: <x@relay.test>\r\n\r\nHi\r\n"


@pytest.mark.parametrize(
    ("mail", "named", "expected"),
    [
        (sent_with_cfbl(), "", [(ALONE, 0, "complained")]),
        (sent_with_cfbl(SEVERAL), "Original-Rcpt-To: <bob@example.com>", [(SEVERAL, 1, "complained")]),
        (sent_with_cfbl(SEVERAL), "", [(SEVERAL, 0, "complaint")]),
        (sent_with_cfbl(day=31), "", []),
        (sent_with_cfbl().replace("bounce.acme.test", "bounce.evil.test"), "", []),
    ],
)
async def test_complaint_is_matched_by_the_enclosed_cfbl_address(
    mail: str, named: str, expected: list[tuple[str, int, str]]
) -> None:
    report = COMPLAINT.replace("Version: 1", f"Version: 1\r\n{named}" if named else "Version: 1")
    async with listening() as peer, peer.connect() as dialogue:
        await dialogue.begin("abuse@acme.test")
        assert await dialogue.send(report.format(type="message/rfc822", mail=mail).encode() + b".\r\n") == "250"
    assert [(id_, position, told.status) for id_, position, told in peer.reports] == expected


CFBL = sign_return_path(KEY, ALONE, ANY_RECIPIENT, "bounce.acme.test", NOW)


@pytest.mark.parametrize(
    ("mail", "expected"),
    [
        (COMPLAINT.format(type="text/rfc822-headers", mail="Subject: Hi\r\n").encode(), [(ALONE, 0, "complained")]),
        (BOUNCE, []),
    ],
)
async def test_cfbl_address_accepts_complaints_only(mail: bytes, expected: list[tuple[str, int, str]]) -> None:
    async with listening() as peer, peer.connect() as dialogue:
        await dialogue.begin(CFBL)
        assert await dialogue.send(mail + b".\r\n") == "250"
    assert [(id_, position, report.status) for id_, position, report in peer.reports] == expected


class ReportMailbox:
    def is_report_address(self, address: str) -> bool:
        return address.startswith("dmarc@")

    async def receive(self, file: Any) -> str:
        file.seek(0)
        return "554 5.6.0 Cannot read" if b"bad" in file.read() else "250 2.0.0 Ok"


async def test_mail_to_the_report_address_is_processed_as_a_report_only() -> None:
    async with listening(report_mailbox=ReportMailbox(), report_size=2 * READ_MAX) as peer, peer.connect() as dialogue:
        await dialogue.begin("dmarc@mx.example")
        assert await dialogue.send(b"Subject: Report\r\n\r\ngood\r\n.\r\n") == "250"
        assert await dialogue.ask("MAIL FROM:<>", "RCPT TO:<dmarc@mx.example>", f"RCPT TO:<{OURS}>", "DATA") == [
            *("250", "250", "452", "354")
        ]
        assert await dialogue.send(b"x\r\n" * READ_MAX + b".\r\n") == "552"
        await dialogue.ask("MAIL FROM:<>", "RCPT TO:<dmarc@mx.example>", "DATA")
        assert await dialogue.send(b"Subject: Report\r\n\r\nbad\r\n.\r\n") == "554"
        assert await dialogue.ask("MAIL FROM:<>", f"RCPT TO:<{OURS}>", "RCPT TO:<dmarc@mx.example>") == [
            *("250", "250", "452")
        ]
    assert peer.reports == []


@pytest.mark.parametrize("mail", [b"Subject: unsubscribe\r\n\r\n.\r\n", b"\r\n.\r\n", COMPLAINT.encode() + b".\r\n"])
async def test_any_mail_to_the_unsubscribe_address_unsubscribes(mail: bytes) -> None:
    address = sign_unsubscribe_address(KEY, ID, "bounce.acme.test")
    async with listening() as peer, peer.connect() as dialogue:
        await dialogue.begin(address.upper())
        assert await dialogue.send(mail) == "250"
    assert (peer.unsubscribed, peer.reports) == ([ID], [])


async def test_forged_unsubscribe_address_is_refused() -> None:
    address = sign_unsubscribe_address(b"other" * 8, ID, "bounce.acme.test")
    async with listening() as peer, peer.connect() as dialogue:
        assert await dialogue.answer() == "220"
        commands = ("EHLO peer", "MAIL FROM:<>", f"RCPT TO:<{address}>")
        assert await dialogue.ask(*commands) == ["250", "250", "550"]
    assert peer.unsubscribed == []


@pytest.mark.parametrize(("key", "counted"), [(KEY, True), (b"other" * 8, False)])
async def test_complaint_with_our_feedback_id_alone_is_counted(key: bytes, counted: bool) -> None:
    mail = f"Feedback-ID: newsletter:{feedback_id_suffix(key, 'team_acme', from_template=True)}\r\n\r\nHi\r\n"
    async with listening() as peer, peer.connect() as dialogue:
        await dialogue.begin("abuse@acme.test")
        assert await dialogue.send(COMPLAINT.format(type="message/rfc822", mail=mail).encode() + b".\r\n") == "250"
    assert peer.reports == []
    assert peer.sources == [FeedbackSource("newsletter", hash_team(KEY, "team_acme"))] * counted
