"""How many tries a name may have in a while, counted over all processes and restarts. Names are kept hashed."""

from collections.abc import Iterable, Mapping

import msgspec

from heliograph.storage.engine.database import Tx
from heliograph.storage.people import hashed


async def begin_try(tx: Tx, limits: Mapping[str, int], now: int, span_ms: int) -> int:
    """Count a try before it is judged, so that many at once gain nothing; or answers how long there can be none.

    `limits`: name → how many tries it has in a span.
    """
    tries = await _lock(tx, limits)
    wait = _wait(tries, limits, now, span_ms)
    if not wait:
        counting = {name: [at for at in times if at + span_ms > now] for name, times in tries.items()}
        await _set(tx, {name: [*times, now] for name, times in counting.items()}, span_ms)
    return wait


async def wait(tx: Tx, limits: Mapping[str, int], now: int, span_ms: int) -> int:
    """How long there can be no try; counts none, so that it costs no write."""
    return _wait(await _tries(tx, "find_tries", limits), limits, now, span_ms)


def _wait(tries: Mapping[str, list[int]], limits: Mapping[str, int], now: int, span_ms: int) -> int:
    """The last so many tries of a name must not all count any more."""
    full = [tries[name][-most] for name, most in limits.items() if len(tries.get(name, ())) >= most]
    return max([at + span_ms - now for at in full if at + span_ms > now], default=0)


async def forgive_try(tx: Tx, names: Iterable[str], span_ms: int) -> None:
    """The last try was none after all."""
    await _set(tx, {name: times[:-1] for name, times in (await _lock(tx, names)).items()}, span_ms)


async def _lock(tx: Tx, names: Iterable[str]) -> dict[str, list[int]]:
    return await _tries(tx, "lock_tries", names)


async def _tries(tx: Tx, query: str, names: Iterable[str]) -> dict[str, list[int]]:
    given = {hashed(name): name for name in names}
    rows = await tx.run(query, names=[(hash_,) for hash_ in given])
    return {given[hash_]: msgspec.json.decode(times, type=list[int]) for hash_, times in rows}


async def _set(tx: Tx, tries: Mapping[str, list[int]], span_ms: int) -> None:
    rows = [
        (hashed(name), msgspec.json.encode(times).decode(), times[-1] + span_ms if times else 0)
        for name, times in tries.items()
    ]
    await tx.run("set_tries", tries=rows)
