"""The request log: recorded by every process, written once a second, bounded in memory, per second and on disk."""

import asyncio
from typing import Any

import pytest

from heliograph.domain.limits import DAY_MS
from heliograph.storage import requests
from heliograph.storage.requests import LoggedRequest, RequestFilter, RequestLog, Requests, fair_shares
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
    log.buffer.extend(ones)
    await log.write(store.requests)
    assert not log.buffer


async def test_request_log_of_all_processes_is_paged_newest_first(store: Store, other: Store, clock: TestClock) -> None:
    created = [refused(clock) for _ in range(5)]
    await write(store, created[0], created[2], refused(clock, team=2))
    await write(other, created[1], created[4], created[3])
    first = await store.requests.list_page(team=1, limit=2)
    assert first == [created[4], created[3], created[2]]
    rest = await store.requests.list_page(team=1, before=first[1].id, limit=2)
    assert rest == [created[2], created[1], created[0]]


async def test_logged_request_is_returned_by_id_to_its_own_team_only(store: Store, clock: TestClock) -> None:
    item = refused(clock)
    await write(store, item, refused(clock))
    assert await store.requests.find(1, item.id) == item
    assert await store.requests.find(2, item.id) is None
    assert await store.requests.find(1, item.id[:-1]) is None


async def test_logged_request_with_unstorable_characters_is_stored_with_replacements(
    store: Store, clock: TestClock
) -> None:
    await write(store, refused(clock, message="a\0b\ud800c"))
    (retained,) = await store.requests.list_page(1)
    assert retained.message == "a\ufffdb?c"


def test_request_log_flooded_by_one_team_keeps_requests_of_others(
    clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "TEAM_SHARE_MAX", 3)
    monkeypatch.setattr(requests, "WRITE_MAX", 4)
    flood, item = [refused(clock) for _ in range(10)], refused(clock, team=2)
    assert [(retained.id, retained.more) for retained in fair_shares(flood)] == [
        (flood[7].id, 7),
        (flood[8].id, 0),
        (flood[9].id, 0),
    ]
    assert [(retained.id, retained.more) for retained in fair_shares([*flood, item])] == [
        (flood[8].id, 8),
        (flood[9].id, 0),
        (item.id, 0),
    ]
    assert len(fair_shares([refused(clock, team=team) for team in range(9)])) == 9


async def test_request_log_limit_per_second_holds_however_often_it_is_read(
    store: Store, clock: TestClock, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "TEAM_SHARE_MAX", 2)
    monkeypatch.setattr(requests, "WRITE_MAX", 2)
    log = RequestLog()
    for _ in range(5):
        log.buffer.extend([refused(clock), refused(clock)])
        await log.write(store.requests)
    assert await sql("SELECT count(*) FROM request_log") == [(2,)]
    await log.write_periodically(store.requests)
    assert await sql("SELECT count(*), sum(more) FROM request_log") == [(4, 6)]


def test_request_log_buffer_is_limited_in_memory(clock: TestClock) -> None:
    log = RequestLog()
    item = refused(clock)
    log.buffer.extend([item] * (requests.BUFFER_MAX + 10))
    assert len(log.buffer) == requests.BUFFER_MAX


async def test_requests_logged_during_a_write_are_written_next_time(store: Store, clock: TestClock) -> None:
    log, early, late = RequestLog(), refused(clock), refused(clock)
    log.buffer.append(early)
    writing = asyncio.create_task(log.write(store.requests))
    await asyncio.sleep(0)
    log.buffer.append(late)
    await log.write(store.requests)  # waits for the first write, and writes the entries added meanwhile
    await writing
    assert not log.buffer
    assert await store.requests.list_page(1) == [late, early]


async def test_concurrent_request_log_writes_count_each_request_once(
    store: Store, clock: TestClock, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "TEAM_SHARE_MAX", 2)
    log = RequestLog()
    log.buffer.extend(refused(clock) for _ in range(5))
    writing = asyncio.create_task(log.write(store.requests))
    await asyncio.sleep(0)
    log.buffer.extend(refused(clock) for _ in range(3))
    await asyncio.gather(writing, log.write(store.requests))
    assert await sql("SELECT count(*), sum(more) FROM request_log") == [(4, 4)]


async def test_unwritable_logged_request_does_not_break_the_next_write(clock: TestClock) -> None:
    class Database:
        async def write(self, function: object) -> None:
            raise KeyError

    log = RequestLog()
    log.buffer.append(refused(clock))
    with pytest.raises(KeyError):
        await log.write_periodically(Requests(Database(), clock, ""))  # type: ignore[arg-type]
    assert not log.buffer


async def test_logged_request_written_twice_is_stored_once(store: Store, clock: TestClock, sql: Sql) -> None:
    item = refused(clock)
    await write(store, item)
    await write(store, item)
    assert await sql("SELECT count(*) FROM request_log") == [(1,)]


async def test_request_log_keeps_a_week_and_a_limited_number_per_team(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "TEAM_MAX", 3)
    monkeypatch.setattr(requests, "DELETE_BATCH", 2)
    old, theirs = [refused(clock) for _ in range(3)], refused(clock, team=2)
    await write(store, *old, theirs)
    clock.forward(7 * DAY_MS - 10_000)
    new = [refused(clock) for _ in range(2)]
    await write(store, *new)
    await store.maintenance.purge()
    assert await store.requests.list_page(1) == [new[1], new[0], old[2]]
    assert await store.requests.list_page(2) == [theirs]
    clock.forward(11_000)
    await store.maintenance.purge()
    assert await store.requests.list_page(1) == [new[1], new[0]]
    assert await store.requests.list_page(2) == []


async def test_request_log_limits_refused_and_other_requests_separately(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many successful requests do not displace earlier refused ones."""
    monkeypatch.setattr(requests, "TEAM_MAX", 2)
    no = refused(clock)
    yes = [answered(clock) for _ in range(4)]
    await write(store, no, *yes)
    await store.maintenance.purge()
    assert await store.requests.list_page(1) == [yes[3], yes[2], no]


async def test_request_log_filters_select_matching_requests(store: Store, clock: TestClock) -> None:
    early = answered(clock, took_ms=7, subject="sms_" + "0" * 26)
    clock.forward(60_000)
    since = clock.now()
    no, down = refused(clock), LoggedRequest(**{**_fields(refused(clock)), "status": 503, "code": "internal_error"})
    again = answered(clock, key="def", route="GET /v1/messages", status=200, replayed=1)
    await write(store, early, no, down, again)
    for expected, result in {
        RequestFilter(): [again, down, no, early],
        RequestFilter(status_class=2): [again, early],
        RequestFilter(status_class=4): [no],
        RequestFilter(status_class=5): [down],
        RequestFilter(code="invalid_request"): [no],
        RequestFilter(key="def"): [again],
        RequestFilter(route="send_email"): [down, no],
        RequestFilter(since=since): [again, down, no],
        RequestFilter(status_class=2, since=since, key="abc"): [],
    }.items():
        assert await store.requests.list_page(1, expected) == result, expected
    assert await store.requests.list_page(2) == []


async def test_request_log_page_version_changes_with_the_list(store: Store, clock: TestClock) -> None:
    seen = [await store.requests.list_version(1)]
    for item in (refused(clock), answered(clock)):
        await write(store, item)
        seen.append(await store.requests.list_version(1))
    assert len({str(word) for word in seen}) == 3
    await write(store, answered(clock, team=2))
    assert await store.requests.list_version(1) == seen[-1]


def test_request_log_beyond_its_rate_counts_omitted_requests(clock: TestClock) -> None:
    log = RequestLog()
    assert [log.should_log(1, 2) for _ in range(5)] == [True, True, False, False, False]
    assert log.should_log(2, 2)
    assert not RequestLog().should_log(1, 0)
    log._logged_by_team.clear()  # the next second
    assert log.should_log(1, 2)
    log.add(answered(clock))
    log.add(answered(clock))
    assert [item.more for item in log.buffer] == [3, 0]


def _fields(item: LoggedRequest) -> dict[str, Any]:
    return {name: getattr(item, name) for name in item.__struct_fields__}
