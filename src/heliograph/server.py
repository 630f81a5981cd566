"""Runs the service: API and worker in one process, or one of them; stops without losing or repeating anything."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import msgspec
import structlog

from heliograph import listening, logs
from heliograph.app import App, Protocols, build
from heliograph.clock import Clock
from heliograph.datafolder import Seat, keep_address
from heliograph.garbage import collect_when_idle
from heliograph.opening import attest, check_secret, make_secrets, open_store
from heliograph.settings import Settings
from heliograph.storage.store import Store, StoreUnavailable
from heliograph.web.connection import Connections

log = structlog.get_logger()

DRAIN_S = 30  # for requests under way when the stop comes
AGAIN_S = 1.0  # until a database that is away is asked again, or a duty that failed is restarted

T = TypeVar("T")


class Stopped(Exception):
    """The stop came before the start was over."""


class CannotListen(Exception):
    """The address is taken or is not ours; the message says which and what to do."""


Ready = Callable[[Settings, Store], Awaitable[None]]


async def serve(settings: Settings, role: str, ready: Ready) -> None:
    """Run until SIGTERM or SIGINT; `ready` gets the settings with the real port once requests are taken."""
    logs.configure(asyncio.get_running_loop().time)
    stop = asyncio.Event()
    listening.say_it_once(asyncio.get_running_loop())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    listener = None if role == "worker" else listen(settings)
    if listener is not None:
        settings = msgspec.structs.replace(settings, port=listener.getsockname()[1])
    clock, seat, secrets = Clock(), Seat(settings.data), make_secrets(settings)
    if listener is not None:
        keep_address(settings.data, settings.base_url)
    try:
        async with contextlib.AsyncExitStack() as stack:
            opened = partial(open_store, settings, clock, seat.name, secrets)
            with contextlib.suppress(Stopped):
                store = await _patiently(stop, lambda: stack.enter_async_context(opened()))
                for step in (
                    partial(check_secret, store, secrets),
                    partial(attest, store, settings.data),
                    store.upkeep.check_clock,
                    store.outbox.take_back,
                ):
                    await _patiently(stop, step)
                if store.setup.current.platform.paused:
                    why = store.setup.current.platform.paused_reason or "by an operator"
                    log.warning("delivery is paused", why=why, mend="heliograph resume")
                await _run(build(settings, role, secrets, store, clock), listener, stop, ready)
                with contextlib.suppress(StoreUnavailable, OSError):
                    await attest(store, settings.data)
    finally:
        seat.leave()
    log.info("stopped")


async def _patiently(stop: asyncio.Event, work: Callable[[], Awaitable[T]]) -> T:
    """At the start: until the database is there, or Stopped."""
    while not stop.is_set():
        try:
            return await work()
        except StoreUnavailable as error:
            log.warning("waiting for the database", error=str(error))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), AGAIN_S)
    raise Stopped


async def _restarted(name: str, loop: Callable[[], Awaitable[None]]) -> None:
    """A failing duty does not end the process."""
    while True:
        try:
            return await loop()
        except Exception as error:
            log.exception("a duty failed and is restarted", duty=name, error=type(error).__name__)
            await asyncio.sleep(AGAIN_S)


async def _run(app: App, listener: socket.socket | None, stop: asyncio.Event, ready: Ready) -> None:
    """Open, be ready, wait for the stop; what was opened last is closed first."""
    connections = Connections(app.front)
    async with contextlib.AsyncExitStack() as opened:
        opened.push_async_callback(app.close)
        if app.returns:
            opened.callback((await listen_for_returns(app.settings, app.returns)).close)
        duties = app.duties | {"slow clients": connections.sweep, "garbage": collect_when_idle}
        tasks = [asyncio.create_task(_restarted(name, duty), name=name) for name, duty in duties.items()]
        opened.push_async_callback(_cancel, tasks)
        opened.push_async_callback(app.stop_work)
        if listener:
            await connections.listen(listener, listening.BACKLOG)
            opened.push_async_callback(_drain, app, connections)
        opened.callback(log.info, "stopping")
        log.info("started", role=app.role, address=app.settings.base_url if listener else None)
        await _patiently(stop, partial(ready, app.settings, app.store))
        await _until_stopped(stop, tasks)


async def _drain(app: App, connections: Connections) -> None:
    app.context.state.draining = True
    await connections.drain(DRAIN_S)


async def _cancel(tasks: list["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def listen_for_returns(settings: Settings, returns: Protocols) -> asyncio.Server:
    """For bounces and complaints."""
    assert settings.bounce_listen
    host, port = settings.bounce_listen
    try:
        return await asyncio.get_running_loop().create_server(returns, sock=listening.listen(host, port))
    except OSError as error:
        raise CannotListen(
            f"cannot listen for bounces on {host}:{port}: {error.strerror or error}. "
            "Stop the other program, or choose another address with HELIOGRAPH_BOUNCE_LISTEN."
        ) from None


def listen(settings: Settings) -> socket.socket:
    try:
        return listening.listen(settings.host, settings.port)
    except OSError as error:
        raise CannotListen(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}. "
            "Stop the other program, or choose another address with --listen."
        ) from None


async def _until_stopped(stop: asyncio.Event, tasks: list["asyncio.Task[None]"]) -> None:
    """A task that ends by itself has broken: then the whole process ends, with its error."""
    stopping = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    for task in done:
        task.result()
