"""Sliding-window limit of attempts per name, shared by all processes and stored across restarts. Names are hashed."""

from collections.abc import Iterable, Mapping

import msgspec

from heliograph.domain.limits import MINUTE_MS
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.people import hash_token

WINDOW_MS = 15 * MINUTE_MS  # how long an attempt counts


class AttemptLimiter:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def record_attempt(self, limits: Mapping[str, int], now: int) -> int:
        """Record an attempt before it is checked, so that concurrent attempts count.

        `limits` maps each name to its maximum number of attempts within WINDOW_MS. Returns 0, or the ms to wait if a
        limit is reached.
        """
        attempts = await self._database.read(lambda tx: _read_attempts(tx, "find_attempts", limits))
        if wait_ms := _wait_ms(attempts, limits, now):  # rejected without a write
            return wait_ms
        return await self._database.write(lambda tx: _record_attempt(tx, limits, now))

    async def remove_last_attempt(self, names: Iterable[str]) -> None:
        """Remove the last attempt of each name, so that it does not count."""

        async def remove_last(tx: Tx) -> None:
            attempts = await _read_attempts(tx, "lock_attempts", names)
            await _save_attempts(tx, {name: times[:-1] for name, times in attempts.items()})

        await self._database.write(remove_last)


async def _record_attempt(tx: Tx, limits: Mapping[str, int], now: int) -> int:
    attempts = await _read_attempts(tx, "lock_attempts", limits)
    wait_ms = _wait_ms(attempts, limits, now)
    if not wait_ms:
        recent = {name: [at for at in times if at + WINDOW_MS > now] for name, times in attempts.items()}
        await _save_attempts(tx, {name: [*times, now] for name, times in recent.items()})
    return wait_ms


def _wait_ms(attempts: Mapping[str, list[int]], limits: Mapping[str, int], now: int) -> int:
    """Return the ms until every name has fewer attempts within WINDOW_MS than its limit; 0 if an attempt is allowed."""
    oldest_counted = [attempts[name][-limit] for name, limit in limits.items() if len(attempts.get(name, ())) >= limit]
    return max([at + WINDOW_MS - now for at in oldest_counted if at + WINDOW_MS > now], default=0)


async def _read_attempts(tx: Tx, query: str, names: Iterable[str]) -> dict[str, list[int]]:
    name_by_hash = {hash_token(name): name for name in names}
    rows = await tx.run(query, names=[(hash_,) for hash_ in name_by_hash])
    return {name_by_hash[hash_]: msgspec.json.decode(times, type=list[int]) for hash_, times in rows}


async def _save_attempts(tx: Tx, attempts: Mapping[str, list[int]]) -> None:
    rows = [
        (hash_token(name), msgspec.json.encode(times).decode(), times[-1] + WINDOW_MS if times else 0)
        for name, times in attempts.items()
    ]
    await tx.run("save_attempts", tries=rows)
