"""Deletes final messages before their retention ends, and all messages of a team."""

from collections.abc import Sequence
from typing import Any

from heliograph.domain.setup.records import Team
from heliograph.storage import contents, tags
from heliograph.storage.engine.database import Tx
from heliograph.storage.events import OWN
from heliograph.storage.search import index

PORTION = 500  # messages per statement
BODY = ("purge_blobs", "mark_bodiless")
WHOLE = (
    *("purge_events", "purge_parts", "purge_delays", "purge_seen", "purge_inbox_marks", "purge_callbacks"),
    *("purge_recipients", "purge_messages"),
)
# Other data of a team, keyed by its number.
OF_TEAM = (
    *("forget_work", "forget_events", "forget_verifications", "forget_batches"),
    *("forget_received", "forget_marketing", "forget_conversion", "forget_answers", "forget_counts"),
)


async def put_away(tx: Tx, message: int, *, whole: bool) -> bool:
    """Delete the content of one message, or the whole message; return False if the message is not final."""
    if not await tx.run("lock_ended", messages=[(message,)]):
        return False
    for queries in (BODY, WHOLE) if whole else (BODY,):
        await purge_ended(tx, [(message,)], queries)
    return True


async def purge_ended(tx: Tx, rows: Sequence[Any], queries: Sequence[str]) -> None:
    """Delete the final messages among `rows`: their contents (BODY) or the whole messages (WHOLE)."""
    if queries is WHOLE:
        await tx.run("lock_grams")
        await tx.run("keep_last_key")
    ended = [tuple(row) for row in await tx.run("lock_ended", messages=rows)]
    if queries is WHOLE:
        await tags.forget(tx, ended)
    else:
        await contents.drop(tx, ended)
    for query in queries:
        await tx.run(query, messages=ended)
    if queries is WHOLE:
        await index.note_deleted(tx, [key for (key,) in ended])


async def forget_team(tx: Tx, team: Team) -> None:
    """Delete a team's messages, inbound messages, verifications and events, final or not.

    The team's setup, suppression list and opt-outs are kept. So are messages still to be sent from the time when the
    team was live, with their credit holds.
    """
    ref = team.record.ref
    messages = [tuple(row) for row in await tx.run("end_messages", team=ref)]
    for at in range(0, len(messages), PORTION):
        for queries in (BODY, WHOLE):
            await purge_ended(tx, messages[at : at + PORTION], queries)
    await tags.delete(tx, await tx.run("added_of_team", team=ref))
    for query in OF_TEAM:
        await tx.run(query, team=ref)
    await tx.run("forget_keys", team=team.record.id, ref=ref)
    hooks = [(line,) for hook in team.webhooks for line in (hook.id, hook.id + OWN)]
    for query in ("forget_tries", "forget_deliveries"):
        await tx.run(query, webhooks=hooks)
    for hook in team.webhooks:
        await tx.run("forget_failures", webhook=hook.id)
