"""Imports of suppressions: stored completely, applied by any process, every line exactly once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from heliograph.deliver.jobs import imports as importing
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.limits import DAY_MS
from heliograph.domain.mail.suppression_file import parse_suppression_file
from heliograph.storage import imports, setup
from heliograph.storage.imports import ADDED, ALREADY_LISTED, Import
from heliograph.storage.setup import NewSuppression
from heliograph.storage.store import Store, StoreUnavailable
from tests.clocks import TestClock
from tests.storage.conftest import Sql
from tests.storage.samples import ENTRY

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "BATCH_LINES", 2)
    monkeypatch.setattr(imports, "BATCHES_PER_WRITE", 2)


async def begin(store: Store, clock: TestClock, text: str, team: int = 1) -> str:
    id_ = clock.new_id("imp_")
    note = COMMAND_LINE.audit_entry(at=clock.now(), action="suppression.import", subject=id_)
    await store.imports.begin(id_, team, parse_suppression_file(text.encode()), note)
    return id_


def people(count: int) -> str:
    return "\n".join(f"person{number}@example.net" for number in range(count))


async def found(store: Store, id_: str, team: int = 1) -> Import:
    started = await store.imports.find(team, id_)
    assert started
    return started


async def report(store: Store, id_: str) -> list[tuple[int, str, str]]:
    events: list[tuple[int, str, str]] = []
    after: int | None = -1
    while after is not None:
        result = await store.imports.report(id_, after, limit=2)
        events += [(item.line.number, item.line.text, item.outcome) for item in result.lines]
        after = result.after
    return events


@asynccontextmanager
async def working(*stores: Store) -> AsyncIterator[None]:
    """Run imports in these processes."""
    tasks = [asyncio.create_task(importing.import_suppressions(item)) for item in stores]
    try:
        async with asyncio.timeout(60):
            yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_import_records_the_result_of_every_line(store: Store, clock: TestClock, sql: Sql) -> None:
    await store.suppressions.add(NewSuppression(1, "known@example.net", "known@example.net", "bounce"), ENTRY)
    id_ = await begin(
        store,
        clock,
        'email,reason\nB@Example.net,bounce\n"no\0body"\nknown@example.net\na@example.net\nb@example.net\nc@x.test,why',
    )
    assert (await found(store, id_)).state == "importing"
    while await store.imports.apply_batch(id_):
        pass
    started = await found(store, id_)
    assert (started.state, started.lines, started.processed) == ("done", 6, 6)
    assert (started.added, started.already_listed, started.skipped) == (3, 1, 2)
    assert await report(store, id_) == [
        (2, "B@Example.net", ADDED),
        (3, "no\0body", "not an email address"),
        (4, "known@example.net", ALREADY_LISTED),
        (5, "a@example.net", ADDED),
        (6, "b@example.net", "the same as line 2"),
        (7, "c@x.test", ADDED),  # unknown reasons become manual
    ]
    left = await store.imports.first_skipped(id_)
    assert [line.number for line in left] == [3, 6]
    assert await sql("SELECT email, reason FROM suppression WHERE address = 'b@example.net'") == [
        ("B@Example.net", "bounce")
    ]
    assert await sql("SELECT count(*) FROM audit WHERE action = 'suppression.import'") == [(1,)]


async def test_import_by_two_processes_handles_each_line_once(
    store: Store, other: Store, clock: TestClock, sql: Sql
) -> None:
    """A line applied twice would be reported as already listed, and published again."""
    ids = [await begin(store, clock, people(31)), await begin(other, clock, people(31), team=2)]
    async with working(store, other):
        while {(await found(store, id_, team)).state for team, id_ in enumerate(ids, 1)} != {"done"}:
            await asyncio.sleep(0.01)
    for id_ in ids:
        events = await report(store, id_)
        assert [number for number, _, _ in events] == list(range(1, 32))
        assert {outcome for _, _, outcome in events} == {ADDED}
    assert await sql("SELECT count(*), count(DISTINCT subject) FROM event WHERE team = 1") == [(31, 31)]


async def test_import_batch_that_is_rolled_back_leaves_nothing(
    store: Store, clock: TestClock, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = await begin(store, clock, people(4))
    assert await store.imports.apply_batch(id_)
    real = setup.add_suppressions

    async def dies_after(*arguments: Any) -> None:
        await real(*arguments)
        raise StoreUnavailable

    with monkeypatch.context() as broken:
        broken.setattr(setup, "add_suppressions", dies_after)
        with pytest.raises(StoreUnavailable):
            await store.imports.apply_batch(id_)
    assert await sql("SELECT count(*) FROM suppression") == [(2,)]
    assert len(await report(store, id_)) == (await found(store, id_)).processed == 2
    assert await store.imports.apply_batch(id_)
    assert not await store.imports.apply_batch(id_)
    assert {outcome for _, _, outcome in await report(store, id_)} == {ADDED}


async def test_small_import_does_not_wait_for_a_large_one(store: Store, clock: TestClock) -> None:
    large, small = await begin(store, clock, people(40)), await begin(store, clock, "a@example.net\nb@example.net")
    await store.imports.apply_batch(large)
    assert await store.imports.list_open() == [small, large]


async def test_failing_import_stops_and_other_imports_continue(
    store: Store, clock: TestClock, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "POLL_INTERVAL_S", 0.001)
    bad, good = await begin(store, clock, people(4)), await begin(store, clock, people(4), team=2)
    await sql(f"UPDATE import_portion SET lines = '?' WHERE import_id = '{bad}' RETURNING number")
    async with working(store):
        while "importing" in {(await found(store, bad)).state, (await found(store, good, 2)).state}:
            await asyncio.sleep(0.01)
    assert (await found(store, bad)).state == "stopped"
    assert (await found(store, good, 2)).state == "done"


async def test_imports_of_a_team_are_listed_newest_first(store: Store, clock: TestClock) -> None:
    ids = [await begin(store, clock, people(1)) for _ in range(6)]
    await begin(store, clock, people(1), team=2)
    assert [item.id for item in await store.imports.newest(1)] == ids[:0:-1]
    assert await store.imports.find(2, ids[0]) is None


async def test_imports_and_unused_files_are_deleted_after_thirty_days(store: Store, clock: TestClock, sql: Sql) -> None:
    for _ in range(2):
        await begin(store, clock, people(7))
    await sql("DELETE FROM suppression_import WHERE id = (SELECT min(id) FROM suppression_import) RETURNING id")
    clock.forward(30 * DAY_MS - 10_000)
    retained = await begin(store, clock, people(1))
    await store.maintenance.purge()
    assert await sql("SELECT count(*) FROM import_portion") == [(9,)]
    clock.forward(11_000)
    await store.maintenance.purge()
    assert (
        await sql("SELECT import_id FROM import_portion")
        == await sql("SELECT id FROM suppression_import")
        == [(retained,)]
    )
