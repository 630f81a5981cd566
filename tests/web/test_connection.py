"""A connection without a network: responses in one write, in order; limits of headers and bodies.

Idle and closed clients.
"""

import asyncio
import gc
import tracemalloc
import weakref
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from heliograph.domain.limits import KIB, MIB
from heliograph.domain.refusals import Refusal
from heliograph.web.budget import ByteBudget
from heliograph.web.connection import (
    BODY_S,
    CLIENT_STALL_S,
    HEADERS_MAX,
    HEADERS_S,
    KEEP_ALIVE_S,
    MIN_BODY_RATE,
    SWEEP_S,
    UNREAD_MAX,
    Connection,
    Connections,
)
from heliograph.web.dispatcher import Dispatcher
from heliograph.web.request import Headers, Request, Response
from heliograph.web.status import status_of

pytestmark = pytest.mark.anyio


class Wire(asyncio.Transport):
    """A transport that records what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = self.aborted = self.paused = self.ended = False
        self.unread = 0

    def write_eof(self) -> None:
        self.ended = True

    def get_write_buffer_size(self) -> int:
        return self.unread

    def write(self, data: Any) -> None:
        assert not (self.closed or self.ended)
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    @property
    def all(self) -> bytes:
        return b"".join(self.written)

    @property
    def statuses(self) -> list[int]:
        return [int(answer[:3]) for answer in self.all.split(b"HTTP/1.1 ")[1:]]


class Echo:
    """Responds with the request's path after its body; `/slow…` once released; `/stream` in parts."""

    def __init__(self, headers: Headers | None = None) -> None:
        self.headers = headers or []
        self.let_go = asyncio.Event()
        self.bodies: list[bytes] = []
        self.seen: list[Request] = []
        self.streams_ended = 0

    async def __call__(self, request: Request) -> Response:
        self.seen.append(request)
        if request.path == "/nobody":
            return Response(404, b"{}")
        if request.path == "/stream":
            return Response(200, b"", [], b"text/plain", self.parts())
        self.bodies.append(await request.read_body(64 * MIB, ByteBudget(), ""))
        if request.path.startswith("/slow"):
            await self.let_go.wait()
        return Response(200, request.path.encode(), self.headers, b"text/plain")

    async def parts(self) -> AsyncGenerator[bytes, None]:
        try:
            for part in (b"part 0", b"part 1", b"", b"part 2"):
                yield part
            await self.let_go.wait()
        finally:
            self.streams_ended += 1

    def refusal_response(self, refusal: Refusal, request: Request | None = None) -> Response:
        return Response(status_of(type(refusal)), b"{}")

    async def reject_overload(self, request: Request) -> Response:
        request.keep_alive = False
        return Response(503, b"{}")


def connect(headers: Headers | None = None, echo: Echo | None = None, most: int = 9) -> tuple[Connection, Wire]:
    made, wire = Connection(Connections(cast(Dispatcher, echo or Echo(headers)), most)), Wire()
    made.connection_made(wire)
    return made, wire


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def ask(made: Connection, *requests: str) -> None:
    made.data_received("".join(f"{line}\r\nHost: x\r\n\r\n" for line in requests).encode())
    await settle()


def lost(made: Connection) -> None:
    """Report a lost connection as a transport does, which then drops its protocol."""
    made.connection_lost(None)


async def gone(made: Connection) -> None:
    """Report an aborted connection, so that a stream does not end in another test during garbage collection."""
    lost(made)
    await settle()


# -- answers -----------------------------------------------------------------------------------------------


async def test_response_is_written_with_one_system_call() -> None:
    made, wire = connect([(b"x-request-id", b"req_1")])
    await ask(made, "GET /a HTTP/1.1")
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nx-request-id: req_1\r\ncontent-length: 2\r\n\r\n"
    assert wire.written == [head + b"/a"]
    assert not wire.closed


async def test_pipelined_requests_are_answered_in_order_also_behind_a_slow_one() -> None:
    echo = Echo()
    made, wire = connect(echo=echo)
    await ask(made, "GET /slow HTTP/1.1", "GET /b HTTP/1.1", "GET /c HTTP/1.1")
    assert wire.written == [] and wire.paused  # nothing is read until the response was sent
    assert [request.path for request in echo.seen] == ["/slow"]
    echo.let_go.set()
    await settle()
    assert [one.split(b"\r\n\r\n")[1] for one in wire.written] == [b"/slow", b"/b", b"/c"]
    assert not wire.paused


async def test_bodies_of_pipelined_requests_are_not_mixed() -> None:
    echo = Echo()
    made, _ = connect(echo=echo)
    for body in (b"one", b"", b"three"):
        made.data_received(b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    echo.let_go.set()
    await settle()
    assert echo.bodies == [b"one", b"", b"three"]


async def test_incomplete_body_of_a_pipelined_request_is_awaited() -> None:
    echo = Echo()
    made, wire = connect(echo=echo)
    await ask(made, "GET /slow HTTP/1.1")
    made.data_received(b"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc")
    assert wire.paused
    echo.let_go.set()
    await settle()
    assert not wire.paused and wire.statuses == [200]
    made.data_received(b"def")
    await settle()
    assert wire.statuses == [200, 200] and echo.bodies[1] == b"abcdef"


async def test_whitespace_around_a_header_value_is_removed() -> None:
    echo = Echo()
    made, _ = connect(echo=echo)
    await ask(made, "GET /a HTTP/1.1\r\nIdempotency-Key: \t one two \t ")
    assert echo.seen[0].headers[b"idempotency-key"] == b"one two"


async def test_response_to_head_has_no_body() -> None:
    made, wire = connect()
    await ask(made, "HEAD /a HTTP/1.1")
    assert b"content-length: 2\r\n" in wire.all and wire.all.endswith(b"\r\n\r\n")
    await ask(made, "HEAD /stream HTTP/1.1")
    assert wire.all.endswith(b"\r\n\r\n") and wire.statuses == [200, 200]


@pytest.mark.parametrize(
    "request_line",
    [
        "GET /a HTTP/1.0",
        "GET /a HTTP/1.0\r\nConnection: keep-alive",
        "GET /a HTTP/1.1\r\nConnection: close",
        "GET /a HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket",
    ],
)
async def test_last_response_closes_the_connection(request_line: str) -> None:
    """Whatever the client sends after it."""
    echo = Echo()
    made, wire = connect(echo=echo)
    await ask(made, request_line, "GET /b HTTP/1.1")
    made.data_received(b"GET /c HTTP/1.1\r\nHost: x\r\n\r\n\0\0")
    await settle()
    assert wire.all.count(b"connection: close\r\n") == 1
    assert wire.all.endswith(b"/a") and wire.statuses == [200]
    assert wire.closed and len(echo.seen) == 1


@pytest.mark.parametrize("value", [b"1\r\nset-cookie: a=b", b"1\nset-cookie: a=b", b"1\rset-cookie: a=b"])
async def test_line_break_in_a_response_header_is_never_sent(value: bytes) -> None:
    made, wire = connect([(b"x-bad", value)])
    await ask(made, "GET /a HTTP/1.1")
    assert wire.statuses == [500]
    assert b"set-cookie" not in wire.all


async def test_response_waits_for_a_client_that_does_not_read() -> None:
    made, wire = connect()
    made.pause_writing()
    await ask(made, "GET /a HTTP/1.1", "GET /b HTTP/1.1")
    assert wire.written == [] and wire.paused
    made.resume_writing()
    await settle()
    assert wire.statuses == [200, 200]


async def test_connection_above_the_limit_gets_a_response_before_it_is_closed() -> None:
    made, wire = connect(most=0)
    assert not wire.closed  # closing before the request was read would reset the connection
    await ask(made, "GET /a HTTP/1.1")
    assert wire.statuses == [503] and b"connection: close\r\n" in wire.all
    assert wire.closed


# -- streams -----------------------------------------------------------------------------------------------


async def test_streamed_response_is_chunked() -> None:
    echo = Echo()
    made, wire = connect(echo=echo)
    await ask(made, "GET /stream HTTP/1.1", "GET /b HTTP/1.1")
    chunks = b"".join(b"6\r\npart %d\r\n" % number for number in range(3))
    assert b"transfer-encoding: chunked\r\n" in wire.all and wire.all.endswith(b"\r\n\r\n" + chunks)
    echo.let_go.set()
    await settle()
    assert b"2\r\n0\r\n\r\nHTTP/1.1 200 " in wire.all and wire.all.endswith(b"/b")


async def test_a_stream_for_an_old_client_ends_with_the_connection() -> None:
    echo = Echo()
    echo.let_go.set()
    made, wire = connect(echo=echo)
    await ask(made, "GET /stream HTTP/1.0")
    assert b"chunked" not in wire.all and wire.all.endswith(b"\r\n\r\npart 0part 1part 2") and wire.closed


async def test_stream_waits_for_its_reader_and_ends_when_the_client_disconnects() -> None:
    echo = Echo()
    made, wire = connect(echo=echo)
    made.data_received(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
    write = wire.write

    def fill(data: Any) -> None:
        write(data)
        made.pause_writing()

    wire.write = fill  # type: ignore[method-assign]
    await settle()
    assert b"part 0" in wire.all and b"part 1" not in wire.all
    wire.close()
    lost(made)
    await settle()
    assert echo.streams_ended == 1


@pytest.mark.parametrize(
    ("framing", "rest"),
    [
        ("Content-Length: 5", "56789GET /a HTTP/1.1\r\n\r\n"),
        ("Transfer-Encoding: chunked", "5\r\n56789\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked", "no length\r\n"),
    ],
)
async def test_connection_to_be_closed_is_not_reset_while_the_request_body_arrives(framing: str, rest: str) -> None:
    made, wire = connect()
    await ask(made, f"POST /nobody HTTP/1.1\r\nConnection: close\r\n{framing}")
    assert (wire.statuses, wire.ended, wire.closed) == ([404], True, False)  # the client still gets the response
    made.data_received(rest.encode())
    await settle()
    assert (wire.statuses, wire.closed, wire.aborted) == ([404], True, False)


@pytest.mark.parametrize("path", ["/stream", "/a"])
async def test_client_that_reads_nothing_of_its_response_is_disconnected(path: str) -> None:
    made, wire = connect()
    made.data_received(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await settle()
    wire.unread = 1  # also if it is too little to pause writing, and the connection must be closed
    now = asyncio.get_running_loop().time()
    made.sweep(now)
    made.sweep(now + CLIENT_STALL_S - 1)
    assert not wire.aborted
    made.sweep(now + CLIENT_STALL_S + 1)
    assert wire.aborted
    await gone(made)


async def test_client_that_reads_slowly_is_not_disconnected() -> None:
    made, wire = connect()
    await ask(made, "GET /a HTTP/1.1\r\nConnection: close")
    made.pause_writing()
    now = asyncio.get_running_loop().time()
    for wire.unread in (3, 2, 1):
        made.sweep(now := now + CLIENT_STALL_S - 1)
    assert not wire.aborted


async def test_response_waiting_for_its_reader_can_be_aborted() -> None:
    made, _ = connect()
    made.data_received(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
    made.pause_writing()
    await settle()
    await made.abort()
    lost(made)  # raises nothing
    assert not len(made._connections)


async def test_stream_is_aborted_when_the_rest_of_its_request_is_invalid() -> None:
    made, wire = connect()
    await arrive(made, b"GET /stream HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", 1 << 20)
    await arrive(made, b"zz\r\n", 1 << 20)
    assert wire.aborted and wire.statuses == [200]
    await gone(made)


async def test_stream_that_raises_is_aborted() -> None:
    async def broken() -> AsyncGenerator[bytes, None]:
        yield b"part"
        raise OSError("no more")

    echo = Echo()
    echo.parts = broken  # type: ignore[method-assign]
    made, wire = connect(echo=echo)
    await ask(made, "GET /stream HTTP/1.1")
    assert wire.all.endswith(b"4\r\npart\r\n") and wire.aborted  # without the last chunk, the client detects the error


# -- what is let go ----------------------------------------------------------------------------------------


async def test_only_connections_idle_for_long_are_closed() -> None:
    echo = Echo()
    made, wire = connect(echo=echo)
    now = asyncio.get_running_loop().time()
    await ask(made, "GET /slow HTTP/1.1")
    made.sweep(now + 10 * KEEP_ALIVE_S)
    assert not wire.closed
    echo.let_go.set()
    await settle()
    made.sweep(now + KEEP_ALIVE_S - 1)
    assert not wire.closed
    made.sweep(now + KEEP_ALIVE_S + 60)
    assert wire.closed and not wire.aborted


async def test_header_deadline_begins_with_the_connection() -> None:
    now = asyncio.get_running_loop().time()
    for start in (b"", b"GET /a HTTP/1.1\r\nHost: x\r\nX: "):
        made, wire = connect()
        made.data_received(start)
        made.sweep(now + HEADERS_S - 1)
        assert not wire.closed
        made.sweep(now + HEADERS_S + 60)
        assert wire.aborted


async def test_headers_are_not_late_while_reading_is_paused() -> None:
    echo = Echo()
    made, wire = connect(echo=echo)
    now = asyncio.get_running_loop().time()
    await ask(made, "GET /slow HTTP/1.1", "GET /b HTTP/1.1")
    made.data_received(b"GET /c HTTP/1.1\r\nHost: x\r\nX: ")
    made.sweep(now + 60)
    assert wire.paused and not wire.closed
    echo.let_go.set()
    await settle()
    made.sweep(now + 60)
    assert wire.aborted


async def test_an_answered_request_is_freed_without_the_collector() -> None:
    echo = Echo()
    made, _ = connect(echo=echo)
    gc.collect()
    gc.disable()
    try:
        for path in ("/a", "/nobody", "/stream"):
            echo.let_go.set()
            await ask(made, f"GET {path} HTTP/1.1")
            echo.seen.clear()
            # by type, because isinstance would load lazy objects of other tests
            assert [one for one in gc.get_objects() if type(one) is Request] == [], path
    finally:
        gc.enable()


ENDINGS: dict[str, bytes] = {
    "without a word": b"",
    "in the headers": b"GET /a HTTP/1.1\r\nHost: x\r\nX: ",
    "in the body": b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc",
    "idle": b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n",
    "refused": b"hello\r\n\r\n",
    "at work": b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n",
    "at work, with more behind": b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\nGET",
    "in a stream": b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_closed_connection_is_freed_without_the_collector(ending: str) -> None:
    """Closed connections that needed the collector used 24 MB after 9,000 of them."""
    echo = Echo()
    made, wire = connect(echo=echo)
    connections = made._connections
    gc.collect()
    gc.disable()
    try:
        made.data_received(ENDINGS[ending])
        await settle()
        wire.close()
        lost(made)
        echo.seen.clear()
        left = weakref.ref(made)
        del made
        echo.let_go.set()
        await settle()
        assert left() is None
        assert len(connections) == 0
    finally:
        gc.enable()


# -- the size of headers -----------------------------------------------------------------------------------


def headed(size: int, *, rest: bytes = b"\r\n", path: bytes = b"/a", many: bool = False) -> bytes:
    """Return a request with headers of this size."""
    left = size - len(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path)
    if many:
        lines = b"X: 1\r\n" * (left // 6 - 1)
        left -= len(lines)
    else:
        lines = b""
    return b"GET %s HTTP/1.1\r\nHost: x\r\n%sX: %s\r\n%s" % (path, lines, b"x" * (left - len(b"X: \r\n")), rest)


ARRIVALS: dict[str, int] = {"at once": 1 << 20, "in packets": 1460, "nearly at once": 65536, "in dribs": 7}


def wire_of(made: Connection) -> Wire:
    return cast(Wire, made._transport)


async def arrive(made: Connection, data: bytes, size: int) -> None:
    buffer = made.get_buffer(-1)
    for start in range(0, len(data), size := min(size, len(buffer))):
        if not wire_of(made).closed:
            part = data[start : start + size]
            buffer[: len(part)] = part
            made.buffer_updated(len(part))
    await settle()


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
@pytest.mark.parametrize(
    "before", [b"", b"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"], ids=["first", "second"]
)
@pytest.mark.parametrize("size", ARRIVALS.values(), ids=ARRIVALS)
async def test_header_limit_applies_to_headers_in_any_pieces(size: int, before: bytes, many: bool) -> None:
    for total, status in ((HEADERS_MAX, b"200"), (HEADERS_MAX + 1, b"400")):
        made, wire = connect()
        await arrive(made, before + headed(total, many=many), size)
        answers = b"".join(wire.written).split(b"HTTP/1.1 ")[1:]
        assert [answer[:3] for answer in answers] == [b"200"] * bool(before) + [status]
        assert wire.closed == (status == b"400")


@pytest.mark.parametrize("size", ARRIVALS.values(), ids=ARRIVALS)
@pytest.mark.parametrize(
    "start",
    [
        b"GET /" + b"a" * 100_000,
        b"GET /a HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 100_000,
        b"GET /a HTTP/1.1\r\nHost: x\r\nX:" + b" " * 100_000,
        b"\r\n" * 50_000,
        b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: " + b"x" * 100_000,
        b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n" + b"X: 1\r\n" * 20_000,
        b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 100_000,
    ],
    ids=["address", "value", "blanks", "empty lines", "trailer", "trailers", "chunk extension"],
)
async def test_request_head_without_end_is_refused(start: bytes, size: int) -> None:
    made, wire = connect()
    await arrive(made, start, size)
    assert b"HTTP/1.1 400 " in b"".join(wire.written) and wire.closed


async def test_malformed_requests_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    for request in (
        b"hello\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    ):
        made, wire = connect()
        await arrive(made, request, 100)
        assert wire.written
    assert caplog.records == []


async def test_small_body_chunks_do_not_count_as_headers() -> None:
    made, wire = connect()
    await arrive(made, b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", 1 << 20)
    for _ in range(20_000):
        made.data_received(b"0001\r\n")
        made.data_received(b"a\r\n")
    await arrive(made, b"0\r\n\r\n", 1 << 20)
    assert b"".join(wire.written).endswith(b"/a") and not wire.closed


async def test_body_in_small_chunks_needs_little_more_memory_than_its_bytes() -> None:
    made, _ = connect()
    await arrive(made, b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", 1 << 20)
    tracemalloc.start()
    for _ in range(200):
        await arrive(made, b"2\r\nab\r\n" * 1000, 1 << 20)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 2 * 200 * 2000


# -- bodies ------------------------------------------------------------------------------------------------


def swept(made: Connection, seconds: float) -> bool:
    """Return whether the connection is closed within these seconds."""
    return any(made.is_too_slow(0) for _ in range(int(seconds / SWEEP_S)))


@pytest.mark.parametrize("length", [b"Content-Length: 40000000", b"Transfer-Encoding: chunked"])
async def test_minimum_body_rate_applies_from_the_first_second(length: bytes) -> None:
    made, _ = connect()
    made.data_received(b"POST /a HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n" % length)
    assert not swept(made, BODY_S)
    assert swept(made, 1)
    made, _ = connect()
    made.data_received(b"POST /a HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n" % length)
    for _ in range(100):
        made.on_body(b"x" * MIN_BODY_RATE)
        await settle()  # the application reads the body
        assert not swept(made, 1)
    assert swept(made, BODY_S + 1)


async def test_fast_start_of_a_body_does_not_excuse_a_stall() -> None:
    made, _ = connect()
    made.data_received(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 40000000\r\n\r\n")
    made.on_body(b"x" * 39_000_000)
    await settle()
    assert not swept(made, BODY_S)
    assert swept(made, 2)


async def test_body_is_not_slow_while_reading_is_paused() -> None:
    made, wire = connect()
    made.data_received(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 40000000\r\n\r\n")
    made.on_body(b"x" * (UNREAD_MAX + 1))  # more than is buffered before the application reads
    assert wire.paused and not swept(made, 60)
    await settle()
    assert not wire.paused and swept(made, 60)


async def test_unread_rest_of_a_body_is_discarded() -> None:
    """The next request is answered."""
    made, wire = connect()
    made.data_received(b"POST /nobody HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % MIB)
    await settle()
    assert wire.statuses == [404]
    for _ in range(MIB // (64 * KIB)):
        made.data_received(b"x" * 64 * KIB)
        assert not wire.paused
    await ask(made, "GET /b HTTP/1.1")
    assert wire.statuses == [404, 200]


@pytest.mark.parametrize("path", ["/a", "/nobody"])
async def test_client_expecting_100_continue_gets_it(path: str) -> None:
    made, wire = connect()
    made.data_received(
        b"POST %s HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\nContent-Length: 3\r\n\r\n" % path.encode()
    )
    await settle()
    assert wire.statuses == ([100] if path == "/a" else [404])
    made.data_received(b"abc")
    await settle()
    assert wire.statuses == ([100, 200] if path == "/a" else [404])


async def test_chunked_body_and_trailers_are_parsed() -> None:
    echo = Echo()
    made, wire = connect(echo=echo)
    start = b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n"
    made.data_received(start + b"X-Forwarded-For: 1.2.3.4\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n")
    await settle()
    assert wire.statuses == [200, 200] and echo.bodies == [b"abcde", b""]
    assert all(request.values(b"x-forwarded-for") == [] for request in echo.seen)


async def test_body_with_invalid_chunks_is_refused_at_once() -> None:
    echo = Echo()
    made, wire = connect(echo=echo)
    made.data_received(b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n")
    await settle()
    assert wire.statuses == [400] and wire.closed
    lost(made)
    await settle()
    assert echo.bodies == []


# -- what is no request ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"GET /a HTTP/3.7\r\n\r\n",
        b"GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://example.com HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n",
        b"GET /a HTTP/1.1\nHost: x\n\n",
        b"GET /a HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: x\r\nX : a\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\nabc",
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3, 3\r\n\r\nabc",
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n",
    ],
)
async def test_malformed_request_is_refused_and_closes_the_connection(sent: bytes) -> None:
    """The request before it is answered; the data after it is not read."""
    for before in (b"", b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"):
        echo = Echo()
        made, wire = connect(echo=echo)
        made.data_received(before + sent + b"GET /b HTTP/1.1\r\nHost: x\r\n\r\n")
        await settle()
        assert wire.statuses == ([] if before else [400])
        echo.let_go.set()
        await settle()
        assert wire.statuses == [200] * bool(before) + [400]
        assert wire.closed and b"connection: close" in wire.all
        assert "/b" not in [request.path for request in echo.seen]


@pytest.mark.parametrize("host", [b"x", b"x:8080", b"[::1]:80", b"a_b.example.", b"xn--bcher-kva.example"])
async def test_a_host_may_have_a_port_and_be_an_address(host: bytes) -> None:
    made, wire = connect()
    made.data_received(b"GET /a HTTP/1.1\r\nHost: %s\r\n\r\n" % host)
    await settle()
    assert wire.statuses == [200]


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /a HTTP/1.1\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost:\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: a b\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: a/b@c\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET /a HTTP/2.0\r\nHost: x\r\n\r\n",
        b"GET /a\r\nHost: x\r\n\r\n",
        b"GET /a HTTP/0.9\r\nHost: x\r\n\r\n",
    ],
)
async def test_unsupported_request_line_is_400(request_: bytes) -> None:
    made, wire = connect()
    made.data_received(request_)
    await settle()
    assert wire.statuses == [400]
