"""A process that was frozen longer than its leases and continues: its lost claims are rejected (found by P19)."""

import asyncio

import pytest

from heliograph.domain.limits import IDEMPOTENCY_LEASE_MS, LEASE_MS
from heliograph.storage.outcomes import RetryPlan
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.samples import finish, let_leases_end, message, retry_key, start
from tests.storage.test_outbox import sent

pytestmark = pytest.mark.anyio


async def test_claim_lost_and_regained_is_fenced_inside_one_batch(store: Store, clock: TestClock) -> None:
    item = message(clock, price=10)
    await store.messages.accept(item)
    (old,) = await store.outbox.claim("email", 1)
    await let_leases_end(store, clock)
    (new,) = await store.outbox.claim("email", 1)
    assert new.key == old.key
    late, fresh = await asyncio.gather(
        store.outbox.record(sent(old, clock, "failed")), store.outbox.record(sent(new, clock))
    )
    assert (late, fresh) == (False, True)
    stored = await store.messages.get(1, item.id)
    assert stored
    assert stored.status == "sent"
    assert (await store.ledger.get_account(1)).held == 0


async def test_outcome_of_lost_work_does_not_apply_to_new_work_with_its_key(store: Store, clock: TestClock) -> None:
    """SQLite reuses the key of the last row after its deletion."""
    await store.messages.accept(message(clock))
    (frozen,) = await store.outbox.claim("email", 1)
    await let_leases_end(store, clock)
    (again,) = await store.outbox.claim("email", 1)
    assert await store.outbox.record(sent(again, clock))
    await store.messages.accept(message(clock))
    (new,) = await store.outbox.claim("email", 1)
    assert not await store.outbox.record(sent(frozen, clock, "failed"))
    assert await store.outbox.record(sent(new, clock))


async def test_idempotency_key_lost_and_regained_returns_the_response_of_the_winner(
    store: Store, clock: TestClock
) -> None:
    frozen = start(clock, idempotency_key=retry_key("key"))
    await store.verifications.start(frozen)
    clock.forward(IDEMPOTENCY_LEASE_MS)
    winner = start(clock, idempotency_key=retry_key("key"))
    await store.verifications.start(winner)
    await store.verifications.finish(finish(frozen, clock, response=b'"frozen"'))
    await store.verifications.finish(finish(winner, clock, response=b'"winner"'))
    again = await store.verifications.start(start(clock, idempotency_key=retry_key("key")))
    assert again
    assert (again.body, again.replayed) == (b'"winner"', True)


async def test_released_claim_that_nobody_reclaimed_records_its_outcome(
    store: Store, other: Store, clock: TestClock
) -> None:
    for _ in range(2):
        await store.messages.accept(message(clock))
    ended, working = await store.outbox.claim("email", 2)
    await let_leases_end(other, clock)
    assert await store.outbox.record(sent(ended, clock, "failed"))
    assert not await store.outbox.record(sent(ended, clock, "failed"))  # once
    assert await store.outbox.renew([working, ended]) == {working.key}
    assert await other.outbox.claim("email", 2) == []


async def test_deferred_outcome_is_not_kept_claimed_by_a_heartbeat(store: Store, clock: TestClock) -> None:
    await store.messages.accept(message(clock))
    (claim,) = await store.outbox.claim("email", 1)
    again = RetryPlan(due_at=clock.now(), attempt=1)
    assert await store.outbox.record(sent(claim, clock, None, retry=again))
    assert not await store.outbox.record(sent(claim, clock, None, retry=again))
    assert await store.outbox.renew([claim]) == set()
    assert len(await store.outbox.claim("email", 1)) == 1


async def test_sent_message_reclaimed_by_a_second_worker_is_not_sent_again(
    store: Store, other: Store, clock: TestClock
) -> None:
    item = message(clock, price=10)
    await store.messages.accept(item)
    (first,) = await store.outbox.claim("email", 1)
    assert not first.was_claimed_before
    await let_leases_end(other, clock)
    (second,) = await other.outbox.claim("email", 1)
    assert second.was_claimed_before
    assert await other.outbox.renew([second]) == {second.key}
    assert await store.outbox.record(sent(first, clock))
    assert await other.outbox.renew([second]) == set()
    assert not await other.outbox.record(sent(second, clock))
    stored = await store.messages.get(1, item.id)
    assert stored
    assert stored.status == "sent"
    assert (await store.ledger.get_account(1)).held == 0


async def test_outage_longer_than_the_lease_releases_no_claim_of_a_live_process(
    store: Store, other: Store, clock: TestClock
) -> None:
    for _ in range(2):
        await store.messages.accept(message(clock))
    working, lost = await store.outbox.claim("email", 2)
    await let_leases_end(other, clock, LEASE_MS // 2)
    clock.forward(3 * LEASE_MS)  # as if the database were unreachable
    await other.outbox.reclaim_abandoned()
    await other.outbox.reclaim_abandoned()
    assert await other.outbox.claim("email", 2) == []
    await store.outbox.renew([working])
    await let_leases_end(other, clock, LEASE_MS // 2)
    assert [claim.key for claim in await other.outbox.claim("email", 2)] == [lost.key]
