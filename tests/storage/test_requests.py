"""Refused requests: noted by every process, written once a second, bounded in memory, in a second and on disk."""

import asyncio

import pytest

from heliograph.rules.limits import DAY_MS
from heliograph.storage import requests
from heliograph.storage.requests import RefusedRequest, RequestLog, Requests, shares
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql

pytestmark = pytest.mark.anyio


def refused(clock: TestClock, team: int = 1, message: str = "No.") -> RefusedRequest:
    return RefusedRequest(
        id=clock.new_id("req_"),
        team=team,
        at=clock.now(),
        key="abc",
        route="send_email",
        status=400,
        code="invalid_request",
        message=message,
    )


async def write(store: Store, *ones: RefusedRequest) -> None:
    log = RequestLog()
    log.waiting.extend(ones)
    await log.write(store.requests)
    assert not log.waiting


async def test_newest_first_of_all_processes_page_by_page(store: Store, other: Store, clock: TestClock) -> None:
    made = [refused(clock) for _ in range(5)]
    await write(store, made[0], made[2], refused(clock, team=2))
    await write(other, made[1], made[4], made[3])
    first = await store.requests.refused(team=1, limit=2)
    assert first == [made[4], made[3], made[2]]
    rest = await store.requests.refused(team=1, before=first[1].id, limit=2)
    assert rest == [made[2], made[1], made[0]]


async def test_one_by_its_id_and_none_of_another_team(store: Store, clock: TestClock) -> None:
    one = refused(clock)
    await write(store, one, refused(clock))
    assert await store.requests.find_refused(1, one.id) == one
    assert await store.requests.find_refused(2, one.id) is None
    assert await store.requests.find_refused(1, one.id[:-1]) is None


async def test_what_no_database_can_hold_is_replaced(store: Store, clock: TestClock) -> None:
    await write(store, refused(clock, message="a\0b\ud800c"))
    (kept,) = await store.requests.refused(1)
    assert kept.message == "a\ufffdb?c"


def test_a_flood_leaves_room_for_the_others(clock: TestClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "SHARE_MAX", 3)
    monkeypatch.setattr(requests, "WRITTEN_MAX", 4)
    flood, one = [refused(clock) for _ in range(10)], refused(clock, team=2)
    assert [(kept.id, kept.more) for kept in shares(flood)] == [
        (flood[7].id, 7),
        (flood[8].id, 0),
        (flood[9].id, 0),
    ]
    assert [(kept.id, kept.more) for kept in shares([*flood, one])] == [
        (flood[8].id, 8),
        (flood[9].id, 0),
        (one.id, 0),
    ]
    assert len(shares([refused(clock, team=team) for team in range(9)])) == 9


async def test_a_second_has_its_limit_however_often_pages_ask(
    store: Store, clock: TestClock, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "SHARE_MAX", 2)
    monkeypatch.setattr(requests, "WRITTEN_MAX", 2)
    log = RequestLog()
    for _ in range(5):
        log.waiting.extend([refused(clock), refused(clock)])
        await log.write(store.requests)
    assert await sql("SELECT count(*) FROM refused_request") == [(2,)]
    await log.write_in_time(store.requests)
    assert await sql("SELECT count(*), sum(more) FROM refused_request") == [(4, 6)]


def test_memory_has_its_limit(clock: TestClock) -> None:
    log = RequestLog()
    one = refused(clock)
    log.waiting.extend([one] * (requests.WAITING_MAX + 10))
    assert len(log.waiting) == requests.WAITING_MAX


async def test_what_comes_while_it_is_written_waits_for_the_next_time(store: Store, clock: TestClock) -> None:
    log, early, late = RequestLog(), refused(clock), refused(clock)
    log.waiting.append(early)
    writing = asyncio.create_task(log.write(store.requests))
    await asyncio.sleep(0)
    log.waiting.append(late)
    await log.write(store.requests)  # waits for the first, and finds what came meanwhile
    await writing
    assert not log.waiting
    assert await store.requests.refused(1) == [late, early]


async def test_two_writes_at_once_count_each_request_once(
    store: Store, clock: TestClock, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "SHARE_MAX", 2)
    log = RequestLog()
    log.waiting.extend(refused(clock) for _ in range(5))
    writing = asyncio.create_task(log.write(store.requests))
    await asyncio.sleep(0)
    log.waiting.extend(refused(clock) for _ in range(3))
    await asyncio.gather(writing, log.write(store.requests))
    assert await sql("SELECT count(*), sum(more) FROM refused_request") == [(4, 4)]


async def test_a_row_that_breaks_does_not_break_the_next_round(clock: TestClock) -> None:
    class Database:
        async def write(self, story: object) -> None:
            raise KeyError

    log = RequestLog()
    log.waiting.append(refused(clock))
    with pytest.raises(KeyError):
        await log.write_in_time(Requests(Database(), clock, ""))  # type: ignore[arg-type]
    assert not log.waiting


async def test_written_twice_is_there_once(store: Store, clock: TestClock, sql: Sql) -> None:
    one = refused(clock)
    await write(store, one)
    await write(store, one)
    assert await sql("SELECT count(*) FROM refused_request") == [(1,)]


async def test_a_week_and_so_many_of_a_team_stay(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "TEAM_MAX", 3)
    monkeypatch.setattr(requests, "PORTION", 2)
    old, theirs = [refused(clock) for _ in range(3)], refused(clock, team=2)
    await write(store, *old, theirs)
    clock.forward(7 * DAY_MS - 10_000)
    new = [refused(clock) for _ in range(2)]
    await write(store, *new)
    await store.upkeep.purge()
    assert await store.requests.refused(1) == [new[1], new[0], old[2]]
    assert await store.requests.refused(2) == [theirs]
    clock.forward(11_000)
    await store.upkeep.purge()
    assert await store.requests.refused(1) == [new[1], new[0]]
    assert await store.requests.refused(2) == []
