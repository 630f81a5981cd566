"""Delivery attempts of carriers per minute, over all processes."""

import asyncio

import pytest
from msgspec.structs import replace

from heliograph.domain.delivery.outcome import Accepted, CarrierAttempt, Deferred, Outcome, Refused
from heliograph.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS
from heliograph.domain.setup.records import CarrierRecord
from heliograph.storage.carrier_stats import RATE_MINUTES, CarrierCounts, RecentCarrierCounts
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql
from tests.storage.samples import finish, message, start
from tests.storage.test_money import outcome

pytestmark = pytest.mark.anyio


TAKEN, REFUSED, PUT_OFF = Accepted(), Refused(bounced=True), Deferred(uncertain=True)


def _asked(*outcomes: Outcome, carrier: str = "a", took_ms: int = 30) -> list[CarrierAttempt]:
    record = CarrierRecord(id=carrier, channel="sms", kind="test")
    return [CarrierAttempt(carrier=record, outcome=outcome, duration_ms=took_ms) for outcome in outcomes]


async def _hand_over(store: Store, clock: TestClock, *attempts: CarrierAttempt) -> None:
    await store.messages.accept(message(clock))
    (claim,) = await store.outbox.claim("email", 1)
    change = replace(outcome(claim, clock.now(), "sent"), attempts=attempts)
    # Only the first call may record and count the outcome.
    assert [await store.outbox.record(change) for _ in (1, 2)] == [True, False]


async def _recent(store: Store, clock: TestClock) -> dict[str, RecentCarrierCounts]:
    return await store.carrier_stats.read_recent(clock.now())


async def test_carrier_sends_are_counted_when_recorded(store: Store, other: Store, clock: TestClock) -> None:
    await _hand_over(store, clock, *_asked(PUT_OFF, carrier="b"), *_asked(TAKEN))
    await _hand_over(other, clock, *_asked(REFUSED, took_ms=90))
    result = await _recent(store, clock)
    assert {carrier: recent.hour for carrier, recent in result.items()} == {
        "a": CarrierCounts(accepted=1, refused=1, took_ms=120),
        "b": CarrierCounts(put_off=1, took_ms=30),
    }
    assert (result["a"].hour.total, result["a"].hour.mean_ms) == (2, 60)
    assert result["a"].day == result["a"].hour == result["a"].minutes[-1]


async def test_carrier_has_accepted_only_after_an_accepted_send(store: Store, clock: TestClock) -> None:
    await _hand_over(store, clock, *_asked(PUT_OFF, carrier="b"), *_asked(TAKEN))
    await _hand_over(store, clock, *_asked(REFUSED, carrier="c"))
    for _ in range(2):
        await store.carrier_stats.record_test("d", clock.now())
    assert {carrier: use.has_accepted for carrier, use in (await _recent(store, clock)).items()} == {
        **dict.fromkeys("ad", True),
        **dict.fromkeys("bc", False),
    }
    clock.forward(2 * DAY_MS)
    result = await _recent(store, clock)
    assert result.keys() == set("ad") and result["d"] == RecentCarrierCounts(has_accepted=True)


async def test_carrier_sends_of_a_verification_are_counted(store: Store, clock: TestClock) -> None:
    started = start(clock)
    await store.verifications.start(started)
    await store.verifications.finish(replace(finish(started, clock), attempts=_asked(PUT_OFF, TAKEN)))
    assert (await _recent(store, clock))["a"].hour == CarrierCounts(accepted=1, put_off=1, took_ms=60)


async def test_carrier_counts_are_summed_by_minute_hour_and_day(store: Store, clock: TestClock, sql: Sql) -> None:
    clock.forward(DAY_MS - clock.now() % DAY_MS)
    for wait in (0, 23 * HOUR_MS, 30 * MINUTE_MS, 28 * MINUTE_MS, MINUTE_MS):  # at 0:00, 23:00, 23:30, 23:58, 23:59
        clock.forward(wait)
        await _hand_over(store, clock, *_asked(TAKEN))
    recent = (await _recent(store, clock))["a"]
    assert [place for place, use in enumerate(recent.minutes) if use.accepted] == [0, 30, 58, 59]
    assert (recent.hour.accepted, recent.day.accepted) == (4, 5)
    assert recent.rate == 1 / RATE_MINUTES  # the current minute is not counted
    clock.forward(MINUTE_MS)
    recent = (await _recent(store, clock))["a"]
    assert (recent.hour.accepted, recent.day.accepted, recent.rate) == (3, 4, 2 / RATE_MINUTES)
    clock.forward(7 * DAY_MS)
    await store.maintenance.purge()
    assert await sql("SELECT count(*) FROM carrier_use") == [(4,)]  # each minute for eight days
    clock.forward(DAY_MS)
    await store.maintenance.purge()
    assert await sql("SELECT count(*) FROM carrier_use") == [(0,)]


async def test_carrier_counts_recorded_concurrently_lose_nothing(store: Store, other: Store, clock: TestClock) -> None:
    """Two processes run several transactions each, for the same carriers and minute."""
    for _ in range(40):
        await store.messages.accept(message(clock))
    requested = _asked(TAKEN), _asked(REFUSED, carrier="b")
    claims = [(process, claim) for process in (store, other) for claim in await process.outbox.claim("email", 20)]
    await asyncio.gather(
        *(
            process.outbox.record(
                replace(outcome(claim, clock.now(), "sent"), attempts=[*requested[i % 2], *requested[1 - i % 2]])
            )
            for i, (process, claim) in enumerate(claims)
        )
    )
    result = await _recent(store, clock)
    assert (result["a"].hour.accepted, result["b"].hour.refused) == (40, 40)


async def test_last_callback_time_is_written_once_a_minute(store: Store, other: Store) -> None:
    for each, at in ((store, 0), (other, 1000), (store, 2000)):
        await each.carrier_stats.record_callback("a", DAY_MS + at)
    assert await store.carrier_stats.read_callbacks() == {"a": DAY_MS}
    await other.carrier_stats.record_callback("a", DAY_MS + 2 * MINUTE_MS)
    await store.carrier_stats.record_callback("a", DAY_MS + MINUTE_MS)  # of a process whose clock is behind
    await store.carrier_stats.record_callback("b", DAY_MS)
    assert await store.carrier_stats.read_callbacks() == {"a": DAY_MS + 2 * MINUTE_MS, "b": DAY_MS}
