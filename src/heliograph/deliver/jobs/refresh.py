"""Refreshes this process's copy of shared state: setup, circuits and reputations."""

from contextlib import suppress

from heliograph.domain.delivery.lanes import SETUP
from heliograph.storage.store import Store, StoreUnavailable

EVERY_S = 0.25  # longest time between two refreshes


async def follow_others(store: Store) -> None:
    """Refresh until cancelled; while the database is unavailable, the last known state applies."""
    while True:
        await store.hints.bells[SETUP].wait(EVERY_S)
        with suppress(StoreUnavailable):
            await store.refresh()
