"""Runs the service: API and worker in one process, or one of the two. A shutdown neither loses nor repeats work."""

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
from heliograph.app import LOOP_WATCHDOG, App, build
from heliograph.bootstrap import (
    check_secret,
    claim_attachments,
    database_fault,
    is_outage,
    make_secrets,
    mark_clean_shutdown,
    open_store,
    pause_if_restored,
    sqlite_path,
)
from heliograph.data_folder import ProcessSlot, save_address
from heliograph.domain.limits import SECOND_MS
from heliograph.runtime import listening, logs, metrics, tracing
from heliograph.runtime.async_wait import wait_event
from heliograph.runtime.clock import Clock
from heliograph.runtime.garbage import collect_when_idle, freeze_existing
from heliograph.runtime.listening import Listener
from heliograph.runtime.processes import ChildStart
from heliograph.runtime.systemd import feed_watchdog, notify
from heliograph.settings import Settings
from heliograph.storage.store import Store, StoreUnavailable
from heliograph.web.connection import Connections

log = structlog.get_logger()

# Time in which open connections of a stopping process get one more response; clients then reconnect to another process
LAST_RESPONSE_S = 1.0
DRAIN_S = 30  # timeout for requests in progress at shutdown
RETRY_S = 1.0  # delay before connecting to the database again, or restarting a failed background job
SWITCH_INTERVAL_S = 0.0005  # interval of thread switches; short, because a request waits for the GIL ten times

# Purposes of sockets: HTTP requests, bounces and complaints, SMTP submission with STARTTLS or implicit TLS.
HTTP, RETURNS, SUBMISSION, SUBMISSION_TLS = "http", "returns", "submission", "submission_tls"

# HEALTH_CONNECTIONS_MAX: maximum number of connections for health checks
HEALTH, HEALTH_PATHS, HEALTH_CONNECTIONS_MAX = "health", ("/healthz", "/readyz", "/metrics"), 64

T = TypeVar("T")
Sockets = list[tuple[str, Listener]]


class Stop(asyncio.Event):
    """Shutdown request; `skip_delay` skips the delay for proxies."""

    def __init__(self) -> None:
        super().__init__()
        self.skip_delay = asyncio.Event()

    def set_now(self) -> None:
        self.skip_delay.set()
        self.set()


class StopRequested(Exception):
    """Raised if shutdown was requested before the start was complete."""


class CannotListen(Exception):
    """Raised if the address is in use or not local; the message names it and says what to do."""


ReadyCallback = Callable[[Settings, Store], Awaitable[None]]


async def serve(
    settings: Settings,
    role: str,
    on_ready: ReadyCallback,
    child_start: ChildStart | None = None,
    *,
    test_token: str = "",
) -> None:
    """Run until SIGTERM, SIGHUP or SIGINT. `on_ready` receives settings with the real port once requests are served.

    SIGINT skips the delay for proxies. With `child_start`, this is one of several processes and also stops when its
    parent exits.
    """
    number = child_start.number if child_start else None
    logs.configure(asyncio.get_running_loop().time, number, settings.log_format, settings.cell)
    tracing.start(__version__)
    stop = Stop()
    listening.throttle_loop_errors(asyncio.get_running_loop(), is_outage)
    stop_requests = {signal.SIGTERM: stop.set, signal.SIGHUP: stop.set, signal.SIGINT: stop.set_now}
    for signal_number, request_stop in stop_requests.items():
        if signal.getsignal(signal_number) is not signal.SIG_IGN:  # keep an ignored signal ignored (nohup)
            asyncio.get_running_loop().add_signal_handler(signal_number, request_stop)
    if child_start:
        _stop_with_parent(child_start, stop)
    sockets = (
        [(purpose, listening.adopt_socket(descriptor)) for purpose, descriptor in child_start.sockets]
        if child_start
        else bind(settings, role)
    )
    clock, slot, secrets = Clock(), ProcessSlot(settings.data), make_secrets(settings)
    settings = msgspec.structs.replace(
        settings,
        submission_listen=tuple(_address(listener) for listener in _sockets_for(SUBMISSION, sockets)),
        submission_tls_listen=tuple(_address(listener) for listener in _sockets_for(SUBMISSION_TLS, sockets)),
    )
    for listener in _sockets_for(HTTP, sockets):
        settings = msgspec.structs.replace(settings, port=_address(listener)[1])
        save_address(settings.data, settings.base_url)
    try:
        async with contextlib.AsyncExitStack() as stack:
            open_this_store = partial(open_store, settings, clock, slot.name, secrets)
            with contextlib.suppress(StopRequested):
                store = await _retry_until_available(
                    settings, stop, lambda: stack.enter_async_context(open_this_store())
                )
                for step in (
                    partial(check_secret, store, secrets),
                    partial(claim_attachments, store),
                    partial(pause_if_restored, store, settings.data, sqlite_path(settings)),
                    store.maintenance.check_clock,
                    store.outbox.release_own,
                ):
                    await _retry_until_available(settings, stop, step)
                if store.setup.current.platform.paused:
                    reason = store.setup.current.platform.paused_reason or "by an operator"
                    log.warning("delivery is paused", why=reason, fix="heliograph resume")
                app = build(settings, role, secrets, store, clock, number, test_token)
                metrics.START_TIME.set(clock.now() / SECOND_MS)
                await _run(app, sockets, stop, on_ready)
                with contextlib.suppress(StoreUnavailable, OSError):
                    await mark_clean_shutdown(store, settings.data)
    finally:
        await tracing.stop()
        slot.release()
    log.info("stopped")


async def _retry_until_available(settings: Settings, stop: asyncio.Event, operation: Callable[[], Awaitable[T]]) -> T:
    """Repeat `operation` until the database is available; raises StopRequested at shutdown."""
    while not stop.is_set():
        try:
            return await operation()
        except StoreUnavailable as error:
            reason, fix = database_fault(settings, error)
            log.warning("waiting for the database", error=reason, fix=fix)
        await wait_event(stop, RETRY_S)
    raise StopRequested


async def _run_with_restarts(name: str, job: Callable[[], Awaitable[None]]) -> None:
    """Run a background job; after a failure, log the error and restart the job."""
    while True:
        try:
            return await job()
        except Exception as error:
            log.exception("background job failed: restarting", job=name, error=type(error).__name__)
            await asyncio.sleep(RETRY_S)


def _start_job(name: str, job: Callable[[], Awaitable[None]]) -> "asyncio.Task[None]":
    return asyncio.create_task(_run_with_restarts(name, job), name=name)


async def _run(app: App, sockets: Sockets, stop: Stop, on_ready: ReadyCallback) -> None:
    """Start everything, report ready, wait for shutdown, and close in reverse order."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    connections = Connections(app.dispatcher, app.settings.connections_max)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(app.close)
        for listener in _sockets_for(RETURNS, sockets):
            assert app.inbound_server
            await app.inbound_server.listen(listener, listening.BACKLOG)
            stack.push_async_callback(app.inbound_server.drain, LAST_RESPONSE_S)  # mail servers retry on their own
        jobs = app.jobs | {
            "slow clients": connections.sweep,
            "garbage": collect_when_idle,
            "systemd": feed_watchdog,
        }
        # Started last: the event loop's latency does not matter before requests are served.
        loop_watch = jobs.pop(LOOP_WATCHDOG, None)
        freeze_existing()
        tasks = [_start_job(name, job) for name, job in jobs.items()]
        stack.push_async_callback(_cancel, tasks)
        stack.push_async_callback(app.stop_workers)
        # Closed after HTTP, so that /readyz reports not ready while HTTP drains
        for listener in _sockets_for(HEALTH, sockets):
            health_connections = Connections(app.dispatcher.restricted_to(HEALTH_PATHS), HEALTH_CONNECTIONS_MAX)
            await health_connections.listen(listener, listening.BACKLOG)
            stack.push_async_callback(health_connections.drain, LAST_RESPONSE_S)
        for listener in _sockets_for(HTTP, sockets):
            await connections.listen(listener, listening.BACKLOG)
            stack.push_async_callback(_drain, app, connections, stop)
        for purpose in (SUBMISSION, SUBMISSION_TLS):
            for listener in _sockets_for(purpose, sockets):
                await app.submission_server.listen(listener, listening.BACKLOG, implicit_tls=purpose == SUBMISSION_TLS)
        stack.callback(log.info, "stopping")
        stack.callback(notify, "STOPPING=1")
        log.info(
            "started",
            role=app.role,
            address=None if app.role == "worker" else app.settings.base_url,
            smtp=app.settings.submission() or None,
        )
        await _retry_until_available(app.settings, stop, partial(on_ready, app.settings, app.store))
        notify("READY=1")
        if loop_watch:
            tasks.append(_start_job(LOOP_WATCHDOG, loop_watch))
        await _until_stopped(stop, tasks)


async def _drain(app: App, connections: Connections, stop: Stop) -> None:
    """Stop accepting requests, after a delay in which proxies see that this process is not ready."""
    state, delay_s = app.context.state, app.settings.stop_delay_ms / 1000
    if delay_s and not stop.skip_delay.is_set():
        state.not_ready = True
        await wait_event(stop.skip_delay, delay_s)
    mail_drain = asyncio.create_task(app.submission_server.drain(DRAIN_S))
    if state.not_ready or app.context.process is not None:
        await connections.drain_after_last_request(LAST_RESPONSE_S)
    state.not_ready = state.draining = True
    await connections.drain(DRAIN_S)
    await mail_drain


async def _cancel(tasks: list["asyncio.Task[None]"]) -> None:
    """Cancel the tasks, repeatedly until all end: an exception can swallow the first cancellation."""
    running_tasks = set(tasks)
    while running_tasks:
        for task in running_tasks:
            task.cancel()
        _, running_tasks = await asyncio.wait(running_tasks, timeout=RETRY_S)


def bind(settings: Settings, role: str) -> Sockets:
    """Bind the listening sockets of this role."""
    sockets = [] if role == "worker" else [(HTTP, listen(settings))]
    if settings.health:
        sockets.append((HEALTH, _bind(" for health checks", *settings.health, "--health")))
    if role != "api" and settings.bounce_listen:
        sockets.append((RETURNS, _bind(" for bounces", *settings.bounce_listen, "HELIOGRAPH_BOUNCE_LISTEN")))
    if role != "worker":
        submission = {SUBMISSION: settings.submission_listen, SUBMISSION_TLS: settings.submission_tls_listen}
        for purpose, addresses in submission.items():
            setting = f"HELIOGRAPH_{purpose.upper()}_LISTEN"
            sockets += [(purpose, _bind(" for SMTP", host, port, setting)) for host, port in addresses]
    return sockets


def _address(listener: Listener) -> tuple[str, int]:
    host, port, *_ = listener.getsockname()
    return host, port


def _sockets_for(purpose: str, sockets: Sockets) -> list[Listener]:
    return [listener for socket_purpose, listener in sockets if socket_purpose == purpose]


def listen(settings: Settings) -> Listener:
    return _bind("", settings.host, settings.port, "--listen")


def _bind(for_what: str, host: str, port: int, setting: str) -> Listener:
    try:
        return listening.listen(host, port)
    except OSError as error:
        reason = str(error.strerror or error).partition(" (while")[0]  # after that, Python repeats the address
        raise CannotListen(
            f"cannot listen{for_what} on {host}:{port}: {reason}. "
            f"Stop the other program, or choose another address with {setting}."
        ) from None


def _stop_with_parent(child_start: ChildStart, stop: Stop) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, lambda: None)  # the parent decides whether to replace this process

    def stop_at_parent_end() -> None:
        loop.remove_reader(child_start.control)
        if not stop.is_set():
            log.error("parent process exited: stopping")
            stop.set_now()

    loop.add_reader(child_start.control, stop_at_parent_end)


async def _until_stopped(stop: asyncio.Event, tasks: list["asyncio.Task[None]"]) -> None:
    """Wait for shutdown. A task that ends early has failed: its error then ends the process."""
    stopping = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    for task in done:
        task.result()
