"""Below ASGI: answers whole in one write where that can be, else by uvicorn; headers and bodies within their limits;
idle connections are closed."""

import asyncio
import gc
import weakref
from typing import Any, cast

import pytest
from uvicorn.server import ServerState

from heliograph.server import uvicorn_config
from heliograph.web import connection
from heliograph.web.connection import BODY_S, HEADERS_MAX, KEEP_ALIVE_S, SLOWEST, SWEEP_S, Connection, close_slow
from heliograph.web.front import Front
from heliograph.web.request import CLOSE, Headers, Receive, Response, Scope, Send, respond

pytestmark = pytest.mark.anyio


class Wire(asyncio.Transport):
    """A transport that keeps what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def connect(headers: Headers | None = None) -> tuple[Connection, Wire]:
    """To an application that answers each request with its path."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await respond(scope, send, Response(200, scope["path"].encode(), [], b"text/plain"), headers or [])

    async def no_room(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await respond(scope, send, Response(503, b"{}"), [CLOSE])

    config = uvicorn_config(cast(Front, app))
    config.load()
    app.refused = lambda refusal: Response(400, b"{}")  # type: ignore[attr-defined]
    app.no_room = no_room  # type: ignore[attr-defined]
    made, wire = Connection(config=config, server_state=ServerState(), app_state={}), Wire()
    made.connection_made(wire)
    return made, wire


async def ask(made: Connection, *requests: str) -> None:
    made.data_received("".join(f"{line}\r\nHost: x\r\n\r\n" for line in requests).encode())
    for _ in range(10 * len(requests)):
        await asyncio.sleep(0)


async def test_a_whole_answer_is_one_write() -> None:
    made, wire = connect([(b"x-request-id", b"req_1")])
    await ask(made, "GET /a HTTP/1.1")
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\nx-request-id: req_1\r\n\r\n"
    assert wire.written == [head + b"/a"]
    assert not wire.closed


async def test_pipelined_requests_are_answered_in_order() -> None:
    made, wire = connect()
    await ask(made, "GET /a HTTP/1.1", "GET /b HTTP/1.1", "GET /c HTTP/1.1")
    bodies = [part.split(b"\r\n\r\n")[-1] for part in wire.written]
    assert [body for body in bodies if body] == [b"/a", b"/b", b"/c"]


async def test_an_answered_request_is_freed_without_the_collector() -> None:
    made, _ = connect()
    gc.disable()
    try:
        await ask(made, "GET /a HTTP/1.1")
        answered = weakref.ref(made.cycle)
        await ask(made, "GET /b HTTP/1.1")
        assert answered() is None
    finally:
        gc.enable()


async def test_a_head_has_no_body() -> None:
    made, wire = connect()
    await ask(made, "HEAD /a HTTP/1.1")
    assert b"content-length: 2\r\n" in b"".join(wire.written)
    assert not b"".join(wire.written).endswith(b"/a")


@pytest.mark.parametrize(
    ("request_line", "headers"),
    [
        ("GET /a HTTP/1.0", []),
        ("GET /a HTTP/1.1\r\nConnection: close", []),
        ("GET /a HTTP/1.1", [CLOSE]),
    ],
    ids=["HTTP/1.0", "the client wants it", "we want it"],
)
async def test_the_last_answer_closes(request_line: str, headers: Headers) -> None:
    made, wire = connect(headers)
    await ask(made, request_line)
    assert b"".join(wire.written).lower().count(b"connection: close\r\n") == 1
    assert b"".join(wire.written).endswith(b"/a")
    assert wire.closed


async def test_a_line_break_in_a_header_never_leaves() -> None:
    made, wire = connect([(b"x-bad", b"1\r\nset-cookie: a=b")])
    await ask(made, "GET /a HTTP/1.1")
    assert b"".join(wire.written).startswith(b"HTTP/1.1 500 ")
    assert b"set-cookie" not in b"".join(wire.written)


async def test_a_client_that_does_not_read_is_waited_for() -> None:
    made, wire = connect()
    made.pause_writing()
    await ask(made, "GET /a HTTP/1.1")
    assert wire.written == []
    made.resume_writing()
    for _ in range(10):
        await asyncio.sleep(0)
    assert b"".join(wire.written).endswith(b"/a")


async def test_one_connection_too_many_is_answered_before_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECTIONS_MAX", 0)
    made, wire = connect()
    assert not wire.closed  # closed before its request was read, it would be reset
    await ask(made, "GET /a HTTP/1.1")
    answer = b"".join(wire.written)
    assert answer.startswith(b"HTTP/1.1 503 ") and b"connection: close\r\n" in answer
    assert wire.closed


async def test_only_connections_idle_for_long_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "SWEEP_S", 0.001)
    pairs = [connect() for _ in range(3)]
    (old, _), (young, _), (busy, _) = pairs
    await ask(old, "GET /a HTTP/1.1")
    await ask(young, "GET /a HTTP/1.1")
    busy.data_received(b"GET /a HTTP/1.1\r\n")
    assert old.idle_since is not None and busy.idle_since is None
    old.idle_since -= KEEP_ALIVE_S + 1
    closing = [asyncio.create_task(close_slow([made for made, _ in pairs]))]
    while not pairs[0][1].closed:
        await asyncio.sleep(0.001)
    closing[0].cancel()
    assert [wire.closed for _, wire in pairs] == [True, False, False]


# -- the size of headers -----------------------------------------------------------------------------------


def headed(size: int, *, rest: bytes = b"\r\n", path: bytes = b"/a", many: bool = False) -> bytes:
    """A request whose head has so many bytes."""
    left = size - len(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path)
    if many:
        lines = b"X: 1\r\n" * (left // 6 - 1)
        left -= len(lines)
    else:
        lines = b""
    return b"GET %s HTTP/1.1\r\nHost: x\r\n%sX: %s\r\n%s" % (path, lines, b"x" * (left - len(b"X: \r\n")), rest)


ARRIVALS: dict[str, int] = {"at once": 1 << 20, "in packets": 1460, "nearly at once": 65536, "in dribs": 7}


async def arrive(made: Connection, data: bytes, size: int) -> None:
    for start in range(0, len(data), size):
        if not made.transport.is_closing():
            made.data_received(data[start : start + size])
    for _ in range(30):
        await asyncio.sleep(0)


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
@pytest.mark.parametrize("before", [b"", b"POST /b HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"], ids=["first", "second"])
@pytest.mark.parametrize("size", ARRIVALS.values(), ids=ARRIVALS)
async def test_headers_have_their_limit_however_they_arrive(size: int, before: bytes, many: bool) -> None:
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
        b"GET /a HTTP/1.1\r\nX: " + b"x" * 100_000,
        b"GET /a HTTP/1.1\r\nX:" + b" " * 100_000,
        b"\r\n" * 50_000,
        b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: " + b"x" * 100_000,
        b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n" + b"X: 1\r\n" * 20_000,
        b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 100_000,
    ],
    ids=["address", "value", "blanks", "empty lines", "trailer", "trailers", "chunk extension"],
)
async def test_what_never_ends_is_cut_off(start: bytes, size: int) -> None:
    made, wire = connect()
    await arrive(made, start, size)
    assert b"HTTP/1.1 400 " in b"".join(wire.written) and wire.closed


async def test_what_strangers_send_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    for request in (b"hello\r\n\r\n", b"GET /a HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"):
        made, wire = connect()
        await arrive(made, request, 100)
        assert wire.written
    assert caplog.records == []


async def test_a_body_in_small_chunks_is_no_header() -> None:
    made, wire = connect()
    await arrive(made, b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 1 << 20)
    for _ in range(20_000):
        made.data_received(b"0001\r\n")
        made.data_received(b"a\r\n")
    await arrive(made, b"0\r\n\r\n", 1 << 20)
    assert b"".join(wire.written).endswith(b"/a") and not wire.closed


# -- the rate of bodies ------------------------------------------------------------------------------------


def swept(made: Connection, seconds: float) -> bool:
    """Whether it is cut off within so many seconds."""
    return any(made.is_too_slow(0) for _ in range(int(seconds / SWEEP_S)))


@pytest.mark.parametrize("length", [b"Content-Length: 40000000", b"Transfer-Encoding: chunked"])
async def test_a_body_has_a_slowest_rate_from_its_first_second(length: bytes) -> None:
    made, _ = connect()
    made.data_received(b"POST /a HTTP/1.1\r\n%s\r\n\r\n" % length)
    assert not swept(made, BODY_S)
    assert swept(made, 1)
    made, _ = connect()
    made.data_received(b"POST /a HTTP/1.1\r\n%s\r\n\r\n" % length)
    for _ in range(100):
        made.on_body(b"x" * SLOWEST)
        made.flow.resume_reading()  # as when the application reads it
        assert not swept(made, 1)
    assert swept(made, BODY_S + 1)


async def test_what_came_fast_buys_no_rest() -> None:
    made, _ = connect()
    made.data_received(b"POST /a HTTP/1.1\r\nContent-Length: 40000000\r\n\r\n")
    made.on_body(b"x" * 39_000_000)
    made.flow.resume_reading()
    assert not swept(made, BODY_S)
    assert swept(made, 2)


async def test_a_body_that_we_do_not_read_is_not_slow() -> None:
    made, _ = connect()
    made.data_received(b"POST /a HTTP/1.1\r\nContent-Length: 40000000\r\n\r\n")
    made.on_body(b"x" * 100_000)  # more than is kept before the application asks
    assert made.flow.read_paused and not swept(made, 60)
    made.flow.resume_reading()
    assert swept(made, 60)
