"""The request log: noted by every process, written once a second, bounded in memory, in a second and on disk."""

import asyncio
from typing import Any

import pytest

from heliograph.domain.limits import DAY_MS
from heliograph.storage import requests
from heliograph.storage.requests import LoggedRequest, RequestLog, Requests, WantedRequests, shares
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql

pytestmark = pytest.mark.anyio


def refused(clock: TestClock, team: int = 1, message: str = "No.") -> LoggedRequest:
    return LoggedRequest(
        id=clock.new_id("req_"),
        team=team,
        at=clock.now(),
        key="abc",
        route="send_email",
        status=400,
        code="invalid_request",
        message=message,
        refused=1,
    )


def answered(clock: TestClock, team: int = 1, **more: Any) -> LoggedRequest:
    fields: dict[str, Any] = {"key": "abc", "route": "POST /v1/sms", "status": 202} | more
    return LoggedRequest(id=clock.new_id("req_"), team=team, at=clock.now(), **fields)


async def write(store: Store, *ones: LoggedRequest) -> None:
    log = RequestLog()
    log.waiting.extend(ones)
    await log.write(store.requests)
    assert not log.waiting


async def test_newest_first_of_all_processes_page_by_page(store: Store, other: Store, clock: TestClock) -> None:
    made = [refused(clock) for _ in range(5)]
    await write(store, made[0], made[2], refused(clock, team=2))
    await write(other, made[1], made[4], made[3])
    first = await store.requests.page(team=1, limit=2)
    assert first == [made[4], made[3], made[2]]
    rest = await store.requests.page(team=1, before=first[1].id, limit=2)
    assert rest == [made[2], made[1], made[0]]


async def test_one_by_its_id_and_none_of_another_team(store: Store, clock: TestClock) -> None:
    one = refused(clock)
    await write(store, one, refused(clock))
    assert await store.requests.find(1, one.id) == one
    assert await store.requests.find(2, one.id) is None
    assert await store.requests.find(1, one.id[:-1]) is None


async def test_what_no_database_can_hold_is_replaced(store: Store, clock: TestClock) -> None:
    await write(store, refused(clock, message="a\0b\ud800c"))
    (kept,) = await store.requests.page(1)
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
    assert await sql("SELECT count(*) FROM request_log") == [(2,)]
    await log.write_in_time(store.requests)
    assert await sql("SELECT count(*), sum(more) FROM request_log") == [(4, 6)]


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
    assert await store.requests.page(1) == [late, early]


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
    assert await sql("SELECT count(*), sum(more) FROM request_log") == [(4, 4)]


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
    assert await sql("SELECT count(*) FROM request_log") == [(1,)]


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
    assert await store.requests.page(1) == [new[1], new[0], old[2]]
    assert await store.requests.page(2) == [theirs]
    clock.forward(11_000)
    await store.upkeep.purge()
    assert await store.requests.page(1) == [new[1], new[0]]
    assert await store.requests.page(2) == []


async def test_refused_ones_and_others_are_kept_apart(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are answered as asked, what was refused before them stays."""
    monkeypatch.setattr(requests, "TEAM_MAX", 2)
    no = refused(clock)
    yes = [answered(clock) for _ in range(4)]
    await write(store, no, *yes)
    await store.upkeep.purge()
    assert await store.requests.page(1) == [yes[3], yes[2], no]


async def test_each_filter_finds_its_own(store: Store, clock: TestClock) -> None:
    early = answered(clock, took_ms=7, subject="sms_" + "0" * 26)
    clock.forward(60_000)
    since = clock.now()
    no, down = refused(clock), LoggedRequest(**{**_fields(refused(clock)), "status": 503, "code": "internal_error"})
    again = answered(clock, key="def", route="GET /v1/messages", status=200, replayed=1)
    await write(store, early, no, down, again)
    for wanted, found in {
        WantedRequests(): [again, down, no, early],
        WantedRequests(class_=2): [again, early],
        WantedRequests(class_=4): [no],
        WantedRequests(class_=5): [down],
        WantedRequests(code="invalid_request"): [no],
        WantedRequests(key="def"): [again],
        WantedRequests(route="send_email"): [down, no],
        WantedRequests(since=since): [again, down, no],
        WantedRequests(class_=2, since=since, key="abc"): [],
    }.items():
        assert await store.requests.page(1, wanted) == found, wanted
    assert await store.requests.page(2) == []


async def test_the_pulse_changes_with_the_list(store: Store, clock: TestClock) -> None:
    seen = [await store.requests.pulse(1)]
    for one in (refused(clock), answered(clock)):
        await write(store, one)
        seen.append(await store.requests.pulse(1))
    assert len({str(word) for word in seen}) == 3
    await write(store, answered(clock, team=2))
    assert await store.requests.pulse(1) == seen[-1]


def test_so_many_a_second_of_a_team_and_the_next_says_how_many_were_left_out(clock: TestClock) -> None:
    log = RequestLog()
    assert [log.keeps(1, 2) for _ in range(5)] == [True, True, False, False, False]
    assert log.keeps(2, 2)
    assert not RequestLog().keeps(1, 0)
    log._kept.clear()  # the next second
    assert log.keeps(1, 2)
    log.note(answered(clock))
    log.note(answered(clock))
    assert [one.more for one in log.waiting] == [3, 0]


def _fields(one: LoggedRequest) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__struct_fields__}
