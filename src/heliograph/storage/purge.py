"""Deletes final messages before their retention ends, and all messages of a team."""

from collections.abc import Sequence
from typing import Any

from heliograph.domain.setup.records import Team
from heliograph.storage import contents, tags
from heliograph.storage.engine.database import Tx
from heliograph.storage.events import CALLBACK_SUFFIX
from heliograph.storage.search import index

BATCH = 500  # messages per statement
CONTENT_QUERIES = ("purge_blobs", "mark_content_deleted")
MESSAGE_QUERIES = (
    *("purge_events", "purge_parts", "purge_delays", "purge_recipient_index", "purge_inbox_marks", "purge_callbacks"),
    *("purge_approvals", "purge_recipients", "purge_messages"),
)
# Queries that delete other data of a team, by its number
TEAM_QUERIES = (
    *("delete_orphan_outbox", "delete_lone_events", "delete_verifications", "delete_empty_batches"),
    *("delete_received", "delete_marketing", "delete_conversion", "delete_auto_replies", "reset_account_counters"),
)


async def purge_early(tx: Tx, message: int, *, whole_message: bool) -> bool:
    """Delete the content of one message, or the whole message; return False if the message is not final."""
    if not await tx.run("lock_ended", messages=[(message,)]):
        return False
    for queries in (CONTENT_QUERIES, MESSAGE_QUERIES) if whole_message else (CONTENT_QUERIES,):
        await purge_final(tx, [(message,)], queries)
    return True


async def purge_final(tx: Tx, rows: Sequence[Any], queries: Sequence[str]) -> None:
    """Delete the contents (CONTENT_QUERIES) of the final messages among `rows`, or the messages (MESSAGE_QUERIES)."""
    if queries is MESSAGE_QUERIES:
        await tx.run("lock_grams")
        await tx.run("save_last_message_key")
    final_messages = [tuple(row) for row in await tx.run("lock_ended", messages=rows)]
    if queries is MESSAGE_QUERIES:
        await tags.delete_for_messages(tx, final_messages)
    else:
        await contents.delete_contents(tx, final_messages)
    for query in queries:
        await tx.run(query, messages=final_messages)
    if queries is MESSAGE_QUERIES:
        await index.count_deleted(tx, [key for (key,) in final_messages])


async def delete_team_data(tx: Tx, team: Team) -> None:
    """Delete a team's messages, inbound messages, verifications and events, final or not.

    The team's setup, suppression list and opt-outs stay, and so do messages accepted in live mode that are still to be
    sent, with their credit holds.
    """
    ref = team.record.ref
    messages = [tuple(row) for row in await tx.run("end_messages", team=ref)]
    for start in range(0, len(messages), BATCH):
        for queries in (CONTENT_QUERIES, MESSAGE_QUERIES):
            await purge_final(tx, messages[start : start + BATCH], queries)
    await tags.delete_for_records(tx, await tx.run("options_of_team", team=ref))
    for query in TEAM_QUERIES:
        await tx.run(query, team=ref)
    await tx.run("delete_orphan_idempotency", team=team.record.id, ref=ref)
    webhooks = [(webhook_id,) for webhook in team.webhooks for webhook_id in (webhook.id, webhook.id + CALLBACK_SUFFIX)]
    for query in ("delete_attempts_of_webhooks", "delete_deliveries_of_webhooks"):
        await tx.run(query, webhooks=webhooks)
    for webhook in team.webhooks:
        await tx.run("clear_endpoint_failure", webhook=webhook.id)
