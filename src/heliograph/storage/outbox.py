"""The outbox: due deliveries and reports, claimed in batches under a lease, with fair shares for all teams."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgspec
import structlog

from heliograph.domain.delivery.lanes import (
    CONCURRENCY_MAX_BY_LANE,
    LANE_BY_CHANNEL,
    PRIORITIES,
    QUEUE_BY_LANE_AND_PRIORITY,
    queue_name,
    schedule_priorities,
)
from heliograph.domain.delivery.outcome import DueReport, local_failure
from heliograph.domain.ids import parse_timestamp, timestamp
from heliograph.domain.limits import CLAIMS_MAX, CRASHES_MAX, IDEMPOTENCY_LEASE_MS, ISOLATED_RETRY_MS
from heliograph.domain.sending.acceptance import CAPTURED
from heliograph.domain.sending.send_options import decode_record
from heliograph.domain.setup.records import Channel, Priority
from heliograph.runtime.clock import Clock
from heliograph.storage import approvals, outcomes, verifications
from heliograph.storage.engine.database import Database, StoreUnavailable, Tx, schedule_wakeup
from heliograph.storage.engine.group_commit import GroupCommit
from heliograph.storage.engine.health_probe import Probe
from heliograph.storage.events import Publisher
from heliograph.storage.leases import Leases
from heliograph.storage.outcomes import ClaimToken, RecipientUpdate
from heliograph.storage.queues import DEPTH_COUNT_MAX, read_lane_shares
from heliograph.storage.setup import SetupStore

log = structlog.get_logger()


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One recipient of one message (or one due simulator report), leased to this process."""

    key: int
    epoch: int
    team: int
    message: int
    position: int
    message_id: str
    channel: Channel
    sandbox: bool
    captured: bool = False  # only a simulator may receive the message
    country: str | None
    address: str
    given_address: str  # the address as the caller wrote it
    content: bytes
    reports: tuple[DueReport, ...]  # simulated reports; if not empty, apply the first and schedule the others again
    first_at: int
    due_at: int
    attempt: int
    deferrals: dict[str, int]
    uncertain_carrier: str | None  # the carrier that may have sent the message
    absent_at: int | None = None  # when the recipient's domain was first reported not to exist
    held_at: int | None = None  # due time before this service held the message back; None: the message was not held
    priority: Priority = "normal"
    queue: str  # the queue in which the row waited
    suppressed: bool = False  # whether the address was suppressed at claim time
    unsubscribed: bool = False  # whether the recipient had unsubscribed from the message's category at claim time
    scheduled: bool = False  # scheduled for later than its request, and not attempted yet
    expires_at: int | None = None
    is_isolated: bool = False  # its worker has no other claim (poison-message candidate)
    was_claimed_before: bool = False  # an earlier claim has no recorded outcome yet
    trace: str | None = None  # traceparent of the request

    @property
    def token(self) -> ClaimToken:
        return ClaimToken(self.key, self.epoch)


class WaitingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Result of rescheduling or canceling a message that waits."""

    record: str
    status: str
    done: bool  # whether the message was changed; False if a worker has claimed it or its status is final
    expires_at: int | None = None


class LaneDepth(msgspec.Struct, frozen=True):
    lane: str
    waiting: int = 0
    since: int | None = None  # oldest due time, or first attempt of a message that is retried


TeamAndId = tuple[int, str]  # (team number, message id)
NowAndOffsets = tuple[int, Mapping[int, int]]  # current time, and the test-clock offset of each team in ms
DUE_AT_INDEX = 11  # index of `due_at` in the columns that a claim returns
WAKE_BATCH = 2000  # rows per transaction
CANCELED_TEXT = "it was canceled before it was sent"

_deferrals_decoder = msgspec.json.Decoder(dict[str, int])
_reports_decoder = msgspec.json.Decoder(tuple[DueReport, ...])


async def claim_rows(
    tx: Tx,
    owner: str,
    lane: str,
    limit: int,
    limits: Mapping[Priority, int],
    rotation: int,
    now: NowAndOffsets,
    leases: Leases,
) -> tuple[list[Any], list[Priority]]:
    """Claim at most `limit` due rows of a lane, and at most `limits[priority]` of each priority.

    Returns the rows and the priority of each, in the order in which priorities take turns. `rotation`: number of rows
    that this process claimed from the lane before, which determines whose turn is next.
    """
    due_teams = {priority: teams for priority, teams in (await _due_teams(tx, lane, now)).items() if limits[priority]}
    if not due_teams:
        return [], []
    lease_until = await leases.deadline(tx)
    if leases.clock_error():
        return [], []
    lease = {"owner": owner, "lease_until": lease_until}
    shares = Counter(schedule_priorities(rotation, limit, {priority: limits[priority] for priority in due_teams}))
    rows_by_priority = {
        priority: await _claim_fairly(tx, queue_name(lane, priority), due_teams[priority], shares[priority], now, lease)
        for priority in due_teams
    }
    # Capacity left by one priority goes to priorities that used their whole share: the caller takes a batch below the
    # limit as the sign that the lane has no more due rows.
    for priority, rows in rows_by_priority.items():
        extra = min(limit - sum(map(len, rows_by_priority.values())), limits[priority] - len(rows))
        if extra > 0 and len(rows) == shares[priority]:
            rows += await _claim_fairly(tx, queue_name(lane, priority), due_teams[priority], extra, now, lease)
    order = schedule_priorities(
        rotation, limit, {priority: min(len(rows), limits[priority]) for priority, rows in rows_by_priority.items()}
    )
    if len(order) < limit:
        await _due_teams(tx, lane, now)
    rows_left = {priority: iter(rows) for priority, rows in rows_by_priority.items()}
    claimed_rows = [next(rows_left[priority]) for priority in order]
    await _release_surplus(tx, owner, [row for rows in rows_left.values() for row in rows], shared=1)
    return claimed_rows, order


async def _release_surplus(tx: Tx, owner: str, rows: Sequence[Any], *, shared: int) -> None:
    """Release rows claimed beyond the limit: no worker would process them before their lease expires."""
    if rows:
        log.error("claimed more than requested", rows=len(rows))
        await tx.run("release_claims", owner=owner, claims=[(row[0], row[1], shared, 1 - shared) for row in rows])


async def apply_due(
    tx: Tx, rows: Sequence[Any], lane: str, now: NowAndOffsets, owner: str, publisher: Publisher
) -> set[int]:
    """Apply the due simulator reports among the claimed rows in the claiming transaction; return their row keys.

    Replies from a simulated phone are skipped: the worker must process the reply text first.
    """
    at, clock_offsets = now
    tokens, updates = set[ClaimToken](), []
    for key, epoch, team, message, position, reports_json, *_ in rows:
        if reports_json and not (reports := _reports_decoder.decode(reports_json))[0].report.text:
            tokens.add(token := ClaimToken(key, epoch))
            updates.append(
                RecipientUpdate.from_reports(token, message, position, reports, lane, at + clock_offsets.get(team, 0))
            )
    if updates:
        await outcomes.record_updates(tx, updates, owner=owner, publisher=publisher, own_tokens=tokens)
    return {token.key for token in tokens}


async def _claim_fairly(
    tx: Tx, queue: str, teams: list[int], limit: int, now: NowAndOffsets, lease: dict[str, Any]
) -> list[Any]:
    """Claim up to `limit` rows of a queue with an equal share per team, so that no team starves another.

    Capacity left by teams with little work goes to teams that used their whole share.
    """
    at, clock_offsets = now
    first_team = at % len(teams)
    teams = teams[first_team:] + teams[:first_team]
    rows: list[Any] = []
    while teams and len(rows) < limit:
        teams = teams[: limit - len(rows)]
        share = (limit - len(rows)) // len(teams)
        team_times = [(team, at + clock_offsets.get(team, 0)) for team in teams]
        claimed_rows = await tx.run("claim", lane=queue, teams=team_times, share=share, claims=CLAIMS_MAX, **lease)
        rows += claimed_rows
        claimed_by_team = Counter([row[2] for row in claimed_rows])
        teams = [team for team in teams if claimed_by_team[team] == share]
    return _interleave_teams(rows)


def _interleave_teams(rows: list[Any]) -> list[Any]:
    """Interleave rows by team, each team's oldest first; databases return claimed rows in any order."""
    count_by_team = Counter[int]()
    positioned = []
    for row in sorted(rows, key=itemgetter(DUE_AT_INDEX, 0)):
        positioned.append((count_by_team[row[2]], row))
        count_by_team[row[2]] += 1
    return [row for _, row in sorted(positioned, key=itemgetter(0))]


async def _due_teams(tx: Tx, lane: str, now: NowAndOffsets) -> dict[Priority, list[int]]:
    """Return priority → teams with due work, most urgent first; schedule a wakeup for when the next row is due."""
    rows = await tx.run("waiting_teams", lanes=[(queue_name(lane, priority),) for priority in PRIORITIES])
    at, clock_offsets = now
    team_waits = [(queue, team, due_at - at - clock_offsets.get(team, 0)) for queue, team, due_at in rows]
    if future_waits := [wait for _, _, wait in team_waits if wait > 0]:
        schedule_wakeup(tx, lane, min(future_waits))
    due = {
        priority: [team for queue, team, wait in team_waits if queue == queue_name(lane, priority) and wait <= 0]
        for priority in PRIORITIES
    }
    return {priority: teams for priority, teams in due.items() if teams}


async def claim_poison_candidate(tx: Tx, owner: str, now: NowAndOffsets, leases: Leases) -> list[Claim]:
    """Claim one due poison-message candidate, which a worker processes alone (docs/internals/reliability.md, P14).

    A candidate is a recipient or report whose worker crashed while processing it.
    """
    lease_until = await leases.deadline(tx)
    if leases.clock_error():
        return []
    at, clock_offsets = now
    params = {"deaths": CRASHES_MAX, "again": ISOLATED_RETRY_MS, "now": at, "moved": list(clock_offsets.items())}
    rows = await tx.run("claim_poison_candidate", owner=owner, lease_until=lease_until, **params)
    await _release_surplus(tx, owner, rows[1:], shared=0)
    return await _read_claims(tx, [(row, "normal") for row in rows[:1]], is_isolated=True)


async def _read_claims(tx: Tx, rows: Sequence[tuple[Any, Priority]], *, is_isolated: bool = False) -> list[Claim]:
    if not rows:
        return []
    recipient_keys = {(row[3], row[4]) for row, _ in rows}
    recipient_rows = {
        (recipient_row[0], recipient_row[1]): recipient_row
        for recipient_row in await tx.run("claimed_recipients", places=list(recipient_keys))
    }
    if len(recipient_rows) < len(recipient_keys):  # reports about messages that were purged while delivery was paused
        await tx.run("delete_outbox", keys=[(row[0],) for row, _ in rows if (row[3], row[4]) not in recipient_rows])
        rows = [item for item in rows if (item[0][3], item[0][4]) in recipient_rows]
    messages = [(message,) for message in {row[3] for row, _ in rows if row[5] is None}]
    contents: dict[int, bytes] = {}
    if messages:
        contents = {message: body.encode() for message, body in await tx.run("contents", messages=messages)}
    claims = []
    for row, priority in rows:
        key, epoch, team, message, position, reports, first_at, attempt, deferrals, uncertain, *times = row
        absent_at, due_at, expires_at, held_at, claim_count = times
        _, _, address, given_address, id_, channel, sandbox, country, trace, suppressed_at, unsubscribed_at = (
            recipient_rows[message, position]
        )
        claims.append(
            Claim(
                key=key,
                epoch=epoch,
                team=team,
                message=message,
                position=position,
                message_id=id_,
                channel=channel,
                sandbox=bool(sandbox),
                captured=sandbox == CAPTURED,
                country=country,
                address=address,
                given_address=given_address,
                content=contents.get(message, b"{}"),
                reports=_reports_decoder.decode(reports) if reports else (),
                first_at=first_at,
                due_at=due_at,
                attempt=attempt,
                deferrals=_deferrals_decoder.decode(deferrals),
                uncertain_carrier=uncertain,
                absent_at=absent_at,
                held_at=held_at,
                priority=priority,
                queue=QUEUE_BY_LANE_AND_PRIORITY[LANE_BY_CHANNEL[channel], priority],
                suppressed=suppressed_at is not None,
                unsubscribed=unsubscribed_at is not None,
                scheduled=attempt == 0 and due_at > first_at,
                expires_at=expires_at,
                is_isolated=is_isolated,
                was_claimed_before=claim_count > 1,
                trace=trace,
            )
        )
    return claims


async def _find_waiting_rows(
    tx: Tx, team_and_id: TeamAndId, channel: Channel
) -> tuple[int, str, str, list[Any]] | None:
    """Return a message's key, status and record, and its outbox rows if no recipient was claimed; None if not found."""
    team, id_ = team_and_id
    message_rows = await tx.run("find_message", team=team, id=id_)
    if not message_rows:
        return None
    message, status, created_at, record = message_rows[0]
    options = decode_record(record)
    due_at = max(created_at, parse_timestamp(options.scheduled_at or "") or 0)
    queue = queue_name(LANE_BY_CHANNEL[channel], options.priority)
    for (approved_at,) in await tx.run("approved_at", message=message) if status == "queued" else ():
        due_at = max(due_at, approved_at)
    rows = await tx.run("waiting_rows", lane=queue, team=team, message=message, due_at=due_at)
    recipient_rows = await tx.run("message_recipients", message=message)
    return message, status, record, list(rows) if len(rows) == len(recipient_rows) else []


async def renew_claims(tx: Tx, owner: str, claims: Sequence[Claim], leases: Leases) -> set[int]:
    """Renew the leases of the claims; return the keys still owned by `owner`."""
    if not claims:
        return set()
    token_rows = [(claim.key, claim.epoch) for claim in claims]
    rows = await tx.run("heartbeat", owner=owner, claims=token_rows, lease_until=await leases.deadline(tx))
    return {row[0] for row in rows}


class Outbox:
    """Claims, renews, records and reschedules deliveries for this process.

    `owner`: name of this process, stable over restarts and unique among live processes.
    """

    def __init__(self, database: Database, clock: Clock, owner: str, leases: Leases, setup: SetupStore) -> None:
        self._database = database
        self._clock = clock
        self._owner = owner
        self._leases = leases
        self._publisher = publisher = setup.publisher
        self._update_commits: GroupCommit[RecipientUpdate, bool] = GroupCommit(
            database, lambda tx, items: outcomes.record_updates(tx, items, owner=owner, publisher=publisher)
        )
        self._claimed_count: Counter[str] = Counter()
        self._claimed_lanes: set[str] = set()  # lanes from which this process has claimed
        self.depth_probe = Probe(self.lane_depths)

    async def claim(self, lane: str, limit: int, limits: Mapping[Priority, int] | None = None) -> list[Claim]:
        """Claim up to `limit` rows of a lane, with a limit per priority (None: no such limit).

        Due simulator reports are applied in the claiming transaction. Only the first claim of a lane claims reports
        like messages: if a report crashes the process, the stored claim counts the crash.
        """
        now, rotation, leases = (self._clock.now(), self._clock.offsets), self._claimed_count[lane], self._leases
        limit_by_priority = limits or dict.fromkeys(PRIORITIES, limit)

        async def claim_and_apply(tx: Tx, *, apply_reports: bool) -> tuple[list[Claim], int]:
            rows, priorities = await claim_rows(tx, self._owner, lane, limit, limit_by_priority, rotation, now, leases)
            applied_keys = await apply_due(tx, rows, lane, now, self._owner, self._publisher) if apply_reports else ()
            unapplied_rows = [
                (row, priority) for row, priority in zip(rows, priorities, strict=True) if row[0] not in applied_keys
            ]
            if applied_keys and (
                len(rows) == limit
                or any(count == limit_by_priority[priority] for priority, count in Counter(priorities).items())
            ):
                schedule_wakeup(tx, lane)  # more rows may be due, which the caller cannot see from the claims returned
            return await _read_claims(tx, unapplied_rows), len(rows)

        try:
            claims, count = await self._database.write(
                lambda tx: claim_and_apply(tx, apply_reports=lane in self._claimed_lanes)
            )
        except StoreUnavailable:
            raise
        except Exception as error:  # apply reports one at a time, so that only the broken report fails
            log.error("reports not applied together", lane=lane, error=type(error).__name__)
            claims, count = await self._database.write(lambda tx: claim_and_apply(tx, apply_reports=False))
        self._claimed_lanes.add(lane)
        self._claimed_count[lane] += count
        return claims

    async def release(self, claims: Sequence[Claim]) -> None:
        if claims:
            rows = [(claim.key, claim.epoch, int(not claim.is_isolated), int(claim.is_isolated)) for claim in claims]
            await self._database.write(lambda tx: tx.run("release_claims", owner=self._owner, claims=rows))

    async def count_poison_candidates(self) -> int:
        """Return the number of due poison-message candidates."""
        params = {"deaths": CRASHES_MAX, "now": self._clock.now(), "moved": list(self._clock.offsets.items())}
        ((count,),) = await self._database.read(lambda tx: tx.run("count_poison_candidates", **params))
        return int(count)

    async def claim_poison_candidate(self) -> list[Claim]:
        now = self._clock.now(), self._clock.offsets
        return await self._database.write(lambda tx: claim_poison_candidate(tx, self._owner, now, self._leases))

    async def leave_isolation(self, claims: Sequence[Claim]) -> None:
        """Record that a worker no longer processes the claims alone, so that its crash does not count against them."""
        if rows := [(claim.key, claim.epoch) for claim in claims if claim.is_isolated]:
            await self._database.write(lambda tx: tx.run("leave_isolation", owner=self._owner, claims=rows))

    async def renew(self, claims: Sequence[Claim]) -> set[int]:
        """Renew the leases of the claims; return the keys still owned by this process."""
        return await self._database.write(lambda tx: renew_claims(tx, self._owner, claims, self._leases))

    def record(self, update: RecipientUpdate) -> Awaitable[bool]:
        """Record the outcome for a recipient. Returns False if the claim was lost and nothing was written."""
        return self._update_commits.submit(update)

    async def cancel(self, team_and_id: TeamAndId, channel: Channel) -> WaitingMessage | None:
        """Cancel a message that no worker has claimed. Returns None if the message is not found."""
        now, publisher = self._clock.team_now(team_and_id[0]), self._publisher

        async def cancel_message(tx: Tx) -> WaitingMessage | None:
            result = await _find_waiting_rows(tx, team_and_id, channel)
            if result is None:
                return None
            message, status, record, rows = result
            if not rows and status == "queued" and await approvals.cancel(tx, message, CANCELED_TEXT, now, publisher):
                return WaitingMessage(record=record, status="failed", done=True)
            updates = [
                RecipientUpdate(
                    at=now,
                    message=message,
                    position=position,
                    target_status="failed",
                    detail=local_failure("canceled", CANCELED_TEXT),
                    claim=ClaimToken(key, epoch),
                )
                for key, epoch, position, _ in rows
            ]
            is_canceled = bool(updates) and all(
                await outcomes.record_updates(tx, updates, owner=None, publisher=publisher)
            )
            return WaitingMessage(record=record, status="failed" if is_canceled else status, done=is_canceled)

        return await self._database.write(cancel_message)

    async def reschedule(
        self, team_and_id: TeamAndId, channel: Channel, due_at: int, check: Callable[[WaitingMessage], None]
    ) -> WaitingMessage | None:
        """Change the due time of a message that still waits, if `check` does not raise; None if not found."""

        async def move_message(tx: Tx) -> WaitingMessage | None:
            result = await _find_waiting_rows(tx, team_and_id, channel)
            if result is None:
                return None
            message, status, record, rows = result
            if status != "queued" or not (rows or await approvals.is_held(tx, message)):
                return WaitingMessage(record=record, status=status, done=False)
            new_record = msgspec.json.encode(msgspec.json.decode(record) | {"scheduled_at": timestamp(due_at)}).decode()
            expires_at = rows[0][3] if rows else parse_timestamp(decode_record(record).expires_at or "")
            waiting_message = WaitingMessage(record=new_record, status=status, done=True, expires_at=expires_at)
            check(waiting_message)
            await tx.run("update_record", message=message, record=new_record)
            if rows:
                await tx.run("move_rows", keys=[(row[0],) for row in rows], due_at=due_at)
                schedule_wakeup(tx, LANE_BY_CHANNEL[channel], max(0, due_at - self._clock.team_now(team_and_id[0])))
            return waiting_message

        return await self._database.write(move_message)

    async def wake_held(self, lane: str) -> None:
        """Make messages that waited for an unavailable carrier due again at their original due time."""
        now, queues = self._clock.now(), [(queue_name(lane, priority),) for priority in PRIORITIES]

        async def wake_batch(tx: Tx) -> int:
            schedule_wakeup(tx, lane)
            return len(await tx.run("wake_held", lanes=queues, now=now, most=WAKE_BATCH))

        while await self._database.write(wake_batch) >= WAKE_BATCH:
            pass

    async def release_own(self) -> None:
        """Release what an earlier run of this process had claimed: messages, webhooks, idempotency keys and codes."""
        now, publisher = self._clock.now(), self._publisher

        async def release_all(tx: Tx) -> None:
            await tx.run("release_all_claims", owner=self._owner)
            await tx.run("delete_unfinished_idempotency", owner=self._owner)
            await tx.run("release_all_endpoints", owner=self._owner)
            await verifications.fail_abandoned(tx, self._owner, 0, now, publisher)

        await self._database.write(release_all)

    async def reclaim_abandoned(self) -> int:
        """Release claims of dead processes and move poison messages to the dead-letter queue.

        Returns the number of messages moved.
        """
        now, publisher, leases = self._clock.now(), self._publisher, self._leases
        await self._database.write(leases.confirm_contact)

        async def reclaim_and_quarantine(tx: Tx) -> int:
            await tx.run("reclaim", over=leases.abandoned_before())
            await verifications.fail_abandoned(tx, "", leases.abandoned_before(IDEMPOTENCY_LEASE_MS), now, publisher)
            verifications.count_outcome(tx, "expired", len(await tx.run("expire_verifications", now=now)))
            return await outcomes.quarantine_poison(tx, now=now, clock_offsets=self._clock.offsets, publisher=publisher)

        return await self._database.write(reclaim_and_quarantine)

    async def lane_depths(self) -> list[LaneDepth]:
        """Return the depth of every lane: the number of waiting rows, counted up to DEPTH_COUNT_MAX per team."""
        now = self._clock.now()
        depth_by_lane = {lane: LaneDepth(lane) for lane in CONCURRENCY_MAX_BY_LANE}
        for queue in await self._database.read(lambda tx: read_lane_shares(tx, now, DEPTH_COUNT_MAX)):
            previous_depth = depth_by_lane[queue.lane]
            since = [at for at in (previous_depth.since, queue.first_due, queue.retrying_since) if at is not None]
            waiting_count = previous_depth.waiting + queue.due + queue.retrying + queue.in_progress
            depth_by_lane[queue.lane] = LaneDepth(queue.lane, waiting_count, min(since, default=None))
        return list(depth_by_lane.values())
