"""How many tries a name may have in a while, counted over all processes and restarts. Names are kept hashed."""

from collections.abc import Iterable, Mapping

import msgspec

from heliograph.domain.limits import MINUTE_MS
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.people import hashed

SPAN_MS = 15 * MINUTE_MS  # how long a try counts


class Tries:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, limits: Mapping[str, int], now: int) -> int:
        """Count a try of these names (each has so many in a span) before it is judged, so that many at once gain
        nothing; or return how many ms there can be none.
        """
        found = await self._database.read(lambda tx: _tries(tx, "find_tries", limits))
        if wait := _wait(found, limits, now):  # costs no write
            return wait
        return await self._database.write(lambda tx: _begin(tx, limits, now))

    async def forgive(self, names: Iterable[str]) -> None:
        """Take back the last try: it does not count after all."""

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
    """Return the ms until a try may begin: the last so many tries of a name must not all count any more."""
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
