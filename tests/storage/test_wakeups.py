"""Wakeups: a commit wakes an idle loop in this or another process; any wakeup may be lost."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from heliograph.bootstrap import open_store
from heliograph.domain.limits import HOUR_MS
from heliograph.domain.setup.records import Platform
from heliograph.domain.setup.snapshot import PLATFORM_ID, to_row
from heliograph.settings import Settings
from heliograph.storage.engine import fifo_notify, postgres, wakeups
from heliograph.storage.engine.postgres import PostgresDatabase
from heliograph.storage.engine.wakeups import Wakeup, Wakeups
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.conftest import fresh_database
from tests.deliver.test_worker import wait_until
from tests.setup_helpers import set_up
from tests.storage.hanging import Network
from tests.storage.samples import message

pytestmark = pytest.mark.anyio

FOREVER_S = 3600.0


@pytest.fixture
async def other(settings: Settings, clock: TestClock) -> AsyncIterator[Store]:
    """Return another process on the same database, which listens."""
    async with open_store(settings, clock, "seat/1") as other, listening(other.listen):
        await wait_until(lambda: other.wakeups.subscribed)
        for wakeup in other.wakeups.by_kind.values():
            await wakeup.wait(0)  # opening the listener set the wakeup
        yield other


@asynccontextmanager
async def listening(listen: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(listen())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def waiter(wakeup: Wakeup) -> "asyncio.Task[None]":
    return asyncio.create_task(wakeup.wait(FOREVER_S))


async def rings(waiting: "asyncio.Task[None]") -> None:
    async with asyncio.timeout(60):
        await waiting


async def accept(store: Store, clock: TestClock, lane: str) -> None:
    await store.messages.accept(message(clock, lane=lane))


async def test_wakeup_tells_another_process_which_lane_has_work(store: Store, other: Store, clock: TestClock) -> None:
    email, phone = waiter(other.wakeups.by_kind["email"]), waiter(other.wakeups.by_kind["phone"])
    await accept(store, clock, "email")
    await rings(email)
    assert not phone.done()
    await accept(store, clock, "phone")
    await rings(phone)


async def test_setup_change_is_loaded_by_other_processes_at_once(store: Store, other: Store) -> None:
    """Even if a local loop was idle, because the next request may reach any process."""
    own, theirs = waiter(store.wakeups.by_kind["setup"]), waiter(other.wakeups.by_kind["setup"])
    await asyncio.sleep(0)
    await set_up(store, rows=[to_row("platform", PLATFORM_ID, Platform(brand="New"), None)])
    await rings(own)
    await rings(theirs)


async def test_wakeup_is_sent_to_others_only_without_an_idle_local_loop() -> None:
    sent: list[str] = []
    own = make_hints(sent)
    idle = waiter(own.by_kind["email"])
    await asyncio.sleep(0)
    own.notify({"email": 0})
    await rings(idle)
    assert not sent
    own.notify({"email": 0})
    await wait_until(lambda: sent == ["email"])


async def test_burst_of_wakeups_is_merged_into_few_notifications() -> None:
    sent: list[str] = []
    own = make_hints(sent)
    for _ in range(1000):
        own.notify({"email": 0, "webhooks": 0})
    await wait_until(lambda: sent)
    for _ in range(1000):
        own.notify({"phone": 0})
    await wait_until(lambda: len(sent) == 2)
    assert (set(sent[0].split()), sent[1]) == ({"email", "webhooks"}, "phone")


async def test_scheduled_work_wakes_the_local_loop_when_first_due() -> None:
    sent: list[str] = []
    own = make_hints(sent)
    waiting = waiter(own.by_kind["email"])
    for in_ms in (3_600_000, 1, 7_200_000):
        own.notify({"email": in_ms})
    await rings(waiting)
    assert not sent


async def test_claim_sets_the_timer_to_the_next_due_work(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[float] = []
    monkeypatch.setattr(store.wakeups.by_kind["email"], "set_in", noted.append)
    now = clock.now()
    for team, hours in ((1, 9), (1, 7), (2, 8), (2, 0)):
        await store.messages.accept(message(clock, team=team, created_at=now + hours * HOUR_MS))
    assert len(await store.outbox.claim("email", 100)) == 1
    assert round(min(noted) / 3600) == 7


async def test_full_or_stale_pipe_does_not_affect_other_processes(tmp_path: Path) -> None:
    heard: list[str] = []
    with fifo_notify.listen(tmp_path, heard.extend) as own:
        other, stale = tmp_path / "other", tmp_path / "stale"
        for place in (other, stale):
            place.mkdir()
            os.mkfifo(place / fifo_notify.PIPE_NAME)
        reading = os.open(other / fifo_notify.PIPE_NAME, os.O_RDONLY | os.O_NONBLOCK)
        for _ in range(20_000):  # more than a pipe holds
            fifo_notify.notify(tmp_path, "email", "")
        assert sorted(place.name for place in tmp_path.iterdir()) == sorted([own, "other"])
        await wait_until(lambda: "email" in heard)
        os.close(reading)
    assert not (tmp_path / own).exists()
    fifo_notify.notify(tmp_path / "nobody", "email", "")


async def test_wakeups_without_pipes_poll_more_often(store: Store, settings: Settings) -> None:
    path = Path(settings.database.removeprefix("sqlite:///"))
    if settings.database.startswith("sqlite"):
        path.with_name(f"{path.name}-hints").write_text("in the way")
        async with listening(store.listen):
            await asyncio.sleep(0.05)
            assert store.wakeups.poll_s == wakeups.FALLBACK_POLL_S


async def test_listener_recovers_from_a_lost_connection_and_a_hanging_server(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LISTEN_RETRY_S", "ECHO_INTERVAL_S"):
        monkeypatch.setattr(postgres, name, 0.05)
    for name in ("ECHO_S", "CONNECT_S"):
        monkeypatch.setattr(postgres, name, 0.5)
    network = Network(postgres_url)
    async with network.open() as through:
        database, teller = PostgresDatabase(through, command_s=0.5), PostgresDatabase(postgres_url)
        async with listening(database.listen):
            await wait_until(lambda: database.wakeups.subscribed)
            network.drop()
            await wait_until(lambda: not database.wakeups.subscribed)
            await wait_until(lambda: database.wakeups.subscribed)
            network.hang()
            await wait_until(lambda: not database.wakeups.subscribed)
            network.flow()
            await wait_until(lambda: database.wakeups.subscribed)
            waiting = waiter(database.wakeups.by_kind["phone"])
            teller.wakeups.notify({"phone": 0})
            await rings(waiting)
        await database.close()
        await teller.close()


@pytest.mark.parametrize("ticks", range(6))
async def test_listener_cancelled_while_its_echo_arrives_ends(ticks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncio.wait_for of Python 3.11 loses a cancellation in the tick in which its result is ready."""
    callbacks: list[Callable[..., None]] = []
    connection = AsyncMock(get_server_pid=lambda: 7, add_termination_listener=lambda _: None)
    connection.add_listener.side_effect = lambda _, callback: callbacks.append(callback)
    database = PostgresDatabase("postgresql://127.0.0.1:1/none")
    monkeypatch.setattr(database, "_notify", AsyncMock())
    listener = asyncio.create_task(database._receive_wakeups(connection))
    await wait_until(lambda: callbacks)
    callbacks[0](connection, 7, "channel", "7")
    for _ in range(ticks):
        await asyncio.sleep(0)
    listener.cancel()
    done, _ = await asyncio.wait([listener], timeout=postgres.ECHO_INTERVAL_S / 2)
    assert done


@pytest.fixture
def postgres_url(postgres: str) -> str:
    return fresh_database(postgres)


def make_hints(sent: list[str]) -> Wakeups:
    async def send(text: str) -> None:
        sent.append(text)

    return Wakeups(send)
