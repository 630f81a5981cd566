"""Hints: what a process commits wakes an idle one, here or elsewhere; each may be lost."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from heliograph.bootstrap import open_store
from heliograph.domain.limits import HOUR_MS
from heliograph.domain.setup.records import Platform
from heliograph.domain.setup.snapshot import PLATFORM_ID, to_row
from heliograph.settings import Settings
from heliograph.storage.engine import fifo_notify, postgres, wakeups
from heliograph.storage.engine.postgres import PostgresDatabase
from heliograph.storage.engine.wakeups import Bell, Hints
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.conftest import fresh_database
from tests.deliver.test_worker import until
from tests.setup_helpers import set_up
from tests.storage.hanging import Network
from tests.storage.samples import message

pytestmark = pytest.mark.anyio

FOREVER_S = 3600.0


@pytest.fixture
async def other(settings: Settings, clock: TestClock) -> AsyncIterator[Store]:
    """Another process on the same database, which listens."""
    async with open_store(settings, clock, "seat/1") as other, listening(other.listen):
        await until(lambda: other.hints.hears)
        for bell in other.hints.bells.values():
            await bell.wait(0)  # opening it rang
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


def waiter(bell: Bell) -> "asyncio.Task[None]":
    return asyncio.create_task(bell.wait(FOREVER_S))


async def rings(waiting: "asyncio.Task[None]") -> None:
    async with asyncio.timeout(60):
        await waiting


async def accept(store: Store, clock: TestClock, lane: str) -> None:
    await store.messages.accept(message(clock, lane=lane))


async def test_another_process_hears_which_lane_has_work(store: Store, other: Store, clock: TestClock) -> None:
    email, phone = waiter(other.hints.bells["email"]), waiter(other.hints.bells["phone"])
    await accept(store, clock, "email")
    await rings(email)
    assert not phone.done()
    await accept(store, clock, "phone")
    await rings(phone)


async def test_others_follow_a_change_of_the_setup_at_once(store: Store, other: Store) -> None:
    """Also when somebody here does: the next request may come to any of them."""
    own, theirs = waiter(store.hints.bells["setup"]), waiter(other.hints.bells["setup"])
    await asyncio.sleep(0)
    await set_up(store, rows=[to_row("platform", PLATFORM_ID, Platform(brand="New"), None)])
    await rings(own)
    await rings(theirs)


async def test_others_are_told_only_when_nobody_is_idle_here() -> None:
    sent: list[str] = []
    own = make_hints(sent)
    idle = waiter(own.bells["email"])
    await asyncio.sleep(0)
    own.tell({"email": 0})
    await rings(idle)
    assert not sent
    own.tell({"email": 0})
    await until(lambda: sent == ["email"])


async def test_a_burst_becomes_few_hints() -> None:
    sent: list[str] = []
    own = make_hints(sent)
    for _ in range(1000):
        own.tell({"email": 0, "webhooks": 0})
    await until(lambda: sent)
    for _ in range(1000):
        own.tell({"phone": 0})
    await until(lambda: len(sent) == 2)
    assert (set(sent[0].split()), sent[1]) == ({"email", "webhooks"}, "phone")


async def test_work_for_later_rings_here_when_the_first_of_it_is_due() -> None:
    sent: list[str] = []
    own = make_hints(sent)
    waiting = waiter(own.bells["email"])
    for in_ms in (3_600_000, 1, 7_200_000):
        own.tell({"email": in_ms})
    await rings(waiting)
    assert not sent


async def test_the_lane_knows_when_its_next_work_is_due(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[float] = []
    monkeypatch.setattr(store.hints.bells["email"], "ring_in", noted.append)
    now = clock.now()
    for team, hours in ((1, 9), (1, 7), (2, 8), (2, 0)):
        await store.messages.accept(message(clock, team=team, created_at=now + hours * HOUR_MS))
    assert len(await store.outbox.claim("email", 100)) == 1
    assert round(min(noted) / 3600) == 7


async def test_a_pipe_that_is_full_or_stale_harms_nobody(tmp_path: Path) -> None:
    heard: list[str] = []
    with fifo_notify.listening(tmp_path, heard.extend) as own:
        other, stale = tmp_path / "other", tmp_path / "stale"
        for place in (other, stale):
            place.mkdir()
            os.mkfifo(place / fifo_notify.PIPE)
        reading = os.open(other / fifo_notify.PIPE, os.O_RDONLY | os.O_NONBLOCK)
        for _ in range(20_000):  # more than a pipe holds
            fifo_notify.tell(tmp_path, "email", "")
        assert sorted(place.name for place in tmp_path.iterdir()) == sorted([own, "other"])
        await until(lambda: "email" in heard)
        os.close(reading)
    assert not (tmp_path / own).exists()
    fifo_notify.tell(tmp_path / "nobody", "email", "")


async def test_without_pipes_it_looks_more_often(store: Store, settings: Settings) -> None:
    path = Path(settings.database.removeprefix("sqlite:///"))
    if settings.database.startswith("sqlite"):
        path.with_name(f"{path.name}-hints").write_text("in the way")
        async with listening(store.listen):
            await asyncio.sleep(0.05)
            assert store.hints.poll_s == wakeups.DEAF_POLL_S


async def test_the_listener_survives_a_lost_connection_and_a_hanging_server(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LISTEN_AGAIN_S", "ECHO_EVERY_S"):
        monkeypatch.setattr(postgres, name, 0.05)
    for name in ("ECHO_S", "CONNECT_S"):
        monkeypatch.setattr(postgres, name, 0.5)
    network = Network(postgres_url)
    async with network.open() as through:
        database, teller = PostgresDatabase(through, command_s=0.5), PostgresDatabase(postgres_url)
        async with listening(database.listen):
            await until(lambda: database.hints.hears)
            network.drop()
            await until(lambda: not database.hints.hears)
            await until(lambda: database.hints.hears)
            network.hang()
            await until(lambda: not database.hints.hears)
            network.flow()
            await until(lambda: database.hints.hears)
            waiting = waiter(database.hints.bells["phone"])
            teller.hints.tell({"phone": 0})
            await rings(waiting)
        await database.close()
        await teller.close()


@pytest.fixture
def postgres_url(postgres: str) -> str:
    return fresh_database(postgres)


def make_hints(sent: list[str]) -> Hints:
    async def send(text: str) -> None:
        sent.append(text)

    return Hints(send)
