"""The SMTP client with a scripted server: bytes, order, lost connections at every verb, TLS, login, reuse."""

import asyncio
import base64
import re
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.carriers.contract import OutboundMessage
from heliograph.carriers.email import connection_pool, smtp
from heliograph.carriers.email.connection_pool import PoolLimits, PreparedMail
from heliograph.carriers.email.relay import Relay
from heliograph.carriers.email.smtp import Destination, Login, SmtpOptions, SmtpSession, Timeouts
from heliograph.carriers.email.tls_policy import TlsMode
from heliograph.carriers.email.wire import dot_stuff
from heliograph.domain.delivery.outcome import Accepted, Deferred, Outcome, Refused
from heliograph.domain.setup.carrier_kinds import RelayOptions
from tests.carriers.smtp_peer import DROP, HANG, OFFERS, Authority, Peer, Script, end_of_mail

pytestmark = pytest.mark.anyio

BODY = b"Subject: hi\r\n\r\n.a dot\r\n..two\r\nend\r\n"
SHORT = Timeouts(greeting=0.3, command=0.3, data=0.3, block=0.3, final=0.3)  # for servers that hang
PATIENT = Timeouts(connect=20, greeting=20, command=20, data=20, block=20, final=20)
NO_PIPELINING = tuple(offer for offer in OFFERS if offer != "PIPELINING")
CA = Authority()


async def opened(peer: Peer, tls: TlsMode = "none", **smtp_options: Any) -> SmtpSession:
    session = await open_to(peer, tls, **smtp_options)
    assert isinstance(session, SmtpSession), session
    return session


async def open_to(
    peer: Peer, tls: TlsMode = "none", host: str = "mx.test", **smtp_options: Any
) -> SmtpSession | Deferred:
    destination = Destination(host=host, address=peer.host, port=peer.port, tls=tls)
    return await SmtpSession.open(destination, SmtpOptions(**{"helo": "us.test", "timeouts": PATIENT, **smtp_options}))


async def send(session: SmtpSession, body: bytes = BODY, recipient: str = "to@x.test", utf8: bool = False) -> Outcome:
    return await session.send("from@y.test", recipient, [body], len(body), utf8)


@asynccontextmanager
async def relay_to(
    peer: Peer, body: bytes = BODY, limits: PoolLimits | None = None, **options: Any
) -> AsyncIterator[Relay]:
    smtp_options = SmtpOptions(helo="us.test", timeouts=PATIENT, roots=CA.trusted())
    settings = RelayOptions(**{"host": "127.0.0.1", "port": peer.port, "tls": "none", **options})
    relay = Relay(settings, prepare, smtp_options=smtp_options, limits=limits or PoolLimits())
    try:
        yield relay
    finally:
        await relay.close()


async def prepare(message: OutboundMessage) -> PreparedMail:
    return PreparedMail(envelope_from="from@y.test", chunks=lambda: [BODY], size=len(BODY))


def outbound_message(number: int = 1) -> OutboundMessage:
    address = f"to{number}@x.test"
    return OutboundMessage(message_id="eml_1", position=3, address=address, content=b"{}", attempt=0)


# -- the mail on the wire ----------------------------------------------------------------------------------

MAILS = [
    b"",
    b".",
    b".\r\n",
    b"..\r\n.\r\n",
    b"a\r\n.b\r\n\r\n.\r\n.\r\nc",
    b"a\n.\nb\r.\rc\r\n.\n.\r",
    b"\r\r\n\n.\r\r\n.",
    b"a\r\n.\r\nMAIL FROM:<x@y>\r\n",
    b"a\rb\n.\r\nMAIL FROM:<x@y>\r\n",
]
SNIPPETS = st.lists(st.sampled_from([b"\r", b"\n", b".", b"\r\n", b"\r\n.", b"x", b"\n.\n", b"\r.\r"]), max_size=12)


def normal(mail: bytes) -> bytes:
    """Return the expected lines, each ended by CRLF."""
    lines = re.split(rb"\r\n|\r|\n", mail)
    ended = lines[:-1] if lines[-1] == b"" else lines
    return b"".join(line + b"\r\n" for line in ended)


def unstuffed(wire: bytes) -> bytes:
    return re.sub(rb"(^|\r\n)\.", rb"\1", wire)


@pytest.mark.parametrize("mail", MAILS)
def test_dot_stuffed_mail_does_not_depend_on_chunk_boundaries(mail: bytes) -> None:
    full_mail = b"".join(dot_stuff([mail]))
    assert unstuffed(full_mail) == normal(mail)
    for first in range(len(mail) + 1):
        for second in range(first, len(mail) + 1):
            assert b"".join(dot_stuff([mail[:first], mail[first:second], mail[second:]])) == full_mail
    assert b"".join(dot_stuff(mail[at : at + 1] for at in range(len(mail)))) == full_mail


@given(st.lists(SNIPPETS.map(b"".join), max_size=6))
def test_mail_body_dots_are_stuffed(chunks: list[bytes]) -> None:
    wire = b"".join(dot_stuff(chunks))
    assert unstuffed(wire) == normal(b"".join(chunks))
    ended = wire + b".\r\n"
    for lenient in (False, True):
        assert end_of_mail(ended, lenient) == (len(wire), len(ended))


async def test_mail_arrives_unchanged() -> None:
    async with Peer() as peer:
        session = await opened(peer)
        outcome = await send(session)
        await session.quit()
    assert isinstance(outcome, Accepted)
    assert outcome.detail == {
        "host": "mx.test", "address": "127.0.0.1", "tls": None,
        "code": "250", "enhanced": "2.0.0", "text": "250 2.0.0 queued",
    }  # fmt: skip
    (mail,) = peer.received
    assert (mail.sender, mail.recipient, mail.mail) == ("from@y.test", "to@x.test", BODY)
    assert peer.lines == [
        "EHLO us.test", f"MAIL FROM:<from@y.test> SIZE={len(BODY)}", "RCPT TO:<to@x.test>", "DATA", "QUIT",
    ]  # fmt: skip


async def test_large_mail_arrives_unchanged() -> None:
    chunk = (b"." + b"x" * 74 + b"\r\n") * 1000
    async with Peer() as peer:
        session = await opened(peer)
        outcome = await session.send("from@y.test", "to@x.test", [chunk] * 60, 60 * len(chunk))
        session.abort()
    assert isinstance(outcome, Accepted)
    assert peer.received[0].mail == chunk * 60


async def test_mail_is_read_from_disk_only_as_fast_as_it_is_sent() -> None:
    accepted: list[int] = []

    def chunks() -> Iterator[bytes]:
        for number in range(1000):  # 64 MB
            accepted.append(number)
            yield b"x" * 65_534 + b"\r\n"

    async with Peer({"body": HANG}) as peer:
        session = await opened(peer, timeouts=SHORT)
        outcome = await session.send("from@y.test", "to@x.test", chunks(), 1)
    assert isinstance(outcome, Deferred)
    assert "uncertain" not in outcome.detail
    assert len(accepted) < 300  # what the system's socket buffers hold


async def test_unreadable_mail_leaves_no_connection_behind() -> None:
    def torn() -> Iterator[bytes]:
        yield b"Subject: half\r\n"
        raise OSError("disk")

    async with Peer() as peer:
        session = await opened(peer)
        with pytest.raises(OSError, match="disk"):
            await session.send("from@y.test", "to@x.test", torn(), 100)
        assert not session.is_usable
        await asyncio.sleep(0.02)
    assert peer.received == []


# -- the order of commands ---------------------------------------------------------------------------------


async def test_pipelining_puts_the_envelope_into_one_write() -> None:
    async with Peer() as peer:
        session = await opened(peer)
        await send(session)
        await send(session)
        session.abort()
    assert peer.groups[1] == ["MAIL", "RCPT", "DATA"]
    assert peer.groups[3] == ["MAIL", "RCPT", "DATA"]
    assert len(peer.received) == 2


async def test_without_pipelining_each_command_waits_for_its_reply() -> None:
    async with Peer(offers=NO_PIPELINING) as peer:
        session = await opened(peer)
        assert isinstance(await send(session), Accepted)
        session.abort()
    assert peer.groups[:4] == [["EHLO"], ["MAIL"], ["RCPT"], ["DATA"]]


@pytest.mark.parametrize("offers", [OFFERS, NO_PIPELINING])
async def test_connection_is_reused_after_a_refusal(offers: tuple[str, ...]) -> None:
    script: Script = {"rcpt": ["550 5.1.1 no such user", "250 ok"]}
    if offers == OFFERS:
        script["data"] = ["503 5.5.1 no", "354 go on"]
    async with Peer(script, offers=offers) as peer:
        session = await opened(peer)
        refused = await send(session)
        assert session.is_usable
        accepted = await send(session)
        session.abort()
    assert isinstance(refused, Refused)
    assert refused.bounced
    assert isinstance(accepted, Accepted)
    assert peer.talks[0][-5:] == ["rset", "mail", "rcpt", "data", "final"]
    assert len(peer.received) == 1


@pytest.mark.parametrize(
    ("reply", "bounced", "reason"),
    [
        ("550 5.1.1 <to@x.test>: user unknown", True, None),
        ("550 5.1.1 to@MX.x.test... User unknown", True, None),
        ("550 5.1.1 user unknown, ask admin@other.test", True, None),
        ("550 5.1.1 <bob@other.test>: user unknown", False, "forwarding_failed"),
        ("550 bob@other.test unknown user account", False, "forwarding_failed"),
        ("550 <bob@other.test>: mailbox full", False, None),
    ],
)
async def test_reply_about_another_address_suppresses_nobody(reply: str, bounced: bool, reason: str | None) -> None:
    async with Peer({"rcpt": reply}) as peer:
        outcome = await send(await opened(peer))
    assert isinstance(outcome, Refused)
    assert (outcome.bounced, outcome.detail.get("reason")) == (bounced, reason)


async def test_354_reply_without_an_accepted_recipient_closes_the_connection() -> None:
    async with Peer({"rcpt": "550 5.1.1 no such user"}) as peer:
        session = await opened(peer)
        outcome = await send(session)
        assert not session.is_usable
        await asyncio.sleep(0.02)
    assert isinstance(outcome, Refused)
    assert outcome.detail["enhanced"] == "5.1.1"
    assert peer.received == []


async def test_server_without_ehlo_is_greeted_with_helo() -> None:
    async with Peer({"ehlo": "502 5.5.1 what?"}) as peer:
        session = await opened(peer)
        assert isinstance(await send(session), Accepted)
        session.abort()
    assert peer.lines[:3] == ["EHLO us.test", "HELO us.test", "MAIL FROM:<from@y.test>"]


async def test_ehlo_without_a_host_name_uses_the_address() -> None:
    async with Peer() as peer:
        (await opened(peer, helo=None)).abort()
    assert peer.lines == ["EHLO [127.0.0.1]"]


# -- what this server cannot take --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offers", "recipient", "utf8", "enhanced"),
    [
        (("SIZE 10",), "to@x.test", False, "5.3.4"),
        ((), "to@x.test", True, "5.6.7"),
        ((), "tö@x.test", False, "5.6.7"),
        (OFFERS, "to@x.test>\r\nRCPT TO:<evil@x.test", False, "5.1.3"),
        (OFFERS, "to@x.test\nDATA", False, "5.1.3"),
        (OFFERS, "to @x.test", False, "5.1.3"),
        (OFFERS, "to\x00@x.test", False, "5.1.3"),
    ],
)
async def test_mail_that_the_server_cannot_accept_is_refused_locally(
    offers: tuple[str, ...], recipient: str, utf8: bool, enhanced: str
) -> None:
    async with Peer(offers=offers) as peer:
        session = await opened(peer)
        outcome = await send(session, recipient=recipient, utf8=utf8)
        assert session.is_usable
        session.abort()
    assert isinstance(outcome, Refused)
    assert not outcome.bounced
    assert outcome.detail["enhanced"] == enhanced
    assert peer.talks == [["ehlo"]]


@pytest.mark.parametrize("offered", ["SIZE", "SIZE 0", "SIZE x"])
async def test_size_capability_without_a_number_limits_nothing(offered: str) -> None:
    async with Peer(offers=(offered,)) as peer:
        session = await opened(peer)
        assert isinstance(await send(session), Accepted)
        session.abort()


@pytest.mark.parametrize(
    ("offers", "parameters"), [(OFFERS, f" SIZE={len(BODY)} BODY=8BITMIME SMTPUTF8"), (("SMTPUTF8",), " SMTPUTF8")]
)
async def test_international_address_is_announced_with_smtputf8(offers: tuple[str, ...], parameters: str) -> None:
    async with Peer(offers=offers) as peer:
        session = await opened(peer)
        assert isinstance(await send(session, recipient="tö@x.test"), Accepted)
        session.abort()
    assert peer.lines[1:3] == [f"MAIL FROM:<from@y.test>{parameters}", "RCPT TO:<tö@x.test>"]


# -- breaks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offers", [OFFERS, NO_PIPELINING])
@pytest.mark.parametrize("how", [DROP, HANG, "421 4.3.2 closing"])
@pytest.mark.parametrize("verb", ["connect", "ehlo", "mail", "rcpt", "data", "final"])
async def test_connection_lost_at_any_command_is_deferred(verb: str, how: str, offers: tuple[str, ...]) -> None:
    async with Peer({verb: how}, offers=offers) as peer:
        session = await open_to(peer, timeouts=SHORT if how == HANG else PATIENT)
        outcome = await send(session) if isinstance(session, SmtpSession) else session
        if isinstance(session, SmtpSession):
            assert not session.is_usable
    assert isinstance(outcome, Deferred)
    unanswered = how != "421 4.3.2 closing"
    assert outcome.detail.get("uncertain", False) == (verb == "final" and unanswered)
    assert outcome.detail["code"] == (None if unanswered else "421")
    assert outcome.detail["address"] == "127.0.0.1"
    assert len(peer.received) == (verb == "final")


@pytest.mark.parametrize("how", [DROP, HANG])
async def test_connection_lost_inside_the_mail_is_not_uncertain(how: str) -> None:
    async with Peer({"body": how}) as peer:
        session = await opened(peer, timeouts=SHORT if how == HANG else PATIENT)
        outcome = await session.send("from@y.test", "to@x.test", [b"x" * 998 + b"\r\n"] * 50_000, 1)
        assert not session.is_usable
    assert isinstance(outcome, Deferred)
    assert "uncertain" not in outcome.detail
    assert "(at body)" in outcome.detail["text"] and outcome.detail["trouble"] == "unreachable"


async def test_connection_to_a_closed_port_is_deferred() -> None:
    async with Peer() as peer:
        pass
    outcome = await open_to(peer)
    assert isinstance(outcome, Deferred)
    assert "cannot connect to mx.test" in outcome.detail["text"] and outcome.detail["trouble"] == "unreachable"
    assert outcome.detail["text"].endswith(": connection refused")


async def test_a_reply_before_the_end_of_the_mail_is_a_refusal() -> None:
    async with Peer({"data": b"354 go on\r\n552 5.3.4 too much\r\n"}) as peer:
        session = await opened(peer)
        outcome = await session.send("from@y.test", "to@x.test", [b"x" * 1000 + b"\r\n"] * 5000, 10)
        assert not session.is_usable
    assert isinstance(outcome, Refused)
    assert outcome.detail["enhanced"] == "5.3.4"


async def test_250_reply_before_the_end_of_the_mail_is_not_an_acceptance() -> None:
    async with Peer({"data": b"354 go on\r\n250 2.0.0 queued\r\n"}) as peer:
        session = await opened(peer)
        outcome = await send(session)
    assert isinstance(outcome, Deferred)
    assert peer.received == []


# -- hostile servers ---------------------------------------------------------------------------------------

HOSTILE: list[tuple[Script, str]] = [
    ({"connect": b"220 " + b"x" * 1_000_000}, "a line that is too long"),
    ({"connect": b"220 " + b"x" * 3000 + b"\r\n"}, "a reply that is too long"),
    ({"connect": b"220-x\r\n" * 100_000}, "a reply that is too long"),
    ({"ehlo": b"250-X-Y\r\n" * 5000 + b"250 ok\r\n"}, "a reply that is too long"),
    ({"connect": b"HTTP/1.1 400 Bad Request\r\n\r\n"}, "sent an invalid SMTP reply"),
    ({"connect": bytes(range(256)) * 40}, "sent an invalid SMTP reply"),
    ({"mail": b"250-slow\r\n", "rcpt": HANG}, "did not respond"),
    ({"rcpt": "२५० ok"}, "sent an invalid SMTP reply"),
]


@pytest.mark.parametrize(("script", "words"), HOSTILE)
async def test_hostile_server_is_disconnected_soon(script: Script, words: str) -> None:
    async with Peer(script) as peer:
        async with asyncio.timeout(60):  # and not never
            session = await open_to(peer, timeouts=SHORT if words == "did not respond" else PATIENT)
            outcome = await send(session) if isinstance(session, SmtpSession) else session
    assert isinstance(outcome, Deferred)
    assert words in outcome.detail["text"]
    assert len(outcome.detail["text"]) < 600
    assert peer.received == []


async def test_unsolicited_replies_are_not_buffered() -> None:
    async with Peer({"ehlo": b"250-peer\r\n250 HELP\r\n" + b"250 more\r\n" * 100_000}) as peer:
        session = await opened(peer)
        await asyncio.sleep(0.05)
        assert not session.is_usable
        assert len(session._connection._replies) <= 8
        assert isinstance(await send(session), Deferred)
    assert peer.received == []


@pytest.mark.parametrize(
    "script", [{"rcpt": "550 5.1.1 nö\x1b[31m\u2028 " + "z" * 1000}, {"rcpt": b"550 \xff\xfe\x00\r\n"}]
)
async def test_control_characters_in_a_reply_are_replaced(script: Script) -> None:
    async with Peer(script) as peer:
        session = await opened(peer)
        outcome = await send(session)
        session.abort()
    assert isinstance(outcome, Refused)
    assert outcome.detail["text"].isprintable()
    assert len(outcome.detail["text"]) <= 500


# -- TLS ---------------------------------------------------------------------------------------------------

GOOD, GOOD_CERTIFICATE = CA.server("mx.test", "127.0.0.1")
OTHER_NAME, _ = CA.server("other.test")
STRANGER, _ = Authority().server("mx.test")


@pytest.mark.parametrize(
    ("tls", "server", "expected"),
    [
        ("opportunistic", GOOD, "TLSv1.3"),
        ("opportunistic", STRANGER, "TLSv1.3"),
        ("opportunistic", OTHER_NAME, "TLSv1.3"),
        ("opportunistic", None, None),
        ("verified", GOOD, "TLSv1.3 verified"),
        ("verified", STRANGER, Deferred),
        ("verified", OTHER_NAME, Deferred),
        ("verified", None, Deferred),
        ("none", GOOD, None),
    ],
)
async def test_starttls_encrypts_the_session(tls: TlsMode, server: ssl.SSLContext | None, expected: object) -> None:
    async with Peer(tls=server) as peer:
        session = await open_to(peer, tls, roots=CA.trusted())
        if expected is Deferred:
            assert isinstance(session, Deferred)
            assert "TLS" in session.detail["text"] or "certificate" in session.detail["text"]
        else:
            assert isinstance(session, SmtpSession)
            assert isinstance(await send(session), Accepted)
            assert session.tls == expected
            assert peer.received[0].tls == (expected is not None)
            session.abort()
    assert len(peer.received) == (expected is not Deferred)


@pytest.mark.parametrize(("server", "good"), [(GOOD, True), (STRANGER, False), (OTHER_NAME, False)])
async def test_implicit_tls_encrypts_the_session(server: ssl.SSLContext, good: bool) -> None:
    async with Peer(tls=server, implicit=True) as peer:
        session = await open_to(peer, "implicit", roots=CA.trusted())
        assert isinstance(session, SmtpSession) == good
        if isinstance(session, SmtpSession):
            assert isinstance(await send(session), Accepted)
            session.abort()
    assert len(peer.received) == good


@pytest.mark.parametrize(("tls", "goes_on"), [("opportunistic", True), ("verified", False)])
@pytest.mark.parametrize("answer", ["454 4.7.0 not now", DROP, "220 go on\r\n250-injected\r\n250 PIPELINING"])
async def test_failing_starttls_gives_the_expected_outcome(answer: str, tls: TlsMode, goes_on: bool) -> None:
    """Opportunistic TLS continues without encryption; data injected before the handshake is discarded."""
    async with Peer({"starttls": answer}, tls=GOOD) as peer:
        session = await open_to(peer, tls, roots=CA.trusted())
        if answer == DROP:  # a break, not a failure of TLS: the next attempt decides
            assert isinstance(session, Deferred)
            return
        assert isinstance(session, SmtpSession) == goes_on
        if isinstance(session, SmtpSession):
            assert isinstance(await send(session), Accepted)
            assert session.tls is None
            session.abort()


async def test_capabilities_before_tls_are_discarded() -> None:
    async with Peer({"ehlo": ["250-peer\n250-STARTTLS\n250 PIPELINING", "250 peer"]}, tls=GOOD) as peer:
        session = await opened(peer, "opportunistic")
        assert isinstance(await send(session), Accepted)
        session.abort()
    assert peer.groups[-5:-1] == [["EHLO"], ["MAIL"], ["RCPT"], ["DATA"]]


# -- login -------------------------------------------------------------------------------------------------

LOGIN = Login(username="üser", password="pass\tword")


async def test_auth_plain_sends_the_credentials() -> None:
    async with Peer(offers=(*OFFERS, "AUTH LOGIN PLAIN")) as peer:
        (await opened(peer, login=LOGIN)).abort()
    assert base64.b64decode(peer.lines[-1].removeprefix("AUTH PLAIN ")).decode() == "\0üser\0pass\tword"


async def test_auth_login_sends_the_credentials() -> None:
    async with Peer(offers=(*OFFERS, "AUTH LOGIN CRAM-MD5")) as peer:
        (await opened(peer, login=LOGIN)).abort()
    assert peer.lines[1] == "AUTH LOGIN"
    assert [base64.b64decode(line).decode() for line in peer.lines[2:]] == ["üser", "pass\tword"]


@pytest.mark.parametrize(
    ("offer", "script", "words", "trouble"),
    [
        ("AUTH PLAIN", {"auth": "535 5.7.8 wrong password"}, "535 5.7.8", None),
        ("AUTH LOGIN", {"auth": "454 4.7.0 later"}, "454 4.7.0", None),
        ("AUTH CRAM-MD5", {}, "neither AUTH PLAIN nor AUTH LOGIN", "account"),
        ("HELP", {}, "neither AUTH PLAIN nor AUTH LOGIN", "account"),
    ],
)
async def test_failed_login_is_deferred(offer: str, script: Script, words: str, trouble: str | None) -> None:
    async with Peer(script, offers=(offer,)) as peer:
        outcome = await open_to(peer, login=LOGIN)
    assert isinstance(outcome, Deferred)
    assert words in outcome.detail["text"] and outcome.detail.get("trouble") == trouble
    assert "pass" not in str(outcome.detail).replace("password", "")


@pytest.mark.parametrize(("tls", "told"), [("none", False), ("verified", True)])
async def test_a_public_relay_gets_the_password_only_inside_tls(
    tls: TlsMode, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smtp, "is_denied", lambda address: False)  # as if the relay had a public address
    async with Peer(offers=(*OFFERS, "AUTH PLAIN"), tls=GOOD) as peer:
        session = await open_to(peer, tls, login=LOGIN, roots=CA.trusted())
        assert isinstance(session, SmtpSession) == told
        if isinstance(session, SmtpSession):
            session.abort()
    assert any(line.startswith("AUTH") for line in peer.lines) == told


def test_password_is_not_in_details_or_logs() -> None:
    assert "pass" not in repr(SmtpOptions(login=LOGIN))


# -- the relay and its connections -------------------------------------------------------------------------


@pytest.mark.parametrize("final", [True, False])
async def test_250_of_a_relay_is_delivered_only_if_final(final: bool) -> None:
    async with Peer() as peer, relay_to(peer, final=final) as relay:
        outcome = await relay.send_message(outbound_message())
    assert isinstance(outcome, Accepted)
    assert outcome.delivered == final
    assert outcome.carrier_id == "eml_1/3"
    assert outcome.detail["carrier"] == "smtp"
    assert 0 <= outcome.detail["duration_ms"] < 1000
    assert outcome.detail.keys() == {
        "host", "address", "tls", "code", "enhanced", "text", "duration_ms", "carrier",
    }  # fmt: skip


@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize("verb", ["mail", "rcpt", "data", "final"])
async def test_refusal_is_attributed_to_the_inbox_only_from_its_own_server(verb: str, final: bool) -> None:
    async with Peer({verb: "554 5.7.1 blocked"}) as peer, relay_to(peer, final=final) as relay:
        outcome = await relay.send_message(outbound_message())
    assert isinstance(outcome, Refused)
    assert (outcome.bounced, outcome.by_inbox) == (False, final and verb != "mail")


@pytest.mark.parametrize(("tls", "implicit"), [("starttls", False), ("tls", True)])
async def test_relay_with_tls_and_login_accepts_the_mail(tls: str, implicit: bool) -> None:
    async with (
        Peer(tls=GOOD, implicit=implicit, offers=(*OFFERS, "AUTH PLAIN")) as peer,
        relay_to(peer, tls=tls, username="u", password="p") as relay,
    ):
        outcome = await relay.send_message(outbound_message())
    assert isinstance(outcome, Accepted)
    assert outcome.detail["tls"] == "TLSv1.3 verified"


async def test_one_connection_sends_several_mails_and_quits() -> None:
    async with Peer() as peer:
        async with relay_to(peer) as relay:
            for number in range(5):
                assert isinstance(await relay.send_message(outbound_message(number)), Accepted)
        assert peer.talks == [["ehlo", *["mail", "rcpt", "data", "final"] * 5, "quit"]]
    assert [mail.recipient for mail in peer.received] == [f"to{number}@x.test" for number in range(5)]


async def test_connections_to_a_host_are_limited() -> None:
    async with Peer(final_delay=0.01) as peer, relay_to(peer, connections=3) as relay:
        outcomes = await asyncio.gather(*(relay.send_message(outbound_message(number)) for number in range(20)))
    assert all(isinstance(outcome, Accepted) for outcome in outcomes)
    assert (peer.most_connections, len(peer.talks)) == (3, 3)
    assert len({mail.recipient for mail in peer.received}) == 20


async def test_mail_waiting_too_long_for_a_connection_is_deferred() -> None:
    limits = PoolLimits(queue_timeout_s=0.1)
    async with Peer(final_delay=0.4) as peer, relay_to(peer, connections=1, limits=limits) as relay:
        first, second, third = await asyncio.gather(
            *(relay.send_message(outbound_message(number)) for number in (1, 2, 3))
        )
    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted)  # it is next in the queue, regardless of the time
    assert isinstance(third, Deferred) and third.held
    assert "connections of ours" in third.detail["text"]


async def test_idle_connection_is_closed_after_a_timeout() -> None:
    async with Peer() as peer, relay_to(peer, limits=PoolLimits(idle_timeout_s=0.05)) as relay:
        await relay.send_message(outbound_message())
        async with asyncio.timeout(60):
            while peer.talks[0][-1] != "quit":
                await asyncio.sleep(0.01)
        assert relay._pool._hosts == {}
        await relay.send_message(outbound_message())
        assert len(peer.talks) == 2


@pytest.mark.parametrize("last_word", [DROP, "421 4.4.2 idle for too long", "250 2.0.0 ok\r\n421 4.4.2 goodbye"])
async def test_idle_connection_closed_by_the_server_is_replaced(last_word: str) -> None:
    script: Script = {"final": ["250 ok", "250 ok"], "mail": ["250 ok", last_word, "250 ok"]}
    if last_word.startswith("250"):
        script = {"final": [last_word, "250 ok"]}
    async with Peer(script) as peer, relay_to(peer) as relay:
        first, second = [await relay.send_message(outbound_message(number)) for number in (1, 2)]
    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted), second
    assert len(peer.talks) == 2
    assert [mail.recipient for mail in peer.received] == ["to1@x.test", "to2@x.test"]


@pytest.mark.parametrize("verb", ["connect", "ehlo", "mail", "rcpt", "data", "final"])
async def test_421_reply_pauses_the_host(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script: Script = {verb: ["421 4.3.2 closing", "354 go on" if verb == "data" else "250 ok"]}
    async with Peer(script) as peer, relay_to(peer, limits=PoolLimits(host_pause_s=600)) as relay:
        first = await relay.send_message(outbound_message())
        during = await relay.send_message(outbound_message())
        connections_before = len(peer.talks)
        later = asyncio.get_running_loop().time() + 601
        monkeypatch.setattr(connection_pool, "_now", lambda: later)
        after = await relay.send_message(outbound_message())
    assert isinstance(first, Deferred)
    assert first.detail["code"] == "421"
    assert isinstance(during, Deferred)
    assert "pause: 421 4.3.2 closing" in during.detail["text"]
    assert connections_before == 1
    assert isinstance(after, Accepted)
    assert len(peer.talks) == 2


async def test_other_refusals_do_not_pause_the_host() -> None:
    async with (
        Peer({"rcpt": ["451 4.7.1 later", "250 ok"], "data": ["503 no", "354 go"]}) as peer,
        relay_to(peer) as relay,
    ):
        assert isinstance(await relay.send_message(outbound_message()), Deferred)
        assert isinstance(await relay.send_message(outbound_message()), Accepted)
    assert len(peer.talks) == 1


async def test_cancelled_send_leaves_no_connection_behind() -> None:
    async with Peer({"final": HANG}) as peer, relay_to(peer, connections=1) as relay:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await relay.send_message(outbound_message())
        await asyncio.sleep(0.02)
        assert relay._pool._hosts == {}
