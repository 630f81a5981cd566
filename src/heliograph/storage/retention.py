"""Retention (reliability, choices): each team's content and messages go as long after the end as the team says.

Webhook deliveries go after 30 days. The ledger stays, and so does whatever has not ended.
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

DELIVERIES_KEPT_MS = 30 * DAY_MS  # also those that wait for a webhook to be enabled again
NOTICES_KEPT_MS = 30 * DAY_MS
COUNTS_KEPT_MS = 8 * DAY_MS  # longer than any window
FIGURES_KEPT_MS = 400 * DAY_MS  # the overview shows a year
# Free pages of SQLite's file are given back beyond so many, and beyond this share of all: what comes uses the rest.
FREE_PAGES, FREE_SHARE = 1000, 10
PORTION = 100  # in one transaction: SQLite has one writer, and nobody should wait long for it
# What is deleted by age alone, and at which age.
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
    """Delete what has expired, in portions. A team that is not given keeps the defaults.

    `moved`: teams whose clock is ahead, and by how much.
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
    # No team keeps contents longer than messages: what goes now has none any more.
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
    """Give free pages back to the disk; a file of before auto_vacuum cannot until it is vacuumed once."""
    before = None
    while (free := await database.read(_much_free)) and (before is None or free < before):
        before = free
        await database.write(partial(_run, query="free_pages"))


async def _much_free(tx: Tx) -> int:
    """Return how many pages are free, when it is worth giving some back; else 0."""
    ((pages, free),) = await tx.run("space")
    return int(free) if free > max(FREE_PAGES, pages // FREE_SHARE) else 0


async def _put_away(database: Database, find: str, given: dict[str, Any], drop: "partial[Any]") -> None:
    """Let a writer drop what a reader finds, portion by portion."""
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
    """Say what is over for teams with the usual retention, and for each with another one or a clock of its own."""
    default = DEFAULTS[field]
    own = [
        (t.ref, now + moved.get(t.ref, 0) - getattr(t, field) * DAY_MS)
        for t in teams
        if getattr(t, field) != default or t.ref in moved
    ]
    return {"own": own, "before": now - default * DAY_MS, "limit": PORTION}


async def unused(tx: Tx, hashes: list[str]) -> list[str]:
    """Return those of these attachment files that no message needs, nor a mail that came in."""
    given = [(hash_,) for hash_ in hashes]
    used = {row[0] for query in ("blobs_in_use", "blobs_received") for row in await tx.run(query, hashes=given)}
    return [hash_ for hash_ in hashes if hash_ not in used]
