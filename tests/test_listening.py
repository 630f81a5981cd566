"""A burst of connections is accepted in batches. Without file descriptors connections wait, without a busy loop."""

import asyncio
import contextlib
import errno
import gc
import itertools
import os
import socket
from typing import Any

import asyncpg
import pytest
import structlog

from heliograph.bootstrap import is_outage
from heliograph.runtime import listening
from heliograph.runtime.listening import ACCEPTS_MAX, Listener, listen, throttle_loop_errors
from heliograph.storage.store import StoreUnavailable

pytestmark = pytest.mark.anyio


class Poor(Listener):
    """A listener without file descriptors while `out` is set."""

    out = True
    asked = 0

    def _accept(self) -> Any:
        Poor.asked += 1
        if Poor.out:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super()._accept()  # type: ignore[misc]


async def test_listener_pauses_on_accept_errors_and_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncio.constants.ACCEPT_RETRY_DELAY", 0.01)
    monkeypatch.setattr(Poor, "asked", 0)
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    throttle_loop_errors(loop)
    came = asyncio.Event()
    poor = Poor(fileno=listen("127.0.0.1", 0).detach())
    poor.setblocking(False)

    def welcome(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        writer.close()

    server = await asyncio.start_server(welcome, sock=poor, backlog=2048)
    try:
        with structlog.testing.capture_logs() as lines, socket.create_connection(poor.getsockname(), 5):
            while Poor.asked < 5:  # five rests, not five turns of one
                await asyncio.sleep(0.01)
            assert Poor.asked < 100
            monkeypatch.setattr(Poor, "out", False)
            async with asyncio.timeout(60):
                await came.wait()
        assert [line["event"] for line in lines] == ["out of file descriptors: new connections wait"]
    finally:
        server.close()
        loop.set_exception_handler(before)


async def test_burst_of_connections_delays_no_request() -> None:
    """Between two iterations of the event loop, a limited number of connections is accepted."""
    bound = listen("127.0.0.1", 0)
    bound.setblocking(False)
    rush = 3 * ACCEPTS_MAX
    with contextlib.ExitStack() as stack:
        for _ in range(rush):
            stack.enter_context(socket.create_connection(bound.getsockname(), 5))
        came: list[Any] = []
        protocol = type("Came", (asyncio.Protocol,), {"connection_made": lambda _, transport: came.append(transport)})
        server = await asyncio.get_running_loop().create_server(protocol, sock=bound, backlog=2048)
        seen = [0]
        while len(came) < rush:
            await asyncio.sleep(0)
            seen.append(len(came))
        assert max(after - before for before, after in itertools.pairwise(seen)) <= ACCEPTS_MAX
        for transport in came:
            transport.abort()
        server.close()


async def test_accept_errors_are_logged_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    before, now = loop.get_exception_handler(), [0.0]
    other: list[Any] = []
    monkeypatch.setattr(loop, "time", lambda: now[0])
    monkeypatch.setattr(loop, "default_exception_handler", other.append)
    throttle_loop_errors(loop)
    out = {
        "message": "socket.accept() out of system resource",
        "exception": OSError(errno.EMFILE, "Too many open files"),
    }
    try:
        with structlog.testing.capture_logs() as lines:
            for second in range(150):
                now[0] = float(second)
                loop.call_exception_handler(out)
        loop.call_exception_handler({"message": "something else", "exception": OSError(errno.EMFILE, "")})
        loop.call_exception_handler({"message": "something else"})
    finally:
        loop.set_exception_handler(before)
    assert (len(lines), len(other)) == (3, 2)
    assert listening.LOG_INTERVAL_S == 60


def test_unawaited_error_after_an_outage_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio would log "Future exception was never retrieved", with a traceback."""
    loop = asyncio.new_event_loop()
    throttle_loop_errors(loop, is_outage)
    for error in (StoreUnavailable("away"), ConnectionResetError(), asyncpg.ConnectionDoesNotExistError("gone")):
        loop.create_future().set_exception(error)
    gc.collect()
    assert caplog.records == []
    loop.create_future().set_exception(RuntimeError("a bug"))
    gc.collect()
    assert ["a bug" in str(record.exc_info) for record in caplog.records] == [True]
    loop.close()
