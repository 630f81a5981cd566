"""Frees the claims of dead processes, and puts aside what they died of."""

import structlog

from heliograph.deliver.duties.repeat import repeat
from heliograph.storage.store import Store

EVERY_S = 5.0

log = structlog.get_logger()


async def reclaim_dead(store: Store) -> None:
    async def reclaim() -> None:
        if count := await store.outbox.reclaim():
            log.error("messages quarantined: their workers died with them", count=count)

    await repeat(EVERY_S, reclaim)
