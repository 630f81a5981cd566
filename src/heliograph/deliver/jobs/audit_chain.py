"""Links unchained audit entries into the hash chain, and writes the chain's last link to the log."""

import structlog

from heliograph.deliver.jobs.periodic import Round
from heliograph.runtime.clock import Clock
from heliograph.storage.audit import PORTION
from heliograph.storage.store import Store

log = structlog.get_logger()


async def link_audit(store: Store, clock: Clock) -> None:
    while await store.audit.link_older(clock.now()) == PORTION:
        continue


def telling(store: Store) -> Round:
    """Return a job that logs each new last link once: an external copy of the log reveals a rewritten chain."""
    told = ""

    async def tell() -> None:
        nonlocal told
        end = await store.audit.end()
        if end and end.link != told:
            log.info("end of the audit log", place=end.place, link=end.link)
            told = end.link

    return tell
