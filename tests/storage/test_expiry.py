"""A message that expires while it waits fails in time, without a worker, by its team's clock."""

from typing import Any

import msgspec
import pytest

from heliograph.domain.limits import HOUR_MS, MINUTE_MS
from heliograph.domain.sending.send_options import Timing
from heliograph.storage.expiry import BATCH
from heliograph.storage.store import Store
from tests.storage.samples import message

pytestmark = pytest.mark.anyio


async def waiting(store: Store, clock: Any, *, team: int = 1, price: int = 0, **timing: int) -> str:
    item = message(clock, team=team, price=price, timing=Timing(**timing))
    await store.messages.accept(item)
    return item.id


async def state(store: Store, id_: str, team: int = 1) -> tuple[str, str | None]:
    result = await store.messages.get(team, id_)
    assert result
    detail = result.recipients[0].detail
    return result.status, msgspec.json.decode(detail)["reason"] if detail else None


@pytest.mark.parametrize("due_in", [0, 30 * MINUTE_MS], ids=["due", "scheduled"])
async def test_waiting_message_expires_at_its_time(store: Store, clock: Any, due_in: int) -> None:
    now = clock.now()
    (before,) = (await store.ledger.find_accounts([1])).values()
    expiring = await waiting(store, clock, price=7, due_at=now + due_in, expires_at=now + HOUR_MS)
    forever = await waiting(store, clock)
    clock.forward(HOUR_MS - MINUTE_MS)
    await store.expiry.fail_expired()
    assert (await state(store, expiring))[1] is None
    clock.forward(MINUTE_MS)
    for _ in range(2):
        await store.expiry.fail_expired()
    assert await state(store, expiring) == ("failed", "expired")
    assert (await state(store, forever))[1] is None
    result = await store.messages.get(1, expiring)
    assert result
    (failed,) = [event for event in result.events if event.status == "failed"]
    assert failed.created_at >= now + HOUR_MS
    assert (await store.ledger.find_accounts([1]))[1] == before  # the hold is released
    assert [claim.message_id for claim in await store.outbox.claim("email", 10)] == [forever]


async def test_claimed_message_is_left_to_its_worker(store: Store, clock: Any) -> None:
    id_ = await waiting(store, clock, expires_at=clock.now() + MINUTE_MS)
    (claim,) = await store.outbox.claim("email", 1)
    clock.forward(HOUR_MS)
    await store.expiry.fail_expired()
    assert (await state(store, id_))[1] is None
    await store.outbox.release([claim])
    await store.expiry.fail_expired()
    assert await state(store, id_) == ("failed", "expired")


async def test_test_clock_expires_its_own_team_only(store: Store, clock: Any) -> None:
    at = clock.now() + HOUR_MS
    moved = await waiting(store, clock, team=1, expires_at=at)
    live = await waiting(store, clock, team=2, expires_at=at)
    clock.offsets = {1: 2 * HOUR_MS}
    await store.expiry.fail_expired()
    assert await state(store, moved) == ("failed", "expired")
    assert (await state(store, live, 2))[1] is None


async def test_more_than_a_batch_expires_in_one_round(store: Store, clock: Any) -> None:
    at = clock.now() + MINUTE_MS
    ids = [await waiting(store, clock, expires_at=at) for _ in range(BATCH + 5)]
    clock.forward(MINUTE_MS)
    await store.expiry.fail_expired()
    assert {await state(store, id_) for id_ in ids} == {("failed", "expired")}


async def test_nothing_expires_while_the_clock_is_wrong(
    store: Store, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = await waiting(store, clock, expires_at=clock.now() + MINUTE_MS)
    clock.forward(HOUR_MS)
    monkeypatch.setattr(clock, "clock_error", lambda: HOUR_MS)
    await store.expiry.fail_expired()
    assert (await state(store, id_))[1] is None
