"""Whether recipients were suppressed since their claim: asked for all that wait to go at once, now and then.

A look for each message would cost a sixth of all that a mail costs, where every one of them waits for a connection.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from heliograph.storage.outbox import Claim
from heliograph.storage.store import Store, StoreUnavailable
from heliograph.storage.suppressions import Listing

FRESH_S = 0.1  # how old the answer may be
AGAIN_S = 0.5  # after the store could not be reached


class Suppressed:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[int, tuple[Claim, float]] = {}  # by outbox key: who is still to go, and since when
        self._found: set[int] = set()
        self._looked = 0.0
        self._looking = asyncio.Lock()

    def enter(self, claim: Claim) -> None:
        self._found.discard(claim.key)  # by a look that ended after the try before
        self._waiting[claim.key] = (claim, asyncio.get_running_loop().time())

    def leave(self, claim: Claim) -> None:
        self._waiting.pop(claim.key, None)
        self._found.discard(claim.key)

    async def has(self, claim: Claim) -> bool:
        """Tell whether the address was suppressed since its claim, which told whether it was then.

        It goes then, however long that takes: nobody looks for it any longer, unless a carrier asks again.
        """
        if claim.key not in self._waiting:
            while await self._look([claim]) is None:
                pass
        elif self._is_old(claim):
            async with self._looking:
                while self._is_old(claim):  # whoever came during a look that failed is looked for by the next
                    self._looked = await self._look([claim for claim, _ in self._waiting.values()]) or self._looked
        self._waiting.pop(claim.key, None)
        return claim.key in self._found

    def _is_old(self, claim: Claim) -> bool:
        seen = max(self._waiting[claim.key][1], self._looked)
        return asyncio.get_running_loop().time() - seen > FRESH_S

    async def _look(self, claims: Sequence[Claim]) -> float | None:
        """Look who of them is on a list; returns when that was so, or None after a while if nobody could say."""
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
