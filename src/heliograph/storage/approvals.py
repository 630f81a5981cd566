"""Messages that wait for approval: lists, decisions and expiry.

The queue rows of such a message are in HELD_QUEUE, due when the wait for approval expires. A release moves them to a
queue that workers claim from, due after the time of the request, so that the dispatcher checks the recipient and the
team again as for a scheduled message.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.delivery.lanes import LANE_BY_CHANNEL, queue_name
from heliograph.domain.delivery.outcome import LocalReason, local_failure
from heliograph.domain.events import RELEASED
from heliograph.domain.ids import parse_timestamp
from heliograph.domain.sending.approvals import NOT_RELEASED_TEXT, REJECTED_TEXT, ApprovalStatus
from heliograph.domain.sending.send_options import decode_record
from heliograph.domain.setup.records import Channel
from heliograph.runtime.clock import Clock
from heliograph.storage import audit, outcomes
from heliograph.storage.engine.database import Conflict, Database, Tx, schedule_wakeup, write_serialized
from heliograph.storage.events import Event, Publisher
from heliograph.storage.expiry import BATCH, EXPIRED_TEXT
from heliograph.storage.outcomes import ClaimToken, RecipientUpdate

NEWEST = "apr_~"  # greater than every id


class Approval(msgspec.Struct, frozen=True):
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
    record: str  # of the message


class LockedApproval(msgspec.Struct, frozen=True, array_like=True):
    """The locked approval of a message, through which its queue rows are found."""

    message: int
    team: int
    expires_at: int


class HeldRow(msgspec.Struct, frozen=True, array_like=True):
    """A queue row of a message that waits for approval."""

    key: int
    epoch: int
    message: int
    position: int


class Approvals:
    def __init__(self, database: Database, clock: Clock, publisher: Publisher) -> None:
        self._database = database
        self._clock = clock
        self._publisher = publisher

    async def find(self, id_: str) -> Approval | None:
        rows = await self._database.read(lambda tx: tx.run("find_approval", id=id_))
        return Approval(*rows[0]) if rows else None

    async def list_page(self, before: str, limit: int) -> list[Approval]:
        """Return approvals with smaller ids, newest first: up to `limit`, and one more if another page follows."""
        rows = await self._database.read(lambda tx: tx.run("list_approvals", before=before, limit=limit + 1))
        return [Approval(*row) for row in rows]

    async def list_pending(self, team: int, limit: int) -> list[PendingMessage]:
        """Return a team's pending approvals, in order of expiry: up to `limit`, and one more if there are more."""
        rows = await self._database.read(lambda tx: tx.run("list_pending_approvals", team=team, limit=limit + 1))
        return [PendingMessage(Approval(*columns), record) for *columns, record in rows]

    async def release(self, approval: Approval, entry: AuditEntry) -> bool:
        """Release a message for delivery; return False if its approval is not pending any more."""
        now, publisher = self._clock.team_now(approval.team), self._publisher

        async def release_message(tx: Tx) -> bool:
            hold = await _decide(tx, approval.id, "approved", now)
            if hold is None:
                return False
            await _move_to_queue(tx, hold, now)
            await publisher.publish(tx, [_released_event(publisher, approval, hold, now)])
            await audit.write(tx, entry)
            return True

        return await write_serialized(self._database, release_message, entry.team)

    async def reject(self, approval: Approval, entry: AuditEntry) -> bool:
        """Fail a message that waits for approval; return False if its approval is not pending any more."""
        now, publisher = self._clock.team_now(approval.team), self._publisher

        async def reject_message(tx: Tx) -> bool:
            hold = await _decide(tx, approval.id, "rejected", now)
            if hold is None:
                return False
            await fail_held(tx, [hold], "approval_rejected", REJECTED_TEXT, now, publisher)
            await audit.write(tx, entry)
            return True

        return await write_serialized(self._database, reject_message, entry.team)

    async def fail_expired(self) -> None:
        """Fail messages that were not released in time, in batches, by each team's clock.

        Nothing is failed while the clocks of the processes disagree.
        """
        if self._clock.clock_error():
            return
        for team, first_expiry in await self._database.read(lambda tx: tx.run("earliest_approval_expiries")):
            while self._clock.team_now(team) >= first_expiry and await self._fail_batch(team) == BATCH:
                pass

    async def _fail_batch(self, team: int) -> int:
        now, publisher = self._clock.team_now(team), self._publisher

        async def fail_messages(tx: Tx) -> int:
            rows = await tx.run("expire_approvals", team=team, now=now, limit=BATCH)
            own_expiry, unreleased = list[LockedApproval](), list[LockedApproval]()
            for *columns, record in rows:
                hold = LockedApproval(*columns)
                expires_at = decode_record(record).expires_at
                is_own = expires_at is not None and parse_timestamp(expires_at) == hold.expires_at
                (own_expiry if is_own else unreleased).append(hold)
            await fail_held(tx, own_expiry, "expired", EXPIRED_TEXT, now, publisher)
            await fail_held(tx, unreleased, "approval_expired", NOT_RELEASED_TEXT, now, publisher)
            return len(rows)

        return await self._database.write(fail_messages)


async def fail_held(
    tx: Tx, holds: Sequence[LockedApproval], reason: LocalReason, text: str, now: int, publisher: Publisher
) -> bool:
    """Fail the recipients of messages whose approval was just decided; return False if no recipient was queued."""
    updates = [
        RecipientUpdate(
            at=now,
            message=row.message,
            position=row.position,
            target_status="failed",
            detail=local_failure(reason, text),
            claim=ClaimToken(row.key, row.epoch),
        )
        for row in await _held_rows(tx, holds)
    ]
    if not updates:
        return False
    if not all(await outcomes.record_updates(tx, updates, owner=None, publisher=publisher)):
        raise Conflict("a held message is locked by another transaction")
    return True


async def find_pending_approval(tx: Tx, message: int) -> LockedApproval | None:
    """Lock and return the pending approval of a message; None if the message does not wait for approval."""
    rows = await tx.run("lock_pending_approval", message=message)
    return LockedApproval(*rows[0]) if rows else None


async def cancel_approval(tx: Tx, message: int, now: int) -> LockedApproval | None:
    """End the pending approval of a message that is canceled; None if the message does not wait for approval."""
    rows = await tx.run("cancel_approval", message=message, now=now)
    return LockedApproval(*rows[0]) if rows else None


async def _decide(tx: Tx, id_: str, status: ApprovalStatus, now: int) -> LockedApproval | None:
    """Record a decision about an approval and return it locked; None if it was decided before."""
    rows = await tx.run("decide_approval", id=id_, status=status, now=now)
    return LockedApproval(*rows[0]) if rows else None


async def _move_to_queue(tx: Tx, hold: LockedApproval, now: int) -> None:
    ((channel, record),) = await tx.run("message_of_approval", message=hold.message)
    options = decode_record(record)
    due_at = max(now, parse_timestamp(options.scheduled_at or "") or 0)
    await tx.run(
        "release_rows",
        keys=[(row.key,) for row in await _held_rows(tx, [hold])],
        lane=queue_name(LANE_BY_CHANNEL[channel], options.priority),
        due_at=due_at,
        expires_at=parse_timestamp(options.expires_at) if options.expires_at else None,
    )
    await tx.run("clear_holds", message=hold.message)
    schedule_wakeup(tx, LANE_BY_CHANNEL[channel], due_at - now)


async def _held_rows(tx: Tx, holds: Sequence[LockedApproval]) -> list[HeldRow]:
    params: list[Any] = [msgspec.structs.astuple(hold) for hold in holds]
    return [HeldRow(*row) for row in await tx.run("held_rows", holds=params)] if holds else []


def _released_event(publisher: Publisher, approval: Approval, hold: LockedApproval, now: int) -> Event:
    """Return the entry that a release adds to the message's timeline."""
    return Event(
        id=publisher.new_id("evt_"),
        team=approval.team,
        subject=approval.message_id,
        message=hold.message,
        sequence=None,
        type=RELEASED,
        message_status="queued",
        created_at=now,
    )
