"""P32: readers that poll the feed with their last id see each event once, and each message's in order.

Four processes publish, with delays between an event's id and its commit; they are killed, and PostgreSQL crashes.
"""

import asyncio
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from heliograph.bootstrap import migrate, open_store
from heliograph.runtime.clock import Clock
from heliograph.settings import Settings
from heliograph.storage.engine.database import StoreUnavailable
from heliograph.storage.setup import NewTeam
from heliograph.storage.store import Store
from tests import postgres_server
from tests.postgres_server import PostgresServer
from tests.proof.size import FULL, report, size
from tests.setup_helpers import set_up
from tests.storage.conftest import asking
from tests.storage.pooler import pgbouncer

pytestmark = pytest.mark.anyio

EVENTS, KILLS, PROCESSES = size("P32 events"), size("P32 kills"), 4
DELAY_S = 10.0 if FULL else 0.5
SQLITE_DELAY_S = 0.05  # everybody else waits for SQLite's writer
LIMITS = (100, 7)  # of the readers' pages


class Feeds:
    """What each reader saw, in its order."""

    def __init__(self) -> None:
        self.seen: list[list[Any]] = [[] for _ in LIMITS]
        self.done = asyncio.Event()

    async def read(self, store: Store, reader: int) -> None:
        seen, limit = self.seen[reader], LIMITS[reader]
        while True:
            is_last = self.done.is_set()
            try:
                page = await store.events.feed(1, seen[-1].id if seen else "", limit)
            except StoreUnavailable:
                await asyncio.sleep(0.1)
                continue
            seen += page[:limit]
            if not page:
                if is_last:
                    return
                await asyncio.sleep(0.02)

    async def until(self, count: int, writers: "Writers") -> None:
        """Wait until a reader has seen so many events, or nobody writes any more."""
        while len(self.seen[0]) < count and any(process.poll() is None for process in writers.running):
            await asyncio.sleep(0.05)


class Writers:
    def __init__(self, settings: Settings, delay_s: float) -> None:
        self._settings, self.delay_s = settings, delay_s
        self._started = 0
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, count: int) -> None:
        self._started += 1
        seat = f"writer/{self._started}"
        given = [self._settings.database, str(self._settings.data), seat, str(count), str(self.delay_s)]
        self.running.append(subprocess.Popen([sys.executable, "-m", "tests.proof.feed_writer", *given]))

    def replace(self, count: int) -> None:
        """Kill a process at once, and start another."""
        dying = self.running.pop(random.randrange(len(self.running)))
        dying.kill()
        dying.wait()
        self.start(count)

    def end(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL for this test alone, which crashes."""
    if not postgres_server.is_installed():
        pytest.skip(postgres_server.MISSING)
    with postgres_server.temporary_folder() as folder:
        server = PostgresServer(folder / "data")
        try:
            yield server
        finally:
            server.stop()


@pytest.mark.parametrize("way", ["sqlite", "postgres", *(["pgbouncer"] if FULL else [])])
async def test_feed_under_kills_and_crashes_tells_each_event_once(
    way: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        server = None if way == "sqlite" else request.getfixturevalue("server")
        url = server.url() if server else f"sqlite:///{tmp_path / 'heliograph.db'}"
        direct = Settings(database=url, data=tmp_path / "data")
        await migrate(direct)
        if way == "pgbouncer":
            url = stack.enter_context(pgbouncer(url))
        settings = Settings(database=url, data=tmp_path / "data")
        writers = Writers(settings, DELAY_S if server else SQLITE_DELAY_S)
        stack.callback(writers.end)
        async with open_store(settings, Clock(), "reader/0") as store, asking(direct) as sql:
            await set_up(store, new_teams=[NewTeam(1, 0)])
            feeds, share = Feeds(), EVENTS // PROCESSES
            reading = [asyncio.ensure_future(feeds.read(store, reader)) for reader in range(len(LIMITS))]
            for _ in range(PROCESSES):
                writers.start(share)
            for number in range(KILLS):
                await feeds.until(EVENTS * (number + 1) // (KILLS + 2), writers)
                if server and number == KILLS // 2:
                    await asyncio.to_thread(server.stop)
                    await asyncio.to_thread(server.start)
                writers.replace(share)
            await asyncio.gather(*(asyncio.to_thread(process.wait) for process in writers.running))
            feeds.done.set()
            await asyncio.gather(*reading)
        async with asking(direct) as sql:
            subjects: dict[str, str] = dict(await sql("SELECT id, subject FROM event WHERE team = 1"))
    for seen in feeds.seen:
        _check(seen, subjects)
    faults = f"{KILLS} kills" + (", one crash of the database" if server else "")
    report(
        "P32",
        f"{way}: {len(subjects)} events by {PROCESSES} processes, delays up to {writers.delay_s:g} s, {faults}: "
        "0 missed, 0 twice, in order for each message",
    )


def _check(seen: Sequence[Any], subjects: dict[str, str]) -> None:
    assert len(seen) == len({event.id for event in seen}), "none twice"
    assert {event.id for event in seen} == subjects.keys(), "none missed"
    sequences = defaultdict[str, list[int]](list)
    for event in seen:
        sequences[subjects[event.id]].append(event.sequence)
    assert all(found == [*range(1, len(found) + 1)] for found in sequences.values())
