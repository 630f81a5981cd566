"""Messages that wait for approval: lists, decisions and expiry.

The queue rows of such a message are in `lanes.HELD_QUEUE`, and due when the wait for approval expires. There is no
other record of a pending approval. A release moves the rows to a queue that workers claim from, with a due time after
the send request: the dispatcher then checks recipient and team again, as for a scheduled message.
"""

from collections.abc import Sequence

import msgspec

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.delivery.lanes import HELD_QUEUE, LANE_BY_CHANNEL, queue_name
from heliograph.domain.delivery.outcome import LocalReason, local_failure
from heliograph.domain.events import RELEASED
from heliograph.domain.ids import PREFIXES, parse_timestamp
from heliograph.domain.sending.approvals import NOT_RELEASED_TEXT, REJECTED_TEXT, ApprovalStatus
from heliograph.domain.sending.send_options import ExtraFields, decode_record
from heliograph.domain.setup.records import CHANNELS, Channel
from heliograph.runtime.clock import Clock
from heliograph.storage import audit, outcomes
from heliograph.storage.engine.database import Conflict, Database, Tx, schedule_wakeup, write_serialized
from heliograph.storage.events import Event, Publisher
from heliograph.storage.expiry import BATCH, EXPIRED_TEXT
from heliograph.storage.outcomes import ClaimToken, RecipientUpdate
from heliograph.storage.queues import PAGE_COUNT_MAX

NEWEST = "apr_~"  # greater than every approval id
KEY_MAX = 2**63 - 1


class Approval(msgspec.Struct, frozen=True):
    message: int  # key of the message
    id: str
    message_id: str
    team: int
    channel: Channel
    key_id: str
    created_at: int
    expires_at: int
    status: ApprovalStatus


class PendingMessage(msgspec.Struct, frozen=True):
    approval: Approval
    record: str  # the message's response record as JSON


class HeldRow(msgspec.Struct, frozen=True, array_like=True):
    """A locked queue row of a message that waits for approval."""

    key: int
    epoch: int
    message: int
    position: int
    expires_at: int


class Approvals:
    def __init__(self, database: Database, clock: Clock, publisher: Publisher) -> None:
        self._database = database
        self._clock = clock
        self._publisher = publisher

    async def find(self, id_: str) -> Approval | None:
        return await self._database.read(lambda tx: _find(tx, id_))

    async def list_page(self, before: str, limit: int) -> list[Approval]:
        """Return approvals of messages older than that of the approval `before`, newest message first.

        Up to `limit` + 1 approvals are returned; the extra one shows that there are more.
        """

        async def read_page(tx: Tx) -> list[Approval]:
            cursor = await _find(tx, before) if before != NEWEST else None
            if cursor is None and before != NEWEST:
                return []
            params = {"before": cursor.message if cursor else KEY_MAX, "limit": limit + 1}
            pending_rows, decided_rows = await tx.run("list_pending", **params), await tx.run("list_decided", **params)
            # An approval that was decided between the two queries is in both results.
            by_message = {row[0]: Approval(*row) for row in (*pending_rows, *decided_rows)}
            return [by_message[message] for message in sorted(by_message, reverse=True)][: limit + 1]

        return await self._database.read(read_page)

    async def list_pending(self, team: int, limit: int) -> list[PendingMessage]:
        """Return a team's pending approvals, next to expire first: up to `limit`, and one more if there are more."""
        rows = await self._database.read(
            lambda tx: tx.run("list_pending_of_team", queue=HELD_QUEUE, team=team, limit=limit + 1)
        )
        return [PendingMessage(Approval(*columns), record) for *columns, record in rows]

    async def count_pending(self, team: int) -> int:
        """Return the number of a team's pending approvals, at most PAGE_COUNT_MAX."""
        params = {"queue": HELD_QUEUE, "team": team, "limit": PAGE_COUNT_MAX}
        ((count,),) = await self._database.read(lambda tx: tx.run("count_pending", **params))
        return int(count)

    async def release(self, approval: Approval, entry: AuditEntry) -> bool:
        """Release a message for delivery; return False if its approval is not pending any more."""
        now, publisher = self._clock.team_now(approval.team), self._publisher

        async def release_message(tx: Tx) -> bool:
            rows = await _decide(tx, approval, "approved", now)
            if not rows:
                return False
            await _move_to_queue(tx, rows, now)
            await publisher.publish(tx, [_released_event(publisher, approval, now)])
            await audit.write(tx, entry)
            return True

        return await write_serialized(self._database, release_message, entry.team)

    async def reject(self, approval: Approval, entry: AuditEntry) -> bool:
        """Fail a message; return False if its approval is not pending any more."""
        now, publisher = self._clock.team_now(approval.team), self._publisher

        async def reject_message(tx: Tx) -> bool:
            rows = await _decide(tx, approval, "rejected", now)
            if not rows:
                return False
            await _fail(tx, rows, "approval_rejected", REJECTED_TEXT, now, publisher)
            await audit.write(tx, entry)
            return True

        return await write_serialized(self._database, reject_message, entry.team)

    async def fail_expired(self) -> None:
        """Fail messages that were not released in time, by each team's clock; none if this process's clock is wrong."""
        if self._clock.clock_error():
            return
        waiting_teams = await self._database.read(lambda tx: tx.run("waiting_teams", lanes=[(HELD_QUEUE,)]))
        for _, team, first_expiry in waiting_teams:
            while self._clock.team_now(team) >= first_expiry and await self._fail_batch(team) == BATCH:
                pass

    async def _fail_batch(self, team: int) -> int:
        now, publisher = self._clock.team_now(team), self._publisher

        async def fail_messages(tx: Tx) -> int:
            holds = await tx.run("expired_holds", queue=HELD_QUEUE, team=team, now=now, limit=BATCH)
            # Messages that reached their own `expires_at`, not the end of the wait for approval
            expired_messages = {
                message for message, held_until, record in holds if _message_expiry(decode_record(record)) == held_until
            }
            rows = await _lock_rows(tx, [message for message, *_ in holds])
            await _record_decision(tx, rows, "expired", now)
            expired = [row for row in rows if row.message in expired_messages]
            unreleased = [row for row in rows if row.message not in expired_messages]
            await _fail(tx, expired, "expired", EXPIRED_TEXT, now, publisher)
            await _fail(tx, unreleased, "approval_expired", NOT_RELEASED_TEXT, now, publisher)
            return len(holds)

        return await self._database.write(fail_messages)


async def is_held(tx: Tx, message: int) -> bool:
    """Return whether a message waits for approval; if so, its queue rows stay locked."""
    return bool(await _lock_rows(tx, [message]))


async def cancel(tx: Tx, message: int, text: str, now: int, publisher: Publisher) -> bool:
    """Cancel a message that waits for approval: it fails; return False if it does not wait."""
    rows = await _lock_rows(tx, [message])
    await _record_decision(tx, rows, "canceled", now)
    await _fail(tx, rows, "canceled", text, now, publisher)
    return bool(rows)


async def _find(tx: Tx, id_: str) -> Approval | None:
    if not id_.startswith(PREFIXES["approval"]):
        return None
    suffix = id_.removeprefix(PREFIXES["approval"])
    rows = await tx.run("find_pending", id=id_, ids=[(PREFIXES[channel] + suffix,) for channel in CHANNELS])
    # Query the decided approvals last: an approval that is decided between the two queries is then found.
    rows = rows or await tx.run("find_decided", id=id_)
    return Approval(*rows[0]) if rows else None


async def _lock_rows(tx: Tx, messages: Sequence[int]) -> list[HeldRow]:
    """Lock and return the queue rows of those messages that still wait for approval."""
    params = [(message,) for message in messages]
    return [HeldRow(*row) for row in await tx.run("lock_held_rows", messages=params)] if params else []


async def _decide(tx: Tx, approval: Approval, status: ApprovalStatus, now: int) -> list[HeldRow]:
    """Record a decision and return the message's queue rows; empty if it was already decided or has expired."""
    rows = [row for row in await _lock_rows(tx, [approval.message]) if row.expires_at > now]
    await _record_decision(tx, rows, status, now)
    return rows


async def _record_decision(tx: Tx, rows: Sequence[HeldRow], status: ApprovalStatus, now: int) -> None:
    if holds := {row.message: row.expires_at for row in rows}:
        await tx.run("insert_decisions", holds=list(holds.items()), status=status, now=now)


async def _fail(
    tx: Tx, rows: Sequence[HeldRow], reason: LocalReason, text: str, now: int, publisher: Publisher
) -> None:
    """Fail the recipients of messages that wait for approval."""
    updates = [
        RecipientUpdate(
            at=now,
            message=row.message,
            position=row.position,
            target_status="failed",
            detail=local_failure(reason, text),
            claim=ClaimToken(row.key, row.epoch),
        )
        for row in rows
    ]
    if updates and not all(await outcomes.record_updates(tx, updates, owner=None, publisher=publisher)):
        raise Conflict("a held message is locked by another transaction")


async def _move_to_queue(tx: Tx, rows: Sequence[HeldRow], now: int) -> None:
    message = rows[0].message
    ((channel, record),) = await tx.run("message_of_approval", message=message)
    options = decode_record(record)
    due_at = max(now, parse_timestamp(options.scheduled_at or "") or 0)
    await tx.run(
        "release_rows",
        keys=[(row.key,) for row in rows],
        lane=queue_name(LANE_BY_CHANNEL[channel], options.priority),
        due_at=due_at,
        expires_at=_message_expiry(options),
    )
    await tx.run("clear_holds", message=message)
    schedule_wakeup(tx, LANE_BY_CHANNEL[channel], due_at - now)


def _message_expiry(options: ExtraFields) -> int | None:
    return parse_timestamp(options.expires_at) if options.expires_at else None


def _released_event(publisher: Publisher, approval: Approval, now: int) -> Event:
    """Return the entry that a release adds to the message's timeline."""
    return Event(
        id=publisher.new_id("evt_"),
        team=approval.team,
        subject=approval.message_id,
        message=approval.message,
        sequence=None,
        type=RELEASED,
        message_status="queued",
        created_at=now,
    )
