"""Messages that wait for approval: in no lane, decided once, and failed if nobody decides."""

import asyncio
from typing import Any

import msgspec
import pytest

from heliograph.domain.ids import timestamp
from heliograph.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS
from heliograph.domain.sending.acceptance import Acceptance, BatchAcceptance
from heliograph.domain.sending.send_options import ExtraFields, Timing
from heliograph.storage.approvals import NEWEST, Approval
from heliograph.storage.engine.database import Tx
from heliograph.storage.engine.postgres import CitusTx, PostgresTx
from heliograph.storage.expiry import BATCH
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.conftest import CITUS
from tests.storage.conftest import Sql
from tests.storage.samples import ENTRY, message

pytestmark = pytest.mark.anyio
PRICE = 7


def held(clock: TestClock, *addresses: str, team: int = 1, hours: int = 24, **timing: int) -> Acceptance:
    """Return a message of a key that needs approval, as the accept functions build it."""
    expires_at, due_at = timing.get("expires_at"), timing.get("due_at")
    until = clock.team_now(team) + hours * HOUR_MS
    options = ExtraFields(
        scheduled_at=timestamp(due_at) if due_at else None, expires_at=timestamp(expires_at) if expires_at else None
    )
    more: dict[str, Any] = {"created_at": clock.team_now(team), "status": "queued"}
    return message(
        clock,
        *addresses,
        team=team,
        price=PRICE,
        approval_expires_at=min(until, expires_at or until),
        timing=Timing(**timing),
        extra_fields=options,
        **more,
    )


async def hold(store: Store, clock: TestClock, *addresses: str, **options: Any) -> Approval:
    """Accept a message that waits for approval; return its approval."""
    item = held(clock, *addresses, **options)
    await store.messages.accept(item)
    (newest, *_) = await store.approvals.list_page(NEWEST, 1)
    assert newest.message_id == item.id
    return newest


async def state(store: Store, approval: Approval) -> tuple[str, str, str | None]:
    """Return status and reason of the message, and the status of its approval."""
    result, current = (
        await store.messages.get(approval.team, approval.message_id),
        await store.approvals.find(approval.id),
    )
    assert result
    assert current
    detail = result.recipients[0].detail
    return current.status, result.status, msgspec.json.decode(detail)["reason"] if detail else None


async def claimed(store: Store) -> list[str]:
    return [claim.message_id for claim in await store.outbox.claim("email", 10)]


async def test_held_message_is_not_claimed(store: Store, clock: TestClock) -> None:
    approval = await hold(store, clock)
    assert await state(store, approval) == ("pending", "queued", "approval")
    clock.forward(23 * HOUR_MS)
    assert await claimed(store) == []
    assert (await store.ledger.get_account(1)).held == PRICE
    assert approval.expires_at == approval.created_at + DAY_MS


async def test_held_message_publishes_one_event(store: Store, clock: TestClock) -> None:
    approval = await hold(store, clock, "ada@example.com", "bob@example.com")
    (event,) = await store.events.feed(1, "", 10)
    assert (event.type, event.sequence, event.message_status) == ("message.held", 1, "queued")
    await store.approvals.release(approval, ENTRY)
    await store.approvals.fail_expired()
    result = await store.messages.get(1, approval.message_id)
    assert result
    assert [(item.type, item.sequence) for item in result.events] == [("message.held", 1), ("released", None)]


async def test_released_message_is_claimed_as_a_scheduled_one(store: Store, clock: TestClock) -> None:
    expires_at = clock.now() + 30 * HOUR_MS
    approval = await hold(store, clock, expires_at=expires_at)
    assert await store.approvals.release(approval, ENTRY)
    assert await state(store, approval) == ("approved", "queued", None)
    (claim,) = await store.outbox.claim("email", 10)
    assert (claim.message_id, claim.scheduled, claim.expires_at) == (approval.message_id, True, expires_at)
    clock.forward(DAY_MS)
    await store.approvals.fail_expired()
    assert (await state(store, approval))[0] == "approved"


async def test_released_message_keeps_its_schedule_and_priority(store: Store, clock: TestClock) -> None:
    item = held(clock, due_at=clock.now() + 2 * HOUR_MS)
    extra = msgspec.structs.replace(item.extra_fields, priority="critical")
    await store.messages.accept(msgspec.structs.replace(item, extra_fields=extra))
    (approval,) = await store.approvals.list_page(NEWEST, 1)
    await store.approvals.release(approval, ENTRY)
    assert await claimed(store) == []
    clock.forward(2 * HOUR_MS)
    (claim,) = await store.outbox.claim("email", 10)
    assert (claim.message_id, claim.priority) == (item.id, "critical")


async def test_rejected_message_fails_and_is_not_charged(store: Store, clock: TestClock) -> None:
    before = await store.ledger.get_account(1)
    approval = await hold(store, clock, "ada@example.com", "bob@example.com")
    assert await store.approvals.reject(approval, ENTRY)
    assert await state(store, approval) == ("rejected", "failed", "approval_rejected")
    assert await store.ledger.get_account(1) == before
    assert [event.type for event in await store.events.feed(1, "", 10)] == [
        *("message.held", "email.failed", "email.failed"),
    ]


async def test_message_that_nobody_releases_fails_at_its_time(store: Store, clock: TestClock) -> None:
    before = await store.ledger.get_account(1)
    approval = await hold(store, clock, hours=2)
    later = await hold(store, clock, hours=3)
    clock.forward(2 * HOUR_MS - MINUTE_MS)
    await store.approvals.fail_expired()
    assert (await state(store, approval))[0] == "pending"
    clock.forward(MINUTE_MS)
    assert not await store.approvals.release(approval, ENTRY)  # too late, although the job has not run yet
    for _ in range(2):
        await store.approvals.fail_expired()
    assert await state(store, approval) == ("expired", "failed", "approval_expired")
    assert (await state(store, later))[0] == "pending"
    clock.forward(HOUR_MS)
    await store.approvals.fail_expired()
    assert await store.ledger.get_account(1) == before


async def test_expires_at_of_the_message_ends_the_hold_first(store: Store, clock: TestClock) -> None:
    approval = await hold(store, clock, expires_at=clock.now() + HOUR_MS)
    clock.forward(HOUR_MS)
    await store.expiry.fail_expired()
    await store.approvals.fail_expired()
    assert await state(store, approval) == ("expired", "failed", "expired")


async def test_more_than_a_batch_expires_in_one_round(store: Store, clock: TestClock) -> None:
    items = [held(clock, hours=1) for _ in range(BATCH + 5)]
    sends = BatchAcceptance(
        id="bat_1", team=1, key_id="key", created_at=clock.now(), sends=items, strict=True, respond=lambda _: b"{}"
    )
    await store.messages.accept(sends)
    assert len(await store.approvals.list_pending(1, 2 * BATCH)) == BATCH + 5
    clock.forward(HOUR_MS)
    await store.approvals.fail_expired()
    assert await store.approvals.list_pending(1, 1) == []
    assert (await store.ledger.get_account(1)).held == 0


async def test_test_clock_expires_its_own_team_only(store: Store, clock: TestClock) -> None:
    moved, other_team = await hold(store, clock, team=1), await hold(store, clock, team=2)
    clock.offsets = {1: DAY_MS}
    await store.approvals.fail_expired()
    assert (await state(store, moved))[0] == "expired"
    assert (await state(store, other_team))[0] == "pending"


async def test_nothing_expires_while_the_clock_is_wrong(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    approval = await hold(store, clock)
    clock.forward(2 * DAY_MS)
    monkeypatch.setattr(clock, "clock_error", lambda: HOUR_MS)
    await store.approvals.fail_expired()
    assert (await state(store, approval))[0] == "pending"


async def test_one_of_several_decisions_wins(store: Store, other: Store, clock: TestClock, sql: Sql) -> None:
    for _ in range(8):
        approval = await hold(store, clock)
        results = await asyncio.gather(
            store.approvals.release(approval, ENTRY),
            other.approvals.reject(approval, ENTRY),
            store.approvals.reject(approval, ENTRY),
            other.approvals.release(approval, ENTRY),
        )
        assert sum(results) == 1
        released = results[0] or results[3]
        assert await claimed(store) == ([approval.message_id] if released else [])
    assert await sql("SELECT count(*) FROM audit WHERE action = 'test'") == [(8,)]


async def test_cancel_and_a_decision_do_not_both_win(store: Store, other: Store, clock: TestClock) -> None:
    for _ in range(8):
        approval = await hold(store, clock)
        canceled, rejected = await asyncio.gather(
            other.outbox.cancel((1, approval.message_id), "email"), store.approvals.reject(approval, ENTRY)
        )
        assert canceled
        assert canceled.done is not rejected
        expected = ("rejected", "failed", "approval_rejected") if rejected else ("canceled", "failed", "canceled")
        assert await state(store, approval) == expected


async def test_held_message_is_canceled(store: Store, clock: TestClock) -> None:
    before = await store.ledger.get_account(1)
    approval = await hold(store, clock)
    canceled = await store.outbox.cancel((1, approval.message_id), "email")
    assert canceled
    assert (canceled.done, canceled.status) == (True, "failed")
    assert await state(store, approval) == ("canceled", "failed", "canceled")
    assert not await store.approvals.release(approval, ENTRY)
    assert await store.ledger.get_account(1) == before


async def test_released_message_that_still_waits_is_canceled(store: Store, clock: TestClock) -> None:
    approval = await hold(store, clock)
    clock.forward(HOUR_MS)
    assert await store.approvals.release(approval, ENTRY)
    canceled = await store.outbox.cancel((1, approval.message_id), "email")
    assert canceled and canceled.done
    assert (await state(store, approval))[1:] == ("failed", "canceled")
    assert await claimed(store) == []


async def test_held_message_is_rescheduled(store: Store, clock: TestClock) -> None:
    approval, due_at = await hold(store, clock), clock.now() + 3 * HOUR_MS
    rescheduled = await store.outbox.reschedule((1, approval.message_id), "email", due_at, lambda _: None)
    assert rescheduled
    assert rescheduled.done
    assert (await state(store, approval))[0] == "pending"
    await store.approvals.release(approval, ENTRY)
    assert await claimed(store) == []
    clock.forward(3 * HOUR_MS)
    assert await claimed(store) == [approval.message_id]


@pytest.mark.parametrize("decision", ["release", "reject"])
async def test_failed_transaction_leaves_the_approval_pending(
    store: Store, clock: TestClock, sql: Sql, monkeypatch: pytest.MonkeyPatch, decision: str
) -> None:
    approval = await hold(store, clock)

    async def fail(tx: Tx, *entries: Any) -> None:
        raise OSError("the process dies before the commit")

    monkeypatch.setattr("heliograph.storage.audit.write", fail)
    with pytest.raises(OSError, match="dies"):
        await getattr(store.approvals, decision)(approval, ENTRY)
    monkeypatch.undo()
    assert await state(store, approval) == ("pending", "queued", "approval")
    assert await claimed(store) == []
    assert await sql("SELECT lane, count(*) FROM outbox GROUP BY lane") == [("approval", 1)]
    assert await getattr(store.approvals, decision)(approval, ENTRY)


async def test_pages_and_counts_are_those_of_the_pending(store: Store, clock: TestClock) -> None:
    first = await hold(store, clock, hours=5)
    clock.forward(1000)
    second = await hold(store, clock, hours=2)
    clock.forward(1000)
    third = await hold(store, clock, team=2)
    assert [item.approval.id for item in await store.approvals.list_pending(1, 10)] == [second.id, first.id]
    assert [item.id for item in await store.approvals.list_page(NEWEST, 1)] == [third.id, second.id]
    assert [item.id for item in await store.approvals.list_page(second.id, 10)] == [first.id]
    await store.approvals.reject(first, ENTRY)
    assert [len(await store.approvals.list_pending(team, 10)) for team in (1, 2)] == [1, 1]
    assert await store.approvals.find("apr_none") is None


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_approval_decided_during_a_read_is_found_once(
    store: Store, other: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL, each query of a read sees what was committed before that query; on SQLite all see one snapshot."""
    approvals, tx_class = [await hold(store, clock) for _ in range(3)], CitusTx if CITUS else PostgresTx
    run = tx_class.run

    def reject_after_the_next_query(approval: Approval) -> None:
        async def run_and_reject(tx: PostgresTx, query: str, **params: Any) -> Any:
            rows = await run(tx, query, **params)
            monkeypatch.setattr(tx_class, "run", run)
            assert await other.approvals.reject(approval, ENTRY)
            return rows

        monkeypatch.setattr(tx_class, "run", run_and_reject)

    reject_after_the_next_query(approvals[0])
    assert await store.approvals.find(approvals[0].id) is not None
    reject_after_the_next_query(approvals[1])
    statuses = [(item.id, item.status) for item in await store.approvals.list_page(NEWEST, 3)]
    assert statuses == [(approvals[2].id, "pending"), (approvals[1].id, "rejected"), (approvals[0].id, "rejected")]


async def test_approval_is_deleted_with_its_message(store: Store, clock: TestClock, sql: Sql) -> None:
    approval = await hold(store, clock)
    assert not await store.messages.purge_early(1, approval.message_id, ENTRY, whole_message=True)
    await store.approvals.reject(approval, ENTRY)
    assert await store.messages.purge_early(1, approval.message_id, ENTRY, whole_message=True)
    assert await sql("SELECT count(*) FROM approval") == [(0,)]
