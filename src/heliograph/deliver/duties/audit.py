"""Brings entries of the audit log that were written without its chain into it."""

from heliograph.runtime.clock import Clock
from heliograph.storage.audit import PORTION
from heliograph.storage.store import Store


async def link_audit(store: Store, clock: Clock) -> None:
    while await store.audit.link_older(clock.now()) == PORTION:
        continue
