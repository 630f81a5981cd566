"""Whether recipients in work were suppressed since their claim: asked for all of them at once, now and then.

A look for each message would cost a sixth of all that a mail costs, where every one of them waits for a connection.
"""

import asyncio
from collections import defaultdict

from heliograph.storage.outbox import Claim
from heliograph.storage.store import Store, StoreUnavailable
from heliograph.storage.suppressions import Listing

FRESH_S = 0.1  # how old the answer may be
AGAIN_S = 0.5  # after the store could not be reached


class Suppressed:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._since: dict[int, tuple[Claim, float]] = {}  # by outbox key: the recipients in work, and since when
        self._found: set[int] = set()
        self._looked = 0.0
        self._looking = asyncio.Lock()

    def enter(self, claim: Claim) -> None:
        self._since[claim.key] = (claim, asyncio.get_running_loop().time())

    def leave(self, claim: Claim) -> None:
        self._since.pop(claim.key, None)
        self._found.discard(claim.key)

    async def has(self, claim: Claim) -> bool:
        """Tell whether the address was suppressed since its claim, which told whether it was then."""
        if self._is_old(claim):
            async with self._looking:
                while self._is_old(claim):
                    await self._look()
        return claim.key in self._found

    def _is_old(self, claim: Claim) -> bool:
        seen = max(self._since[claim.key][1], self._looked)
        return asyncio.get_running_loop().time() - seen > FRESH_S

    async def _look(self) -> None:
        began, places = asyncio.get_running_loop().time(), defaultdict[Listing, list[int]](list)
        for claim, _ in self._since.values():
            places[Listing(claim.team, claim.address)].append(claim.key)
        try:
            for place in await self._store.suppressions.of(places):
                self._found.update(places[place])
            self._looked = began
        except StoreUnavailable:
            await asyncio.sleep(AGAIN_S)
