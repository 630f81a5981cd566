"""A process that froze beyond its leases and goes on: what it lost is not its own any more (found by P19's seeds)."""

import asyncio

import pytest

from heliograph.rules.limits import IDEMPOTENCY_LEASE_MS, LEASE_MS
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.samples import finish, message, retry_key, start
from tests.storage.test_outbox import sent

pytestmark = pytest.mark.anyio


async def test_a_claim_lost_and_won_again_is_fenced_inside_one_batch(store: Store, clock: TestClock) -> None:
    item = message(clock, price=10)
    await store.messages.accept(item)
    (old,) = await store.outbox.claim("email", 1)
    clock.forward(LEASE_MS)
    await store.outbox.reclaim()
    (new,) = await store.outbox.claim("email", 1)
    assert new.key == old.key
    late, fresh = await asyncio.gather(
        store.outbox.record(sent(old, clock, "failed")), store.outbox.record(sent(new, clock))
    )
    assert (late, fresh) == (False, True)
    stored = await store.messages.get(1, item.id)
    assert stored
    assert stored.status == "sent"
    assert (await store.ledger.account(1)).held == 0


async def test_work_that_was_lost_is_not_what_has_its_key_now(store: Store, clock: TestClock) -> None:
    """SQLite gives the last row's key again when that row is gone."""
    await store.messages.accept(message(clock))
    (frozen,) = await store.outbox.claim("email", 1)
    clock.forward(LEASE_MS)
    await store.outbox.reclaim()
    (again,) = await store.outbox.claim("email", 1)
    assert await store.outbox.record(sent(again, clock))
    await store.messages.accept(message(clock))
    (new,) = await store.outbox.claim("email", 1)
    assert not await store.outbox.record(sent(frozen, clock, "failed"))
    assert await store.outbox.record(sent(new, clock))


async def test_a_key_lost_and_won_again_is_answered_by_the_winner(store: Store, clock: TestClock) -> None:
    frozen = start(clock, retry_key=retry_key("key"))
    await store.verifications.start(frozen)
    clock.forward(IDEMPOTENCY_LEASE_MS)
    winner = start(clock, retry_key=retry_key("key"))
    await store.verifications.start(winner)
    await store.verifications.finish(finish(frozen, clock, response=b'"frozen"'))
    await store.verifications.finish(finish(winner, clock, response=b'"winner"'))
    again = await store.verifications.start(start(clock, retry_key=retry_key("key")))
    assert again
    assert (again.body, again.replayed) == (b'"winner"', True)
