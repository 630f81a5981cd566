"""Runs the service: API and worker in one process, or one of them; a shutdown loses and repeats nothing."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import msgspec
import structlog

from heliograph import __version__
from heliograph.app import LOOP_WATCH, App, build
from heliograph.bootstrap import (
    check_secret,
    database_fault,
    is_outage,
    leave,
    make_secrets,
    open_store,
    own_attachments,
    pause_if_turned_back,
    sqlite_path,
)
from heliograph.data_folder import Seat, keep_address
from heliograph.domain.limits import SECOND_MS
from heliograph.runtime import listening, logs, metrics, tracing
from heliograph.runtime.clock import Clock
from heliograph.runtime.garbage import collect_when_idle, freeze_loaded
from heliograph.runtime.listening import Listener
from heliograph.runtime.processes import Place
from heliograph.runtime.systemd import feed_watchdog, notify
from heliograph.settings import Settings
from heliograph.storage.store import Store, StoreUnavailable
from heliograph.web.connection import Connections

log = structlog.get_logger()

# Open connections of one of several processes get one more response in this time, then reconnect to another
LEAVE_S = 1.0
DRAIN_S = 30  # timeout for requests in progress at shutdown
AGAIN_S = 1.0  # delay before the database is tried again, or a failed background job is restarted
SWITCH_S = 0.0005  # GIL switch interval of computing threads; a request needs the GIL about ten times

# Purposes of sockets: HTTP requests, bounces and complaints, SMTP submission with STARTTLS or implicit TLS.
HTTP, RETURNS, SUBMISSION, SUBMISSION_TLS = "http", "returns", "submission", "submission_tls"

# HEALTH_MAX: most connections for health checks
HEALTH, HEALTH_PATHS, HEALTH_MAX = "health", ("/healthz", "/readyz", "/metrics"), 64

T = TypeVar("T")
Sockets = list[tuple[str, Listener]]


class Stop(asyncio.Event):
    """Shutdown request; `hurry` skips the delay for proxies."""

    def __init__(self) -> None:
        super().__init__()
        self.hurry = asyncio.Event()

    def at_once(self) -> None:
        self.hurry.set()
        self.set()


class Stopped(Exception):
    """Shutdown was requested before the start was complete."""


class CannotListen(Exception):
    """The address is in use or not local; the message names it and says what to do."""


Ready = Callable[[Settings, Store], Awaitable[None]]


async def serve(
    settings: Settings, role: str, ready: Ready, place: Place | None = None, *, test_token: str = ""
) -> None:
    """Run until SIGTERM, SIGHUP or SIGINT. `ready` receives the settings with the real port once requests are served.

    SIGINT skips the delay for proxies. With `place`, this is one of several processes and also stops when its parent
    exits.
    """
    logs.configure(asyncio.get_running_loop().time, place.number if place else None, settings.log_format)
    tracing.start(__version__)
    stop = Stop()
    listening.say_it_once(asyncio.get_running_loop(), is_outage)
    for number, ask in ((signal.SIGTERM, stop.set), (signal.SIGHUP, stop.set), (signal.SIGINT, stop.at_once)):
        if signal.getsignal(number) is not signal.SIG_IGN:  # keep an ignored signal ignored (nohup)
            asyncio.get_running_loop().add_signal_handler(number, ask)
    if place:
        _end_with_parent(place, stop)
    sockets = [(purpose, listening.adopt(file)) for purpose, file in place.sockets] if place else bind(settings, role)
    clock, seat, secrets = Clock(), Seat(settings.data), make_secrets(settings)
    settings = msgspec.structs.replace(
        settings,
        submission_listen=tuple(_address(bound) for bound in _for(SUBMISSION, sockets)),
        submission_tls_listen=tuple(_address(bound) for bound in _for(SUBMISSION_TLS, sockets)),
    )
    for bound in _for(HTTP, sockets):
        settings = msgspec.structs.replace(settings, port=_address(bound)[1])
        keep_address(settings.data, settings.base_url)
    try:
        async with contextlib.AsyncExitStack() as stack:
            opened = partial(open_store, settings, clock, seat.name, secrets)
            with contextlib.suppress(Stopped):
                store = await _patiently(settings, stop, lambda: stack.enter_async_context(opened()))
                for step in (
                    partial(check_secret, store, secrets),
                    partial(own_attachments, store),
                    partial(pause_if_turned_back, store, settings.data, sqlite_path(settings)),
                    store.upkeep.check_clock,
                    store.outbox.take_back,
                ):
                    await _patiently(settings, stop, step)
                if store.setup.current.platform.paused:
                    why = store.setup.current.platform.paused_reason or "by an operator"
                    log.warning("delivery is paused", why=why, mend="heliograph resume")
                app = build(settings, role, secrets, store, clock, place.number if place else None, test_token)
                metrics.STARTED.set(clock.now() / SECOND_MS)
                await _run(app, sockets, stop, ready)
                with contextlib.suppress(StoreUnavailable, OSError):
                    await leave(store, settings.data)
    finally:
        await tracing.stop()
        seat.leave()
    log.info("stopped")


async def _patiently(settings: Settings, stop: asyncio.Event, work: Callable[[], Awaitable[T]]) -> T:
    """Repeat `work` until the database is available; raises Stopped at shutdown."""
    while not stop.is_set():
        try:
            return await work()
        except StoreUnavailable as error:
            reason, fix = database_fault(settings, error)
            log.warning("waiting for the database", error=reason, fix=fix)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), AGAIN_S)
    raise Stopped


async def _restarted(name: str, loop: Callable[[], Awaitable[None]]) -> None:
    """Run a background job and restart it after a failure, which does not end the process."""
    while True:
        try:
            return await loop()
        except Exception as error:
            log.exception("a duty failed and is restarted", duty=name, error=type(error).__name__)
            await asyncio.sleep(AGAIN_S)


def _start_duty(name: str, duty: Callable[[], Awaitable[None]]) -> "asyncio.Task[None]":
    return asyncio.create_task(_restarted(name, duty), name=name)


async def _run(app: App, sockets: Sockets, stop: Stop, ready: Ready) -> None:
    """Start everything, report ready, wait for shutdown, and close in reverse order."""
    sys.setswitchinterval(SWITCH_S)
    connections = Connections(app.front, app.settings.connections_max)
    async with contextlib.AsyncExitStack() as opened:
        opened.push_async_callback(app.close)
        for bound in _for(RETURNS, sockets):
            assert app.returns
            await app.returns.listen(bound, listening.BACKLOG)
            opened.push_async_callback(app.returns.drain, LEAVE_S)  # mail servers retry on their own
        duties = app.duties | {
            "slow clients": connections.sweep,
            "garbage": collect_when_idle,
            "systemd": feed_watchdog,
        }
        # Started last: the event loop's latency does not matter before requests are served.
        watch = duties.pop(LOOP_WATCH, None)
        freeze_loaded()
        tasks = [_start_duty(name, duty) for name, duty in duties.items()]
        opened.push_async_callback(_cancel, tasks)
        opened.push_async_callback(app.stop_work)
        for bound in _for(HEALTH, sockets):  # closed after HTTP, so that /readyz reports not ready while HTTP drains
            asked = Connections(app.front.part(HEALTH_PATHS), HEALTH_MAX)
            await asked.listen(bound, listening.BACKLOG)
            opened.push_async_callback(asked.drain, LEAVE_S)
        for bound in _for(HTTP, sockets):
            await connections.listen(bound, listening.BACKLOG)
            opened.push_async_callback(_drain, app, connections, stop)
        for purpose in (SUBMISSION, SUBMISSION_TLS):
            for bound in _for(purpose, sockets):
                await app.submissions.listen(bound, listening.BACKLOG, tls_first=purpose == SUBMISSION_TLS)
        opened.callback(log.info, "stopping")
        opened.callback(notify, "STOPPING=1")
        log.info(
            "started",
            role=app.role,
            address=None if app.role == "worker" else app.settings.base_url,
            smtp=app.settings.submission() or None,
        )
        await _patiently(app.settings, stop, partial(ready, app.settings, app.store))
        notify("READY=1")
        if watch:
            tasks.append(_start_duty(LOOP_WATCH, watch))
        await _until_stopped(stop, tasks)


async def _drain(app: App, connections: Connections, stop: Stop) -> None:
    """Stop accepting requests, after a delay in which proxies see that this process is not ready."""
    state, delay_s = app.context.state, app.settings.stop_delay_ms / 1000
    if delay_s and not stop.hurry.is_set():
        state.leaving = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.hurry.wait(), delay_s)
    mails = asyncio.create_task(app.submissions.drain(DRAIN_S))
    if state.leaving or app.context.process is not None:
        await connections.leave(LEAVE_S)
    state.leaving = state.draining = True
    await connections.drain(DRAIN_S)
    await mails


async def _cancel(tasks: list["asyncio.Task[None]"]) -> None:
    """Cancel the tasks, repeatedly until all end: an exception can swallow the first cancellation."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_S)


def bind(settings: Settings, role: str) -> Sockets:
    """Bind the listening sockets of this role."""
    sockets = [] if role == "worker" else [(HTTP, listen(settings))]
    if settings.health:
        sockets.append((HEALTH, _bind(" for health checks", *settings.health, "--health")))
    if role != "api" and settings.bounce_listen:
        sockets.append((RETURNS, _bind(" for bounces", *settings.bounce_listen, "HELIOGRAPH_BOUNCE_LISTEN")))
    if role != "worker":
        for purpose, addresses in (
            (SUBMISSION, settings.submission_listen),
            (SUBMISSION_TLS, settings.submission_tls_listen),
        ):
            setting = f"HELIOGRAPH_{purpose.upper()}_LISTEN"
            sockets += [(purpose, _bind(" for SMTP", host, port, setting)) for host, port in addresses]
    return sockets


def _address(bound: Listener) -> tuple[str, int]:
    host, port, *_ = bound.getsockname()
    return host, port


def _for(purpose: str, sockets: Sockets) -> list[Listener]:
    return [bound for its, bound in sockets if its == purpose]


def listen(settings: Settings) -> Listener:
    return _bind("", settings.host, settings.port, "--listen")


def _bind(what: str, host: str, port: int, setting: str) -> Listener:
    try:
        return listening.listen(host, port)
    except OSError as error:
        raise CannotListen(
            f"cannot listen{what} on {host}:{port}: {error.strerror or error}. "
            f"Stop the other program, or choose another address with {setting}."
        ) from None


def _end_with_parent(place: Place, stop: Stop) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, lambda: None)  # the parent decides whether to replace this process

    def gone() -> None:
        loop.remove_reader(place.control)
        if not stop.is_set():
            log.error("the parent is gone: stopping")
            stop.at_once()

    loop.add_reader(place.control, gone)


async def _until_stopped(stop: asyncio.Event, tasks: list["asyncio.Task[None]"]) -> None:
    """Wait for shutdown. A task that ends early has failed: its error then ends the process."""
    stopping = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    for task in done:
        task.result()
