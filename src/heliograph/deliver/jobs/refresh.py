"""Refreshes this process's copy of shared state: setup, circuits and reputations."""

from contextlib import suppress

from heliograph.domain.delivery.lanes import SETUP
from heliograph.storage.store import Store, StoreUnavailable

REFRESH_INTERVAL_S = 0.25  # longest time between two refreshes


async def refresh_shared_state(store: Store) -> None:
    """Refresh until cancelled. While the database is unavailable, the last known state is used."""
    while True:
        await store.wakeups.by_kind[SETUP].wait(REFRESH_INTERVAL_S)
        with suppress(StoreUnavailable):
            await store.refresh()
