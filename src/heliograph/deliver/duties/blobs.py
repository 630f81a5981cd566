"""Deletes the files of attachments that no message has any more."""

from heliograph.deliver.duties.repeat import repeat
from heliograph.storage.store import Store

EVERY_S = 3600.0


async def sweep_blobs(store: Store) -> None:
    await repeat(EVERY_S, store.attachments.sweep)
