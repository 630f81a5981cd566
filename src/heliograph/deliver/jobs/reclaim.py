"""Releases the claims of dead processes, and quarantines messages that repeatedly killed their worker."""

import structlog

from heliograph.storage.store import Store

log = structlog.get_logger()


async def reclaim_dead_claims(store: Store) -> None:
    if count := await store.outbox.reclaim_abandoned():
        log.error("messages quarantined: their workers crashed repeatedly", count=count)
