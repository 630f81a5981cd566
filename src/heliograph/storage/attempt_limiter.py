"""Sliding-window limit of attempts per name, shared by all processes and kept over restarts. Names are hashed."""

from collections.abc import Iterable, Mapping

import msgspec

from heliograph.domain.limits import MINUTE_MS
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.people import hashed

SPAN_MS = 15 * MINUTE_MS  # how long an attempt counts


class Tries:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, limits: Mapping[str, int], now: int) -> int:
        """Record an attempt before it is checked, so that concurrent attempts count.

        `limits` maps each name to its maximum number of attempts within SPAN_MS. Return 0, or the ms to wait if a
        limit is reached.
        """
        found = await self._database.read(lambda tx: _tries(tx, "find_tries", limits))
        if wait := _wait(found, limits, now):  # rejected without a write
            return wait
        return await self._database.write(lambda tx: _begin(tx, limits, now))

    async def forgive(self, names: Iterable[str]) -> None:
        """Remove the last attempt of each name, so that it does not count."""

        async def story(tx: Tx) -> None:
            await _set(tx, {name: times[:-1] for name, times in (await _tries(tx, "lock_tries", names)).items()})

        await self._database.write(story)


async def _begin(tx: Tx, limits: Mapping[str, int], now: int) -> int:
    tries = await _tries(tx, "lock_tries", limits)
    wait = _wait(tries, limits, now)
    if not wait:
        counting = {name: [at for at in times if at + SPAN_MS > now] for name, times in tries.items()}
        await _set(tx, {name: [*times, now] for name, times in counting.items()})
    return wait


def _wait(tries: Mapping[str, list[int]], limits: Mapping[str, int], now: int) -> int:
    """Return the ms until every name has fewer attempts within SPAN_MS than its limit; 0 if an attempt is allowed."""
    full = [tries[name][-most] for name, most in limits.items() if len(tries.get(name, ())) >= most]
    return max([at + SPAN_MS - now for at in full if at + SPAN_MS > now], default=0)


async def _tries(tx: Tx, query: str, names: Iterable[str]) -> dict[str, list[int]]:
    given = {hashed(name): name for name in names}
    rows = await tx.run(query, names=[(hash_,) for hash_ in given])
    return {given[hash_]: msgspec.json.decode(times, type=list[int]) for hash_, times in rows}


async def _set(tx: Tx, tries: Mapping[str, list[int]]) -> None:
    rows = [
        (hashed(name), msgspec.json.encode(times).decode(), times[-1] + SPAN_MS if times else 0)
        for name, times in tries.items()
    ]
    await tx.run("set_tries", tries=rows)
