"""P32: readers that poll the feed with their last id see each event once, and each message's in order.

Four processes publish, with delays between an event's id and its commit; they are killed. PostgreSQL fails over to its
synchronous standby; the one behind PgBouncer crashes.
"""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
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
from tests.proof.pair import Pair
from tests.proof.size import FULL, report, rounds, size
from tests.setup_helpers import set_up
from tests.storage.conftest import asking
from tests.storage.pooler import pgbouncer

pytestmark = pytest.mark.anyio

EVENTS, KILLS, PROCESSES = size("P32 events"), size("P32 kills"), 4
DELAY_S = 10.0 if FULL else 0.5
SQLITE_DELAY_S = 0.05  # everybody else waits for SQLite's writer
SESSIONS = 40  # of PgBouncer: a delayed transaction holds a session
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

    async def wait_for(self, count: int, writers: "Writers") -> None:
        """Wait until a reader has seen `count` events, or no writer runs any more."""
        while len(self.seen[0]) < count and any(process.poll() is None for process in writers.running):
            await asyncio.sleep(0.05)

    def missing(self) -> int:
        """Return how many of EVENTS the first reader has not seen yet."""
        return max(0, EVENTS - len(self.seen[0]))


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
        """Kill a process, and start another that publishes `count` events."""
        dying = self.running.pop(random.randrange(len(self.running)))
        dying.kill()
        dying.wait()
        self.start(count)

    async def wait(self) -> None:
        await asyncio.gather(*(asyncio.to_thread(process.wait) for process in self.running))

    def end(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()


def start_database(way: str, folder: Path, stack: ExitStack) -> tuple[str, Callable[[], None], str]:
    """Return the URL of a new database, the function that makes it fail and recover, and the name of that fault."""
    if way == "sqlite":
        return f"sqlite:///{folder / 'heliograph.db'}", lambda: None, ""
    if not postgres_server.is_installed():
        pytest.skip(postgres_server.MISSING)
    servers = stack.enter_context(postgres_server.temporary_folder())
    if way == "postgres":
        pair = Pair(servers)
        stack.callback(pair.stop)
        return pair.url, pair.fail_over, ", one failover to a synchronous standby"
    server = PostgresServer(servers / "data")
    stack.callback(server.stop)

    def crash() -> None:
        server.stop()
        server.start()

    return server.url(), crash, ", one crash of the database"


async def count_events(settings: Settings) -> int:
    async with asking(settings) as sql:
        ((count,),) = await sql("SELECT count(*) FROM event WHERE team = 1")
    return int(count)


@pytest.mark.parametrize("way", ["sqlite", "postgres", *(["pgbouncer"] if FULL else [])])
async def test_feed_under_kills_and_crashes_returns_each_event_once(way: str, tmp_path: Path) -> None:
    began = time.monotonic()
    with ExitStack() as stack:
        url, fail, fault = start_database(way, tmp_path, stack)
        direct = Settings(database=url, data=tmp_path / "data")
        await migrate(direct)
        if way == "pgbouncer":
            url = stack.enter_context(pgbouncer(url, SESSIONS))
        settings = Settings(database=url, data=tmp_path / "data")
        writers = Writers(settings, SQLITE_DELAY_S if way == "sqlite" else DELAY_S)
        stack.callback(writers.end)
        async with open_store(settings, Clock(), "reader/0") as store:
            await set_up(store, new_teams=[NewTeam(1, 0)])
            feeds = Feeds()
            reading = [asyncio.ensure_future(feeds.read(store, reader)) for reader in range(len(LIMITS))]
            for _ in range(PROCESSES):
                writers.start(EVENTS // PROCESSES)
            for number in rounds("P32", KILLS):
                await feeds.wait_for(EVENTS * (number + 1) // (KILLS + 2), writers)
                if number == KILLS // 2:
                    await asyncio.to_thread(fail)
                writers.replace(feeds.missing() // PROCESSES)
            await writers.wait()
            while (count := await count_events(direct)) < EVENTS:
                writers.start(EVENTS - count)
                await writers.wait()
            feeds.done.set()
            await asyncio.gather(*reading)
        async with asking(direct) as sql:
            subjects: dict[str, str] = dict(await sql("SELECT id, subject FROM event WHERE team = 1"))
    for seen in feeds.seen:
        _check(seen, subjects)
    report(
        "P32",
        f"{way}: {len(subjects)} events by {PROCESSES} processes, delays up to {writers.delay_s:g} s, {KILLS} kills"
        f"{fault}: 0 missed, 0 twice, in order for each message; {time.monotonic() - began:.0f} s, "
        f"load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs",
    )


def _check(seen: Sequence[Any], subjects: dict[str, str]) -> None:
    assert len(seen) == len({event.id for event in seen}), "none twice"
    assert {event.id for event in seen} == subjects.keys(), "none missed"
    sequences = defaultdict[str, list[int]](list)
    for event in seen:
        sequences[subjects[event.id]].append(event.sequence)
    assert all(found == [*range(1, len(found) + 1)] for found in sequences.values())
