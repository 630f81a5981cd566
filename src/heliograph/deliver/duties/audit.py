"""Brings entries of the audit log that were written without its chain into it."""

from heliograph.deliver.duties.repeat import repeat
from heliograph.runtime.clock import Clock
from heliograph.storage.audit import PORTION
from heliograph.storage.store import Store

EVERY_S = 60.0  # for those of processes of the version before


async def link_audit(store: Store, clock: Clock) -> None:
    async def link() -> None:
        while await store.audit.link_older(clock.now()) == PORTION:
            continue

    await repeat(EVERY_S, link)
