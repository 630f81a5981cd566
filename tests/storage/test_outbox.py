"""The outbox: each row is claimed once, fenced by owner and epoch, survives its worker, with fair shares per team."""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from heliograph.domain.delivery.lanes import PRIORITIES
from heliograph.domain.delivery.outcome import CarrierReport, DueReport, Report
from heliograph.domain.limits import CLAIMS_MAX, CRASHES_MAX, DAY_MS, ISOLATED_RETRY_MS, LEASE_MS
from heliograph.domain.sending import pricing
from heliograph.domain.sending.acceptance import AcceptedRecipient, AcceptState, Decision
from heliograph.domain.sending.send_options import ExtraFields, Timing
from heliograph.storage import outcomes
from heliograph.storage.outbox import Claim, LaneDepth, Outbox
from heliograph.storage.outcomes import RecipientUpdate, RetryPlan
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import CREDIT, Sql
from tests.storage.samples import let_leases_end, message

pytestmark = pytest.mark.anyio


def sent(claim: Claim, clock: TestClock, target_status: str | None = "sent", **more: object) -> RecipientUpdate:
    accepted = target_status in ("sent", "delivered")
    place = {"message": claim.message, "position": claim.position, "claim": claim.token}
    return RecipientUpdate(at=clock.now(), target_status=target_status, accepted=accepted, **place, **more)  # type: ignore[arg-type]


async def test_outbox_claims_of_two_processes_never_overlap(store: Store, other: Store, clock: TestClock) -> None:
    await asyncio.gather(*(store.messages.accept(message(clock)) for _ in range(200)))
    claims: list[Claim] = []
    while got := await asyncio.gather(*(process.outbox.claim("email", 10) for process in (store, other) * 4)):
        claims += [claim for batch in got for claim in batch]
        if not any(got):
            break
    assert Counter(Counter(claim.key for claim in claims).values()) == {1: 200}


async def test_claim_shares_slots_between_teams_and_redistributes_the_rest(store: Store, clock: TestClock) -> None:
    await asyncio.gather(*(store.messages.accept(message(clock, team=1)) for _ in range(50)))
    await asyncio.gather(*(store.messages.accept(message(clock, team=2)) for _ in range(3)))
    assert Counter(claim.team for claim in await store.outbox.claim("email", 20)) == {1: 17, 2: 3}


async def test_claim_takes_urgent_messages_first_and_starves_no_priority(store: Store, clock: TestClock) -> None:
    rising = [ExtraFields(priority=priority) for priority in PRIORITIES[::-1]]
    items = [message(clock, team=team, extra_fields=added) for added in rising for team in (1, 2) for _ in range(30)]
    await asyncio.gather(*map(store.messages.accept, items))
    priority = {item.id: item.extra_fields.priority for item in items}
    claimed: list[Claim] = []
    for most in (40, *[1] * 20, 100, 100):  # large claims, and claims of one row as when nearly all slots are used
        claimed += await store.outbox.claim("email", most)
    assert len(claimed) == len(items)
    order = [priority[claim.message_id] for claim in claimed]
    for start in range(0, 60, 20):
        assert Counter(order[start : start + 20]) == {"critical": 18, "normal": 1, "bulk": 1}
    last = {element: len(order) - 1 - order[::-1].index(element) for element in PRIORITIES}
    assert last["critical"] < last["normal"] < last["bulk"]
    first = Counter((claim.team, priority[claim.message_id]) for claim in claimed[:40])
    # Among equals, each team has its share
    assert all(first[1, element] == first[2, element] for element in PRIORITIES)


async def test_lane_metrics_sum_all_its_queues(store: Store, clock: TestClock) -> None:
    first, *others = [message(clock, extra_fields=ExtraFields(priority=priority)) for priority in PRIORITIES]
    for item in (first, *others):
        await store.messages.accept(item)
    assert LaneDepth("email", 3, first.created_at) in await store.outbox.lane_depths()
    await store.outbox.claim("email", 2)
    assert LaneDepth("email", 3, first.created_at) in await store.outbox.lane_depths()


async def test_claim_takes_only_due_work_of_its_lane(store: Store, clock: TestClock) -> None:
    await store.messages.accept(message(clock, channel="sms"))
    assert await store.outbox.claim("email", 10) == []
    (claim,) = await store.outbox.claim("phone", 10)
    later = clock.now() + 60_000
    assert await store.outbox.record(
        sent(claim, clock, None, retry=RetryPlan(due_at=later, attempt=1, deferrals={"sim": 1}))
    )
    assert await store.outbox.claim("phone", 10) == []
    clock.forward(60_000)
    (again,) = await store.outbox.claim("phone", 10)
    assert (again.attempt, again.deferrals) == (1, {"sim": 1})


@pytest.mark.parametrize("how", ["lease", "restart"])
async def test_work_of_a_dead_process_is_taken_over(store: Store, other: Store, clock: TestClock, how: str) -> None:
    await store.messages.accept(message(clock, price=10))
    (lost,) = await store.outbox.claim("email", 10)
    if how == "lease":
        await let_leases_end(other, clock, LEASE_MS // 2)
        assert await other.outbox.claim("email", 10) == []
        await let_leases_end(other, clock, LEASE_MS // 2)
    else:
        await other.outbox.release_own()  # the restart of another slot releases none of our claims
        assert await other.outbox.claim("email", 10) == []
        await store.outbox.release_own()
    (taken,) = await other.outbox.claim("email", 10)
    assert (taken.key, taken.epoch) == (lost.key, lost.epoch + 1)
    assert not await store.outbox.record(sent(lost, clock, "failed"))  # too late: fenced
    assert (await store.ledger.get_account(1)).held == 10
    assert await other.outbox.record(sent(taken, clock))
    assert not await other.outbox.record(sent(taken, clock))  # once
    assert (await store.ledger.get_account(1)).held == 0


async def test_heartbeat_extends_only_work_in_progress(store: Store, other: Store, clock: TestClock) -> None:
    await asyncio.gather(*(store.messages.accept(message(clock)) for _ in range(2)))
    retained, left = await store.outbox.claim("email", 10)
    await let_leases_end(other, clock, LEASE_MS // 2)
    assert await store.outbox.renew([retained]) == {retained.key}
    assert await other.outbox.renew([left]) == set()  # not a claim of this process
    await let_leases_end(other, clock, LEASE_MS // 2)
    assert [claim.key for claim in await other.outbox.claim("email", 10)] == [left.key]


async def test_released_claim_counts_no_attempt(store: Store, clock: TestClock) -> None:
    await store.messages.accept(message(clock))
    for _ in range(CLAIMS_MAX + 1):
        claims = await store.outbox.claim("email", 10)
        assert len(claims) == 1
        await store.outbox.release(claims)
    await store.outbox.reclaim_abandoned()
    assert len(await store.outbox.claim("email", 10)) == 1


async def suspect(store: Store, clock: TestClock, **more: Any) -> str:
    """Return a message during which workers died, among others."""
    item = message(clock, **more)
    await store.messages.accept(item)
    for _ in range(CLAIMS_MAX):
        assert len(await store.outbox.claim("email", 10)) == 1
        await store.outbox.release_own()
    return item.id


@pytest.mark.parametrize("ahead", [0, 5 * DAY_MS])
async def test_poison_message_is_retried_in_isolation_then_dead_lettered(
    store: Store, clock: TestClock, sql: Sql, ahead: int
) -> None:
    """`ahead`: offset of its team's test clock."""
    clock.offsets = {1: ahead}
    poison = await suspect(store, clock, price=10, created_at=clock.team_now(1))
    assert await store.outbox.claim("email", 10) == []  # no longer claimed together with others
    for deaths in range(CRASHES_MAX):
        assert await store.outbox.reclaim_abandoned() == 0
        assert await store.outbox.count_poison_candidates() == 1
        assert len(await store.outbox.claim_poison_candidate()) == 1
        assert await store.outbox.reclaim_abandoned() == 0  # the message is in progress
        await store.outbox.release_own()
        assert await store.outbox.claim_poison_candidate() == []  # other candidates come first
        clock.forward((deaths + 1) * ISOLATED_RETRY_MS)
    assert await store.outbox.claim_poison_candidate() == []
    assert await store.outbox.reclaim_abandoned() == 1
    stored = await store.messages.get(1, poison)
    assert stored
    assert stored.status == "failed"
    assert (await store.ledger.get_account(1)).available == CREDIT
    assert await sql("SELECT count(*) FROM outbox") == [(0,)]
    ((ended_at,),) = await sql("SELECT updated_at FROM recipient")
    assert ahead <= ended_at - clock.now() + DAY_MS < ahead + 2 * DAY_MS


@pytest.mark.parametrize("how", ["release", "leave_isolation"])
async def test_process_deaths_with_several_messages_in_progress_blame_none(
    store: Store, clock: TestClock, how: str
) -> None:
    await suspect(store, clock)
    for _ in range(CRASHES_MAX + 1):
        claims = await store.outbox.claim_poison_candidate()
        assert len(claims) == 1
        await getattr(store.outbox, how)(claims)
        await store.outbox.release_own()
        clock.forward(ISOLATED_RETRY_MS)
    assert await store.outbox.reclaim_abandoned() == 0
    assert await store.outbox.count_poison_candidates() == 1


async def test_poison_candidate_with_a_recorded_outcome_is_cleared(store: Store, clock: TestClock) -> None:
    await suspect(store, clock)
    for _ in range(CRASHES_MAX - 1):
        await store.outbox.claim_poison_candidate()
        await store.outbox.release_own()
        clock.forward(CRASHES_MAX * ISOLATED_RETRY_MS)
    (claim,) = await store.outbox.claim_poison_candidate()
    assert await store.outbox.record(sent(claim, clock, None, retry=RetryPlan(due_at=clock.now(), attempt=1)))
    assert await store.outbox.count_poison_candidates() == 0
    for _ in range(CLAIMS_MAX):
        assert len(await store.outbox.claim("email", 10)) == 1
        await store.outbox.release_own()
    assert len(await store.outbox.claim_poison_candidate()) == 1
    await store.outbox.release_own()
    assert await store.outbox.reclaim_abandoned() == 0  # counted from zero again


async def test_scheduled_report_is_applied_when_due(store: Store, clock: TestClock) -> None:
    item = message(clock)
    await store.messages.accept(item)
    (claim,) = await store.outbox.claim("email", 10)
    later = [
        DueReport(60_000, Report(status="delivered")),
        DueReport(9, Report(status="complained", suppress="complaint")),
    ]
    await store.outbox.record(sent(claim, clock, reports=later, lane="email"))
    for wait_ms, status in ((0, "sent"), (60_000, "delivered"), (9, "complained")):
        clock.forward(wait_ms)
        assert await store.outbox.claim("email", 10) == []
        stored = await store.messages.get(1, item.id)
        assert stored and (stored.status, stored.events[-1].type) == (status, f"email.{status}")
    assert await store.suppressions.get(1, claim.address)


async def sent_with_reports(store: Store, clock: TestClock, count: int) -> list[int]:
    """Return messages whose delivery reports are due now, by key."""
    for _ in range(count):
        await store.messages.accept(message(clock))
    claims = await store.outbox.claim("email", count)
    for claim in claims:
        later = [DueReport(0, Report(status="delivered"))]
        await store.outbox.record(sent(claim, clock, reports=later, lane="email"))
    return [claim.message for claim in claims]


async def test_reports_beyond_one_claim_wake_the_worker_again(store: Store, clock: TestClock) -> None:
    await sent_with_reports(store, clock, 3)
    rung = store.wakeups.by_kind["email"]._event
    for more in (True, False):
        rung.clear()
        assert await store.outbox.claim("email", 2) == []
        assert rung.is_set() == more


async def test_report_that_breaks_its_transaction_leaves_other_reports_unchanged(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, *_ = await sent_with_reports(store, clock, 3)
    record = outcomes.record_updates

    async def breaks(tx: Any, changes: Any, **values: Any) -> Any:
        if broken in {change.message for change in changes}:
            raise ValueError("no such state")
        return await record(tx, changes, **values)

    monkeypatch.setattr(outcomes, "record_updates", breaks)
    claims = await store.outbox.claim("email", 10)
    assert len(claims) == 3 and all(claim.reports for claim in claims)  # recorded one by one, like sends


class Died(BaseException):
    """Raised to simulate the death of the process with its open transaction."""


async def test_report_whose_processes_die_is_dead_lettered(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch, sql: Sql
) -> None:
    """A report applied in the claiming transaction would roll back the claim, so that no crash would count (P14)."""
    poison, other = await sent_with_reports(store, clock, 2)
    record = outcomes.record_updates

    async def dies(tx: Any, changes: Any, **values: Any) -> Any:
        if poison in {change.message for change in changes}:
            raise Died
        return await record(tx, changes, **values)

    monkeypatch.setattr(outcomes, "record_updates", dies)
    deaths = 0
    while await sql("SELECT key FROM outbox") and deaths < 2 * (CLAIMS_MAX + CRASHES_MAX):
        outbox = Outbox(store.database, clock, store.outbox._owner, store.outbox._leases, store.setup)  # a restart
        await outbox.release_own()
        await outbox.reclaim_abandoned()
        deaths += 1
        with suppress(Died):
            for claim in [*await outbox.claim("email", 10), *await outbox.claim_poison_candidate()]:
                change = RecipientUpdate.from_reports(
                    claim.token, claim.message, 0, claim.reports, "email", clock.now()
                )
                if claim.message == other:
                    await outbox.record(change)
            await outbox.claim("email", 10)
        clock.forward(CRASHES_MAX * ISOLATED_RETRY_MS)
    assert await sql("SELECT key FROM outbox") == []
    assert dict(await sql("SELECT message, status FROM recipient")) == {poison: "sent", other: "delivered"}


@pytest.mark.parametrize("is_suspect", [False, True])
async def test_report_about_a_purged_message_does_not_block_others(
    store: Store, clock: TestClock, sql: Sql, is_suspect: bool
) -> None:
    """A delivered message with a due complaint report may be deleted while delivery is paused."""
    gone, left = await sent_with_reports(store, clock, 2)
    await sql(f"DELETE FROM recipient WHERE message = {gone}")
    await sql(f"DELETE FROM message WHERE key = {gone}")
    if is_suspect:
        await sql(f"UPDATE outbox SET claims = {CLAIMS_MAX}")
    outbox = Outbox(store.database, clock, store.outbox._owner, store.outbox._leases, store.setup)  # a restart
    claims = [
        *await outbox.claim("email", 10),
        *await outbox.claim_poison_candidate(),
        *await outbox.claim_poison_candidate(),
    ]
    assert [claim.message for claim in claims] == [left]
    assert await sql("SELECT message FROM outbox") == [(left,)]


async def test_reports_contain_the_ids_of_their_carrier(store: Store, clock: TestClock) -> None:
    item = message(clock, "a@example.com", "b@example.com")
    await store.messages.accept(item)
    for claim in await store.outbox.claim("email", 10):
        await store.outbox.record(sent(claim, clock, carrier="mx", carrier_id=claim.address))
    bounced = Report(status="bounced", detail={"text": "no such user"}, suppress="bounce")
    assert await store.reports.store_by_carrier(
        "mx", [CarrierReport("a@example.com", bounced), CarrierReport("never@example.com", bounced)]
    ) == [
        True,
        False,
    ]
    assert await store.reports.store_by_carrier("another", [CarrierReport("b@example.com", bounced)]) == [False]
    stored = await store.messages.get(1, item.id)
    assert stored
    assert [element.status for element in stored.recipients] == ["bounced", "sent"]
    result = await store.suppressions.get(1, "a@example.com")
    assert result
    assert (result.reason, result.source_message_id) == ("bounce", item.id)
    assert await store.suppressions.get(1, "b@example.com") is None


async def test_outbox_depth_counts_waiting_messages(store: Store, clock: TestClock) -> None:
    items = [message(clock), message(clock, channel="sms"), message(clock, channel="whatsapp")]
    for item in items:
        await store.messages.accept(item)
    expected = [LaneDepth("email", 1, items[0].created_at), LaneDepth("phone", 2, items[1].created_at)]
    assert await store.outbox.lane_depths() == expected


async def test_outbox_age_counts_from_the_first_attempt(store: Store, clock: TestClock) -> None:
    """Also while a retry waits; a scheduled message counts from its due time, and an empty lane has no age."""
    assert await store.outbox.lane_depths() == [LaneDepth("email"), LaneDepth("phone")]
    later = clock.now() + DAY_MS
    await store.messages.accept(message(clock, timing=Timing(due_at=later)))
    assert LaneDepth("email", 1, later) in await store.outbox.lane_depths()
    await store.messages.accept(message(clock))
    (claim,) = await store.outbox.claim("email", 10)
    tried_at = clock.now()
    again = RetryPlan(due_at=tried_at + 3_600_000, attempt=1, first_at=tried_at)
    deferred = RecipientUpdate(
        message=claim.message, position=0, claim=claim.token, at=tried_at, target_status=None, retry=again
    )
    assert await store.outbox.record(deferred)
    assert LaneDepth("email", 2, tried_at) in await store.outbox.lane_depths()


@pytest.mark.parametrize(
    ("reason", "used"),
    [
        *((reason, 0) for reason in ("canceled", "expired", "suspended", "suppressed", "no_carrier", "out_of_reach")),
        *((reason, 1) for reason in ("quarantined", "uncertain")),  # the message may still be sent, or was sent
    ],
)
async def test_mail_that_fails_locally_returns_its_quota(
    store: Store, clock: TestClock, reason: str, used: int
) -> None:
    def decide(state: AcceptState) -> Decision:
        pricing.use_quota(state.account, 1, 10, pricing.month_of(clock.now()))
        said = msgspec.json.encode({"id": "eml_1", "to_addresses": ["ada@example.com"], "cc": [], "bcc": []})
        ada = AcceptedRecipient("ada@example.com", "ada@example.com", "to")
        return Decision(response=said, recipients=[ada])

    await store.messages.accept(message(clock, decide=decide))
    (claim,) = await store.outbox.claim("email", 10)
    assert await store.outbox.record(sent(claim, clock, "failed", detail={"reason": reason}))
    assert (await store.ledger.get_account(1)).used == used
