"""Keeps this process's view of what all share fresh: the setup, the circuits, the reputations."""

import asyncio
from contextlib import suppress

from heliograph.storage.store import Store, StoreUnavailable

EVERY_S = 0.25


async def follow_others(store: Store) -> None:
    """While the database is away, what was seen last holds."""
    while True:
        await asyncio.sleep(EVERY_S)
        with suppress(StoreUnavailable):
            await store.refresh()
