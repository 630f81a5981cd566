"""Checks suppressions again just before sending, with one query for all emails about to be sent.

A query for each email would add about a sixth to the cost of sending it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from heliograph.storage.outbox import Claim
from heliograph.storage.store import Store, StoreUnavailable
from heliograph.storage.suppressions import TeamAddress

RESULT_MAX_AGE_S = 0.1  # maximum age of a result
DATABASE_RETRY_S = 0.5  # retry delay while the database is unavailable


class SuppressionRecheck:
    """Checks suppressions again for all emails that this process is about to send."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # outbox key → (claim about to be sent, time when it was last checked)
        self._pending: dict[int, tuple[Claim, float]] = {}
        self._suppressed_keys: set[int] = set()
        self._queried_at = 0.0
        self._query_lock = asyncio.Lock()

    def add(self, claim: Claim) -> None:
        self._suppressed_keys.discard(claim.key)  # result for an earlier attempt
        self._pending[claim.key] = (claim, asyncio.get_running_loop().time())

    def remove(self, claim: Claim) -> None:
        self._pending.pop(claim.key, None)
        self._suppressed_keys.discard(claim.key)

    async def is_suppressed(self, claim: Claim) -> bool:
        """Return whether the address was suppressed after the claim; the claim itself excluded suppressed addresses.

        The claim then leaves the common query; a second call for the same claim runs a query of its own.
        """
        if claim.key not in self._pending:
            while await self._query([claim]) is None:
                pass
        elif self._is_stale(claim):
            async with self._query_lock:
                while self._is_stale(claim):  # a failed query may have been repeated with this claim in the meantime
                    self._queried_at = (
                        await self._query([claim for claim, _ in self._pending.values()]) or self._queried_at
                    )
        self._pending.pop(claim.key, None)
        return claim.key in self._suppressed_keys

    def _is_stale(self, claim: Claim) -> bool:
        known_at = max(self._pending[claim.key][1], self._queried_at)
        return asyncio.get_running_loop().time() - known_at > RESULT_MAX_AGE_S

    async def _query(self, claims: Sequence[Claim]) -> float | None:
        """Query which claims are suppressed; return the query's start time, or None after a delay if it failed."""
        keys_by_listing = defaultdict[TeamAddress, list[int]](list)
        for claim in claims:
            keys_by_listing[TeamAddress(claim.team, claim.address)].append(claim.key)
        started_at = asyncio.get_running_loop().time()
        try:
            for listing in await self._store.suppressions.find_suppressed(keys_by_listing):
                self._suppressed_keys.update(keys_by_listing[listing])
        except StoreUnavailable:
            await asyncio.sleep(DATABASE_RETRY_S)
            return None
        return started_at
