"""Runs the service: API and worker in one process, or one of them; stops without losing or repeating anything."""

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

LEAVE_S = 1.0  # in which open connections of one of several processes get their next answer, and move to another
DRAIN_S = 30  # for requests under way when the stop comes
AGAIN_S = 1.0  # until a database that is away is asked again, or a duty that failed is restarted
SWITCH_S = 0.0005  # a thread that computes lets the loop run this often; a request asks for its turn some ten times

# Purposes of sockets: requests; bounces and complaints; mails of programs, which begin in the clear or inside TLS.
HTTP, RETURNS, SUBMISSION, SUBMISSION_TLS = "http", "returns", "submission", "submission_tls"

HEALTH, HEALTH_PATHS, HEALTH_MAX = "health", ("/healthz", "/readyz", "/metrics"), 64  # connections

T = TypeVar("T")
Sockets = list[tuple[str, Listener]]


class Stop(asyncio.Event):
    """Somebody wants the process to stop, or to stop at once."""

    def __init__(self) -> None:
        super().__init__()
        self.hurry = asyncio.Event()

    def at_once(self) -> None:
        self.hurry.set()
        self.set()


class Stopped(Exception):
    """The stop came before the start was over."""


class CannotListen(Exception):
    """The address is taken or is not ours; the message says which and what to do."""


Ready = Callable[[Settings, Store], Awaitable[None]]


async def serve(
    settings: Settings, role: str, ready: Ready, place: Place | None = None, *, test_token: str = ""
) -> None:
    """Run until SIGTERM, SIGHUP or SIGINT; `ready` gets the settings with the real port once requests are taken.

    SIGINT does not wait for proxies to notice.
    With a place, as one of several processes: until its parent is gone, too.
    """
    logs.configure(asyncio.get_running_loop().time, place.number if place else None, settings.log_format)
    tracing.start(__version__)
    stop = Stop()
    listening.say_it_once(asyncio.get_running_loop(), is_outage)
    for number, ask in ((signal.SIGTERM, stop.set), (signal.SIGHUP, stop.set), (signal.SIGINT, stop.at_once)):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
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
    """Repeat the work, at the start, until the database is there; raises Stopped."""
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
    """Run a duty again when it fails: that does not end the process."""
    while True:
        try:
            return await loop()
        except Exception as error:
            log.exception("a duty failed and is restarted", duty=name, error=type(error).__name__)
            await asyncio.sleep(AGAIN_S)


def _start_duty(name: str, duty: Callable[[], Awaitable[None]]) -> "asyncio.Task[None]":
    return asyncio.create_task(_restarted(name, duty), name=name)


async def _run(app: App, sockets: Sockets, stop: Stop, ready: Ready) -> None:
    """Open, be ready, wait for the stop; what was opened last is closed first."""
    sys.setswitchinterval(SWITCH_S)
    connections = Connections(app.front, app.settings.connections_max)
    async with contextlib.AsyncExitStack() as opened:
        opened.push_async_callback(app.close)
        for bound in _for(RETURNS, sockets):
            assert app.returns
            await app.returns.listen(bound, listening.BACKLOG)
            opened.push_async_callback(app.returns.drain, LEAVE_S)  # mail servers try again by themselves
        duties = app.duties | {
            "slow clients": connections.sweep,
            "garbage": collect_when_idle,
            "systemd": feed_watchdog,
        }
        # Started last: how late the loop runs concerns nobody before anything is served.
        watch = duties.pop(LOOP_WATCH, None)
        freeze_loaded()
        tasks = [_start_duty(name, duty) for name, duty in duties.items()]
        opened.push_async_callback(_cancel, tasks)
        opened.push_async_callback(app.stop_work)
        for bound in _for(HEALTH, sockets):  # closed after HTTP: while it drains, /readyz is to say so
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
    """Drain, after whoever sends us requests has seen that others should get them."""
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
    """Cancel again those who did not hear it: a stop never waits for what an error put in the first one's place."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_S)


def bind(settings: Settings, role: str) -> Sockets:
    """Bind what the role listens for, and where."""
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
    loop.add_signal_handler(signal.SIGHUP, lambda: None)  # the parent replaces us, or not

    def gone() -> None:
        loop.remove_reader(place.control)
        if not stop.is_set():
            log.error("the parent is gone: stopping")
            stop.at_once()

    loop.add_reader(place.control, gone)


async def _until_stopped(stop: asyncio.Event, tasks: list["asyncio.Task[None]"]) -> None:
    """Wait for the stop. A task that ends by itself has broken: then the whole process ends, with its error."""
    stopping = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    for task in done:
        task.result()
