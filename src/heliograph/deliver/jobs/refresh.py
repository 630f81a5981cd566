"""Keeps this process's view of what all share fresh: the setup, the circuits, the reputations."""

from contextlib import suppress

from heliograph.domain.delivery.lanes import SETUP
from heliograph.storage.store import Store, StoreUnavailable

EVERY_S = 0.25  # at the latest


async def follow_others(store: Store) -> None:
    """Follow what others change; while the database is away, what was seen last holds."""
    while True:
        await store.hints.bells[SETUP].wait(EVERY_S)
        with suppress(StoreUnavailable):
            await store.refresh()
