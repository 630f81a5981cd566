"""Deletes what is older than its team keeps it, and closes what has expired."""

from heliograph.deliver.duties.repeat import repeat
from heliograph.storage.store import Store

EVERY_S = 60.0


async def purge_expired(store: Store) -> None:
    await repeat(EVERY_S, store.upkeep.purge)
