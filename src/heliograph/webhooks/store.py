"""Store of webhook deliveries: endpoint leases, due deliveries, recorded attempts, and replays."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.domain.audit.actor import SERVICE, AuditEntry
from heliograph.domain.delivery.lanes import WEBHOOKS
from heliograph.domain.event_data import encode_data
from heliograph.domain.events import TEST, StoredEvent
from heliograph.domain.ids import PREFIXES, ulid
from heliograph.domain.limits import DAY_MS, MINUTE_MS
from heliograph.domain.setup.records import Webhook
from heliograph.domain.setup.snapshot import Setup, to_row
from heliograph.runtime.clock import Clock
from heliograph.storage import audit, setup
from heliograph.storage.engine.database import Database, Tx, schedule_wakeup, write_serialized
from heliograph.storage.engine.group_commit import GroupCommit
from heliograph.storage.events import CALLBACK_SUFFIX, Event, Publisher
from heliograph.storage.leases import Leases
from heliograph.storage.setup import SetupChange, SetupStore
from heliograph.webhooks.policy.retry import NoResponseReason

REPLAY_MAX = 100_000  # maximum events per replay
BATCH_SIZE = 500  # rows per transaction

AFTER_ANY_ID = "~"  # cursor of the first page: sorts after every id


class NoSuchEvents(Exception):
    """Raised if the team has no published events with these ids."""

    def __init__(self, ids: Sequence[str]) -> None:
        super().__init__(f"no events {', '.join(ids)}")
        self.ids = ids


class EndpointLeaseLost(Exception):
    """Raised if another process took over the endpoint's lease; nothing was recorded."""


class Lease(msgspec.Struct, frozen=True):
    """Exclusive right of this process to send to an endpoint, until a renewal fails."""

    webhook: str
    epoch: int


class DueDelivery(msgspec.Struct, frozen=True):
    """A due delivery of an event to a webhook."""

    key: int
    team: int
    event_id: str
    subject: str
    attempts: int  # number of attempts so far
    earlier_attempts: int  # attempts before the last replay; the retry schedule does not count them
    first_at: int | None  # time of the first attempt since the last replay
    stored_event: StoredEvent | None = None  # None if the event was deleted


class DueDeliveries(msgspec.Struct, frozen=True):
    new: list[DueDelivery]  # never attempted, in the order of their events
    repeated: list[DueDelivery]  # retried or replayed, in the order of their due times


class DeliveryAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery attempt, and the state of the delivery after it."""

    lease: Lease
    due: DueDelivery
    started_at: int
    status: int | None
    reason: NoResponseReason | None = None  # why there was no response
    error: str | None  # `reason` as a sentence for users
    duration_ms: int
    answer: str
    state: str  # delivered, waiting, exhausted
    due_at: int  # time of the next attempt if `state` is waiting
    # Whether it was sent to the callback URL of a message; such results do not affect whether the webhook is failing
    is_callback: bool = False


class StoredAttempt(msgspec.Struct, frozen=True):
    number: int
    at: int
    status: int | None
    reason: NoResponseReason | None  # None if there was a response, or for attempts older than this column
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


class ReplaySelection(msgspec.Struct, frozen=True, kw_only=True):
    """Selects events to replay: by id, or created between two times (both exclusive; None: unbounded)."""

    event_ids: Sequence[str] | None = None
    created_after: int | None = None
    created_before: int | None = None
    failed_only: bool = False


class _ReplayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A replay request. Events that were sent to the webhook before match even if it no longer subscribes to them."""

    team: int
    webhook: str
    selection: ReplaySelection
    subscribes: Callable[[str], bool]
    entry: AuditEntry
    now: int
    # Offset of the team's test clock; an event's id, which has real time, may be this much older than the event
    clock_offset: int


# -- endpoint leases -------------------------------------------------------------------------------------------


async def due_webhooks(
    tx: Tx, owner: str, now: int, webhook_times: list[tuple[str, int]], leases: Leases
) -> dict[str, bool]:
    """Return webhook → whether another process holds its lease, for all webhooks with due deliveries.

    `webhook_times`: (webhook, current time) of webhooks whose teams have a test clock.
    """
    rows = await tx.run("due_webhooks", owner=owner, now=now, moved=webhook_times)
    expired_before = await leases.expired_before(tx) if any(lease_until is not None for _, lease_until in rows) else 0
    return {webhook: lease_until is not None and lease_until > expired_before for webhook, lease_until in rows}


async def claim(tx: Tx, owner: str, webhooks: Iterable[str], leases: Leases) -> list[Lease]:
    """Lease the endpoints that no other process holds."""
    expired_before, lease_until = await leases.expired_before(tx), await leases.deadline(tx)
    if leases.clock_error():
        return []
    rows = [(webhook,) for webhook in webhooks]
    claimed = await tx.run("claim_endpoints", owner=owner, webhooks=rows, lease_until=lease_until, over=expired_before)
    return [Lease(*row) for row in claimed]


async def renew(tx: Tx, owner: str, endpoint_leases: Sequence[Lease], leases: Leases) -> set[str]:
    """Renew leases; return the webhooks of the renewed leases. The other leases are lost."""
    endpoints = [(lease.webhook, lease.epoch) for lease in endpoint_leases]
    if not endpoints:
        return set()
    rows = await tx.run("renew_endpoints", owner=owner, endpoints=endpoints, lease_until=await leases.deadline(tx))
    return {row[0] for row in rows}


# -- sending -----------------------------------------------------------------------------------------------------


async def read_due(tx: Tx, webhook: str, limit: int, now: int) -> DueDeliveries:
    new = await tx.run("new_deliveries", webhook=webhook, limit=limit)
    retries = await tx.run("due_deliveries", webhook=webhook, limit=limit, now=now)
    return DueDeliveries(_to_due(new), _to_due(retries))


def _to_due(rows: Sequence[Any]) -> list[DueDelivery]:
    return [
        DueDelivery(
            key,
            team,
            event,
            subject,
            attempt,
            earlier,
            first_at,
            StoredEvent(*event_columns) if event_columns[0] else None,
        )
        for key, team, event, subject, attempt, earlier, first_at, *event_columns in rows
    ]


async def record(tx: Tx, attempts: Sequence[DeliveryAttempt], owner: str) -> list[int | None | Exception]:
    """Record attempts; return for each the time since which its endpoint has been failing.

    The result is None for a healthy endpoint, and EndpointLeaseLost if the lease was lost.
    """
    lease_keys = sorted({(attempt.lease.webhook, attempt.lease.epoch) for attempt in attempts})
    previously_failing_since = {
        tuple(row[:2]): row[2] for row in await tx.run("fence_endpoints", endpoints=lease_keys, owner=owner)
    }
    failing_since = dict(previously_failing_since)
    results: list[int | None | Exception] = []
    recorded = []
    for attempt in attempts:
        lease_key = attempt.lease.webhook, attempt.lease.epoch
        if lease_key not in failing_since:
            results.append(EndpointLeaseLost(attempt.lease.webhook))
            continue
        if not attempt.is_callback:
            failing_since[lease_key] = (
                None if attempt.state == "delivered" else failing_since[lease_key] or attempt.started_at
            )
        results.append(failing_since[lease_key])
        recorded.append(attempt)
    if recorded:
        await _write_attempts(tx, recorded)
    changed_rows = [
        (webhook, since)
        for (webhook, epoch), since in failing_since.items()
        if since != previously_failing_since[webhook, epoch]
    ]
    if changed_rows:
        await tx.run("update_endpoints", endpoints=changed_rows)
    return results


async def _write_attempts(tx: Tx, attempts: Sequence[DeliveryAttempt]) -> None:
    for attempt in attempts:
        if attempt.state == "waiting":
            schedule_wakeup(tx, WEBHOOKS, attempt.due_at - attempt.started_at)
    rows = [
        (t.due.key, t.due.event_id, t.due.attempts, t.due.earlier_attempts, t.state, t.due_at, t.started_at)
        for t in attempts
    ]
    written = {tuple(row) for row in await tx.run("record_attempts", tries=rows)}
    attempt_rows = [
        (t.due.key, t.due.attempts + 1, t.started_at, t.status, t.reason, t.error, t.duration_ms, t.answer)
        for t in attempts
        if (t.due.key, t.due.event_id) in written
    ]
    if attempt_rows:
        await tx.run("insert_attempts", attempts=attempt_rows)


# -- listing, replaying, deleting --------------------------------------------------------------------------------


async def list_deliveries(
    tx: Tx, webhook: str, before: str | None, limit: int, *, failed_only: bool = False
) -> list[StoredDelivery]:
    """Return deliveries, newest event first; one more than `limit` if there are more.

    Includes deliveries to callback URLs of messages, because they are signed with the webhook's secrets.
    """
    query = "list_failed" if failed_only else "list_deliveries"
    page_params = {"before": before or AFTER_ANY_ID, "limit": limit + 1}
    all_rows = [
        row
        for queue_id in (webhook, webhook + CALLBACK_SUFFIX)
        for row in await tx.run(query, webhook=queue_id, **page_params)
    ]
    rows = sorted(all_rows, key=lambda row: row[1], reverse=True)[: limit + 1]
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


async def replay_ids(tx: Tx, request: _ReplayRequest, ids: Sequence[str]) -> int:
    events = [(id_,) for id_ in dict.fromkeys(ids)]
    rows = await tx.run("replayable_by_id", team=request.team, webhook=request.webhook, events=events)
    found_ids = {row[1] for row in rows}
    if missing := [id_ for (id_,) in events if id_ not in found_ids]:
        raise NoSuchEvents(missing)
    return await _replay_rows(tx, request, rows, 0)


async def replay_range(tx: Tx, request: _ReplayRequest, after: str, replayed: int) -> tuple[str | None, int]:
    """Replay one batch of a time range; return `after` and `replayed` for the next batch.

    `after` is the id of the last event of this batch, None if no batch follows; `replayed` is the total so far.
    """
    selection, now = request.selection, request.now
    start = -1 if selection.created_after is None else selection.created_after
    end = now + 1 if selection.created_before is None else selection.created_before
    id_ = PREFIXES["event"]
    rows = await tx.run(
        "replayable_failed" if selection.failed_only else "replayable_by_time",
        team=request.team,
        webhook=request.webhook,
        created_after=start,
        created_before=end,
        # An id has the time at which its event was stored, which may be later than the event's time.
        after=after or id_ + ulid(max(0, start - MINUTE_MS - request.clock_offset), 0),
        end=id_ + ulid(min(end, now) + DAY_MS, 0),
        limit=BATCH_SIZE,
    )
    replayed = await _replay_rows(tx, request, rows, replayed)
    return rows[-1][1] if len(rows) == BATCH_SIZE else None, replayed


async def _replay_rows(tx: Tx, request: _ReplayRequest, rows: Sequence[Any], replayed: int) -> int:
    """Schedule the matching events for delivery; return `replayed` plus their number.

    The first batch with a matching event also writes the audit entry.
    """
    chosen_events: list[tuple[str, str, int]] = []
    for _, event, type_, subject, state, attempt in sorted(tuple(row) for row in rows):
        has_failed = state == "exhausted" or (state == "waiting" and attempt > 0)
        is_subscribed = state is not None or (type_ != TEST and request.subscribes(type_))
        if has_failed if request.selection.failed_only else is_subscribed:
            # increasing due times keep the order of events
            chosen_events.append((event, subject, request.now + replayed + len(chosen_events)))
    if chosen_events:
        params = {"webhook": request.webhook, "team": request.team, "now": request.now}
        await tx.run("replay_deliveries", deliveries=chosen_events, **params)
        schedule_wakeup(tx, WEBHOOKS)
        if not replayed:
            await audit.write(tx, request.entry)
    return replayed + len(chosen_events)


async def delete_batch(tx: Tx, webhook: str) -> bool:
    """Delete one batch of a webhook's deliveries; return whether there may be more."""
    await tx.run("delete_endpoint", webhook=webhook)
    return await _delete_rows(tx, await tx.run("deliveries_of", webhook=webhook, limit=BATCH_SIZE))


async def purge_batch(tx: Tx, before: int) -> bool:
    """Delete one batch of deliveries created before `before`; return whether there may be more."""
    return await _delete_rows(tx, await tx.run("old_deliveries", before=before, limit=BATCH_SIZE))


async def _delete_rows(tx: Tx, rows: Sequence[Any]) -> bool:
    if rows:
        keys = [tuple(row) for row in rows]
        await tx.run("delete_attempts", deliveries=keys)
        await tx.run("delete_deliveries", deliveries=keys)
    return len(rows) == BATCH_SIZE


class DeliveryStore:
    """Store of webhook deliveries for one process; `owner` identifies the process in leases."""

    def __init__(self, database: Database, clock: Clock, owner: str, leases: Leases, setup: SetupStore) -> None:
        self._database = database
        self._clock = clock
        self._owner = owner
        self._leases = leases
        self._setup = setup
        self._attempts: GroupCommit[DeliveryAttempt, int | None] = GroupCommit(
            database, lambda tx, items: record(tx, items, owner)
        )

    async def due_webhooks(self) -> dict[str, bool]:
        """Return webhook → whether another process holds its lease, for all webhooks with due deliveries.

        Includes disabled webhooks.
        """
        now, setup = self._clock.now(), self._setup.current
        webhook_times = [
            (queue_id, now + clock_offset)
            for team, clock_offset in setup.clock_offsets.items()
            for hook in setup.webhooks.get(team, ())
            for queue_id in (hook.id, hook.id + CALLBACK_SUFFIX)
        ]
        return await self._database.read(lambda tx: due_webhooks(tx, self._owner, now, webhook_times, self._leases))

    async def claim(self, webhooks: Sequence[str]) -> list[Lease]:
        return await self._database.write(lambda tx: claim(tx, self._owner, webhooks, self._leases))

    async def renew(self, leases: Sequence[Lease]) -> set[str]:
        """Renew the leases (heartbeat); return the webhooks whose lease is still held."""
        return await self._database.write(lambda tx: renew(tx, self._owner, leases, self._leases))

    async def release(self, lease: Lease) -> None:
        params = {"webhook": lease.webhook, "epoch": lease.epoch, "owner": self._owner}
        await self._database.write(lambda tx: tx.run("release_endpoint", **params))

    async def due(self, webhook: str, limit: int) -> DueDeliveries:
        """Return due deliveries with their events: at most `limit` new and `limit` repeated ones."""
        hook = self._setup.current.records.get(("webhook", webhook.removesuffix(CALLBACK_SUFFIX)))
        team = self._setup.current.teams.get(hook.team) if isinstance(hook, Webhook) else None
        now = self._clock.team_now(team.record.ref if team else 0)
        return await self._database.read(lambda tx: read_due(tx, webhook, limit, now))

    def record(self, attempt: DeliveryAttempt) -> Awaitable[int | None]:
        """Record an attempt; return since when the endpoint has been failing, or None. Raises EndpointLeaseLost."""
        return self._attempts.submit(attempt)

    async def disable(self, hook: Webhook, reason: str) -> bool:
        """Disable a webhook; return False if it was changed or disabled after `hook` was read."""
        now, disabled = self._clock.now(), replace(hook, enabled=False, disabled_reason=reason)

        def disable_webhook(current: Setup, _: int) -> SetupChange:
            if current.records.get(("webhook", hook.id)) != hook:
                return SetupChange()
            entry = SERVICE.audit_entry(now, "webhook.disable", hook.url, f"{hook.id}: {reason}", team=hook.team)
            return SetupChange(rows=[to_row("webhook", hook.id, disabled, hook.team)], audit=entry)

        async def write_change(tx: Tx) -> bool:
            change = await setup.apply_change(tx, disable_webhook, now, self._setup.publisher, self._setup.current)
            if change.rows:  # the failing period starts again after the webhook is enabled
                await tx.run("clear_endpoint_failure", webhook=hook.id)
            return bool(change.rows)

        return await self._setup.write_and_refresh(hook.team, write_change)

    async def failing_since(self, webhooks: Iterable[str]) -> dict[str, int]:
        """Return webhook → time since which it has been failing, for those of these webhooks that fail."""
        webhook_rows = [(id_,) for id_ in webhooks]
        return dict(await self._database.read(lambda tx: tx.run("failing_endpoints", webhooks=webhook_rows)))

    async def list_page(
        self, webhook: str, before: str | None, limit: int, *, failed_only: bool = False
    ) -> list[StoredDelivery]:
        """Return deliveries of events before `before`, newest first; one more than `limit` if there are more."""
        return await self._database.read_standby(
            lambda tx: list_deliveries(tx, webhook, before, limit, failed_only=failed_only)
        )

    async def replay(
        self, team: int, webhook: str, selection: ReplaySelection, subscribes: Callable[[str], bool], entry: AuditEntry
    ) -> int:
        """Send events again, with the same ids and bodies; return their number, at most REPLAY_MAX for a time range.

        The audit entry is written if any event matches. Unknown ids raise NoSuchEvents, and no event is sent.
        """
        now, ids = self._clock.team_now(team), selection.event_ids
        request = _ReplayRequest(
            team=team,
            webhook=webhook,
            selection=selection,
            subscribes=subscribes,
            entry=entry,
            now=now,
            clock_offset=self._clock.offsets.get(team, 0),
        )
        if ids is not None:
            replayed = await write_serialized(self._database, lambda tx: replay_ids(tx, request, ids), entry.team)
        else:
            after: str | None = ""
            replayed = 0
            while after is not None and replayed < REPLAY_MAX:
                replay_batch = partial(replay_range, request=request, after=after, replayed=replayed)
                after, replayed = await write_serialized(self._database, replay_batch, entry.team)
        return replayed

    async def publish_to_webhook(
        self, team: int, webhook: str, type_: str, subject: str, data: Any, entry: AuditEntry
    ) -> str:
        """Publish an event for this webhook only; return the event id."""
        publisher = Publisher(self._clock.new_id, lambda *_: [webhook])
        event = Event(
            id=self._clock.new_id("evt_"),
            team=team,
            subject=subject,
            type=type_,
            detail=encode_data(data),
            created_at=self._clock.team_now(team),
        )

        async def publish(tx: Tx) -> None:
            await publisher.publish(tx, [event])
            await audit.write(tx, entry)

        await write_serialized(self._database, publish, entry.team)
        return event.id

    async def delete_all(self, webhook: str) -> None:
        """Delete all deliveries of a webhook."""
        for queue_id in (webhook, webhook + CALLBACK_SUFFIX):
            while await self._database.write(partial(delete_batch, webhook=queue_id)):
                continue
