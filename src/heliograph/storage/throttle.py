"""How many tries a name may have in a while, counted over all processes and restarts. Names are kept hashed."""

from collections.abc import Iterable, Mapping

import msgspec

from heliograph.storage.database import Tx
from heliograph.storage.people import hashed


async def begin_try(tx: Tx, limits: Mapping[str, int], now: int, span_ms: int) -> int:
    """Count a try before it is judged, so that many at once gain nothing; or answers how long there can be none.

    `limits`: name → how many tries it has in a span.
    """
    tries = {name: [at for at in times if at + span_ms > now] for name, times in (await _lock(tx, limits)).items()}
    waits = [tries[name][-most] + span_ms - now for name, most in limits.items() if len(tries[name]) >= most]
    if not waits:
        await _set(tx, {name: [*times, now] for name, times in tries.items()}, span_ms)
    return max(waits, default=0)


async def forgive_try(tx: Tx, names: Iterable[str], span_ms: int) -> None:
    """The last try was none after all."""
    await _set(tx, {name: times[:-1] for name, times in (await _lock(tx, names)).items()}, span_ms)


async def _lock(tx: Tx, names: Iterable[str]) -> dict[str, list[int]]:
    given = {hashed(name): name for name in names}
    rows = await tx.run("lock_tries", names=[(hash_,) for hash_ in given])
    return {given[hash_]: msgspec.json.decode(times, type=list[int]) for hash_, times in rows}


async def _set(tx: Tx, tries: Mapping[str, list[int]], span_ms: int) -> None:
    rows = [
        (hashed(name), msgspec.json.encode(times).decode(), times[-1] + span_ms if times else 0)
        for name, times in tries.items()
    ]
    await tx.run("set_tries", tries=rows)
