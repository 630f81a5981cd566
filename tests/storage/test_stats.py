"""Figures of the overview: store_counts with the outcomes, summed by interval, and the queue."""

from typing import Any

import pytest

from heliograph.domain.limits import DAY_MS, HOUR_MS
from heliograph.storage.stats import Overview, StateCounts, count_transition
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql
from tests.storage.samples import PHONE, message
from tests.storage.test_reputation import deliver, report

pytestmark = pytest.mark.anyio

COUNTS = "SELECT team, channel, sent, delivered, bounced, complained, failed, read FROM figure ORDER BY team, channel"


async def look(store: Store, since: int = 0, width: int = DAY_MS) -> Overview:
    return await store.stats.overview(1, since, width, ["wh_1", "wh_2"])


@pytest.mark.parametrize(
    ("before", "path", "expected"),
    [
        ("queued", (), StateCounts()),
        ("queued", ("sending",), StateCounts()),
        ("sending", ("sent",), StateCounts(sent=1)),
        ("queued", ("sending", "sent", "delivered"), StateCounts(sent=1, delivered=1)),
        ("sending", ("bounced",), StateCounts(sent=1, bounced=1)),
        ("sending", ("failed",), StateCounts(sent=1, failed=1)),
        ("sent", ("failed",), StateCounts(failed=1)),
        ("sent", ("delivered", "read"), StateCounts(delivered=1, read=1)),
        ("failed", ("delivered",), StateCounts(delivered=1)),  # a late receipt
        ("delivered", ("complained",), StateCounts(complained=1)),
    ],
)
def test_state_transition_counts_as_its_outcome(before: str, path: tuple[str, ...], expected: StateCounts) -> None:
    assert count_transition(before, path) == expected


async def test_stats_count_each_outcome_once(store: Store, clock: TestClock, sql: Sql) -> None:
    item = message(clock, "ada@example.com")
    await store.messages.accept(item)
    await deliver(store, clock, None)  # deferred
    assert await sql(COUNTS) == []
    await deliver(store, clock, "sent")
    await report(store, item.id, "sent", "delivered", "delivered", "complained", "complained")
    assert await sql(COUNTS) == [(1, "email", 1, 1, 0, 1, 0, 0)]


async def test_stats_of_a_batch_are_one_row_per_team_channel_and_hour(store: Store, clock: TestClock, sql: Sql) -> None:
    await store.messages.accept(message(clock, *(f"a{n}@example.com" for n in range(20))))
    await deliver(store, clock, *["bounced", "delivered"] * 10)
    await store.messages.accept(message(clock, "delivered@simulator.test", team=2))  # magic recipients count too
    await deliver(store, clock, "failed")
    await store.messages.accept(message(clock, PHONE, channel="sms"))
    await deliver(store, clock, "delivered", lane="phone")
    assert await sql(COUNTS) == [
        (1, "email", 20, 10, 10, 0, 0, 0),
        (1, "sms", 1, 1, 0, 0, 0, 0),
        (2, "email", 1, 0, 0, 0, 1, 0),
    ]
    assert {hour % HOUR_MS for (hour,) in await sql("SELECT hour FROM figure")} == {0}


async def store_counts(store: Store, *rows: Any) -> None:
    """Store counts of (team, hour, channel, sent, delivered)."""
    whole = [(*row, 0, 0, 0, 0) for row in rows]
    await store.database.write(lambda tx: tx.run("count_figures", counts=whole))


async def test_stats_days_begin_in_the_time_zone_of_the_reader(store: Store, clock: TestClock) -> None:
    await store_counts(store, *((1, hour * HOUR_MS, "email", 1, 1) for hour in range(24)))
    seen = await look(store, since=5 * HOUR_MS)  # midnight in New York
    assert {start: item.sent for (start, _), item in seen.counts.items()} == {5 * HOUR_MS: 19}
    seen = await look(store, since=-2 * HOUR_MS)  # … in Vienna
    assert {start: item.sent for (start, _), item in seen.counts.items()} == {-2 * HOUR_MS: 22, 22 * HOUR_MS: 2}


async def test_stats_are_summed_by_day_and_by_hour(store: Store, clock: TestClock) -> None:
    await store_counts(store, *((1, hour * HOUR_MS, "email", 1, 1) for hour in range(48)), (1, 0, "sms", 7, 0))
    await store_counts(store, (2, 0, "email", 99, 99), (1, 0, "sms", 1, 1))
    assert (await look(store)).counts == {
        (0, "email"): StateCounts(24, 24),
        (0, "sms"): StateCounts(8, 1),
        (DAY_MS, "email"): StateCounts(24, 24),
    }
    seen = await look(store, 46 * HOUR_MS, HOUR_MS)
    assert seen.counts == {(hour * HOUR_MS, "email"): StateCounts(1, 1) for hour in (46, 47)}


async def test_stats_show_the_queue_of_a_team(store: Store, clock: TestClock) -> None:
    at = clock.now()
    await store.messages.accept(message(clock, "ada@example.com", created_at=at))
    await store.messages.accept(message(clock, PHONE, channel="sms"))
    await store.messages.accept(message(clock, "eve@example.com", team=2, created_at=at - DAY_MS))
    clock.forward(5000)
    seen = await look(store)
    assert (seen.waiting, seen.oldest_due) == (2, at)
    await store.outbox.claim("email", 10)
    await store.outbox.claim("phone", 10)
    seen = await look(store)
    assert (seen.waiting, seen.oldest_due) == (0, None)


async def test_stats_show_failing_endpoints(store: Store, clock: TestClock) -> None:
    await store.deliveries.claim(["wh_1", "wh_2", "wh_3"])
    failing = [("wh_2", 5), ("wh_3", 6)]
    await store.database.write(lambda tx: tx.run("update_endpoints", endpoints=failing))
    assert (await look(store)).failing == {"wh_2": 5}


async def test_stats_are_deleted_after_400_days(store: Store, clock: TestClock, sql: Sql) -> None:
    old = clock.now() - 400 * DAY_MS
    await store_counts(store, (1, old, "email", 1, 0), (1, old + HOUR_MS, "email", 2, 0))
    await store.maintenance.purge()
    assert await sql("SELECT sent FROM figure") == [(2,)]
