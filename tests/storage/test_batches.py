"""Batches in the store: strict ones are all or nothing, and one event is published when the last message is final."""

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.domain.limits import DAY_MS
from heliograph.domain.refusals import InvalidEmail, Refusal
from heliograph.domain.sending import pricing
from heliograph.domain.sending.acceptance import (
    Acceptance,
    AcceptedRecipient,
    AcceptState,
    BatchAcceptance,
    Decision,
    SendResult,
)
from heliograph.domain.sending.send_options import Timing
from heliograph.storage import accept as accepts
from heliograph.storage import outcomes
from heliograph.storage.engine.database import Tx
from heliograph.storage.engine.group_commit import GROUP_MAX
from heliograph.storage.outcomes import RecipientUpdate
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.lock_waits import LOCK_WAITS
from tests.storage.conftest import CREDIT, Sql
from tests.storage.samples import KEY, message, retry_key

pytestmark = pytest.mark.anyio


def batch(clock: TestClock, *sends: Acceptance | Refusal, strict: bool = True, **more: Any) -> BatchAcceptance:
    """Return a batch whose response has the ids, and the codes of refused sends."""
    id_ = clock.new_id("bat_")

    def respond(results: Any) -> bytes:
        return json.dumps([item.code if isinstance(item, Refusal) else item.id for item in results]).encode()

    return BatchAcceptance(
        id=id_,
        team=1,
        key_id=KEY,
        created_at=clock.now(),
        sends=[send if isinstance(send, Refusal) else replace(send, batch=id_) for send in sends],
        strict=strict,
        respond=respond,
        **more,
    )


async def end(store: Store, clock: TestClock, count: int = 100, status: str = "delivered") -> None:
    """Deliver the due messages."""
    for change in await claims(store, clock, count, status):
        assert await store.outbox.record(change)


async def claims(store: Store, clock: TestClock, count: int, status: str = "delivered") -> list[RecipientUpdate]:
    return [
        RecipientUpdate(
            at=clock.now(),
            message=item.message,
            position=item.position,
            claim=item.token,
            target_status=status,
            accepted=True,
        )
        for item in await store.outbox.claim("email", count)
    ]


async def told(store: Store, clock: TestClock) -> list[Any]:
    clock.forward(1000)
    return [json.loads(e.detail or "") for e in await store.events.feed(1, "", 1000) if e.type == "batch.done"]


async def test_strict_batch_with_a_refusal_stores_nothing(store: Store, clock: TestClock, sql: Sql) -> None:
    seen: list[int] = []

    def decide(state: AcceptState) -> Decision:
        seen.append(len(state.marketing_times))
        pricing.hold(state.account, CREDIT)
        return Decision(response=b"{}", recipients=[AcceptedRecipient("a@b.test", "a@b.test", "to")], price=CREDIT)

    dear = [message(clock, price=CREDIT // 2, marketing_to="a@b.test") for _ in range(3)]
    after = message(clock, decide=decide, marketing_to="a@b.test")
    both: list[Any] = await asyncio.gather(
        store.messages.accept(batch(clock, *dear)), store.messages.accept(after), return_exceptions=True
    )
    refused, accepted = both
    assert isinstance(refused, Refusal) and isinstance(accepted, SendResult)
    assert (refused.code, refused.param) == ("insufficient_credit", "messages[2]")
    assert seen == [0]  # in the same transaction: the batch counts nothing and holds nothing
    assert await sql("SELECT id FROM message") == [(after.id,)]
    assert await sql("SELECT count(*) FROM batch") == [(0,)]


async def test_permissive_batch_with_a_refusal_stores_the_other_messages(
    store: Store, clock: TestClock, sql: Sql
) -> None:
    first, last = message(clock, price=CREDIT), message(clock)
    sends: list[Acceptance | Refusal] = [first, InvalidEmail(), message(clock, price=1), last]
    item = batch(clock, *sends, strict=False, idempotency_key=retry_key("k"))
    answer = await store.messages.accept(item)
    assert json.loads(answer.body) == [first.id, "invalid_email", "insufficient_credit", last.id]
    assert await sql("SELECT id, batch FROM message ORDER BY key") == [(first.id, item.id), (last.id, item.id)]
    replayed = await store.messages.accept(batch(clock, *sends, strict=False, idempotency_key=retry_key("k")))
    assert (replayed.body, replayed.replayed) == (answer.body, True)
    assert await sql("SELECT id, total, done_at FROM batch") == [(item.id, 2, None)]


async def test_large_batches_use_separate_transactions(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions: list[list[int]] = []
    accept = accepts.accept

    async def counting(tx: Tx, items: Any, *more: Any) -> Any:
        transactions.append([accepts.weight(item) for item in items])
        return await accept(tx, items, *more)

    monkeypatch.setattr(accepts, "accept", counting)
    half = GROUP_MAX // 2
    await asyncio.gather(
        *(store.messages.accept(batch(clock, *[message(clock) for _ in range(half)])) for _ in range(3)),
        store.messages.accept(message(clock)),
    )
    assert transactions == [[half, half], [half, 1]]


async def test_batch_event_is_published_once_when_its_last_message_is_final(store: Store, clock: TestClock) -> None:
    item = batch(clock, message(clock), message(clock, "a@b.test", "c@d.test"), message(clock))
    other = batch(clock, message(clock))
    await store.messages.accept(item)
    for counts in ({"delivered": 1, "sending": 2}, {"delivered": 1, "sending": 2}, {"delivered": 2, "sending": 1}):
        await end(store, clock, 1)
        result = await store.batches.get(1, item.id)
        assert result and result.counts == counts
        assert await told(store, clock) == []
    await end(store, clock, 1, "failed")
    record = {"object": "batch", "id": item.id, "total": 3, "counts": {"delivered": 2, "failed": 1}}
    assert await told(store, clock) == [record]
    await store.messages.accept(other)
    await end(store, clock)
    assert [element["id"] for element in await told(store, clock)] == [item.id, other.id]


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)  # SQLite has one writer at a time
async def test_batch_finished_by_two_processes_publishes_one_event(
    store: Store, other: Store, clock: TestClock, sql: Sql
) -> None:
    await store.messages.accept(batch(clock, message(clock), message(clock)))
    ours, theirs = await claims(store, clock, 1), await claims(other, clock, 1)
    written, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(tx: Tx) -> None:
        await outcomes.record_updates(tx, ours, owner="seat/0", publisher=store.setup.publisher)
        written.set()
        await go_on.wait()

    first = asyncio.create_task(store.database.write(slowly))
    await written.wait()
    second = asyncio.ensure_future(other.outbox.record(theirs[0]))
    waiting = f"SELECT 1 FROM {LOCK_WAITS}"
    while not await sql(waiting):
        assert not second.done()
        await asyncio.sleep(0.01)
    go_on.set()
    await asyncio.gather(first, second)
    assert len(await told(store, clock)) == 1


async def test_resend_after_the_batch_finished_publishes_no_second_event(
    store: Store, clock: TestClock, sql: Sql
) -> None:
    item = batch(clock, message(clock), message(clock))
    await store.messages.accept(item)
    await end(store, clock)
    await sql(f"UPDATE message SET ended_at = NULL WHERE batch = '{item.id}'")
    (row,) = await sql("SELECT min(key) FROM message")
    late = RecipientUpdate(at=clock.now(), message=row[0], position=0, target_status="bounced")
    assert await store.outbox.record(late)
    assert len(await told(store, clock)) == 1


async def test_batch_is_deleted_with_its_messages(store: Store, clock: TestClock, sql: Sql) -> None:
    waiting = batch(clock, message(clock, timing=Timing(due_at=clock.now() + 200 * DAY_MS)))
    ended, refused = batch(clock, message(clock)), batch(clock, InvalidEmail(), strict=False)
    for item in (waiting, ended, refused):
        await store.messages.accept(item)
    await end(store, clock)
    clock.forward(89 * DAY_MS)
    await store.maintenance.purge()
    assert len(await sql("SELECT id FROM batch")) == 3
    clock.forward(2 * DAY_MS)
    await store.maintenance.purge()
    assert await sql("SELECT id FROM batch") == [(waiting.id,)]
