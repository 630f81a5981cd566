"""Runs the service: API and worker in one process, or one of them; stops without losing or repeating anything."""

import asyncio
import contextlib
import gc
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from ipaddress import ip_network
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
import structlog
import uvicorn

from heliograph import listening, logs
from heliograph.accept.context import Context
from heliograph.api.app import Api
from heliograph.api.rate import RateLimits, share_rates
from heliograph.app import (
    attest,
    check_secret,
    make_carrier,
    make_domains,
    make_poster,
    make_secrets,
    make_tools,
    make_webhooks,
    open_store,
    webhook_secrets,
)
from heliograph.channels.carrier import Carriers
from heliograph.channels.email.bounce_server import Returns, protocol
from heliograph.clock import Clock
from heliograph.dashboard.app import Dashboard
from heliograph.dashboard.importing import keep_importing
from heliograph.dashboard.visit import PageTools
from heliograph.datafolder import Seat, keep_address
from heliograph.deliver.housekeeping import Housekeeping
from heliograph.deliver.reports import take_by_recipient
from heliograph.deliver.webhooks import WebhookWorker
from heliograph.deliver.worker import Worker
from heliograph.handover import Handover
from heliograph.manage.management import Management
from heliograph.rules.client_address import client_address
from heliograph.settings import Settings
from heliograph.storage.requests import keep_key_uses
from heliograph.storage.store import Store, StoreUnavailable
from heliograph.watch import LoopWatch
from heliograph.web.budget import ByteBudget
from heliograph.web.connection import Connection, close_slow
from heliograph.web.request import Receive, Scope, Send

log = structlog.get_logger()

FORWARDED = b"x-forwarded-for"
CLOCK_S = 1.0  # between two looks at the clock
DRAIN_S = 30  # for requests under way when the stop comes
AGAIN_S = 1.0  # until a database that is away is asked again, or a loop that broke begins anew

T = TypeVar("T")


class Stopped(Exception):
    """The stop came before the start was over."""


class CannotListen(Exception):
    """The address is taken or is not ours; the message says which and what to do."""


class Server(uvicorn.Server):
    """Signals are ours: the worker stops with the server, in order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Front:
    """The door: pages of the dashboard, or the API. Behind it the client is who came to the first trusted proxy."""

    def __init__(self, api: Api, pages: Dashboard, trusted_proxies: Sequence[str] = ()) -> None:
        self._api = api
        self._pages = pages
        self._trusted = [ip_network(text) for text in trusted_proxies]
        self.refused = api.refused
        self.no_room = api.no_room

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if self._trusted and scope.get("client"):
            host, port = scope["client"]
            forwarded = [value for name, value in scope["headers"] if name == FORWARDED]
            client = client_address(host, forwarded, self._trusted)
            if client != host:  # believed: a header that is still there is nobody's word
                scope["headers"] = [header for header in scope["headers"] if header[0] != FORWARDED]
            scope["client"] = client, port
        return (self._pages if scope["type"] == "http" and _is_page(scope) else self._api)(scope, receive, send)


def _is_page(scope: Scope) -> bool:
    path = scope["path"]
    if path == "/":  # a browser is shown the way; for a program there is nothing here
        return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])
    return bool(path == "/dashboard" or path.startswith("/dashboard/"))


Ready = Callable[[Settings, Store], Awaitable[None]]


class Parts(msgspec.Struct, frozen=True):
    """What a running service is made of."""

    settings: Settings
    role: str
    store: Store
    clock: Clock
    stop: asyncio.Event
    ready: Ready


async def serve(settings: Settings, role: str, ready: Ready) -> None:
    """Run until SIGTERM or SIGINT; `ready` is told the settings with the real port once requests are taken."""
    logs.configure(asyncio.get_running_loop().time)
    stop = asyncio.Event()
    listening.say_it_once(asyncio.get_running_loop())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    listener = None if role == "worker" else listen(settings)
    if listener is not None:
        settings = msgspec.structs.replace(settings, port=listener.getsockname()[1])
    clock, seat = Clock(), Seat(settings.data)
    if listener is not None:
        keep_address(settings.data, settings.base_url)
    try:
        async with contextlib.AsyncExitStack() as stack:
            opened = partial(open_store, settings, clock, seat.name)
            with contextlib.suppress(Stopped):
                store = await _patiently(stop, lambda: stack.enter_async_context(opened()))
                await _patiently(stop, partial(check_secret, store, make_secrets(settings)))
                await _patiently(stop, partial(attest, store, settings.data))
                if store.setup.current.platform.paused:
                    why = store.setup.current.platform.paused_reason or "by an operator"
                    log.warning("delivery is paused", why=why, mend="heliograph resume")
                await _patiently(stop, store.upkeep.check_clock)
                await _patiently(stop, store.outbox.take_back)
                await _run(Parts(settings, role, store, clock, stop, ready), listener)
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


async def _begun_anew(name: str, loop: Callable[[], Awaitable[None]]) -> None:
    """No loop takes the process with it."""
    while True:
        try:
            return await loop()
        except Exception as error:
            log.exception("a loop broke and begins anew", loop=name, error=type(error).__name__)
            await asyncio.sleep(AGAIN_S)


async def _run(parts: Parts, listener: socket.socket | None) -> None:
    settings, store, clock = parts.settings, parts.store, parts.clock
    secrets = make_secrets(settings)
    domains = make_domains(settings, secrets, store, clock)
    tools = make_tools(settings, secrets, store, clock, domains)
    carriers = Carriers(lambda record: make_carrier(record, tools))
    handover = Handover(store, carriers, clock)
    worker = None if parts.role == "api" else Worker(store, handover, clock)
    poster, watch = make_poster(settings), LoopWatch()
    webhooks = WebhookWorker(store, poster, clock, partial(webhook_secrets, tools.sealer))
    context = Context(
        store=store,
        clock=clock,
        handover=handover,
        base_url=settings.base_url,
        code_key=secrets.codes,
        accepted=worker.wake if worker else lambda: None,
        loop_lag=watch.lag,
        metrics_allow=settings.metrics_allow,
        metrics_token=settings.metrics_token,
    )
    management = Management(domains=domains, webhooks=make_webhooks(settings, secrets, store, clock))
    pages = Dashboard(
        PageTools(
            context=context,
            management=management,
            seal=tools.sealer.seal,
            unseal=tools.sealer.open,
            eml=tools.outgoing.plain,
        ),
        budget := ByteBudget(),
    )
    rates = RateLimits()
    server = Server(uvicorn_config(Front(Api(context, management, rates, budget), pages, settings.trusted_proxies)))
    loops: dict[str, Callable[[], Awaitable[None]]] = {
        "loop watch": watch.run,
        "setup": store.setup.follow,
        "clock": partial(watch_clock, store, clock),
        "slow clients": partial(close_slow, server.server_state.connections),
        "key uses": partial(keep_key_uses, store.requests, context.state.used),
        "refused requests": partial(context.state.refused.keep, store.requests),
        "imports": partial(keep_importing, store),
    }
    if listener:
        loops["rates"] = partial(share_rates, rates, store, clock.now)
    if worker:
        housekeeping = Housekeeping(store, domains.check_due, carriers, partial(attest, store, settings.data))
        loops |= {"worker": worker.run, "webhooks": webhooks.run, "housekeeping": housekeeping.run}
    returns = await take_returns(settings, store, clock) if worker and settings.bounce_listen else None
    tasks = [asyncio.create_task(_begun_anew(name, loop)) for name, loop in loops.items()]
    answering = asyncio.create_task(server.serve([listener])) if listener else None
    try:
        await _started(server, answering)
        quiet_collector()
        log.info("started", role=parts.role, address=settings.base_url if listener else None)
        await _patiently(parts.stop, partial(parts.ready, settings, store))
        await _until_stopped(parts.stop, [*tasks, answering] if answering else tasks)
    finally:
        log.info("stopping")
        context.state.draining = True
        server.should_exit = True
        if answering:
            await answering
        if returns:
            returns.close()
        if worker:
            await asyncio.gather(worker.stop(), webhooks.stop())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await carriers.close()
        await tools.web.close()
        await poster.close()


async def watch_clock(store: Store, clock: Clock) -> None:
    """Until cancelled: say when this machine's clock is wrong, and when it is right again."""
    wrong = False
    while True:
        try:
            await store.upkeep.check_clock()
        except Exception as error:
            log.debug("clock not compared", error=type(error).__name__)  # others say what the database has
        off = clock.off()
        if off and not wrong:
            by = f"{abs(off) / 1000:.1f} s {'ahead of' if off > 0 else 'behind'} the database's clock"
            log.error("this machine's clock is wrong: nothing is claimed", clock=by, mend="set it, keep it with NTP")
        elif wrong and not off:
            log.warning("this machine's clock is right again: claiming goes on")
        wrong = bool(off)
        await asyncio.sleep(CLOCK_S)


async def take_returns(settings: Settings, store: Store, clock: Clock) -> asyncio.Server:
    """Listen for bounces and complaints."""
    assert settings.bounce_listen
    host, port = settings.bounce_listen
    key = make_secrets(settings).envelope
    name = store.setup.current.platform.mail_host or urlsplit(settings.base_url).hostname or host
    make = protocol(Returns(key, clock.now, partial(take_by_recipient, store)), name)
    try:
        return await asyncio.get_running_loop().create_server(make, sock=listening.listen(host, port))
    except OSError as error:
        raise CannotListen(
            f"cannot listen for bounces on {host}:{port}: {error.strerror or error}. "
            "Stop the other program, or choose another address with HELIOGRAPH_BOUNCE_LISTEN."
        ) from None


def quiet_collector() -> None:
    """What is loaded by now stays; the rest is looked through less often.

    With the defaults the collector took 9 % of the time under load, in pauses of up to 57 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def listen(settings: Settings) -> socket.socket:
    try:
        return listening.listen(settings.host, settings.port)
    except OSError as error:
        raise CannotListen(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}. "
            "Stop the other program, or choose another address with --listen."
        ) from None


def uvicorn_config(app: Front) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        interface="asgi3",
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # a stranger's bad request is no line in our log
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=listening.BACKLOG,
        timeout_graceful_shutdown=DRAIN_S,
    )


async def _started(server: Server, answering: "asyncio.Task[None] | None") -> None:
    while answering and not server.started and not answering.done():
        await asyncio.sleep(0.005)


async def _until_stopped(stop: asyncio.Event, tasks: list["asyncio.Task[None]"]) -> None:
    """A task that ends by itself has broken: then the whole process ends, with its error."""
    stopping = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    for task in done:
        task.result()
