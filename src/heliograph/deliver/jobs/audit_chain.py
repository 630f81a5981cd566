"""Links new audit entries into the hash chain, and writes the chain's last link to the log."""

import structlog

from heliograph.deliver.jobs.periodic import Job
from heliograph.runtime.clock import Clock
from heliograph.storage.audit import LINK_BATCH
from heliograph.storage.store import Store

log = structlog.get_logger()


async def link_audit_entries(store: Store, clock: Clock) -> None:
    while await store.audit.link_older(clock.now()) == LINK_BATCH:
        continue


def chain_head_logger(store: Store) -> Job:
    """Return a job that logs the chain's last link after each change: a copy of the log reveals a rewritten chain."""
    logged_link = ""

    async def log_head() -> None:
        nonlocal logged_link
        head = await store.audit.head()
        if head and head.link != logged_link:
            log.info("end of the audit log", position=head.position, hash=head.link)
            logged_link = head.link

    return log_head
