"""Re-checks suppressions just before sending, with one query for all waiting recipients.

A query per message would cost a sixth of the total cost of a mail when every message waits for a connection.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from heliograph.storage.outbox import Claim
from heliograph.storage.store import Store, StoreUnavailable
from heliograph.storage.suppressions import Listing

FRESH_S = 0.1  # maximum age of a result
AGAIN_S = 0.5  # retry delay while the database is unavailable


class Suppressed:
    """Batched re-check of suppressions for the emails that this process is about to send."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # Outbox key → (claim still to be sent, time of its last known result)
        self._waiting: dict[int, tuple[Claim, float]] = {}
        self._found: set[int] = set()
        self._looked = 0.0
        self._looking = asyncio.Lock()

    def enter(self, claim: Claim) -> None:
        self._found.discard(claim.key)  # stale result of a check from the previous attempt
        self._waiting[claim.key] = (claim, asyncio.get_running_loop().time())

    def leave(self, claim: Claim) -> None:
        self._waiting.pop(claim.key, None)
        self._found.discard(claim.key)

    async def has(self, claim: Claim) -> bool:
        """Return whether the address was suppressed after the claim (the claim itself checked earlier suppressions).

        The claim then leaves the batch, however long sending takes; a carrier that checks again causes a query of its
        own.
        """
        if claim.key not in self._waiting:
            while await self._look([claim]) is None:
                pass
        elif self._is_old(claim):
            async with self._looking:
                while self._is_old(claim):  # claims that arrived during a failed query are part of the next query
                    self._looked = await self._look([claim for claim, _ in self._waiting.values()]) or self._looked
        self._waiting.pop(claim.key, None)
        return claim.key in self._found

    def _is_old(self, claim: Claim) -> bool:
        seen = max(self._waiting[claim.key][1], self._looked)
        return asyncio.get_running_loop().time() - seen > FRESH_S

    async def _look(self, claims: Sequence[Claim]) -> float | None:
        """Query which claims are suppressed; return the query's start time, or None after a delay if it failed."""
        places = defaultdict[Listing, list[int]](list)
        for claim in claims:
            places[Listing(claim.team, claim.address)].append(claim.key)
        began = asyncio.get_running_loop().time()
        try:
            for place in await self._store.suppressions.of(places):
                self._found.update(places[place])
        except StoreUnavailable:
            await asyncio.sleep(AGAIN_S)
            return None
        return began
