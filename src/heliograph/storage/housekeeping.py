"""Retention (reliability, choices): each team's content and messages go as long after the end as the team says.

Webhook deliveries go after 30 days. The ledger stays, and so does whatever has not ended.
"""

from collections.abc import Collection
from typing import Any

from heliograph.rules.limits import DAY_MS
from heliograph.rules.team import KEEP_CONTENT_DAYS, KEEP_MESSAGES_DAYS, TeamRecord
from heliograph.storage import deliveries, imports, outcomes, requests, throttle
from heliograph.storage.database import Tx

DELIVERIES_KEPT_MS = 30 * DAY_MS  # also those that wait for a webhook to be enabled again
COUNTS_KEPT_MS = 8 * DAY_MS  # longer than any window
FIGURES_KEPT_MS = 400 * DAY_MS  # the overview shows a year
PORTION = 500  # messages in one transaction
LONE = (
    ("old_verifications", "purge_verifications"),
    ("old_lone_events", "purge_lone_events"),
    ("old_inbox_codes", "purge_inbox_codes"),
)
DEFAULTS = {"keep_content_days": KEEP_CONTENT_DAYS, "keep_messages_days": KEEP_MESSAGES_DAYS}


async def purge(tx: Tx, now: int, teams: Collection[TeamRecord] = ()) -> bool:
    """Put away one portion; answers whether there may be more. A team that is not given keeps the defaults."""
    contents, messages = _kept(teams, "keep_content_days", now), _kept(teams, "keep_messages_days", now)
    await tx.run("purge_idempotency", now=now)
    await tx.run("purge_marketing", before=now - DAY_MS)
    await tx.run("purge_early_reports", before=now - outcomes.EARLY_MS)
    await tx.run("purge_reputation", before=now - COUNTS_KEPT_MS)
    await tx.run("purge_conversion", before=now - COUNTS_KEPT_MS)
    await tx.run("purge_figures", before=now - FIGURES_KEPT_MS)
    await tx.run("purge_spent", before=now - DAY_MS)
    await tx.run("purge_carrier_use", before=now - COUNTS_KEPT_MS)
    bodies = [tuple(r) for r in await tx.run("ended_with_body", **contents)]
    if bodies:
        for query in ("purge_contents", "purge_blobs", "mark_bodiless"):
            await tx.run(query, messages=bodies)
    lone = []
    for find, query in LONE:
        rows = [tuple(r) for r in await tx.run(find, **messages)]
        lone.append(len(rows))
        if rows:
            await tx.run(query, old=rows)
    old = [tuple(r) for r in await tx.run("ended_messages", **messages)]
    if old:
        for query in ("purge_events", "purge_parts", "purge_seen", "purge_recipients", "purge_messages"):
            await tx.run(query, messages=old)
    await throttle.purge(tx, now)
    more = [
        await deliveries.purge(tx, now - DELIVERIES_KEPT_MS),
        await requests.purge(tx, now),
        await imports.purge(tx, now),
    ]
    return any(more) or PORTION in (len(bodies), len(old), *lone)


def _kept(teams: Collection[TeamRecord], field: str, now: int) -> dict[str, Any]:
    """What is over for teams that keep it as long as most do, and for each that does not."""
    default = DEFAULTS[field]
    own = [(t.ref, now - getattr(t, field) * DAY_MS) for t in teams if getattr(t, field) != default]
    return {"own": own, "before": now - default * DAY_MS, "limit": PORTION}


async def unused(tx: Tx, hashes: list[str]) -> list[str]:
    """Of these attachment files, those that no message needs."""
    used = {row[0] for row in await tx.run("blobs_in_use", hashes=[(hash_,) for hash_ in hashes])}
    return [hash_ for hash_ in hashes if hash_ not in used]
