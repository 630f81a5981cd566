"""Deletes contents and messages when their retention ends, a configured time after the message became final.

Each team configures both times. Webhook deliveries are deleted after 30 days. The ledger is kept, and so are messages
that are not final.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from heliograph.domain.delivery.retry import ABSENT_RETENTION_MS
from heliograph.domain.limits import CALLBACK_ID_RETENTION_MS, DAY_MS
from heliograph.domain.phones.text_parts import DUPLICATE_MS
from heliograph.domain.setup.records import KEEP_CONTENT_DAYS, KEEP_MESSAGES_DAYS, TeamRecord
from heliograph.inbound.store import inbound_texts
from heliograph.storage import imports, outcomes, requests, tags
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.purge import CONTENT_QUERIES, MESSAGE_QUERIES, purge_final
from heliograph.webhooks import store as deliveries

DELIVERIES_RETENTION_MS = 30 * DAY_MS  # applies to webhook deliveries, including those that wait for a disabled webhook
NOTICES_RETENTION_MS = 30 * DAY_MS
COUNTERS_RETENTION_MS = 8 * DAY_MS  # longer than the time window of any limit that uses these counters
RATES_RETENTION_MS = 90 * DAY_MS
STATS_RETENTION_MS = 400 * DAY_MS  # the overview shows a year
# Free pages of the SQLite file are returned to the disk if there are more than FREE_PAGES, and more than 1/FREE_SHARE
# of all pages. Otherwise they stay for new data.
FREE_PAGES, FREE_SHARE = 1000, 10
BATCH = 100  # rows per transaction; few, because other transactions wait for SQLite's single writer
# Query that deletes old rows → age in ms above which they are deleted
MAX_AGE_BY_QUERY = {
    "purge_idempotency": 0,
    "purge_marketing": DAY_MS,
    "purge_received_texts": inbound_texts.RETENTION_MS,
    "purge_split_texts": DUPLICATE_MS,
    "purge_last_senders": inbound_texts.RETENTION_MS,
    "purge_auto_replies": DAY_MS,
    "purge_early_reports": outcomes.EARLY_REPORT_MS,
    "purge_early_returns": outcomes.EARLY_BOUNCE_MS,
    "purge_callbacks_seen": CALLBACK_ID_RETENTION_MS,
    "purge_absent": ABSENT_RETENTION_MS,
    "purge_reputation": COUNTERS_RETENTION_MS,
    "purge_complaint_rates": RATES_RETENTION_MS,
    "purge_conversion": COUNTERS_RETENTION_MS,
    "purge_figures": STATS_RETENTION_MS,
    "purge_usage": DAY_MS,
    "purge_carrier_use": COUNTERS_RETENTION_MS,
    "purge_attempts": 0,
    "purge_notices": NOTICES_RETENTION_MS,
    "purge_happenings": NOTICES_RETENTION_MS,
}
# Rows that belong to no message: query that finds old rows → query that deletes them
PURGE_QUERY_BY_FIND_QUERY = {
    "old_verifications": "purge_verifications",
    "old_lone_events": "purge_lone_events",
    "old_batches": "purge_batches",
    "old_aggregate_reports": "purge_aggregate_reports",
    "old_dmarc_sources": "purge_dmarc_sources",
    "old_tls_results": "purge_tls_results",
}
DEFAULT_DAYS_BY_FIELD = {"keep_content_days": KEEP_CONTENT_DAYS, "keep_messages_days": KEEP_MESSAGES_DAYS}


async def purge(
    database: Database,
    now: int,
    teams: Collection[TeamRecord] = (),
    clock_offsets: Mapping[int, int] = MappingProxyType({}),
) -> None:
    """Delete expired data, in batches. Teams not in `teams` have the default retention.

    `clock_offsets`: team → offset of its test clock in ms.
    """
    for query, age in MAX_AGE_BY_QUERY.items():
        while len(await database.write(partial(_run_query, query=query, before=now - age, limit=BATCH))) == BATCH:
            continue
    contents = _cutoffs(teams, "keep_content_days", now, clock_offsets)
    messages = _cutoffs(teams, "keep_messages_days", now, clock_offsets)
    await _purge_in_batches(
        database, "ended_messages", contents | {"has_body": 1}, partial(purge_final, queries=CONTENT_QUERIES)
    )
    await _purge_in_batches(
        database, "old_received", contents | {"has_body": 1}, partial(_purge_rows, query="purge_received_bodies")
    )
    for find_query, query in PURGE_QUERY_BY_FIND_QUERY.items():
        await _purge_in_batches(database, find_query, messages, partial(_purge_rows, query=query))
    # No team keeps contents longer than messages, so the messages deleted now have no content left.
    await _purge_in_batches(
        database, "ended_messages", messages | {"has_body": 0}, partial(purge_final, queries=MESSAGE_QUERIES)
    )
    await _purge_in_batches(
        database, "old_received", messages | {"has_body": 0}, partial(_purge_rows, query="purge_received")
    )
    for purge_batch in (
        partial(deliveries.purge_batch, before=now - DELIVERIES_RETENTION_MS),
        partial(requests.purge, now=now),
        partial(imports.purge, now=now),
    ):
        while await database.write(purge_batch):
            continue
    await _return_free_pages(database)


async def _return_free_pages(database: Database) -> None:
    """Return free pages of the SQLite file to the disk.

    This has no effect on a file that was created before auto_vacuum was enabled, until it is vacuumed once.
    """
    before = None
    while (free := await database.read(_excess_free_pages)) and (before is None or free < before):
        before = free
        await database.write(partial(_run_query, query="free_pages"))


async def _excess_free_pages(tx: Tx) -> int:
    """Return the number of free pages if it is worth returning them to the disk, else 0."""
    ((pages, free),) = await tx.run("page_counts")
    return int(free) if free > max(FREE_PAGES, pages // FREE_SHARE) else 0


async def _purge_in_batches(
    database: Database, find_query: str, params: dict[str, Any], purge_rows: "partial[Any]"
) -> None:
    """Find rows in a read transaction and delete them in a write transaction, batch by batch."""
    rows: Sequence[Any] = [()] * BATCH
    while len(rows) == BATCH:
        rows = [tuple(row) for row in await database.read(partial(_run_query, query=find_query, **params))]
        if rows:
            await database.write(partial(purge_rows, rows=rows))


async def _run_query(tx: Tx, query: str, **params: Any) -> list[Any]:
    return await tx.run(query, **params)


async def _purge_rows(tx: Tx, rows: Sequence[Any], query: str) -> None:
    if query == PURGE_QUERY_BY_FIND_QUERY["old_verifications"]:
        await tags.delete_for_records(tx, await tx.run("options_of_verifications", old=rows))
    await tx.run(query, old=rows)


def _cutoffs(teams: Collection[TeamRecord], field: str, now: int, clock_offsets: Mapping[int, int]) -> dict[str, Any]:
    """Return the cutoffs of a purge: the default, and one per team that has another retention or a test clock."""
    default = DEFAULT_DAYS_BY_FIELD[field]
    team_cutoffs = [
        (team.ref, now + clock_offsets.get(team.ref, 0) - getattr(team, field) * DAY_MS)
        for team in teams
        if getattr(team, field) != default or team.ref in clock_offsets
    ]
    return {"own": team_cutoffs, "before": now - default * DAY_MS, "limit": BATCH}


async def find_unused_files(tx: Tx, hashes: list[str]) -> list[str]:
    """Return the attachment files that neither a message nor an inbound email refers to."""
    hash_rows = [(hash_,) for hash_ in hashes]
    used_hashes = {
        row[0] for query in ("blobs_in_use", "blobs_of_inbound_mail") for row in await tx.run(query, hashes=hash_rows)
    }
    return [hash_ for hash_ in hashes if hash_ not in used_hashes]
