"""Draining over loopback sockets: requests in progress finish, and slow clients get the whole response."""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from heliograph.domain.limits import KIB, MIB
from heliograph.runtime import listening
from heliograph.web.connection import Connections
from heliograph.web.dispatcher import Dispatcher
from heliograph.web.request import Request, Response
from tests.web.test_connection import Echo

pytestmark = pytest.mark.anyio

PATIENCE_S = 60
LONG = 30.0  # drain timeout
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Open:
    def __init__(self, echo: Echo) -> None:
        self.echo = echo
        self.connections = Connections(cast(Dispatcher, echo))
        self.bound = listening.listen("127.0.0.1", 0)
        self.port = self.bound.getsockname()[1]

    async def ask(self, sent: bytes) -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(sent)
        return reader, writer

    async def seen(self, count: int) -> None:
        """Wait until this number of requests have arrived."""
        while len(self.echo.seen) < count:
            await asyncio.sleep(0.001)


@asynccontextmanager
async def listening_for(echo: Echo) -> AsyncIterator[Open]:
    made = Open(echo)
    await made.connections.listen(made.bound, listening.BACKLOG)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield made
    finally:
        await made.connections.drain(0)


async def read(streams: Streams) -> bytes:
    """Read until the connection is closed."""
    reader, writer = streams
    came = await reader.read(-1)
    writer.close()
    return came


async def test_draining_answers_running_requests_and_closes_idle_connections() -> None:
    async with listening_for(Echo()) as door:
        silent = await door.ask(b"")
        idle = await door.ask(b"GET /idle HTTP/1.1\r\nHost: x\r\n\r\n")
        await door.seen(1)
        half = await door.ask(b"GET /half HTTP/1.1\r\nHost: x\r\nX: ")
        slow = await door.ask(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        piped = await door.ask(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\nGET /behind HTTP/1.1\r\nHost: x\r\n\r\n")
        body = await door.ask(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na")
        await door.seen(4)
        draining = asyncio.create_task(door.connections.drain(LONG))
        assert await read(silent) == b"" and await read(half) == b""
        assert (await read(idle)).endswith(b"/idle")
        with pytest.raises(ConnectionRefusedError):
            await door.ask(b"")
        assert not draining.done()
        door.echo.let_go.set()
        body[1].write(b"bc")
        for streams, paths in ((slow, [b"/slow"]), (piped, [b"/slow", b"/behind"]), (body, [b"/body"])):
            answers = (await read(streams)).split(b"HTTP/1.1 200 OK\r\n")[1:]
            assert [answer.split(b"\r\n\r\n")[1] for answer in answers] == paths
            assert [b"connection: close\r\n" in answer for answer in answers] == [False] * (len(paths) - 1) + [True]
        await draining
        assert len(door.connections) == 0


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("ends", ["drain_after_last_request", "drain"])
async def test_draining_does_not_reset_a_new_connection(turns: int, ends: str) -> None:
    """Another process listens on the same socket, so each connection must be accepted by one of both.

    asyncio drops a connection accepted in the loop iteration in which its server is closed.
    """
    async with listening_for(Echo()) as door:
        other = door.bound.dup()
        with other, socket.create_connection(("127.0.0.1", door.port), PATIENCE_S) as caller:
            caller.sendall(b"GET /asked HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            for _ in range(turns):
                await asyncio.sleep(0)
            await getattr(door.connections, ends)(LONG)
            other.setblocking(False)
            try:
                other.accept()[0].close()
            except BlockingIOError:
                caller.settimeout(PATIENCE_S)
                assert caller.recv(KIB).endswith(b"/asked")


async def test_stream_that_ends_while_draining_is_the_last_response() -> None:
    async with listening_for(Echo()) as door:
        stream = await door.ask(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        await door.seen(1)
        await stream[0].readuntil(b"part 2\r\n")
        draining = asyncio.create_task(door.connections.drain(LONG))
        await asyncio.sleep(0)
        door.echo.let_go.set()
        assert await read(stream) == b"0\r\n\r\n"
        await draining


async def test_draining_aborts_requests_after_the_timeout() -> None:
    async with listening_for(Echo()) as door:
        slow = await door.ask(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        gone = await door.ask(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        stream = await door.ask(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        await door.seen(3)
        gone[1].transport.abort()
        await door.connections.drain(0.01)
        assert len(door.connections) == 0 and door.echo.streams_ended == 1
        assert await read(slow) == b""
        assert (await read(stream)).endswith(b"part 2\r\n")  # without the last chunk, the client detects the error


async def test_draining_finishes_requests_whose_client_disconnected() -> None:
    """Its work may be a commit."""
    async with listening_for(Echo()) as door:
        _, writer = await door.ask(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        await door.seen(1)
        writer.transport.abort()
        draining = asyncio.create_task(door.connections.drain(LONG))
        for _ in range(10):
            await asyncio.sleep(0.001)
        assert not draining.done()
        door.echo.let_go.set()
        await draining


class Large(Echo):
    """Responds with 16 MiB, at once or in parts; counts the parts."""

    made = 0

    async def __call__(self, request: Request) -> Response:
        self.seen.append(request)
        if request.path == "/whole":
            return Response(200, b"@" * 16 * MIB)
        return Response(200, b"", [], b"text/plain", self.parts())

    async def parts(self) -> AsyncGenerator[bytes, None]:
        for _ in range(256):
            self.made += 1
            yield b"@" * 64 * KIB


@pytest.mark.parametrize("path", [b"/whole", b"/parts"])
async def test_draining_does_not_wait_for_a_client_that_stops_reading(path: bytes) -> None:
    """The client gets the rest when it reads on; until then, a stream produces no more parts."""
    async with listening_for(Large()) as door:
        echo = cast(Large, door.echo)
        reader, writer = await door.ask(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path * 3)
        await door.seen(1)
        before = -1
        while echo.made != before:
            before = echo.made
            await asyncio.sleep(0.05)
        assert echo.made < 256 and len(echo.seen) <= 2
        left = 3 * 16 * MIB
        while left > 0:
            left -= (await reader.read(MIB)).count(b"@")
        writer.close()
        assert left == 0 and len(echo.seen) == 3
