"""What every SMTP server of ours stands on: where a mail ends, how long a client may take, how many there may be."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from heliograph.smtp import wire as wires
from heliograph.smtp.listener import SmtpServer
from heliograph.smtp.session import GO_ON, Envelope, SmtpDialogue, SmtpLimits, Terms
from heliograph.smtp.wire import SmtpWire
from tests.service import PATIENCE_S

pytestmark = pytest.mark.anyio

LIMITS = SmtpLimits(size=1000, connections=4, per_peer=2)
BEGIN = b"EHLO x\r\nMAIL FROM:<a@x>\r\nRCPT TO:<b@x>\r\nDATA\r\n"
SMUGGLED = b"MAIL FROM:<a@x>\r\nRCPT TO:<smuggled@x>\r\nDATA\r\nsmuggled"


class Server:
    """It takes every mail, from whom it knows by their name."""

    def __init__(self) -> None:
        self.port = 0
        self.mails: list[bytes] = []
        self.known = False
        self.command_s = PATIENCE_S

    async def talk(self, *sent: bytes) -> bytes:
        """All that is answered, to its end."""
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


class Taking(SmtpDialogue[str]):
    def __init__(self, server: Server, wire: SmtpWire) -> None:
        super().__init__(Terms(name="mx.test", limits=LIMITS, tls=lambda: None, too_large="552 5.3.4 Too large"), wire)
        self._server = server

    @property
    def is_known(self) -> bool:
        return self._server.known

    def _patience(self) -> float:
        return self._server.command_s

    def _admit(self, envelope: Envelope[str], given: str) -> str:
        envelope.recipients.append(given)
        return "250 2.1.5 Ok"

    async def _take(self, envelope: Envelope[str]) -> None:
        self._say(GO_ON)
        self._server.mails.append(b"".join([piece async for piece in self._wire.mail()]))
        self._say("250 2.0.0 Ok: taken")


@asynccontextmanager
async def listening(limits: SmtpLimits = LIMITS) -> AsyncIterator[Server]:
    made = Server()
    server = SmtpServer(limits, lambda wire: Taking(made, wire))
    with socket.create_server(("127.0.0.1", 0)) as bound:
        made.port = bound.getsockname()[1]
        await server.listen(bound, 100)
        try:
            yield made
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
async def test_a_mail_is_what_stands_before_its_end_however_it_comes(sent: bytes, mail: bytes) -> None:
    chance = random.Random(1)
    async with listening() as server:
        for step in (1, 2, 3, 4, 5, 6, 7, len(sent)):
            at, pieces = 0, []
            while at < len(sent):
                end = at + (step if len(sent) < 50 else chance.randrange(1, 200))
                pieces.append(sent[at:end])
                at = end
            heard = await server.talk(BEGIN, *pieces, b"NOOP\r\nQUIT\r\n")
            assert heard.endswith(b"250 2.0.0 Ok: taken\r\n250 2.0.0 Ok\r\n221 2.0.0 Bye\r\n")
            assert server.mails.pop() == mail


@pytest.mark.parametrize(
    "end",
    [b"\n.\n", b"\n.\r\n", b"\r.\r", b"\r\n.\n", b"\r\n.\r", b"\r.\r\n", b"\n\n.\r\n", b"\r\n.\0\r\n", b"\r\n. \r\n"],
)
async def test_nothing_else_ends_a_mail(end: bytes) -> None:
    async with listening() as server:
        heard = await server.talk(BEGIN, b"x" + end + SMUGGLED + b"\r\n.\r\n")
        assert heard.count(b"taken") == 1
    assert [b"smuggled" in mail for mail in server.mails] == [True]


@pytest.mark.parametrize("sent", [b"NOOP\n", b"NO\rOP\r\n", b"NOOP\nQUIT\r\n", b"x" * 13_000])
async def test_a_command_is_one_line(sent: bytes) -> None:
    async with listening() as server:
        assert (await server.talk(sent)).split(b"\r\n")[1].startswith(b"500 5.5.2 Lines have")


@pytest.mark.parametrize("begun", [b"NO", BEGIN], ids=["command", "mail"])
async def test_a_byte_now_and_then_wins_no_time(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wires, "MAIL_S", 0.2)
    async with listening() as server:
        server.command_s = 0.2
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(begun)
        ended = asyncio.create_task(reader.read())
        while not ended.done():
            writer.write(b"x")
            await asyncio.sleep(0.001)
        with suppress(ConnectionError):  # whoever writes on may not read why
            assert (await ended).endswith(b"421 4.4.2 Too slow\r\n")
        writer.close()
    assert server.mails == []


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("limits", "strangers"),
    [
        (LIMITS, 2),
        (SmtpLimits(size=1000, connections=2, per_peer=9), 2),
        (SmtpLimits(size=1000, connections=9, per_peer=2, strangers=1), 1),
    ],
)
async def test_one_network_has_so_many_connections(limits: SmtpLimits, strangers: int, known: bool) -> None:
    most = 2 if known else strangers
    async with listening(limits) as server:
        server.known = known
        made = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(most)]
        for reader, _ in made:
            assert (await reader.readline()).startswith(b"220 ")
        assert await server.talk() == b"421 4.7.0 Too many connections, try again later\r\n"
        made[0][1].close()
        while not (await server.talk()).startswith(b"220 "):
            await asyncio.sleep(0.001)
        for _, writer in made:
            writer.close()


async def test_an_error_of_a_server_ends_the_connection() -> None:
    """What comes after it might be the rest of a mail."""
    async with listening() as server:
        server.mails = None  # type: ignore[assignment]
        heard = await server.talk(BEGIN, b"x\r\n.\r\nNOOP\r\n")
    assert heard.splitlines()[-1] == b"421 4.3.0 Something broke, try again later"
