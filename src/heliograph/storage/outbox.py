"""The outbox: due deliveries and reports, claimed in batches under a lease, with fair shares for all teams."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgspec
import structlog

from heliograph.domain.delivery.lanes import LANE, PRIORITIES, QUEUE_OF, SLOTS, queue_of, take_turns
from heliograph.domain.delivery.outcome import DueReport, own
from heliograph.domain.ids import parse_timestamp, timestamp
from heliograph.domain.limits import ALONE_AGAIN_MS, CLAIMS_MAX, DEATHS_MAX, IDEMPOTENCY_LEASE_MS
from heliograph.domain.sending.acceptance import CAUGHT
from heliograph.domain.sending.send_options import read_record
from heliograph.domain.setup.records import Channel, Priority
from heliograph.runtime.clock import Clock
from heliograph.storage import outcomes, verifications
from heliograph.storage.engine.database import Database, StoreUnavailable, Tx, note
from heliograph.storage.engine.group_commit import GroupCommit
from heliograph.storage.engine.health_probe import Probe
from heliograph.storage.events import Publisher
from heliograph.storage.leases import Leases
from heliograph.storage.outcomes import Change, HeldClaim
from heliograph.storage.queues import DEPTH_MOST, queues
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
    caught: bool = False  # captured: only a simulator may receive the message
    country: str | None
    address: str
    given: str  # the address as the caller wrote it
    content: bytes
    reports: tuple[DueReport, ...]  # if not empty: apply the first report, keep the others for later
    first_at: int
    due_at: int
    attempt: int
    deferrals: dict[str, int]
    uncertain: str | None  # the carrier that may have sent the message
    absent_at: int | None = None  # when the recipient's domain was first reported not to exist
    held_at: int | None = None  # original due time, if the message waited for a reason on our side
    priority: Priority = "normal"
    queue: str  # the queue in which the row waited
    suppressed: bool = False  # whether the address was suppressed at claim time
    scheduled: bool = False  # scheduled for later than its request, and not attempted yet
    expires_at: int | None = None
    alone: bool = False  # its worker processes nothing else meanwhile
    reclaimed: bool = False  # an earlier claim has no recorded outcome, and may still get one
    trace: str | None = None  # traceparent of the request

    @property
    def held(self) -> HeldClaim:
        return HeldClaim(self.key, self.epoch)


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Result of rescheduling or canceling a message."""

    record: str
    status: str
    done: bool  # False if a worker has claimed the message, or the message is final
    expires_at: int | None = None


class LaneDepth(msgspec.Struct, frozen=True):
    lane: str
    waiting: int = 0
    since: int | None = None  # oldest due time, or first attempt of a message in retry


MessageId = tuple[int, str]  # team, id
Now = tuple[int, Mapping[int, int]]  # current time, and the test-clock offset of each team in ms
DUE_AT = 11  # index of `due_at` in the columns that a claim returns
WAKE_MOST = 2000  # rows per transaction
CANCELED = "it was canceled before it was sent"

_deferrals = msgspec.json.Decoder(dict[str, int])
_reports = msgspec.json.Decoder(tuple[DueReport, ...])


async def claim(
    tx: Tx, owner: str, lane: str, most: int, room: Mapping[Priority, int], turn: int, now: Now, leases: Leases
) -> tuple[list[Any], list[Priority]]:
    """Claim at most `most` due rows of a lane, and at most `room` of each priority.

    `turn`: rows that this process has claimed from the lane before. Returns the rows in priority rotation, and the
    priority of each row.
    """
    due = {priority: teams for priority, teams in (await _due_teams(tx, lane, now)).items() if room[priority]}
    if not due:
        return [], []
    lease_until = await leases.until(tx)
    if leases.off():
        return [], []
    given = {"owner": owner, "lease_until": lease_until}
    wishes = Counter(take_turns(turn, most, {priority: room[priority] for priority in due}))
    taken = {p: await _claim_fairly(tx, queue_of(lane, p), due[p], wishes[p], now, given) for p in due}
    # Capacity left by one priority goes to priorities that used their whole share, so a short batch means an empty
    # lane.
    for priority, rows in taken.items():
        rest = min(most - sum(map(len, taken.values())), room[priority] - len(rows))
        if rest > 0 and len(rows) == wishes[priority]:
            rows += await _claim_fairly(tx, queue_of(lane, priority), due[priority], rest, now, given)
    order = take_turns(turn, most, {priority: min(len(rows), room[priority]) for priority, rows in taken.items()})
    if len(order) < most:
        await _due_teams(tx, lane, now)
    left = {priority: iter(rows) for priority, rows in taken.items()}
    claimed = [next(left[priority]) for priority in order]
    await _release_surplus(tx, owner, [row for rows in left.values() for row in rows], shared=1)
    return claimed, order


async def _release_surplus(tx: Tx, owner: str, rows: Sequence[Any], *, shared: int) -> None:
    """Release rows claimed beyond the limit: no worker would process them until their lease expires."""
    if rows:
        log.error("claimed more than requested", rows=len(rows))
        await tx.run("release_claims", owner=owner, claims=[(row[0], row[1], shared, 1 - shared) for row in rows])


async def apply_due(tx: Tx, rows: Sequence[Any], lane: str, now: Now, owner: str, publisher: Publisher) -> set[int]:
    """Apply the due simulator reports among the claimed rows in the claiming transaction; return their keys.

    Replies from a simulated phone are skipped: the worker must process the reply text first.
    """
    at, moved = now
    held, changes = set[HeldClaim](), []
    for key, epoch, team, message, position, promises, *_ in rows:
        if promises and not (reports := _reports.decode(promises))[0].report.text:
            held.add(one := HeldClaim(key, epoch))
            changes.append(Change.reported(one, message, position, reports, lane, at + moved.get(team, 0)))
    if changes:
        await outcomes.record(tx, changes, owner=owner, publisher=publisher, held=held)
    return {one.key for one in held}


async def _claim_fairly(tx: Tx, queue: str, teams: list[int], most: int, now: Now, given: dict[str, Any]) -> list[Any]:
    """Claim up to `most` rows of a queue with an equal share per team, so that no team starves another (P9).

    Capacity left by teams with little work goes to teams that used their whole share.
    """
    at, moved = now
    turn = at % len(teams)
    teams = teams[turn:] + teams[:turn]
    rows: list[Any] = []
    while teams and len(rows) < most:
        teams = teams[: most - len(rows)]
        share = (most - len(rows)) // len(teams)
        who = [(team, at + moved.get(team, 0)) for team in teams]
        got = await tx.run("claim", lane=queue, teams=who, share=share, claims=CLAIMS_MAX, **given)
        rows += got
        taken = Counter([row[2] for row in got])
        teams = [team for team in teams if taken[team] == share]
    return _in_turn(rows)


def _in_turn(rows: list[Any]) -> list[Any]:
    """Interleave rows by team, each team's oldest first; databases return claimed rows in any order."""
    before = Counter[int]()
    placed = []
    for row in sorted(rows, key=itemgetter(DUE_AT, 0)):
        placed.append((before[row[2]], row))
        before[row[2]] += 1
    return [row for _, row in sorted(placed, key=itemgetter(0))]


async def _due_teams(tx: Tx, lane: str, now: Now) -> dict[Priority, list[int]]:
    """Return the teams with due work by priority, most urgent first.

    Sets a wakeup for the time at which the next waiting row becomes due.
    """
    rows = await tx.run("waiting_teams", lanes=[(queue_of(lane, priority),) for priority in PRIORITIES])
    at, moved = now
    waits = [(queue, team, due_at - at - moved.get(team, 0)) for queue, team, due_at in rows]
    if later := [wait for _, _, wait in waits if wait > 0]:
        note(tx, lane, min(later))
    due = {p: [team for queue, team, wait in waits if queue == queue_of(lane, p) and wait <= 0] for p in PRIORITIES}
    return {priority: teams for priority, teams in due.items() if teams}


async def claim_suspect(tx: Tx, owner: str, now: Now, leases: Leases) -> list[Claim]:
    """Claim one due poison-message candidate, to be processed in isolation (P14).

    A candidate is a message whose worker died while processing it.
    """
    lease_until = await leases.until(tx)
    if leases.off():
        return []
    at, moved = now
    given = {"deaths": DEATHS_MAX, "again": ALONE_AGAIN_MS, "now": at, "moved": list(moved.items())}
    rows = await tx.run("claim_suspect", owner=owner, lease_until=lease_until, **given)
    await _release_surplus(tx, owner, rows[1:], shared=0)
    return await _read(tx, [(row, "normal") for row in rows[:1]], alone=True)


async def _read(tx: Tx, rows: Sequence[tuple[Any, Priority]], *, alone: bool = False) -> list[Claim]:
    if not rows:
        return []
    asked = {(row[3], row[4]) for row, _ in rows}
    places = {(place[0], place[1]): place for place in await tx.run("claimed_recipients", places=list(asked))}
    if len(places) < len(asked):  # a report about a message purged while delivery was paused
        await tx.run("delete_outbox", keys=[(row[0],) for row, _ in rows if (row[3], row[4]) not in places])
        rows = [one for one in rows if (one[0][3], one[0][4]) in places]
    messages = [(message,) for message in {row[3] for row, _ in rows if row[5] is None}]
    contents: dict[int, bytes] = {}
    if messages:
        contents = {message: body.encode() for message, body in await tx.run("contents", messages=messages)}
    claims = []
    for row, priority in rows:
        key, epoch, team, message, position, reports, first_at, attempt, deferrals, uncertain, *times = row
        absent_at, due_at, expires_at, held_at, claimed = times
        _, _, address, given, id_, channel, sandbox, country, trace, suppressed_at = places[message, position]
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
                caught=sandbox == CAUGHT,
                country=country,
                address=address,
                given=given,
                content=contents.get(message, b"{}"),
                reports=_reports.decode(reports) if reports else (),
                first_at=first_at,
                due_at=due_at,
                attempt=attempt,
                deferrals=_deferrals.decode(deferrals),
                uncertain=uncertain,
                absent_at=absent_at,
                held_at=held_at,
                priority=priority,
                queue=QUEUE_OF[LANE[channel], priority],
                suppressed=suppressed_at is not None,
                scheduled=attempt == 0 and due_at > first_at,
                expires_at=expires_at,
                alone=alone,
                reclaimed=claimed > 1,
                trace=trace,
            )
        )
    return claims


async def _find_waiting(tx: Tx, whose: MessageId, channel: Channel) -> tuple[int, str, str, list[Any]] | None:
    """Return key, status and record of a message, and its outbox rows if no recipient was claimed yet.

    None if not found.
    """
    team, id_ = whose
    found = await tx.run("find_message", team=team, id=id_)
    if not found:
        return None
    message, status, created_at, record = found[0]
    added = read_record(record)
    due_at = max(created_at, parse_timestamp(added.scheduled_at or "") or 0)
    queue = queue_of(LANE[channel], added.priority)
    rows = await tx.run("waiting_rows", lane=queue, team=team, message=message, due_at=due_at)
    everyone = await tx.run("message_recipients", message=message)
    return message, status, record, list(rows) if len(rows) == len(everyone) else []


async def heartbeat(tx: Tx, owner: str, claims: Sequence[Claim], leases: Leases) -> set[int]:
    """Renew the leases of the claims; return the keys still owned by `owner`."""
    if not claims:
        return set()
    held = [(c.key, c.epoch) for c in claims]
    rows = await tx.run("heartbeat", owner=owner, claims=held, lease_until=await leases.until(tx))
    return {row[0] for row in rows}


async def release(tx: Tx, owner: str, claims: Sequence[Claim]) -> None:
    if claims:
        held = [(c.key, c.epoch, int(not c.alone), int(c.alone)) for c in claims]
        await tx.run("release_claims", owner=owner, claims=held)


async def join(tx: Tx, owner: str, claims: Sequence[Claim]) -> None:
    """Record that the claims are no longer processed in isolation.

    A worker's death then no longer counts against these claims.
    """
    if alone := [(c.key, c.epoch) for c in claims if c.alone]:
        await tx.run("join_others", owner=owner, claims=alone)


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
        self._changes: GroupCommit[Change, bool] = GroupCommit(
            database, lambda tx, items: outcomes.record(tx, items, owner=owner, publisher=publisher)
        )
        self._turns: Counter[str] = Counter()
        self._began: set[str] = set()  # lanes from which this process has claimed
        self.queue = Probe(self.depth)

    async def claim(self, lane: str, most: int, room: Mapping[Priority, int] | None = None) -> list[Claim]:
        """Claim up to `most` rows of a lane, at most `room` of each priority (None: no limit per priority).

        Due simulator reports are applied at once, except in the first claim of a lane: a report that killed the
        previous process must be claimed, because only a kept claim counts its deaths (P14).
        """
        now, turn, leases = (self._clock.now(), self._clock.moved), self._turns[lane], self._leases
        rooms = room or dict.fromkeys(PRIORITIES, most)

        async def story(tx: Tx, *, apply: bool) -> tuple[list[Claim], int]:
            rows, priorities = await claim(tx, self._owner, lane, most, rooms, turn, now, leases)
            done = await apply_due(tx, rows, lane, now, self._owner, self._publisher) if apply else ()
            left = [(row, priority) for row, priority in zip(rows, priorities, strict=True) if row[0] not in done]
            if done and (len(rows) == most or any(n == rooms[one] for one, n in Counter(priorities).items())):
                note(tx, lane)  # more rows may be due, which the caller cannot see from the claims returned
            return await _read(tx, left), len(rows)

        try:
            claims, count = await self._database.write(lambda tx: story(tx, apply=lane in self._began))
        except StoreUnavailable:
            raise
        except Exception as error:  # apply reports one at a time, so that only the broken report fails
            log.error("reports not applied together", lane=lane, error=type(error).__name__)
            claims, count = await self._database.write(lambda tx: story(tx, apply=False))
        self._began.add(lane)
        self._turns[lane] += count
        return claims

    async def release(self, claims: Sequence[Claim]) -> None:
        await self._database.write(lambda tx: release(tx, self._owner, claims))

    async def suspects(self) -> int:
        """Return the number of poison-message candidates that wait to be processed in isolation."""
        given = {"deaths": DEATHS_MAX, "now": self._clock.now(), "moved": list(self._clock.moved.items())}
        ((count,),) = await self._database.read(lambda tx: tx.run("suspects", **given))
        return int(count)

    async def claim_suspect(self) -> list[Claim]:
        now = self._clock.now(), self._clock.moved
        return await self._database.write(lambda tx: claim_suspect(tx, self._owner, now, self._leases))

    async def join(self, claims: Sequence[Claim]) -> None:
        """Record that the claims are no longer processed in isolation."""
        await self._database.write(lambda tx: join(tx, self._owner, claims))

    async def heartbeat(self, claims: Sequence[Claim]) -> set[int]:
        """Renew the leases of the claims; return the keys still owned by this process."""
        return await self._database.write(lambda tx: heartbeat(tx, self._owner, claims, self._leases))

    def record(self, change: Change) -> Awaitable[bool]:
        """Record a change. Returns False if the claim was lost and nothing was written."""
        return self._changes.submit(change)

    async def cancel(self, whose: MessageId, channel: Channel) -> Waiting | None:
        """Cancel a message that no worker has claimed. None if not found."""
        now, publisher = self._clock.of(whose[0]), self._publisher

        async def story(tx: Tx) -> Waiting | None:
            found = await _find_waiting(tx, whose, channel)
            if found is None:
                return None
            message, status, record, rows = found
            changes = [
                Change(
                    at=now,
                    message=message,
                    position=position,
                    wanted="failed",
                    detail=own("canceled", CANCELED),
                    claim=HeldClaim(key, epoch),
                )
                for key, epoch, position, _ in rows
            ]
            done = bool(changes) and all(await outcomes.record(tx, changes, owner=None, publisher=publisher))
            return Waiting(record=record, status="failed" if done else status, done=done)

        return await self._database.write(story)

    async def reschedule(
        self, whose: MessageId, channel: Channel, due_at: int, check: Callable[[Waiting], None]
    ) -> Waiting | None:
        """Change the due time of a message that still waits, if `check` does not raise. None if not found."""

        async def story(tx: Tx) -> Waiting | None:
            found = await _find_waiting(tx, whose, channel)
            if found is None:
                return None
            message, status, record, rows = found
            if status != "queued" or not rows:
                return Waiting(record=record, status=status, done=False)
            moved = msgspec.json.encode(msgspec.json.decode(record) | {"scheduled_at": timestamp(due_at)}).decode()
            waiting = Waiting(record=moved, status=status, done=True, expires_at=rows[0][3])
            check(waiting)
            await tx.run("move_rows", keys=[(row[0],) for row in rows], due_at=due_at)
            await tx.run("change_record", message=message, record=moved)
            note(tx, LANE[channel], max(0, due_at - self._clock.of(whose[0])))
            return waiting

        return await self._database.write(story)

    async def wake(self, lane: str) -> None:
        """Make messages that waited for an unavailable carrier due again at their original due time."""
        now, queues = self._clock.now(), [(queue_of(lane, priority),) for priority in PRIORITIES]

        async def story(tx: Tx) -> int:
            note(tx, lane)
            return len(await tx.run("wake_held", lanes=queues, now=now, most=WAKE_MOST))

        while await self._database.write(story) >= WAKE_MOST:
            pass

    async def take_back(self) -> None:
        """Release, at startup, everything that an earlier run of this process had claimed."""
        now, publisher = self._clock.now(), self._publisher

        async def story(tx: Tx) -> None:
            await tx.run("take_back", owner=self._owner)
            await tx.run("take_back_idempotency", owner=self._owner)
            await tx.run("take_back_endpoints", owner=self._owner)
            await verifications.give_up(tx, self._owner, 0, now, publisher)

        await self._database.write(story)

    async def reclaim(self) -> int:
        """Release claims of dead processes and move poison messages to the dead-letter queue.

        Returns the number of messages moved.
        """
        now, publisher, leases = self._clock.now(), self._publisher, self._leases
        await self._database.write(leases.confirm_contact)

        async def story(tx: Tx) -> int:
            await tx.run("reclaim", over=leases.abandoned())
            await verifications.give_up(tx, "", leases.abandoned(IDEMPOTENCY_LEASE_MS), now, publisher)
            verifications.tell(tx, "expired", len(await tx.run("expire_verifications", now=now)))
            return await outcomes.quarantine(tx, now=now, moved=self._clock.moved, publisher=publisher)

        return await self._database.write(story)

    async def depth(self) -> list[LaneDepth]:
        """Return the depth of every lane; waiting rows are counted up to DEPTH_MOST per team."""
        now = self._clock.now()
        found = {lane: LaneDepth(lane) for lane in SLOTS}
        for queue in await self._database.read(lambda tx: queues(tx, now, DEPTH_MOST)):
            before = found[queue.lane]
            since = [at for at in (before.since, queue.first_due, queue.tried_since) if at is not None]
            waiting = before.waiting + queue.due + queue.later + queue.working
            found[queue.lane] = LaneDepth(queue.lane, waiting, min(since, default=None))
        return list(found.values())
