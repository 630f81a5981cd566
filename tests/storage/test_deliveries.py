"""Webhook deliveries: one owner per endpoint, attempts recorded once, replays, retention."""

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from heliograph.domain.delivery.outcome import CarrierReport, Report
from heliograph.domain.limits import DAY_MS, HOUR_MS, LEASE_MS, MINUTE_MS
from heliograph.domain.setup.records import TeamRecord, Webhook
from heliograph.domain.setup.snapshot import to_row
from heliograph.storage.engine.migrate import schema_files
from heliograph.storage.engine.query import for_dialect, load_queries
from heliograph.storage.outcomes import RecipientUpdate
from heliograph.storage.setup import NewSuppression
from heliograph.storage.store import Store
from heliograph.webhooks import store as deliveries
from heliograph.webhooks.store import (
    DeliveryAttempt,
    DueDelivery,
    EndpointLeaseLost,
    Lease,
    NoSuchEvents,
    ReplaySelection,
)
from tests.clocks import TestClock
from tests.setup_helpers import set_up
from tests.storage.conftest import Sql
from tests.storage.samples import ENTRY, message
from tests.storage.test_events import subscribe

pytestmark = pytest.mark.anyio

HOOK = "whk_1"


async def tell(store: Store, subject: str = "s", webhook: str = HOOK, type_: str = "domain.verified") -> str:
    return await store.deliveries.publish_to_webhook(1, webhook, type_, subject, {}, ENTRY)


async def own(store: Store, webhook: str = HOOK) -> Lease:
    (lease,) = await store.deliveries.claim([webhook])
    return lease


async def due(store: Store, webhook: str = HOOK) -> list[DueDelivery]:
    result = await store.deliveries.due(webhook, 1000)
    return result.new + result.repeated


def tried(
    lease: Lease, due: DueDelivery, clock: TestClock, state: str = "delivered", wait_ms: int = 0
) -> DeliveryAttempt:
    status = 200 if state == "delivered" else 500
    values = {"status": status, "error": None, "duration_ms": 7, "answer": f"answer {status}"}
    due_at = clock.now() + wait_ms
    return DeliveryAttempt(lease=lease, due=due, started_at=clock.now(), state=state, due_at=due_at, **values)  # type: ignore[arg-type]


async def states(store: Store, webhook: str = HOOK) -> dict[str, tuple[str, int]]:
    return {
        stored.event: (stored.state, stored.attempt) for stored in await store.deliveries.list_page(webhook, None, 1000)
    }


# -- owning an endpoint ------------------------------------------------------------------------------------------


async def test_endpoint_lease_is_acquired_by_one_of_many_processes(
    store: Store, other: Store, clock: TestClock
) -> None:
    names = [f"whk_{n}" for n in range(20)]
    got = await asyncio.gather(*(process.deliveries.claim(names) for process in (store, other)))
    assert sorted(lease.webhook for leases in got for lease in leases) == sorted(names)


async def test_due_webhooks_are_listed_with_their_lease_holder(store: Store, other: Store, clock: TestClock) -> None:
    await tell(store, webhook="whk_a")
    await tell(store, webhook="whk_b")
    later = await own(store, "whk_b")
    await store.deliveries.record(tried(later, (await due(store, "whk_b"))[0], clock, "waiting", MINUTE_MS))
    assert await store.deliveries.due_webhooks() == {"whk_a": False}
    await own(store, "whk_a")
    assert await store.deliveries.due_webhooks() == {"whk_a": False}
    assert await other.deliveries.due_webhooks() == {"whk_a": True}
    clock.forward(MINUTE_MS)
    assert await other.deliveries.due_webhooks() == {"whk_a": True, "whk_b": True}


@pytest.mark.parametrize("how", ["lease", "restart", "release"])
async def test_expired_endpoint_lease_is_taken_over_and_late_attempts_rejected(
    store: Store, other: Store, clock: TestClock, how: str
) -> None:
    event = await tell(store)
    lost, (work,) = await own(store), await due(store)
    clock.forward(LEASE_MS // 2)
    assert await other.deliveries.claim([HOOK]) == []
    match how:
        case "lease":
            clock.forward(LEASE_MS // 2)
        case "restart":
            await other.outbox.release_own()  # another seat's restart frees nothing of ours
            assert await other.deliveries.claim([HOOK]) == []
            await store.outbox.release_own()
        case "release":
            await other.deliveries.release(lost)  # not a lease of this process
            assert await other.deliveries.claim([HOOK]) == []
            await store.deliveries.release(lost)
    taken = await own(other)
    assert taken.epoch == lost.epoch + 1
    with pytest.raises(EndpointLeaseLost):
        await store.deliveries.record(tried(lost, work, clock))
    assert await store.deliveries.renew([lost]) == set()
    await store.deliveries.release(lost)  # too late: changes nothing
    assert await states(store) == {event: ("waiting", 0)}
    await other.deliveries.record(tried(taken, work, clock))
    assert await states(store) == {event: ("delivered", 1)}


async def test_endpoint_lease_is_extended_by_a_heartbeat(store: Store, other: Store, clock: TestClock) -> None:
    lease = await own(store)
    clock.forward(LEASE_MS // 2)
    assert await store.deliveries.renew([lease, Lease("whk_other", 1)]) == {HOOK}
    clock.forward(LEASE_MS // 2)
    assert await other.deliveries.claim([HOOK]) == []


async def test_endpoint_claim_repeated_by_its_holder_succeeds(store: Store) -> None:
    lost = await own(store)
    assert (await own(store)).epoch == lost.epoch + 1


# -- sending -----------------------------------------------------------------------------------------------------


async def test_events_of_a_message_are_delivered_in_order_despite_clock_differences(
    store: Store, clock: TestClock
) -> None:
    await subscribe(store, "*")
    item = message(clock, "a@b.test", "c@b.test")
    await store.messages.accept(item)
    element, two = await store.outbox.claim("email", 10)
    for at, claim in ((clock.now() + MINUTE_MS, element), (clock.now() - MINUTE_MS, two)):
        place = {"message": claim.message, "position": claim.position, "claim": claim.token}
        await store.outbox.record(RecipientUpdate(at=at, target_status="delivered", **place))  # type: ignore[arg-type]
    sequences = [work.stored_event.sequence or 0 for work in await due(store) if work.stored_event]
    assert sequences == sorted(sequences)
    assert len(sequences) == 4


async def test_delivered_event_equals_the_event_of_the_feed(store: Store, clock: TestClock) -> None:
    await subscribe(store, "*")
    await store.suppressions.add(NewSuppression(1, "a@b.test", "a@b.test", "manual"), ENTRY)
    await store.reports.store_by_carrier("c", [CarrierReport("unknown", Report(status="delivered"))])
    clock.forward(1000)
    feed = {events.id: events for events in await store.events.feed(1, "", 100)}
    assert {work.event_id: work.stored_event for work in await due(store)} == feed
    assert len(feed) == 1


async def test_attempts_are_recorded_with_their_responses(store: Store, clock: TestClock) -> None:
    event = await tell(store)
    lease = await own(store)
    started = await store.deliveries.record(tried(lease, (await due(store))[0], clock, "waiting", MINUTE_MS))
    assert await due(store) == []
    clock.forward(MINUTE_MS)
    (again,) = await due(store)
    assert started
    assert (again.attempts, again.first_at) == (1, started)
    assert await store.deliveries.record(tried(lease, again, clock)) is None  # no longer failing
    (stored,) = await store.deliveries.list_page(HOOK, None, 10)
    assert (stored.event, stored.type, stored.state, stored.due_at) == (event, "domain.verified", "delivered", None)
    assert [(a.number, a.status, a.answer) for a in stored.attempts] == [(1, 500, "answer 500"), (2, 200, "answer 200")]


async def test_endpoint_failing_since_is_its_first_failure_after_a_success(store: Store, clock: TestClock) -> None:
    for n in range(4):
        await tell(store, f"s{n}")
    lease, start = await own(store), clock.now()
    since = []
    for work, state in zip(await due(store), ("waiting", "waiting", "delivered", "exhausted"), strict=True):
        since.append(await store.deliveries.record(tried(lease, work, clock, state)))
        clock.forward(1000)
    assert since[0] == since[1]
    assert since[2] is None
    assert (since[3] or 0) - start >= 3000


async def test_many_attempts_are_recorded_together(store: Store, other: Store, clock: TestClock) -> None:
    """One transaction records all; a lost lease of one endpoint does not affect the others."""
    for n in range(60):
        await tell(store, f"s{n}", f"whk_{n % 3}")
    leases = {lease.webhook: lease for lease in await store.deliveries.claim(["whk_0", "whk_1", "whk_2"])}
    work = {webhook: await due(store, webhook) for webhook in leases}
    await store.deliveries.release(leases["whk_2"])
    tries = [tried(leases[webhook], item, clock) for webhook in work for item in work[webhook]]
    results = await asyncio.gather(*map(store.deliveries.record, tries), return_exceptions=True)
    assert [type(result) for result in results] == [type(None)] * 40 + [EndpointLeaseLost] * 20
    assert await store.deliveries.due_webhooks() == {"whk_2": False}


async def test_attempt_recorded_twice_counts_once(store: Store, clock: TestClock) -> None:
    """The response to the first record was lost."""
    await tell(store)
    created = tried(await own(store), (await due(store))[0], clock, "waiting")
    await store.deliveries.record(created)
    await store.deliveries.record(created)
    (stored,) = await store.deliveries.list_page(HOOK, None, 10)
    assert (stored.attempt, len(stored.attempts)) == (1, 1)


# -- disabling ---------------------------------------------------------------------------------------------------


async def test_disabled_webhook_has_a_reason_and_no_failures(store: Store, clock: TestClock, sql: Sql) -> None:
    await subscribe(store, "*")
    await tell(store)
    await store.deliveries.record(tried(await own(store), (await due(store))[0], clock, "waiting"))
    hook: Any = store.setup.current.records["webhook", HOOK]
    assert not await store.deliveries.disable(replace(hook, url="https://old.test"), "the old one is gone")
    assert await sql("SELECT count(*) FROM endpoint WHERE failing_since IS NULL") == [(0,)]
    assert await store.deliveries.disable(hook, "gone")
    result = store.setup.current.records["webhook", HOOK]
    assert isinstance(result, Webhook)
    assert (result.enabled, result.disabled_reason) == (False, "gone")
    assert await sql("SELECT count(*) FROM endpoint WHERE failing_since IS NULL") == [(1,)]
    assert not await store.deliveries.disable(hook, "gone again")
    lines = [(line.actor, line.action, line.detail) for line in await store.audit.list_rows("team_1")]
    assert lines == [("service", "webhook.disable", f"{HOOK}: gone")]


# -- telling again -----------------------------------------------------------------------------------------------


def heard(type_: str) -> bool:
    return type_.startswith(("suppression.", "webhook."))


async def replay(store: Store, clock: TestClock, **which: Any) -> int:
    done = await store.deliveries.replay(1, HOOK, ReplaySelection(**which), heard, ENTRY)
    clock.forward(100)  # they become due one millisecond apart
    return done


async def test_replayed_event_starts_a_new_retry_schedule(store: Store, clock: TestClock) -> None:
    event = await tell(store)
    lease = await own(store)
    await store.deliveries.record(tried(lease, (await due(store))[0], clock, "exhausted"))
    clock.forward(DAY_MS)
    assert await replay(store, clock, event_ids=[event, event]) == 1
    (again,) = await due(store)
    assert (again.event_id, again.attempts, again.earlier_attempts, again.first_at) == (event, 1, 1, None)
    await store.deliveries.record(tried(lease, again, clock))
    (stored,) = await store.deliveries.list_page(HOOK, None, 10)
    assert [(a.number, a.status) for a in stored.attempts] == [(1, 500), (2, 200)]  # with the earlier attempts


async def test_replay_during_an_attempt_is_not_lost(store: Store, clock: TestClock) -> None:
    event = await tell(store)
    lease = await own(store)
    await store.deliveries.record(tried(lease, (await due(store))[0], clock, "waiting"))
    (in_flight,) = await due(store)
    assert await replay(store, clock, event_ids=[event]) == 1
    await store.deliveries.record(tried(lease, in_flight, clock, "exhausted"))
    assert await states(store) == {event: ("waiting", 1)}


async def test_replay_of_an_unattempted_event_keeps_its_position(store: Store, clock: TestClock) -> None:
    first, second = await tell(store), await tell(store)
    assert await replay(store, clock, event_ids=[first]) == 1
    assert [work.event_id for work in await due(store)] == [first, second]


async def test_replay_selects_the_matching_events(store: Store, clock: TestClock) -> None:
    delivered, waiting, exhausted, fresh = [await tell(store, f"s{n}") for n in range(4)]
    lease = await own(store)
    for work, state in zip(await due(store), ("delivered", "waiting", "exhausted"), strict=False):
        await store.deliveries.record(tried(lease, work, clock, state, MINUTE_MS))
    await store.suppressions.add(NewSuppression(1, "a@b.test", "a@b.test", "manual"), ENTRY)  # not published
    unheard = await tell(store, webhook="whk_other")
    test = await tell(store, webhook="whk_other", type_="webhook.test")  # for another webhook
    assert await replay(store, clock, event_ids=[unheard, test]) == 0
    assert await replay(store, clock, failed_only=True, event_ids=[delivered, waiting, exhausted, fresh]) == 2
    assert {work.event_id for work in await due(store)} == {waiting, exhausted, fresh}
    assert await replay(store, clock) == 5
    assert len(await due(store)) == 5
    # Events of another team are not included
    assert await store.deliveries.replay(2, HOOK, ReplaySelection(), lambda _: True, ENTRY) == 0


async def test_failed_deliveries_are_listed_and_replayed_alone(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "BATCH_SIZE", 1)  # so that there are several
    events = [await tell(store, f"s{n}") for n in range(5)]
    lease, last = await own(store), ["delivered", "waiting", "exhausted", "waiting"]
    for work, state in zip(await due(store), last, strict=False):  # the fifth is not attempted
        await store.deliveries.record(tried(lease, work, clock, state, wait_ms=MINUTE_MS))
    failed = [events[3], events[2], events[1]]

    async def listed(before: str | None = None, limit: int = 10) -> list[str]:
        return [item.event for item in await store.deliveries.list_page(HOOK, before, limit, failed_only=True)]

    assert await listed() == failed
    assert await listed(before=failed[0], limit=1) == failed[1:]
    # Another team's
    assert await store.deliveries.replay(2, HOOK, ReplaySelection(failed_only=True), heard, ENTRY) == 0
    assert await replay(store, clock, failed_only=True, created_before=1) == 0
    assert await replay(store, clock, failed_only=True) == 3
    assert await listed() == []
    assert {work.event_id for work in await due(store)} == set(events[1:])
    assert await replay(store, clock, failed_only=True) == 0


@pytest.mark.parametrize("query", ["list_failed", "replayable_failed"])
def test_failed_deliveries_are_read_without_the_others(query: str, tmp_path: Path) -> None:
    """SQLite reports the chosen index even for an empty table."""
    file = apsw.Connection(str(tmp_path / "plan.db"))
    for _, source in schema_files():
        file.execute(for_dialect(source, "sqlite"))
    expected = load_queries("sqlite")[query]
    values = dict.fromkeys(expected.params, "x")
    plan = [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {expected.sql}", values)]
    file.close()
    assert "delivery_failed (webhook=? AND event" in plan[0]


async def test_replay_with_unknown_events_names_them_and_replays_none(store: Store, clock: TestClock) -> None:
    event = await tell(store)
    await store.deliveries.record(tried(await own(store), (await due(store))[0], clock))
    with pytest.raises(NoSuchEvents) as error:
        await replay(store, clock, event_ids=["evt_2", event, "evt_1"])
    assert error.value.ids == ["evt_2", "evt_1"]
    with pytest.raises(NoSuchEvents):
        await store.deliveries.replay(2, HOOK, ReplaySelection(event_ids=[event]), heard, ENTRY)
    assert await due(store) == []


async def test_replay_of_a_period_excludes_its_bounds(store: Store, clock: TestClock) -> None:
    events = []
    for n in range(5):
        events.append(await tell(store, f"s{n}"))
        clock.forward(MINUTE_MS)
    times = [stored.created_at for stored in reversed(await store.deliveries.list_page(HOOK, None, 10))]
    lease = await own(store)
    for work in await due(store):
        await store.deliveries.record(tried(lease, work, clock))
    assert await replay(store, clock, created_after=times[1], created_before=times[4]) == 2
    assert [work.event_id for work in await due(store)] == events[2:4]


async def test_large_replay_runs_in_batches_and_in_order(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "BATCH_SIZE", 3)
    events = [await tell(store, f"s{n}", HOOK if n % 2 else "whk_other", "suppression.deleted") for n in range(10)]
    lease = await own(store)
    for work in await due(store):
        await store.deliveries.record(tried(lease, work, clock))
    assert await replay(store, clock) == 10
    assert [work.event_id for work in await due(store)] == events  # including those never attempted
    monkeypatch.setattr(deliveries, "REPLAY_MAX", 5)
    assert await replay(store, clock) == 6  # stops after the batch that reaches the limit


# -- looking, forgetting -----------------------------------------------------------------------------------------


async def test_deliveries_are_listed_newest_first(store: Store) -> None:
    events = [await tell(store, f"s{n}") for n in range(5)]
    await tell(store, webhook="whk_other")
    first = await store.deliveries.list_page(HOOK, None, 2)
    assert [stored.event for stored in first] == [events[4], events[3], events[2]]  # one more: there is more
    rest = await store.deliveries.list_page(HOOK, first[1].event, 10)
    assert [stored.event for stored in rest] == [events[2], events[1], events[0]]
    assert {stored.due_at == stored.created_at for stored in rest} == {True}


async def test_deliveries_are_deleted_after_thirty_days(store: Store, clock: TestClock, sql: Sql) -> None:
    old = await tell(store)
    lease = await own(store)
    await store.deliveries.record(tried(lease, (await due(store))[0], clock, "exhausted"))
    replayed = await tell(store)
    await store.deliveries.record(tried(lease, (await due(store))[0], clock, "exhausted"))
    clock.forward(30 * DAY_MS - HOUR_MS)
    await store.maintenance.purge()
    assert set(await states(store)) == {old, replayed}
    await replay(store, clock, event_ids=[replayed])
    clock.forward(HOUR_MS)
    await store.maintenance.purge()
    assert set(await states(store)) == {replayed}
    assert await sql("SELECT count(*) FROM attempt") == [(1,)]
    assert await replay(store, clock, event_ids=[old]) == 0  # its only delivery was deleted


async def test_deleted_webhook_loses_its_deliveries(
    store: Store, clock: TestClock, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "BATCH_SIZE", 2)
    for n in range(5):
        await tell(store, f"s{n}")
    retained = await tell(store, webhook="whk_other")
    lease, work = await own(store), await due(store)
    await store.deliveries.record(tried(lease, work[0], clock))
    await store.deliveries.delete_all(HOOK)
    assert await states(store) == {}
    assert await states(store, "whk_other") == {retained: ("waiting", 0)}
    assert await sql("SELECT count(*) FROM attempt") == [(0,)]
    assert await sql("SELECT count(*) FROM endpoint") == [(0,)]
    with pytest.raises(EndpointLeaseLost):
        await store.deliveries.record(tried(lease, work[1], clock))


async def test_attempt_of_a_deleted_delivery_changes_no_other_delivery(
    store: Store, clock: TestClock, sql: Sql
) -> None:
    """The test clock was turned off during the attempt; on SQLite the next event's delivery has the same key."""
    team = TeamRecord(id="team_1", name="One", ref=1, test_clock=True)
    hook = Webhook(id=HOOK, team=team.id, url="https://a.example/", secret="")
    await set_up(store, rows=[to_row("team", team.id, team, team.id), to_row("webhook", hook.id, hook, team.id)])
    await store.deliveries.publish_to_webhook(1, HOOK, "domain.verified", "before", {}, ENTRY)
    lease, (flying,) = await own(store), await due(store)
    await set_up(store, rows=[to_row("team", team.id, replace(team, test_clock=False), team.id)])
    event = await store.deliveries.publish_to_webhook(1, HOOK, "domain.verified", "after", {}, ENTRY)
    await store.deliveries.record(tried(lease, flying, clock))
    assert await sql("SELECT event, state FROM delivery") == [(event, "waiting")]
    assert await sql("SELECT delivery FROM attempt") == []
