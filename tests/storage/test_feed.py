"""P32 in the short form: the pull feed has every event once, however late a transaction commits.

The full form is tests/proof/test_feed.py.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from heliograph.bootstrap import open_store
from heliograph.domain.ids import PREFIXES
from heliograph.runtime.clock import Clock
from heliograph.settings import Settings
from heliograph.storage.engine.database import Tx
from heliograph.storage.engine.postgres import PostgresDatabase
from heliograph.storage.events import Event, UnknownEvent
from heliograph.storage.setup import NewTeam
from heliograph.storage.store import Store
from tests.setup_helpers import set_up
from tests.storage.conftest import Sql, asking

pytestmark = pytest.mark.anyio

MESSAGES, EVENTS, DELAY_S = 40, 6, 0.15  # 240 events; a delay comes between the id and the commit


@pytest.fixture
async def stores(settings: Settings) -> AsyncIterator[Sequence[Store]]:
    """Return the stores of two processes with the machine's clock, and create team 1."""
    async with open_store(settings, Clock(), "seat/0") as item, open_store(settings, Clock(), "seat/1") as two:
        await set_up(item, new_teams=[NewTeam(1, 0), NewTeam(2, 0)])
        yield item, two


@pytest.fixture
async def ask(stores: Sequence[Store], settings: Settings) -> AsyncIterator[Sql]:
    async with asking(settings) as sql:
        yield sql


def event(store: Store, subject: str, sequence: int | None = 1, team: int = 1) -> Event:
    new_id, now = store.setup.publisher.new_id, store.clock.now()
    return Event(
        id=new_id(PREFIXES["event"]), team=team, subject=subject, sequence=sequence, type="email.sent", created_at=now
    )


async def publish(store: Store, events: Sequence[Event], delay_s: float = 0.0) -> None:
    async def write(tx: Tx) -> None:
        await store.setup.publisher.publish(tx, events)
        if delay_s and isinstance(store.database, PostgresDatabase):
            await asyncio.sleep(delay_s)
        else:
            time.sleep(delay_s / 10)  # in the thread of SQLite's only writer

    await store.database.write(write)


async def read_all(store: Store, done: asyncio.Event, limit: int) -> list[Any]:
    """Poll with the last id until the writers are done and nothing more comes."""
    seen, after = list[Any](), ""
    while True:
        was_done = done.is_set()
        page = await store.events.feed(1, after, limit)
        seen += page[:limit]
        after = seen[-1].id if seen else ""
        if not page and was_done:
            return seen
        await asyncio.sleep(0)


async def test_feed_with_late_commits_returns_each_event_once(stores: Sequence[Store], ask: Sql) -> None:
    random.seed(32)
    done = asyncio.Event()
    waits = [[random.choice((0, 0, 0, 0, 0, 0, 0, 0, 0, 1)) * DELAY_S for _ in range(EVENTS)] for _ in range(MESSAGES)]

    async def tell(subject: str, delays: Sequence[float]) -> None:
        for sequence, delay in enumerate(delays, 1):
            store = stores[sequence % 2]
            await publish(store, [event(store, subject, sequence)], delay)

    limits = zip(stores, (100, 1), strict=True)
    reading = [asyncio.ensure_future(read_all(store, done, limit)) for store, limit in limits]
    await asyncio.gather(*(tell(f"eml_{number}", delays) for number, delays in enumerate(waits)))
    done.set()
    subjects: dict[str, str] = dict(await ask("SELECT id, subject FROM event"))
    assert len(subjects) == MESSAGES * EVENTS
    for events in await asyncio.gather(*reading):
        assert sorted(item.id for item in events) == sorted(subjects)
        assert all(
            [item.sequence for item in events if subjects[item.id] == subject] == [*range(1, EVENTS + 1)]
            for subject in set(subjects.values())
        )


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_feed_during_an_open_transaction_ends_before_its_keys(stores: Sequence[Store]) -> None:
    """Feeds of other teams, and events committed before the transaction began, are not delayed."""
    item, two = stores
    started, end = asyncio.Event(), asyncio.Event()

    async def write(tx: Tx) -> None:
        await item.setup.publisher.publish(tx, [event(item, "late")])
        started.set()
        await end.wait()

    async def types(team: int) -> tuple[int, int]:
        return len(await two.events.feed(team, "", 100)), len(await two.events.feed_end(team, 100))

    await publish(two, [event(two, "before")])
    late = asyncio.ensure_future(item.database.write(write))
    await started.wait()
    await publish(two, [event(two, "after"), event(two, "after", team=2)])
    assert [await types(1), await types(2)] == [(1, 1), (1, 1)]
    end.set()
    await late
    assert [await types(1), await types(2)] == [(3, 3), (1, 1)]


async def test_feed_after_an_event_of_another_team_is_refused(stores: Sequence[Store]) -> None:
    first, noted, others = event(stores[0], "a"), event(stores[0], "b", None), event(stores[0], "c", team=2)
    last = event(stores[0], "d")
    await publish(stores[0], [first, noted, others, last])

    async def following(after: str) -> list[str]:
        return [item.id for item in await stores[1].events.feed(1, after, 100)]

    assert await following("") == [first.id, last.id]
    assert await following(first.id) == await following(noted.id) == [last.id]
    assert await following(last.id) == []
    for unknown in (others.id, "evt_unknown"):
        with pytest.raises(UnknownEvent):
            await following(unknown)
    assert await stores[0].events.feed(3, "", 100) == []


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_feed_with_keys_around_two_to_the_32_is_complete(stores: Sequence[Store], ask: Sql) -> None:
    """Advisory locks have only 32 bits of a key."""
    for start in (2**31 - 2, 2**32 - 2, 2**48 - 2):
        await ask(f"SELECT setval('event_key_seq', {start})")
        for _ in range(2):
            await test_feed_during_an_open_transaction_ends_before_its_keys(stores)
            await ask("DELETE FROM event WHERE key > 0 RETURNING 1")
