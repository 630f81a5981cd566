"""Retention (reliability, choices): bodies go 7 days after the end, deliveries after 30, the rest after 90.

The ledger stays.
"""

from heliograph.rules.limits import DAY_MS
from heliograph.storage import deliveries, outcomes
from heliograph.storage.database import Tx

BODY_KEPT_MS = 7 * DAY_MS
DELIVERIES_KEPT_MS = 30 * DAY_MS  # also those that wait for a webhook to be enabled again
KEPT_MS = 90 * DAY_MS
COUNTS_KEPT_MS = 8 * DAY_MS  # longer than any window
FIGURES_KEPT_MS = 400 * DAY_MS  # the overview shows a year
PORTION = 500  # messages in one transaction


async def purge(tx: Tx, now: int) -> bool:
    """Put away one portion; answers whether there may be more."""
    await tx.run("purge_idempotency", now=now)
    await tx.run("purge_marketing", before=now - DAY_MS)
    await tx.run("purge_early_reports", before=now - outcomes.EARLY_MS)
    await tx.run("purge_reputation", before=now - COUNTS_KEPT_MS)
    await tx.run("purge_conversion", before=now - COUNTS_KEPT_MS)
    await tx.run("purge_inbox_codes", before=now - KEPT_MS)
    await tx.run("purge_figures", before=now - FIGURES_KEPT_MS)
    bodies = [tuple(r) for r in await tx.run("ended_with_body", before=now - BODY_KEPT_MS, limit=PORTION)]
    if bodies:
        for query in ("purge_contents", "purge_blobs", "mark_bodiless"):
            await tx.run(query, messages=bodies)
    for query in ("purge_verifications", "purge_lone_events"):
        await tx.run(query, before=now - KEPT_MS, limit=PORTION)
    old = [tuple(r) for r in await tx.run("ended_messages", before=now - KEPT_MS, limit=PORTION)]
    if old:
        for query in ("purge_events", "purge_parts", "purge_seen", "purge_recipients", "purge_messages"):
            await tx.run(query, messages=old)
    more = await deliveries.purge(tx, now - DELIVERIES_KEPT_MS)
    return more or PORTION in (len(bodies), len(old))


async def unused(tx: Tx, hashes: list[str]) -> list[str]:
    """Of these attachment files, those that no message needs."""
    used = {row[0] for row in await tx.run("blobs_in_use", hashes=[(hash_,) for hash_ in hashes])}
    return [hash_ for hash_ in hashes if hash_ not in used]
