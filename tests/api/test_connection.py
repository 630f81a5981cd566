"""Answers below ASGI: whole in one write where that can be, else by uvicorn; idle connections are closed."""

import asyncio
import contextlib
import gc
import weakref
from typing import Any, cast

import pytest
from uvicorn.server import ServerState

from heliograph.api import connection
from heliograph.api.connection import CLOSE, KEEP_ALIVE_S, Connection, close_slow
from heliograph.api.request import Headers, Receive, Response, Scope, Send, respond
from heliograph.server import Front, uvicorn_config

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

    config = uvicorn_config(cast(Front, app))
    config.load()
    app.refused = lambda refusal: Response(503, b"{}")  # type: ignore[attr-defined]
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
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(close_slow([made for made, _ in pairs]), 0.05)
    assert [wire.closed for _, wire in pairs] == [True, False, False]
