"""Re-checks suppressions just before sending, with one query for all waiting recipients.

A query per message would cost a sixth of the total cost of a mail when every message waits for a connection.
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
    """Batched re-check of suppressions for the emails that this process is about to send."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # Outbox key → (claim still to be sent, time of its last known result)
        self._pending: dict[int, tuple[Claim, float]] = {}
        self._suppressed_keys: set[int] = set()
        self._queried_at = 0.0
        self._query_lock = asyncio.Lock()

    def add(self, claim: Claim) -> None:
        self._suppressed_keys.discard(claim.key)  # stale result of a check from the previous attempt
        self._pending[claim.key] = (claim, asyncio.get_running_loop().time())

    def remove(self, claim: Claim) -> None:
        self._pending.pop(claim.key, None)
        self._suppressed_keys.discard(claim.key)

    async def is_suppressed(self, claim: Claim) -> bool:
        """Return whether the address was suppressed after the claim (the claim itself checked earlier suppressions).

        The claim then leaves the batch, however long sending takes; a carrier that checks again causes a query of its
        own.
        """
        if claim.key not in self._pending:
            while await self._query([claim]) is None:
                pass
        elif self._is_stale(claim):
            async with self._query_lock:
                while self._is_stale(claim):  # claims that arrived during a failed query are part of the next query
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
