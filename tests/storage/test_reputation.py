"""The reputation guard in the store: counts by outcome, decisions by the newest hours, resumed by an operator."""

from typing import Any

import pytest

from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.delivery.outcome import CarrierReport, Report
from heliograph.domain.limits import DAY_MS, HOUR_MS
from heliograph.domain.setup.records import TeamRecord
from heliograph.domain.setup.snapshot import to_row
from heliograph.storage.outcomes import RecipientUpdate, RetryPlan
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.setup_helpers import set_up
from tests.storage.conftest import Sql
from tests.storage.samples import PHONE, message

pytestmark = pytest.mark.anyio

ENTRY = COMMAND_LINE.audit_entry(0, "reputation.resume", "team")
COUNTS = "SELECT team, sum(sends), sum(bounces), sum(complaints) FROM reputation GROUP BY team ORDER BY team"


@pytest.fixture
async def teams(store: Store) -> Store:
    """Return a store whose teams 1 and 2 have names."""
    rows = [
        to_row("team", f"team_{ref}", TeamRecord(ref=ref, id=f"team_{ref}", name="T"), f"team_{ref}") for ref in (1, 2)
    ]
    await set_up(store, rows=rows)
    return store


async def deliver(store: Store, clock: TestClock, *target_status: str | None, lane: str = "email") -> None:
    """Deliver the due messages with these outcomes in turn."""
    for claim, status in zip(await store.outbox.claim(lane, len(target_status)), target_status, strict=True):
        change = RecipientUpdate(
            at=clock.now(),
            message=claim.message,
            position=claim.position,
            claim=claim.token,
            target_status=status,
            carrier="c",
            carrier_id=f"{claim.message_id}/{claim.position}",
            retry=None if status else RetryPlan(due_at=clock.now(), attempt=1),
        )
        assert await store.outbox.record(change)


async def report(store: Store, id_: str, *statuses: str) -> None:
    for status in statuses:
        assert await store.reports.store_by_carrier("c", [CarrierReport(f"{id_}/0", Report(status=status))]) == [True]


async def store_counts(store: Store, clock: TestClock, *hours: tuple[int, int, int, int]) -> Store:
    """Store counts of team 1: hours ago, sends, bounces, complaints."""
    rows = [(1, clock.now() - ago * HOUR_MS, *counts) for ago, *counts in hours]
    await store.database.write(lambda tx: tx.run("count_reputation", counts=rows))
    return store


def state(store: Store) -> str:
    result = store.reputations.current.get("team_1")
    return result.state if result else "none"


# -- counting ----------------------------------------------------------------------------------------------


async def test_reputation_counts_each_recipient_once(store: Store, clock: TestClock, sql: Sql) -> None:
    item = message(clock, "ada@example.com")
    await store.messages.accept(item)
    await deliver(store, clock, None)  # deferred
    assert await sql(COUNTS) == []
    await deliver(store, clock, "sent")
    assert await sql(COUNTS) == [(1, 1, 0, 0)]
    await report(store, item.id, "sent", "delivered", "delivered", "complained", "complained", "bounced")
    assert await sql(COUNTS) == [(1, 1, 0, 1)]


async def test_reputation_counts_immediate_and_late_bounces(store: Store, clock: TestClock, sql: Sql) -> None:
    late = message(clock, "late@example.com")
    await store.messages.accept(late)
    await deliver(store, clock, "delivered")
    await report(store, late.id, "bounced", "bounced")
    await store.messages.accept(message(clock, "door@example.com", team=2))
    await deliver(store, clock, "bounced")
    await store.messages.accept(message(clock, "failed@example.com", team=2))
    await deliver(store, clock, "failed")
    assert await sql(COUNTS) == [(1, 1, 1, 0), (2, 1, 1, 0)]


async def test_reputation_of_a_batch_is_one_row_per_team_and_hour(store: Store, clock: TestClock, sql: Sql) -> None:
    await store.messages.accept(message(clock, *(f"a{n}@example.com" for n in range(20))))
    await deliver(store, clock, *["bounced", "sent"] * 10)
    assert await sql("SELECT team, sends, bounces, complaints FROM reputation") == [(1, 20, 10, 0)]
    ((hour,),) = await sql("SELECT hour FROM reputation")
    assert hour % HOUR_MS == 0
    assert 0 <= clock.now() - hour < 2 * HOUR_MS


async def test_reputation_excludes_magic_recipients_and_phones(store: Store, clock: TestClock, sql: Sql) -> None:
    await store.messages.accept(message(clock, "bounced@simulator.test", "delivered+x@simulator.test"))
    await deliver(store, clock, "bounced", "sent")
    await store.messages.accept(message(clock, PHONE, channel="sms"))
    await deliver(store, clock, "sent", lane="phone")
    assert await sql(COUNTS) == []


async def test_reputation_counts_are_deleted_after_eight_days(store: Store, clock: TestClock, sql: Sql) -> None:
    await store_counts(store, clock, (0, 1, 0, 0), (8 * 24 - 1, 1, 0, 0), (8 * 24, 1, 0, 0))
    await store.maintenance.purge()
    assert await sql(COUNTS) == [(1, 2, 0, 0)]


# -- the window --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        ([], None),
        ([(0, 5, 1, 2)], (5, 1, 2)),
        ([(0, 999, 1, 0), (1, 1, 1, 0), (2, 500, 7, 7)], (1000, 2, 0)),  # 999 sends are not enough
        ([(0, 1000, 1, 0), (1, 1, 1, 0)], (1000, 1, 0)),
        ([(0, 0, 3, 0), (100, 1000, 0, 1), (101, 1, 1, 1)], (1000, 3, 1)),  # an hour of late bounces alone
        ([(7 * 24 - 1, 10, 1, 1), (7 * 24, 10, 1, 1)], (10, 1, 1)),
    ],
)
async def test_reputation_uses_the_newest_hours(store: Store, clock: TestClock, hours: Any, expected: Any) -> None:
    await store_counts(store, clock, *hours)
    assert await store.reputations.read_counts() == ({1: expected} if expected else {})


async def test_reputation_of_teams_is_separate(store: Store, clock: TestClock) -> None:
    rows = [(ref, clock.now() - ago * HOUR_MS, 600 * ref, ref, ago) for ref in (1, 2) for ago in range(3)]
    await store.database.write(lambda tx: tx.run("count_reputation", counts=rows))
    assert await store.reputations.read_counts() == {1: (1200, 2, 1), 2: (1200, 2, 0)}


# -- judging -----------------------------------------------------------------------------------------------


async def test_reputation_warning_is_set_and_cleared_automatically(
    teams: Store, other: Store, clock: TestClock
) -> None:
    assert await teams.reputations.update_all() == []
    seen = teams.setup.current.version
    await store_counts(teams, clock, (0, 1000, 50, 0))
    (judged,) = await teams.reputations.update_all()
    assert (judged.team, judged.state, judged.sends, judged.bounces) == ("team_1", "warn", 1000, 50)
    version = teams.reputations.version
    assert await teams.reputations.update_all() == []
    assert (teams.reputations.version, teams.setup.current.version) == (version, seen)  # no new version to load
    await other.refresh()
    assert state(other) == "warn"
    assert "team_2" not in other.reputations.current
    clock.forward(7 * DAY_MS)
    assert [judged.state for judged in await other.reputations.update_all()] == ["ok"]


async def test_reputation_pause_stays_until_an_operator_resumes(teams: Store, other: Store, clock: TestClock) -> None:
    await store_counts(teams, clock, (0, 200, 0, 1))
    await teams.reputations.update_all()
    assert state(teams) == "paused"
    clock.forward(7 * DAY_MS)
    assert await teams.reputations.update_all() == []
    await other.refresh()
    at = clock.now()
    assert await other.reputations.resume("team_1", ENTRY)
    assert not await other.reputations.resume("team_1", ENTRY)
    assert not await other.reputations.resume("team_2", ENTRY)
    await teams.refresh()
    assert state(teams) == "ok"
    assert at <= (teams.reputations.current["team_1"].resumed_at or 0) <= clock.now()


async def test_reputation_after_a_resume_ignores_earlier_counts(teams: Store, clock: TestClock) -> None:
    await store_counts(teams, clock, (0, 1000, 500, 0), (1, 1000, 500, 0))
    await teams.reputations.update_all()
    await teams.reputations.resume("team_1", ENTRY)
    assert await teams.reputations.update_all() == []
    await store_counts(teams, clock, (0, 199, 199, 0))
    assert await teams.reputations.update_all() == []
    await store_counts(teams, clock, (0, 1, 1, 0))
    assert [judged.state for judged in await teams.reputations.update_all()] == ["paused"]


async def test_resume_during_an_evaluation_is_kept(teams: Store, other: Store, clock: TestClock) -> None:
    """This process does not know of the pause and its end yet, and has older counts."""
    await store_counts(teams, clock, (0, 1000, 500, 0))
    await other.refresh()
    await teams.reputations.update_all()
    await teams.reputations.resume("team_1", ENTRY)
    await store_counts(teams, clock, (0, 1000, 500, 0))  # counts as this process read them
    assert await other.reputations.update_all() == []
    assert state(other) == "ok"
    assert [judged.state for judged in await other.reputations.update_all()] == ["paused"]  # by the current state


async def test_reputation_decision_writes_an_audit_entry_of_the_service(teams: Store, clock: TestClock) -> None:
    await store_counts(teams, clock, (0, 1000, 50, 0))
    await teams.reputations.update_all()
    await store_counts(teams, clock, (0, 0, 100, 0))
    await teams.reputations.update_all()
    await teams.reputations.update_all()  # finds nothing new
    assert [(item.actor, item.action, item.subject, item.detail) for item in await teams.audit.list_rows("team_1")] == [
        ("service", "reputation.pause", "team_1", "of 1000 emails 15.0% bounced and 0.00% got complaints"),
        ("service", "reputation.warn", "team_1", "of 1000 emails 5.0% bounced and 0.00% got complaints"),
    ]
