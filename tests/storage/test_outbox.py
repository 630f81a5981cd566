"""Due work: claimed once, fenced by owner and epoch, never lost with a worker, fair to every team."""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from heliograph.domain.delivery.lanes import PRIORITIES
from heliograph.domain.delivery.outcome import CarrierReport, DueReport, Report
from heliograph.domain.limits import ALONE_AGAIN_MS, CLAIMS_MAX, DAY_MS, DEATHS_MAX, LEASE_MS
from heliograph.domain.sending import pricing
from heliograph.domain.sending.acceptance import AcceptedRecipient, Decision, Found
from heliograph.domain.sending.send_options import Added, Timing
from heliograph.storage import outcomes
from heliograph.storage.outbox import Claim, LaneDepth, Outbox
from heliograph.storage.outcomes import Change, Later
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import CREDIT, Sql
from tests.storage.samples import let_leases_end, message

pytestmark = pytest.mark.anyio


def sent(claim: Claim, clock: TestClock, wanted: str | None = "sent", **more: object) -> Change:
    accepted = wanted in ("sent", "delivered")
    place = {"message": claim.message, "position": claim.position, "claim": claim.held}
    return Change(at=clock.now(), wanted=wanted, accepted=accepted, **place, **more)  # type: ignore[arg-type]


async def test_two_processes_never_claim_the_same(store: Store, other: Store, clock: TestClock) -> None:
    await asyncio.gather(*(store.messages.accept(message(clock)) for _ in range(200)))
    claims: list[Claim] = []
    while got := await asyncio.gather(*(process.outbox.claim("email", 10) for process in (store, other) * 4)):
        claims += [claim for batch in got for claim in batch]
        if not any(got):
            break
    assert Counter(Counter(claim.key for claim in claims).values()) == {1: 200}


async def test_every_team_gets_its_share_and_the_rest_goes_round(store: Store, clock: TestClock) -> None:
    await asyncio.gather(*(store.messages.accept(message(clock, team=1)) for _ in range(50)))
    await asyncio.gather(*(store.messages.accept(message(clock, team=2)) for _ in range(3)))
    assert Counter(claim.team for claim in await store.outbox.claim("email", 20)) == {1: 17, 2: 3}


async def test_the_urgent_go_first_and_no_priority_starves(store: Store, clock: TestClock) -> None:
    rising = [Added(priority=priority) for priority in PRIORITIES[::-1]]
    items = [message(clock, team=team, added=added) for added in rising for team in (1, 2) for _ in range(30)]
    await asyncio.gather(*map(store.messages.accept, items))
    priority = {item.id: item.added.priority for item in items}
    handed: list[Claim] = []
    for most in (40, *[1] * 20, 100, 100):  # many at once, and one at a time, as when all slots are taken
        handed += await store.outbox.claim("email", most)
    assert len(handed) == len(items)
    order = [priority[claim.message_id] for claim in handed]
    for start in range(0, 60, 20):
        assert Counter(order[start : start + 20]) == {"critical": 18, "normal": 1, "bulk": 1}
    last = {one: len(order) - 1 - order[::-1].index(one) for one in PRIORITIES}
    assert last["critical"] < last["normal"] < last["bulk"]
    first = Counter((claim.team, priority[claim.message_id]) for claim in handed[:40])
    assert all(first[1, one] == first[2, one] for one in PRIORITIES)  # among equals, each team has its share


async def test_all_queues_of_a_lane_are_one_in_the_figures(store: Store, clock: TestClock) -> None:
    first, *others = [message(clock, added=Added(priority=priority)) for priority in PRIORITIES]
    for item in (first, *others):
        await store.messages.accept(item)
    assert LaneDepth("email", 3, first.created_at) in await store.outbox.depth()
    await store.outbox.claim("email", 2)
    assert LaneDepth("email", 3, first.created_at) in await store.outbox.depth()


async def test_lanes_are_apart_and_work_waits_for_its_time(store: Store, clock: TestClock) -> None:
    await store.messages.accept(message(clock, channel="sms"))
    assert await store.outbox.claim("email", 10) == []
    (claim,) = await store.outbox.claim("phone", 10)
    later = clock.now() + 60_000
    assert await store.outbox.record(
        sent(claim, clock, None, again=Later(due_at=later, attempt=1, deferrals={"sim": 1}))
    )
    assert await store.outbox.claim("phone", 10) == []
    clock.forward(60_000)
    (again,) = await store.outbox.claim("phone", 10)
    assert (again.attempt, again.deferrals) == (1, {"sim": 1})


@pytest.mark.parametrize("how", ["lease", "restart"])
async def test_the_work_of_the_dead_is_taken_over(store: Store, other: Store, clock: TestClock, how: str) -> None:
    await store.messages.accept(message(clock, price=10))
    (lost,) = await store.outbox.claim("email", 10)
    if how == "lease":
        await let_leases_end(other, clock, LEASE_MS // 2)
        assert await other.outbox.claim("email", 10) == []
        await let_leases_end(other, clock, LEASE_MS // 2)
    else:
        await other.outbox.take_back()  # another seat's restart frees nothing of ours
        assert await other.outbox.claim("email", 10) == []
        await store.outbox.take_back()
    (taken,) = await other.outbox.claim("email", 10)
    assert (taken.key, taken.epoch) == (lost.key, lost.epoch + 1)
    assert not await store.outbox.record(sent(lost, clock, "failed"))  # too late: fenced
    assert (await store.ledger.account(1)).held == 10
    assert await other.outbox.record(sent(taken, clock))
    assert not await other.outbox.record(sent(taken, clock))  # once
    assert (await store.ledger.account(1)).held == 0


async def test_a_heartbeat_keeps_only_what_is_in_work(store: Store, other: Store, clock: TestClock) -> None:
    await asyncio.gather(*(store.messages.accept(message(clock)) for _ in range(2)))
    kept, left = await store.outbox.claim("email", 10)
    await let_leases_end(other, clock, LEASE_MS // 2)
    assert await store.outbox.heartbeat([kept]) == {kept.key}
    assert await other.outbox.heartbeat([left]) == set()  # not theirs
    await let_leases_end(other, clock, LEASE_MS // 2)
    assert [claim.key for claim in await other.outbox.claim("email", 10)] == [left.key]


async def test_what_is_given_back_is_not_counted(store: Store, clock: TestClock) -> None:
    await store.messages.accept(message(clock))
    for _ in range(CLAIMS_MAX + 1):
        claims = await store.outbox.claim("email", 10)
        assert len(claims) == 1
        await store.outbox.release(claims)
    await store.outbox.reclaim()
    assert len(await store.outbox.claim("email", 10)) == 1


async def suspect(store: Store, clock: TestClock, **more: Any) -> str:
    """A message whose workers died with it, among others."""
    item = message(clock, **more)
    await store.messages.accept(item)
    for _ in range(CLAIMS_MAX):
        assert len(await store.outbox.claim("email", 10)) == 1
        await store.outbox.take_back()
    return item.id


@pytest.mark.parametrize("ahead", [0, 5 * DAY_MS])
async def test_poison_is_tried_alone_then_put_aside(store: Store, clock: TestClock, sql: Sql, ahead: int) -> None:
    """`ahead`: by the test clock of its team."""
    clock.moved = {1: ahead}
    poison = await suspect(store, clock, price=10, created_at=clock.of(1))
    assert await store.outbox.claim("email", 10) == []  # no longer among others
    for deaths in range(DEATHS_MAX):
        assert await store.outbox.reclaim() == 0
        assert await store.outbox.suspects() == 1
        assert len(await store.outbox.claim_suspect()) == 1
        assert await store.outbox.reclaim() == 0  # it is in work
        await store.outbox.take_back()
        assert await store.outbox.claim_suspect() == []  # others first
        clock.forward((deaths + 1) * ALONE_AGAIN_MS)
    assert await store.outbox.claim_suspect() == []
    assert await store.outbox.reclaim() == 1
    stored = await store.messages.get(1, poison)
    assert stored
    assert stored.status == "failed"
    assert (await store.ledger.account(1)).available == CREDIT
    assert await sql("SELECT count(*) FROM outbox") == [(0,)]
    ((ended_at,),) = await sql("SELECT updated_at FROM recipient")
    assert ahead <= ended_at - clock.now() + DAY_MS < ahead + 2 * DAY_MS


@pytest.mark.parametrize("how", ["release", "join"])
async def test_deaths_beside_others_do_not_count(store: Store, clock: TestClock, how: str) -> None:
    await suspect(store, clock)
    for _ in range(DEATHS_MAX + 1):
        claims = await store.outbox.claim_suspect()
        assert len(claims) == 1
        await getattr(store.outbox, how)(claims)
        await store.outbox.take_back()
        clock.forward(ALONE_AGAIN_MS)
    assert await store.outbox.reclaim() == 0
    assert await store.outbox.suspects() == 1


async def test_a_suspect_that_is_recorded_is_innocent(store: Store, clock: TestClock) -> None:
    await suspect(store, clock)
    for _ in range(DEATHS_MAX - 1):
        await store.outbox.claim_suspect()
        await store.outbox.take_back()
        clock.forward(DEATHS_MAX * ALONE_AGAIN_MS)
    (claim,) = await store.outbox.claim_suspect()
    assert await store.outbox.record(sent(claim, clock, None, again=Later(due_at=clock.now(), attempt=1)))
    assert await store.outbox.suspects() == 0
    for _ in range(CLAIMS_MAX):
        assert len(await store.outbox.claim("email", 10)) == 1
        await store.outbox.take_back()
    assert len(await store.outbox.claim_suspect()) == 1
    await store.outbox.take_back()
    assert await store.outbox.reclaim() == 0  # counted anew


async def test_a_report_for_later_is_applied_when_it_is_due(store: Store, clock: TestClock) -> None:
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
    """Messages whose delivery is reported now, by key."""
    for _ in range(count):
        await store.messages.accept(message(clock))
    claims = await store.outbox.claim("email", count)
    for claim in claims:
        later = [DueReport(0, Report(status="delivered"))]
        await store.outbox.record(sent(claim, clock, reports=later, lane="email"))
    return [claim.message for claim in claims]


async def test_more_reports_than_one_claim_takes_are_called_for(store: Store, clock: TestClock) -> None:
    await sent_with_reports(store, clock, 3)
    rung = store.hints.bells["email"]._rung
    for more in (True, False):
        rung.clear()
        assert await store.outbox.claim("email", 2) == []
        assert rung.is_set() == more


async def test_a_report_that_breaks_its_transaction_leaves_the_others_alone(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, *_ = await sent_with_reports(store, clock, 3)
    record = outcomes.record

    async def breaks(tx: Any, changes: Any, **given: Any) -> Any:
        if broken in {change.message for change in changes}:
            raise ValueError("no such state")
        return await record(tx, changes, **given)

    monkeypatch.setattr(outcomes, "record", breaks)
    claims = await store.outbox.claim("email", 10)
    assert len(claims) == 3 and all(claim.reports for claim in claims)  # recorded one by one, as hand-overs are


class Died(BaseException):
    """The process, and its transaction with it."""


async def test_a_report_whose_processes_die_is_put_aside(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch, sql: Sql
) -> None:
    """Applied where it is claimed, it would take its claim back with it, and no death would count (P14)."""
    poison, other = await sent_with_reports(store, clock, 2)
    record = outcomes.record

    async def dies(tx: Any, changes: Any, **given: Any) -> Any:
        if poison in {change.message for change in changes}:
            raise Died
        return await record(tx, changes, **given)

    monkeypatch.setattr(outcomes, "record", dies)
    deaths = 0
    while await sql("SELECT key FROM outbox") and deaths < 2 * (CLAIMS_MAX + DEATHS_MAX):
        outbox = Outbox(store.database, clock, store.outbox._owner, store.outbox._leases, store.setup)  # a restart
        await outbox.take_back()
        await outbox.reclaim()
        deaths += 1
        with suppress(Died):
            for claim in [*await outbox.claim("email", 10), *await outbox.claim_suspect()]:
                change = Change.reported(claim.held, claim.message, 0, claim.reports, "email", clock.now())
                if claim.message == other:
                    await outbox.record(change)
            await outbox.claim("email", 10)
        clock.forward(DEATHS_MAX * ALONE_AGAIN_MS)
    assert await sql("SELECT key FROM outbox") == []
    assert dict(await sql("SELECT message, status FROM recipient")) == {poison: "sent", other: "delivered"}


@pytest.mark.parametrize("is_suspect", [False, True])
async def test_a_report_about_a_message_that_was_purged_holds_up_nobody(
    store: Store, clock: TestClock, sql: Sql, is_suspect: bool
) -> None:
    """Delivered and about to be complained about, a message may be deleted while delivery is paused."""
    gone, left = await sent_with_reports(store, clock, 2)
    await sql(f"DELETE FROM recipient WHERE message = {gone}")
    await sql(f"DELETE FROM message WHERE key = {gone}")
    if is_suspect:
        await sql(f"UPDATE outbox SET claims = {CLAIMS_MAX}")
    outbox = Outbox(store.database, clock, store.outbox._owner, store.outbox._leases, store.setup)  # a restart
    claims = [*await outbox.claim("email", 10), *await outbox.claim_suspect(), *await outbox.claim_suspect()]
    assert [claim.message for claim in claims] == [left]
    assert await sql("SELECT message FROM outbox") == [(left,)]


async def test_reports_name_the_ids_of_their_carrier(store: Store, clock: TestClock) -> None:
    item = message(clock, "a@example.com", "b@example.com")
    await store.messages.accept(item)
    for claim in await store.outbox.claim("email", 10):
        await store.outbox.record(sent(claim, clock, carrier="mx", carrier_id=claim.address))
    bounced = Report(status="bounced", detail={"text": "no such user"}, suppress="bounce")
    assert await store.reports.by_carrier(
        "mx", [CarrierReport("a@example.com", bounced), CarrierReport("never@example.com", bounced)]
    ) == [
        True,
        False,
    ]
    assert await store.reports.by_carrier("another", [CarrierReport("b@example.com", bounced)]) == [False]
    stored = await store.messages.get(1, item.id)
    assert stored
    assert [one.status for one in stored.recipients] == ["bounced", "sent"]
    found = await store.suppressions.get(1, "a@example.com")
    assert found
    assert (found.reason, found.source_message_id) == ("bounce", item.id)
    assert await store.suppressions.get(1, "b@example.com") is None


async def test_depth(store: Store, clock: TestClock) -> None:
    items = [message(clock), message(clock, channel="sms"), message(clock, channel="whatsapp")]
    for item in items:
        await store.messages.accept(item)
    wanted = [LaneDepth("email", 1, items[0].created_at), LaneDepth("phone", 2, items[1].created_at)]
    assert await store.outbox.depth() == wanted


async def test_the_oldest_has_waited_since_its_first_try(store: Store, clock: TestClock) -> None:
    """Also while it waits for its next try; what is scheduled, since its time; a lane without work has none."""
    assert await store.outbox.depth() == [LaneDepth("email"), LaneDepth("phone")]
    later = clock.now() + DAY_MS
    await store.messages.accept(message(clock, timing=Timing(due_at=later)))
    assert LaneDepth("email", 1, later) in await store.outbox.depth()
    await store.messages.accept(message(clock))
    (claim,) = await store.outbox.claim("email", 10)
    tried_at = clock.now()
    again = Later(due_at=tried_at + 3_600_000, attempt=1, first_at=tried_at)
    deferred = Change(message=claim.message, position=0, claim=claim.held, at=tried_at, wanted=None, again=again)
    assert await store.outbox.record(deferred)
    assert LaneDepth("email", 2, tried_at) in await store.outbox.depth()


@pytest.mark.parametrize(
    ("reason", "used"),
    [
        *((reason, 0) for reason in ("canceled", "expired", "suspended", "suppressed", "no_carrier", "out_of_reach")),
        *((reason, 1) for reason in ("quarantined", "uncertain")),  # it may be sent yet, or was
    ],
)
async def test_the_quota_comes_back_when_a_mail_ends_for_a_reason_of_ours(
    store: Store, clock: TestClock, reason: str, used: int
) -> None:
    def decide(found: Found) -> Decision:
        pricing.take_quota(found.account, 1, 10, pricing.month_of(clock.now()))
        said = msgspec.json.encode({"id": "eml_1", "to_addresses": ["ada@example.com"], "cc": [], "bcc": []})
        ada = AcceptedRecipient("ada@example.com", "ada@example.com", "to")
        return Decision(response=said, recipients=[ada])

    await store.messages.accept(message(clock, decide=decide))
    (claim,) = await store.outbox.claim("email", 10)
    assert await store.outbox.record(sent(claim, clock, "failed", detail={"reason": reason}))
    assert (await store.ledger.account(1)).used == used
