"""Counters of delivery attempts per carrier and minute: the throughput that operators see."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple

import msgspec

from heliograph.domain.delivery.outcome import CarrierAttempt
from heliograph.domain.limits import DAY_MS, MINUTE_MS
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.engine.health_probe import Probe

TEST_SLOT = "test"  # stored instead of the process for a carrier test, whose counters are all 0
SHOWN_MINUTES = 60  # minutes shown; the last one is incomplete
RATE_MINUTES = 5  # complete minutes over which the current rate is averaged


class CarrierCounts(NamedTuple):
    accepted: int = 0
    refused: int = 0
    put_off: int = 0  # deferred attempts
    took_ms: int = 0  # sum over all attempts

    @property
    def total(self) -> int:
        return self.accepted + self.refused + self.put_off

    @property
    def completed(self) -> int:
        """Return the number of attempts that are not retried: accepted or refused."""
        return self.accepted + self.refused

    @property
    def mean_ms(self) -> int:
        return self.took_ms // max(1, self.total)

    def plus(self, other: "CarrierCounts") -> "CarrierCounts":
        return CarrierCounts(*map(sum, zip(self, other, strict=True)))


class RecentCarrierCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Recent delivery attempts of one carrier."""

    minutes: tuple[CarrierCounts, ...] = (CarrierCounts(),) * SHOWN_MINUTES  # oldest first
    day: CarrierCounts = CarrierCounts()
    has_accepted: bool = False  # accepted a message or a test within the eight days of retention

    @property
    def hour(self) -> CarrierCounts:
        return reduce(CarrierCounts.plus, self.minutes)

    @property
    def rate(self) -> float:
        """Return the current number of accepted messages per minute."""
        return sum(counts.accepted for counts in self.minutes[-RATE_MINUTES - 1 : -1]) / RATE_MINUTES


async def count_attempts(tx: Tx, process_slot: str, attempts: Iterable[tuple[int, CarrierAttempt]]) -> None:
    """Add delivery attempts (time, attempt) to the counters.

    Call this last in a transaction, because other transactions wait for the rows that it locks.
    """
    sums: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for at, attempt in attempts:
        counts = sums[attempt.carrier.id, at - at % MINUTE_MS]
        counts[attempt.result] += 1
        counts["took_ms"] += attempt.duration_ms
    if sums:
        # Sorted, so that transactions that update the same minute cannot deadlock.
        await tx.run(
            "count_carrier_use", uses=[(*row, process_slot, *CarrierCounts(**sums[row])) for row in sorted(sums)]
        )


class CarrierStats:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._recorded_at: dict[str, int] = {}  # carrier → time at which this process last recorded a callback
        self.last_callbacks = Probe(self.read_callbacks)

    async def record_callback(self, carrier: str, now: int) -> None:
        """Record that a verified callback was received from a carrier; written at most once a minute."""
        if now - self._recorded_at.get(carrier, 0) >= MINUTE_MS:
            await self._database.write(lambda tx: tx.run("record_callback", carrier=carrier, at=now, rest=MINUTE_MS))
            self._recorded_at[carrier] = now

    async def read_callbacks(self) -> dict[str, int]:
        """Return carrier id → time of its last callback, rounded to the minute."""
        return await self._database.read(read_last_callbacks)

    async def read_recent(self, now: int) -> dict[str, RecentCarrierCounts]:
        """Return recent counters by carrier, except for carriers that have neither counts nor `has_accepted`."""
        return await self._database.read(lambda tx: read_recent_counts(tx, now))

    async def record_test(self, carrier: str, now: int) -> None:
        """Record that the carrier accepted a test message."""
        row = (carrier, now - now % MINUTE_MS, TEST_SLOT, *CarrierCounts())
        await self._database.write(lambda tx: tx.run("count_carrier_use", uses=[row]))


async def read_last_callbacks(tx: Tx) -> dict[str, int]:
    return dict(await tx.run("last_callbacks"))


async def read_recent_counts(tx: Tx, now: int) -> dict[str, RecentCarrierCounts]:
    first_minute = now - now % MINUTE_MS - (SHOWN_MINUTES - 1) * MINUTE_MS
    minutes: dict[str, list[CarrierCounts]] = defaultdict(lambda: [CarrierCounts()] * SHOWN_MINUTES)
    for carrier, minute, *counts in await tx.run("carrier_use_by_minute", since=first_minute):
        index = (minute - first_minute) // MINUTE_MS
        if index < SHOWN_MINUTES:  # later minutes come from a process whose clock is ahead
            minutes[carrier][index] = CarrierCounts(*counts)
    day_rows = await tx.run("carrier_use_since", since=first_minute + SHOWN_MINUTES * MINUTE_MS - DAY_MS)
    day_counts = {carrier: CarrierCounts(*counts) for carrier, *counts in day_rows}
    accepting = {carrier for (carrier,) in await tx.run("accepting_carriers", since=0, test=TEST_SLOT)}
    return {
        carrier: RecentCarrierCounts(
            minutes=tuple(minutes[carrier]),
            day=day_counts.get(carrier, CarrierCounts()),
            has_accepted=carrier in accepting,
        )
        for carrier in day_counts.keys() | accepting
    }
