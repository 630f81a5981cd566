"""What an operator sees of the queues, and what becomes of dead letters.

A dead letter is a recipient that failed because three workers died with it.
"""

from typing import Any

import msgspec

from heliograph.rules.lanes import LANE
from heliograph.storage.database import Tx
from heliograph.storage.people import NEWEST, AuditEntry

PAGE = 50
RETRIED = '{"reason":"retried","text":"an operator put it into the queue again"}'
DROPPED = '{"reason":"dropped","text":"an operator gave it up after it was quarantined"}'


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """One team's share of a lane."""

    lane: str
    team: int
    due: int = 0
    later: int = 0  # to be tried again
    working: int = 0
    oldest: int | None = None  # when the first was due


class WaitingHook(msgspec.Struct, frozen=True):
    webhook: str
    waiting: int
    failing_since: int | None


class DeadLetter(msgspec.Struct, frozen=True):
    message: int
    position: int
    id: str
    team: int
    channel: Any
    has_body: int
    address: str
    at: int


async def queues(tx: Tx, now: int) -> list[Queue]:
    """The longest waiting first."""
    found = {
        (lane, team): Queue(lane=lane, team=team, due=due, later=count - due, oldest=oldest)
        for lane, team, count, due, oldest in await tx.run("waiting_by_team", now=now)
    }
    for lane, team, working in await tx.run("working_by_team"):
        before = found.get((lane, team), Queue(lane=lane, team=team))
        found[lane, team] = msgspec.structs.replace(before, working=working)
    return list(found.values())


async def waiting_hooks(tx: Tx) -> list[WaitingHook]:
    return [WaitingHook(*row) for row in await tx.run("waiting_deliveries")]


async def dead_letters(tx: Tx, before: tuple[int, int] = (NEWEST, 0), limit: int = PAGE) -> list[DeadLetter]:
    """Newest message first; one more than the limit, when there are more."""
    rows = await tx.run("dead_letters", message=before[0], position=before[1], limit=limit + 1)
    return [DeadLetter(*row) for row in rows]


async def retry(tx: Tx, message: int, position: int, audit: AuditEntry) -> bool:
    """Into the queue again, without a charge: its hold was released. False when it is no dead letter any more, or its
    content is no longer kept.

    The message stays `failed` until it is delivered: what was told to the team is not taken back.
    """
    locked = await tx.run("lock_messages", messages=[(message,)])
    if not locked or not await tx.run("contents", messages=[(message,)]):
        return False
    if not await _leave(tx, message, position, "sending", RETRIED, audit):
        return False
    await tx.run("reopen_message", message=message)
    _, _, team, channel, *_ = locked[0]
    await tx.run("insert_outbox", outbox=[(LANE[channel], team, message, position, None, audit.at, audit.at)])
    return True


async def drop(tx: Tx, message: int, position: int, audit: AuditEntry) -> bool:
    """Failed for good. False when it is no dead letter any more."""
    await tx.run("lock_messages", messages=[(message,)])
    return await _leave(tx, message, position, "failed", DROPPED, audit)


async def _leave(tx: Tx, message: int, position: int, status: str, detail: str, audit: AuditEntry) -> bool:
    given = {"message": message, "position": position, "status": status, "detail": detail, "now": audit.at}
    if not await tx.run("leave_dead_letters", **given):
        return False
    await tx.run("insert_audit", entries=[audit])
    return True
