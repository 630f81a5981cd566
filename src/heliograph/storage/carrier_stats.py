"""Counters of delivery attempts per carrier and minute: the throughput that operators see."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple

import msgspec

from heliograph.domain.delivery.outcome import Asked
from heliograph.domain.limits import DAY_MS, MINUTE_MS
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.engine.health_probe import Probe

TESTED = "test"  # `seat` value of a carrier test, which adds to no counter
SHOWN = 60  # minutes shown; the last one is incomplete
NOW = 5  # complete minutes over which the current rate is averaged


class Use(NamedTuple):
    accepted: int = 0
    refused: int = 0
    put_off: int = 0
    took_ms: int = 0  # sum over all attempts

    @property
    def total(self) -> int:
        return self.accepted + self.refused + self.put_off

    @property
    def mean_ms(self) -> int:
        return self.took_ms // max(1, self.total)

    def plus(self, more: "Use") -> "Use":
        return Use(*map(sum, zip(self, more, strict=True)))


class RecentUse(msgspec.Struct, frozen=True, kw_only=True):
    """Recent delivery attempts of one carrier."""

    minutes: tuple[Use, ...] = (Use(),) * SHOWN  # oldest first
    day: Use = Use()
    answered: bool = False  # accepted a message or a test within the eight days of retention

    @property
    def hour(self) -> Use:
        return reduce(Use.plus, self.minutes)

    @property
    def rate(self) -> float:
        """Return the current number of accepted messages per minute."""
        return sum(use.accepted for use in self.minutes[-NOW - 1 : -1]) / NOW


async def count(tx: Tx, seat: str, asked: Iterable[tuple[int, Asked]]) -> None:
    """Add delivery attempts (time, attempt) to the counters.

    Call this last in a transaction: other transactions wait for the locks on these rows.
    """
    sums: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for at, one in asked:
        use = sums[one.carrier.id, at - at % MINUTE_MS]
        use[one.result] += 1
        use["took_ms"] += one.took_ms
    if sums:
        # Sorted, so that transactions that update the same minute cannot deadlock.
        await tx.run("count_carrier_use", uses=[(*row, seat, *Use(**sums[row])) for row in sorted(sums)])


class CarrierUse:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._noted: dict[str, int] = {}  # carrier → time at which this process last recorded a callback
        self.last_callbacks = Probe(self.callbacks)

    async def heard(self, carrier: str, now: int) -> None:
        """Record that a verified callback was received, at most once a minute per carrier."""
        if now - self._noted.get(carrier, 0) >= MINUTE_MS:
            await self._database.write(lambda tx: tx.run("note_callback", carrier=carrier, at=now, rest=MINUTE_MS))
            self._noted[carrier] = now

    async def callbacks(self) -> dict[str, int]:
        """Return the time of the last callback of each carrier, to the minute."""
        return await self._database.read(last_callbacks)

    async def recent(self, now: int) -> dict[str, RecentUse]:
        """Return recent counters by carrier.

        Carriers without attempts for one day and without an accepted message for eight days are missing.
        """
        return await self._database.read(lambda tx: recent_use(tx, now))

    async def tested(self, carrier: str, now: int) -> None:
        """Record that the carrier accepted a test message."""
        row = (carrier, now - now % MINUTE_MS, TESTED, *Use())
        await self._database.write(lambda tx: tx.run("count_carrier_use", uses=[row]))


async def last_callbacks(tx: Tx) -> dict[str, int]:
    return dict(await tx.run("last_callbacks"))


async def recent_use(tx: Tx, now: int) -> dict[str, RecentUse]:
    first = now - now % MINUTE_MS - (SHOWN - 1) * MINUTE_MS
    minutes: dict[str, list[Use]] = {}
    for carrier, minute, *counts in await tx.run("carrier_use_by_minute", since=first):
        index = (minute - first) // MINUTE_MS
        if index < SHOWN:  # later minutes come from a process whose clock is ahead
            minutes.setdefault(carrier, [Use()] * SHOWN)[index] = Use(*counts)
    quiet = [Use()] * SHOWN
    days = await tx.run("carrier_use_since", since=first + SHOWN * MINUTE_MS - DAY_MS)
    used = {carrier: Use(*counts) for carrier, *counts in days}
    answered = {carrier for (carrier,) in await tx.run("carriers_that_answered", since=0, test=TESTED)}
    return {
        carrier: RecentUse(
            minutes=tuple(minutes.get(carrier, quiet)), day=used.get(carrier, Use()), answered=carrier in answered
        )
        for carrier in used.keys() | answered
    }
