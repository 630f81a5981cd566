"""What all our SMTP servers share: the end of a mail, timeouts, and limits of connections."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from heliograph.smtp import wire as wires
from heliograph.smtp.listener import SmtpServer
from heliograph.smtp.session import START_MAIL_INPUT, Envelope, SmtpLimits, SmtpServerSession, SmtpServerSettings
from heliograph.smtp.wire import SmtpServerConnection
from tests.service import PATIENCE_S

pytestmark = pytest.mark.anyio

LIMITS = SmtpLimits(mail_size=1000, connections=4, per_network=2)
BEGIN = b"EHLO x\r\nMAIL FROM:<a@x>\r\nRCPT TO:<b@x>\r\nDATA\r\n"
SMUGGLED = b"MAIL FROM:<a@x>\r\nRCPT TO:<smuggled@x>\r\nDATA\r\nsmuggled"


class Server:
    """A server that accepts every mail; `known`: all clients count as authenticated."""

    def __init__(self) -> None:
        self.port = 0
        self.mails: list[bytes] = []
        self.known = False
        self.command_s = PATIENCE_S

    async def talk(self, *sent: bytes) -> bytes:
        """Return all replies until the connection is closed."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            for piece in sent:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            writer.write_eof()
            return await reader.read()
        finally:
            writer.close()


class MailCollector(SmtpServerSession[str]):
    def __init__(self, server: Server, connection: SmtpServerConnection) -> None:
        super().__init__(
            SmtpServerSettings(
                host_name="mx.test", limits=LIMITS, get_tls_context=lambda: None, too_large_reply="552 5.3.4 Too large"
            ),
            connection,
        )
        self._server = server

    @property
    def is_authenticated(self) -> bool:
        return self._server.known

    def _command_timeout(self) -> float:
        return self._server.command_s

    def _add_recipient(self, envelope: Envelope[str], address: str) -> str:
        envelope.recipients.append(address)
        return "250 2.1.5 Ok"

    async def _receive_mail(self, envelope: Envelope[str]) -> None:
        self._reply(START_MAIL_INPUT)
        self._server.mails.append(b"".join([piece async for piece in self._connection.read_mail()]))
        self._reply("250 2.0.0 Ok: taken")


@asynccontextmanager
async def listening(limits: SmtpLimits = LIMITS) -> AsyncIterator[Server]:
    collector = Server()
    server = SmtpServer(limits, lambda connection: MailCollector(collector, connection))
    with socket.create_server(("127.0.0.1", 0)) as bound:
        collector.port = bound.getsockname()[1]
        await server.listen(bound, 100)
        try:
            yield collector
        finally:
            await server.drain(PATIENCE_S)


@pytest.mark.parametrize(
    ("sent", "mail"),
    [
        (b".\r\n", b""),
        (b"\r\n.\r\n", b"\r\n"),
        (b"\r\n\r\n.\r\n", b"\r\n\r\n"),
        (b"\r\nab\r\n.\r\n", b"\r\nab\r\n"),
        (b"x\r\n.\r\n", b"x\r\n"),
        (b"..\r\n.\r\n", b".\r\n"),
        (b"..x\r\n...\r\n..\r\n.\r\n", b".x\r\n..\r\n.\r\n"),
        (b"\n..\r\n..\n.\r\n.\r\n", b"\n..\r\n.\n.\r\n"),
        (b"\r.\r\r\n.\r\r\n.\n\r\n.\r\n", b"\r.\r\r\n.\r\r\n.\n\r\n"),
        (b"a\r\n" * 300 + b"..b\r\n" * 300 + b".\r\n", b"a\r\n" * 300 + b".b\r\n" * 300),
    ],
    ids=map(str, range(10)),
)
async def test_mail_in_any_chunks_is_read_up_to_its_end(sent: bytes, mail: bytes) -> None:
    chance = random.Random(1)
    async with listening() as server:
        for step in (1, 2, 3, 4, 5, 6, 7, len(sent)):
            at, pieces = 0, []
            while at < len(sent):
                end = at + (step if len(sent) < 50 else chance.randrange(1, 200))
                pieces.append(sent[at:end])
                at = end
            reply = await server.talk(BEGIN, *pieces, b"NOOP\r\nQUIT\r\n")
            assert reply.endswith(b"250 2.0.0 Ok: taken\r\n250 2.0.0 Ok\r\n221 2.0.0 Bye\r\n")
            assert server.mails.pop() == mail


@pytest.mark.parametrize(
    "end",
    [b"\n.\n", b"\n.\r\n", b"\r.\r", b"\r\n.\n", b"\r\n.\r", b"\r.\r\n", b"\n\n.\r\n", b"\r\n.\0\r\n", b"\r\n. \r\n"],
)
async def test_mail_ends_only_at_crlf_dot_crlf(end: bytes) -> None:
    async with listening() as server:
        reply = await server.talk(BEGIN, b"x" + end + SMUGGLED + b"\r\n.\r\n")
        assert reply.count(b"taken") == 1
    assert [b"smuggled" in mail for mail in server.mails] == [True]


@pytest.mark.parametrize("sent", [b"NOOP\n", b"NO\rOP\r\n", b"NOOP\nQUIT\r\n", b"x" * 13_000])
async def test_command_with_several_lines_is_refused(sent: bytes) -> None:
    async with listening() as server:
        assert (await server.talk(sent)).split(b"\r\n")[1].startswith(b"500 5.5.2 Lines have")


@pytest.mark.parametrize("begun", [b"NO", BEGIN], ids=["command", "mail"])
async def test_slow_bytes_do_not_extend_the_timeout(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wires, "MAIL_BASE_TIMEOUT_S", 0.2)
    async with listening() as server:
        server.command_s = 0.2
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(begun)
        ended = asyncio.create_task(reader.read())
        while not ended.done():
            writer.write(b"x")
            await asyncio.sleep(0.001)
        with suppress(ConnectionError):  # a client that keeps writing may not receive the reply
            assert (await ended).endswith(b"421 4.4.2 Timeout\r\n")
        writer.close()
    assert server.mails == []


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("limits", "strangers"),
    [
        (LIMITS, 2),
        (SmtpLimits(mail_size=1000, connections=2, per_network=9), 2),
        (SmtpLimits(mail_size=1000, connections=9, per_network=2, unauthenticated=1), 1),
    ],
)
async def test_connections_of_one_network_are_limited(limits: SmtpLimits, strangers: int, known: bool) -> None:
    limit = 2 if known else strangers
    async with listening(limits) as server:
        server.known = known
        connections = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(limit)]
        for reader, _ in connections:
            assert (await reader.readline()).startswith(b"220 ")
        assert await server.talk() == b"421 4.7.0 Too many connections, try again later\r\n"
        connections[0][1].close()
        while not (await server.talk()).startswith(b"220 "):
            await asyncio.sleep(0.001)
        for _, writer in connections:
            writer.close()


async def test_server_error_closes_the_connection() -> None:
    """The rest of a mail could be read as commands."""
    async with listening() as server:
        server.mails = None  # type: ignore[assignment]
        reply = await server.talk(BEGIN, b"x\r\n.\r\nNOOP\r\n")
    assert reply.splitlines()[-1] == b"421 4.3.0 Internal error, try again later"
