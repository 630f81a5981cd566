"""Hand-overs counted by carrier and minute: what operators see of a carrier's throughput."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple

import msgspec

from heliograph.domain.delivery.outcome import Asked
from heliograph.domain.limits import DAY_MS, MINUTE_MS
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.engine.health_probe import Probe

TESTED = "test"  # the seat of a carrier's test, which is counted as nothing
SHOWN = 60  # minutes, the last one not over yet
NOW = 5  # full minutes that "now" is the mean of


class Use(NamedTuple):
    accepted: int = 0
    refused: int = 0
    put_off: int = 0
    took_ms: int = 0  # all together

    @property
    def total(self) -> int:
        return self.accepted + self.refused + self.put_off

    @property
    def mean_ms(self) -> int:
        return self.took_ms // max(1, self.total)

    def plus(self, more: "Use") -> "Use":
        return Use(*map(sum, zip(self, more, strict=True)))


class RecentUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a carrier was handed lately."""

    minutes: tuple[Use, ...] = (Use(),) * SHOWN  # the oldest first
    day: Use = Use()
    answered: bool = False  # it took something, a test too, within the eight days that are kept

    @property
    def hour(self) -> Use:
        return reduce(Use.plus, self.minutes)

    @property
    def rate(self) -> float:
        """Return how many messages it takes in a minute now."""
        return sum(use.accepted for use in self.minutes[-NOW - 1 : -1]) / NOW


async def count(tx: Tx, seat: str, asked: Iterable[tuple[int, Asked]]) -> None:
    """Count hand-overs, each with its time. It comes last in a transaction: others wait briefly for these rows."""
    sums: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for at, one in asked:
        use = sums[one.carrier.id, at - at % MINUTE_MS]
        use[one.result] += 1
        use["took_ms"] += one.took_ms
    if sums:
        # In order: transactions that count the same minute then wait in a line, never in a ring.
        await tx.run("count_carrier_use", uses=[(*row, seat, *Use(**sums[row])) for row in sorted(sums)])


class CarrierUse:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._noted: dict[str, int] = {}  # when this process last noted a callback
        self.last_callbacks = Probe(self.callbacks)

    async def heard(self, carrier: str, now: int) -> None:
        """Note that a verified callback came, once a minute."""
        if now - self._noted.get(carrier, 0) >= MINUTE_MS:
            await self._database.write(lambda tx: tx.run("note_callback", carrier=carrier, at=now, rest=MINUTE_MS))
            self._noted[carrier] = now

    async def callbacks(self) -> dict[str, int]:
        """Return when the last one of each carrier came, to the minute."""
        return await self._database.read(last_callbacks)

    async def recent(self, now: int) -> dict[str, RecentUse]:
        """Return uses by carrier; one that was handed nothing for a day, and answered nothing for eight, is missing."""
        return await self._database.read(lambda tx: recent_use(tx, now))

    async def tested(self, carrier: str, now: int) -> None:
        """Note that it has taken a test."""
        row = (carrier, now - now % MINUTE_MS, TESTED, *Use())
        await self._database.write(lambda tx: tx.run("count_carrier_use", uses=[row]))


async def last_callbacks(tx: Tx) -> dict[str, int]:
    return dict(await tx.run("last_callbacks"))


async def recent_use(tx: Tx, now: int) -> dict[str, RecentUse]:
    first = now - now % MINUTE_MS - (SHOWN - 1) * MINUTE_MS
    minutes: dict[str, list[Use]] = {}
    for carrier, minute, *counts in await tx.run("carrier_use_by_minute", since=first):
        index = (minute - first) // MINUTE_MS
        if index < SHOWN:  # a process whose clock is ahead of ours
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
