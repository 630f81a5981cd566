"""Retention (reliability, choices): deletes contents and messages a configured time after they became final.

Each team configures both times. Webhook deliveries are deleted after 30 days. The ledger is kept, and so are messages
that are not final.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from heliograph.domain.delivery.retry import ABSENT_KEPT_MS
from heliograph.domain.limits import CALLBACK_ID_KEPT_MS, DAY_MS
from heliograph.domain.phones.text_parts import REPEAT_MS
from heliograph.domain.setup.records import KEEP_CONTENT_DAYS, KEEP_MESSAGES_DAYS, TeamRecord
from heliograph.inbound.store import inbound_texts
from heliograph.storage import imports, outcomes, requests, tags
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.purge import BODY, WHOLE, purge_ended
from heliograph.webhooks import store as deliveries

DELIVERIES_KEPT_MS = 30 * DAY_MS  # also deliveries that wait for a disabled webhook
NOTICES_KEPT_MS = 30 * DAY_MS
COUNTS_KEPT_MS = 8 * DAY_MS  # longer than any window
FIGURES_KEPT_MS = 400 * DAY_MS  # the overview shows a year
# Free pages of the SQLite file are returned to the disk above this number and above 1/FREE_SHARE of all pages; new data
# uses the rest.
FREE_PAGES, FREE_SHARE = 1000, 10
PORTION = 100  # rows per transaction: SQLite has one writer, which other transactions must not wait long for
# Deletion queries that depend on age only, and the age in ms.
AGES = {
    "purge_idempotency": 0,
    "purge_marketing": DAY_MS,
    "purge_received_texts": inbound_texts.KEPT_MS,
    "purge_split_texts": REPEAT_MS,
    "purge_writers": inbound_texts.KEPT_MS,
    "purge_answers": DAY_MS,
    "purge_early_reports": outcomes.EARLY_MS,
    "purge_early_returns": outcomes.EARLY_RETURN_MS,
    "purge_callbacks_seen": CALLBACK_ID_KEPT_MS,
    "purge_absent": ABSENT_KEPT_MS,
    "purge_reputation": COUNTS_KEPT_MS,
    "purge_conversion": COUNTS_KEPT_MS,
    "purge_figures": FIGURES_KEPT_MS,
    "purge_spent": DAY_MS,
    "purge_carrier_use": COUNTS_KEPT_MS,
    "purge_tries": 0,
    "purge_notices": NOTICES_KEPT_MS,
    "purge_happenings": NOTICES_KEPT_MS,
}
LONE = {
    "old_verifications": "purge_verifications",
    "old_lone_events": "purge_lone_events",
    "old_batches": "purge_batches",
}
DEFAULTS = {"keep_content_days": KEEP_CONTENT_DAYS, "keep_messages_days": KEEP_MESSAGES_DAYS}


async def purge(
    database: Database, now: int, teams: Collection[TeamRecord] = (), moved: Mapping[int, int] = MappingProxyType({})
) -> None:
    """Delete expired data, in batches. Teams not in `teams` have the default retention.

    `moved`: test-clock offset of teams in ms.
    """
    for query, age in AGES.items():
        while len(await database.write(partial(_run, query=query, before=now - age, limit=PORTION))) == PORTION:
            continue
    contents, messages = (_kept(teams, field, now, moved) for field in ("keep_content_days", "keep_messages_days"))
    await _put_away(database, "ended_messages", contents | {"has_body": 1}, partial(purge_ended, queries=BODY))
    await _put_away(
        database, "old_received", contents | {"has_body": 1}, partial(_purge_lone, query="purge_received_bodies")
    )
    for find, query in LONE.items():
        await _put_away(database, find, messages, partial(_purge_lone, query=query))
    # No team keeps contents longer than messages, so the messages deleted now have no content left.
    await _put_away(database, "ended_messages", messages | {"has_body": 0}, partial(purge_ended, queries=WHOLE))
    await _put_away(database, "old_received", messages | {"has_body": 0}, partial(_purge_lone, query="purge_received"))
    for portion in (
        partial(deliveries.purge, before=now - DELIVERIES_KEPT_MS),
        partial(requests.purge, now=now),
        partial(imports.purge, now=now),
    ):
        while await database.write(portion):
            continue
    await _give_back(database)


async def _give_back(database: Database) -> None:
    """Return free pages to the disk.

    A file created before auto_vacuum was enabled has to be vacuumed once first.
    """
    before = None
    while (free := await database.read(_much_free)) and (before is None or free < before):
        before = free
        await database.write(partial(_run, query="free_pages"))


async def _much_free(tx: Tx) -> int:
    """Return the number of free pages if returning them is worthwhile, else 0."""
    ((pages, free),) = await tx.run("space")
    return int(free) if free > max(FREE_PAGES, pages // FREE_SHARE) else 0


async def _put_away(database: Database, find: str, given: dict[str, Any], drop: "partial[Any]") -> None:
    """Find rows in a read transaction and delete them in a write transaction, batch by batch."""
    rows: Sequence[Any] = [()] * PORTION
    while len(rows) == PORTION:
        rows = [tuple(row) for row in await database.read(partial(_run, query=find, **given))]
        if rows:
            await database.write(partial(drop, rows=rows))


async def _run(tx: Tx, query: str, **given: Any) -> list[Any]:
    return await tx.run(query, **given)


async def _purge_lone(tx: Tx, rows: Sequence[Any], query: str) -> None:
    if query == LONE["old_verifications"]:
        await tags.delete(tx, await tx.run("verifications_added", old=rows))
    await tx.run(query, old=rows)


def _kept(teams: Collection[TeamRecord], field: str, now: int, moved: Mapping[int, int]) -> dict[str, Any]:
    """Return the cutoffs for a query: the default, and one per team with another retention or a test clock."""
    default = DEFAULTS[field]
    own = [
        (t.ref, now + moved.get(t.ref, 0) - getattr(t, field) * DAY_MS)
        for t in teams
        if getattr(t, field) != default or t.ref in moved
    ]
    return {"own": own, "before": now - default * DAY_MS, "limit": PORTION}


async def unused(tx: Tx, hashes: list[str]) -> list[str]:
    """Return the attachment files that neither a message nor an inbound email refers to."""
    given = [(hash_,) for hash_ in hashes]
    used = {row[0] for query in ("blobs_in_use", "blobs_received") for row in await tx.run(query, hashes=given)}
    return [hash_ for hash_ in hashes if hash_ not in used]
