"""Store of webhook deliveries: endpoint leases, due deliveries, recorded attempts, and replays."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.domain.audit.actor import SERVICE, AuditEntry
from heliograph.domain.delivery.lanes import WEBHOOKS
from heliograph.domain.events import TEST, StoredEvent
from heliograph.domain.ids import PREFIXES, ulid
from heliograph.domain.limits import DAY_MS, MINUTE_MS
from heliograph.domain.setup.records import Webhook
from heliograph.domain.setup.snapshot import Setup, to_row
from heliograph.runtime.clock import Clock
from heliograph.storage import audit, setup
from heliograph.storage.engine.database import Database, Tx, note, write_serialized
from heliograph.storage.engine.group_commit import GroupCommit
from heliograph.storage.events import OWN, Event, Publisher
from heliograph.storage.leases import Leases
from heliograph.storage.setup import SetupChange, SetupStore
from heliograph.webhooks.policy.retry import Silence

REPLAY_MAX = 100_000  # maximum events per replay
PORTION = 500  # rows per transaction

PAST_ANY_ID = "~"  # sorts after every id


class NoSuchEvents(Exception):
    """The team has no published events with these ids."""

    def __init__(self, ids: Sequence[str]) -> None:
        super().__init__(f"no events {', '.join(ids)}")
        self.ids = ids


class NotOurs(Exception):
    """The endpoint's lease was lost to another process; nothing was recorded."""


class Lease(msgspec.Struct, frozen=True):
    """Exclusive right of this process to send to an endpoint, while renewed."""

    webhook: str
    epoch: int


class Due(msgspec.Struct, frozen=True):
    """A delivery of an event to a webhook that is due now."""

    key: int
    team: int
    event: str
    subject: str
    attempt: int  # number of attempts so far
    earlier: int  # number of attempts before the last replay
    first_at: int | None  # time of the first attempt since the last replay
    told: StoredEvent | None = None  # None if the event is no longer kept


class DueDeliveries(msgspec.Struct, frozen=True):
    new: list[Due]  # in the order of their events
    again: list[Due]  # retries and replays, in the order of their due times


class DeliveryTry(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery attempt and the resulting state of the delivery."""

    lease: Lease
    due: Due
    at: int
    status: int | None
    reason: Silence | None = None  # why there was no response
    error: str | None  # the reason as text for people
    duration_ms: int
    answer: str
    state: str  # delivered, waiting, exhausted
    due_at: int  # time of the next attempt if `state` is waiting
    elsewhere: bool = False  # sent to a message's own callback URL: does not affect the endpoint's failing state


class StoredAttempt(msgspec.Struct, frozen=True):
    number: int
    at: int
    status: int | None
    reason: Silence | None  # also None for attempts older than this column
    error: str | None
    duration_ms: int
    answer: str


class StoredDelivery(msgspec.Struct, frozen=True, kw_only=True):
    key: int
    event: str
    type: str
    state: str
    attempt: int
    due_at: int | None  # time of the next attempt
    created_at: int  # creation time of the event; a replay does not change it
    attempts: list[StoredAttempt]


class WantedEvents(msgspec.Struct, frozen=True, kw_only=True):
    """Selection of events to replay: by id, or created between two times (both exclusive; None is unbounded)."""

    event_ids: Sequence[str] | None = None
    created_after: int | None = None
    created_before: int | None = None
    failed_only: bool = False


class _Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A replay request.

    Events of types that the webhook does not subscribe to are included only if sent to it before.
    """

    team: int
    webhook: str
    wanted: WantedEvents
    heard: Callable[[str], bool]
    entry: AuditEntry
    now: int
    ahead: int  # offset of the team's test clock: event ids may be this much older than event times


# -- endpoint leases -------------------------------------------------------------------------------------------


async def due_webhooks(tx: Tx, owner: str, now: int, moved: list[tuple[str, int]], leases: Leases) -> dict[str, bool]:
    """Map each webhook with due deliveries to whether another process holds its lease.

    `moved`: webhooks of teams with a test clock, with their current time.
    """
    rows = await tx.run("due_webhooks", owner=owner, now=now, moved=moved)
    over = await leases.over(tx) if any(lease_until is not None for _, lease_until in rows) else 0
    return {webhook: lease_until is not None and lease_until > over for webhook, lease_until in rows}


async def claim(tx: Tx, owner: str, webhooks: Iterable[str], leases: Leases) -> list[Lease]:
    """Claim the endpoints whose lease no other process holds."""
    over, lease_until = await leases.over(tx), await leases.until(tx)
    if leases.off():
        return []
    rows = [(webhook,) for webhook in webhooks]
    got = await tx.run("claim_endpoints", owner=owner, webhooks=rows, lease_until=lease_until, over=over)
    return [Lease(*row) for row in got]


async def keep(tx: Tx, owner: str, held: Sequence[Lease], leases: Leases) -> set[str]:
    """Renew leases; return the webhooks whose lease was renewed. The other leases are lost."""
    endpoints = [(lease.webhook, lease.epoch) for lease in held]
    if not endpoints:
        return set()
    rows = await tx.run("keep_endpoints", owner=owner, endpoints=endpoints, lease_until=await leases.until(tx))
    return {row[0] for row in rows}


# -- sending -----------------------------------------------------------------------------------------------------


async def due(tx: Tx, webhook: str, limit: int, now: int) -> DueDeliveries:
    new = await tx.run("new_deliveries", webhook=webhook, limit=limit)
    again = await tx.run("due_deliveries", webhook=webhook, limit=limit, now=now)
    return DueDeliveries(_to_due(new), _to_due(again))


def _to_due(rows: Sequence[Any]) -> list[Due]:
    return [
        Due(key, team, event, subject, attempt, earlier, first_at, StoredEvent(*told) if told[0] else None)
        for key, team, event, subject, attempt, earlier, first_at, *told in rows
    ]


async def record(tx: Tx, tries: Sequence[DeliveryTry], owner: str) -> list[int | None | Exception]:
    """Record attempts; return for each since when its endpoint has been failing.

    None if healthy, NotOurs if the lease was lost.
    """
    held = sorted({(one.lease.webhook, one.lease.epoch) for one in tries})
    before = {tuple(row[:2]): row[2] for row in await tx.run("fence_endpoints", endpoints=held, owner=owner)}
    since = dict(before)
    answers: list[int | None | Exception] = []
    ours = []
    for one in tries:
        fence = one.lease.webhook, one.lease.epoch
        if fence not in since:
            answers.append(NotOurs(one.lease.webhook))
            continue
        if not one.elsewhere:
            since[fence] = None if one.state == "delivered" else since[fence] or one.at
        answers.append(since[fence])
        ours.append(one)
    if ours:
        await _write(tx, ours)
    changed = [(webhook, at) for (webhook, epoch), at in since.items() if at != before[webhook, epoch]]
    if changed:
        await tx.run("update_endpoints", endpoints=changed)
    return answers


async def _write(tx: Tx, tries: Sequence[DeliveryTry]) -> None:
    for made in tries:
        if made.state == "waiting":
            note(tx, WEBHOOKS, made.due_at - made.at)
    rows = [(t.due.key, t.due.event, t.due.attempt, t.due.earlier, t.state, t.due_at, t.at) for t in tries]
    written = {tuple(row) for row in await tx.run("record_tries", tries=rows)}
    attempts = [
        (t.due.key, t.due.attempt + 1, t.at, t.status, t.reason, t.error, t.duration_ms, t.answer)
        for t in tries
        if (t.due.key, t.due.event) in written
    ]
    if attempts:
        await tx.run("insert_attempts", attempts=attempts)


# -- listing, replaying, deleting --------------------------------------------------------------------------------


async def stored(
    tx: Tx, webhook: str, before: str | None, limit: int, *, failed_only: bool = False
) -> list[StoredDelivery]:
    """Return deliveries, newest event first, plus one beyond `limit` if there are more.

    Includes the message callbacks that the webhook signs.
    """
    query = "list_failed" if failed_only else "list_deliveries"
    span = {"before": before or PAST_ANY_ID, "limit": limit + 1}
    both = [row for line in (webhook, webhook + OWN) for row in await tx.run(query, webhook=line, **span)]
    rows = sorted(both, key=lambda row: row[1], reverse=True)[: limit + 1]
    attempts: dict[int, list[StoredAttempt]] = defaultdict(list)
    for key, *attempt in await tx.run("attempts_of", deliveries=[(row[0],) for row in rows]):
        attempts[key].append(StoredAttempt(*attempt))
    return [
        StoredDelivery(
            key=key,
            event=event,
            type=type_,
            state=state,
            attempt=attempt,
            due_at=due_at if state == "waiting" else None,
            created_at=created_at,
            attempts=attempts[key],
        )
        for key, event, type_, state, attempt, due_at, created_at in rows
    ]


async def replay_ids(tx: Tx, asked: _Replay, ids: Sequence[str]) -> int:
    events = [(id_,) for id_ in dict.fromkeys(ids)]
    rows = await tx.run("replayable_by_id", team=asked.team, webhook=asked.webhook, events=events)
    found = {row[1] for row in rows}
    if missing := [id_ for (id_,) in events if id_ not in found]:
        raise NoSuchEvents(missing)
    return await _replay(tx, asked, rows, 0)


async def replay_span(tx: Tx, asked: _Replay, after: str, done: int) -> tuple[str | None, int]:
    """Replay one batch of a time range; return the start of the next batch (None if done) and the total so far."""
    wanted, now = asked.wanted, asked.now
    start = -1 if wanted.created_after is None else wanted.created_after
    end = now + 1 if wanted.created_before is None else wanted.created_before
    id_ = PREFIXES["event"]
    rows = await tx.run(
        "replayable_failed" if wanted.failed_only else "replayable_by_time",
        team=asked.team,
        webhook=asked.webhook,
        created_after=start,
        created_before=end,
        # An id is generated when its event is stored, which is later than the event if the store was unavailable.
        after=after or id_ + ulid(max(0, start - MINUTE_MS - asked.ahead), 0),
        end=id_ + ulid(min(end, now) + DAY_MS, 0),
        limit=PORTION,
    )
    done = await _replay(tx, asked, rows, done)
    return rows[-1][1] if len(rows) == PORTION else None, done


async def _replay(tx: Tx, asked: _Replay, rows: Sequence[Any], done: int) -> int:
    """Schedule the chosen rows for delivery. The audit entry is written with the first non-empty batch."""
    chosen: list[tuple[str, str, int]] = []
    for _, event, type_, subject, state, attempt in sorted(tuple(row) for row in rows):
        failed = state == "exhausted" or (state == "waiting" and attempt > 0)
        heard = state is not None or (type_ != TEST and asked.heard(type_))
        if failed if asked.wanted.failed_only else heard:
            # Increasing due times preserve the order, also among events that were never sent.
            chosen.append((event, subject, asked.now + done + len(chosen)))
    if chosen:
        given = {"webhook": asked.webhook, "team": asked.team, "now": asked.now}
        await tx.run("replay_deliveries", deliveries=chosen, **given)
        note(tx, WEBHOOKS)
        if not done:
            await audit.write(tx, asked.entry)
    return done + len(chosen)


async def drop(tx: Tx, webhook: str) -> bool:
    """Delete one batch of a webhook's deliveries; return whether there may be more."""
    await tx.run("drop_endpoint", webhook=webhook)
    return await _drop(tx, await tx.run("deliveries_of", webhook=webhook, limit=PORTION))


async def purge(tx: Tx, before: int) -> bool:
    """Delete one batch of deliveries created before `before`; return whether there may be more."""
    return await _drop(tx, await tx.run("old_deliveries", before=before, limit=PORTION))


async def _drop(tx: Tx, rows: Sequence[Any]) -> bool:
    if rows:
        keys = [tuple(row) for row in rows]
        await tx.run("drop_attempts", deliveries=keys)
        await tx.run("drop_deliveries", deliveries=keys)
    return len(rows) == PORTION


class Deliveries:
    """Store of webhook deliveries for one process, which `owner` identifies in leases."""

    def __init__(self, database: Database, clock: Clock, owner: str, leases: Leases, setup: SetupStore) -> None:
        self._database = database
        self._clock = clock
        self._owner = owner
        self._leases = leases
        self._setup = setup
        self._tries: GroupCommit[DeliveryTry, int | None] = GroupCommit(
            database, lambda tx, items: record(tx, items, owner)
        )

    async def due_webhooks(self) -> dict[str, bool]:
        """Map webhooks with due deliveries, including disabled ones, to whether another process holds their lease."""
        now, setup = self._clock.now(), self._setup.current
        moved = [
            (line, now + ahead)
            for team, ahead in setup.moved.items()
            for hook in setup.webhooks.get(team, ())
            for line in (hook.id, hook.id + OWN)
        ]
        return await self._database.read(lambda tx: due_webhooks(tx, self._owner, now, moved, self._leases))

    async def claim(self, webhooks: Sequence[str]) -> list[Lease]:
        return await self._database.write(lambda tx: claim(tx, self._owner, webhooks, self._leases))

    async def keep(self, leases: Sequence[Lease]) -> set[str]:
        """Renew the leases (heartbeat); return the webhooks whose lease is still held."""
        return await self._database.write(lambda tx: keep(tx, self._owner, leases, self._leases))

    async def release(self, lease: Lease) -> None:
        given = {"webhook": lease.webhook, "epoch": lease.epoch, "owner": self._owner}
        await self._database.write(lambda tx: tx.run("release_endpoint", **given))

    async def due(self, webhook: str, limit: int) -> DueDeliveries:
        """Return at most `limit` new and `limit` repeated due deliveries, with their events."""
        hook = self._setup.current.records.get(("webhook", webhook.removesuffix(OWN)))
        team = self._setup.current.teams.get(hook.team) if isinstance(hook, Webhook) else None
        now = self._clock.of(team.record.ref if team else 0)
        return await self._database.read(lambda tx: due(tx, webhook, limit, now))

    def record(self, made: DeliveryTry) -> Awaitable[int | None]:
        """Record an attempt; return since when the endpoint has been failing. Raises NotOurs if the lease was lost."""
        return self._tries.submit(made)

    async def disable(self, hook: Webhook, reason: str) -> bool:
        """Disable a webhook. Return False if it was changed or disabled since it was read."""
        now, disabled = self._clock.now(), replace(hook, enabled=False, disabled_reason=reason)

        def decide(current: Setup, _: int) -> SetupChange:
            if current.records.get(("webhook", hook.id)) != hook:
                return SetupChange()
            entry = SERVICE.did(now, "webhook.disable", hook.url, f"{hook.id}: {reason}", team=hook.team)
            return SetupChange(rows=[to_row("webhook", hook.id, disabled, hook.team)], audit=entry)

        async def story(tx: Tx) -> bool:
            done = bool((await setup.change(tx, decide, now, self._setup.publisher, self._setup.current)).rows)
            if done:
                await tx.run("forget_failures", webhook=hook.id)  # so that the failing period restarts after enabling
            return done

        return await self._setup.write(hook.team, story)

    async def failing_since(self, webhooks: Iterable[str]) -> dict[str, int]:
        """Return, for each of these webhooks whose last attempts failed, the time since which they fail."""
        asked = [(id_,) for id_ in webhooks]
        return dict(await self._database.read(lambda tx: tx.run("failing_endpoints", webhooks=asked)))

    async def page(
        self, webhook: str, before: str | None, limit: int, *, failed_only: bool = False
    ) -> list[StoredDelivery]:
        """Return deliveries before the event `before`, newest first, plus one beyond `limit` if there are more."""
        return await self._database.read(lambda tx: stored(tx, webhook, before, limit, failed_only=failed_only))

    async def replay(
        self, team: int, webhook: str, wanted: WantedEvents, heard: Callable[[str], bool], entry: AuditEntry
    ) -> int:
        """Send events again with the same ids and bodies. No audit entry is written if no event matches.

        Return the number of events; a time range stops at REPLAY_MAX. Raises NoSuchEvents, and then sends none.
        """
        now, ids = self._clock.of(team), wanted.event_ids
        asked = _Replay(
            team=team,
            webhook=webhook,
            wanted=wanted,
            heard=heard,
            entry=entry,
            now=now,
            ahead=self._clock.moved.get(team, 0),
        )
        if ids is not None:
            done = await write_serialized(self._database, lambda tx: replay_ids(tx, asked, ids), entry.team)
        else:
            after: str | None = ""
            done = 0
            while after is not None and done < REPLAY_MAX:
                span = partial(replay_span, asked=asked, after=after, done=done)
                after, done = await write_serialized(self._database, span, entry.team)
        return done

    async def tell(
        self, team: int, webhook: str, type_: str, subject: str, payload: dict[str, Any], entry: AuditEntry
    ) -> str:
        """Publish an event to this webhook only; return the event id."""
        publisher = Publisher(self._clock.new_id, lambda *_: [webhook])
        event = Event(
            id=self._clock.new_id("evt_"),
            team=team,
            subject=subject,
            type=type_,
            detail=msgspec.json.encode(payload).decode(),
            created_at=self._clock.of(team),
        )

        async def story(tx: Tx) -> None:
            await publisher.publish(tx, [event])
            await audit.write(tx, entry)

        await write_serialized(self._database, story, entry.team)
        return event.id

    async def drop(self, webhook: str) -> None:
        """Delete all deliveries of a webhook."""
        for line in (webhook, webhook + OWN):
            while await self._database.write(partial(drop, webhook=line)):
                continue
