"""What operators see of the queues, and what becomes of dead letters."""

import pytest

from heliograph.rules.limits import CLAIMS_MAX
from heliograph.storage import queues
from heliograph.storage.people import AuditEntry
from heliograph.storage.queues import DeadLetter, Queue
from heliograph.storage.store import Claim, Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql
from tests.storage.samples import message
from tests.storage.test_money import ACCOUNTS, LEDGER, check_books, outcome

pytestmark = pytest.mark.anyio


async def _die(store: Store) -> None:
    """Three workers die with what they claimed."""
    for _ in range(CLAIMS_MAX):
        await store.claim("email", 10)
        await store.claim_suspect()
        await store.take_back()
    await store.reclaim()


async def _dead(store: Store, clock: TestClock, *to: str, price: int = 0) -> list[DeadLetter]:
    await store.accept(message(clock, *to, price=price))
    while not (found := await store.database.read(queues.dead_letters)):
        await _die(store)
    return found


def _audit(clock: TestClock) -> AuditEntry:
    return AuditEntry(at=clock.now(), action="deadletter", subject="x")


async def test_queues_by_lane_and_team(store: Store, clock: TestClock) -> None:
    for team, channel, count in ((1, "email", 3), (2, "email", 1), (2, "sms", 2)):
        for _ in range(count):
            await store.accept(message(clock, team=team, channel=channel))
    await store.claim("phone", 1)
    now = clock.now()
    found = {(q.lane, q.team): q for q in await store.database.read(lambda tx: queues.queues(tx, now))}
    assert {place: (q.due, q.later, q.working) for place, q in found.items()} == {
        ("email", 1): (3, 0, 0),
        ("email", 2): (1, 0, 0),
        ("phone", 2): (1, 0, 1),
    }
    assert all(q.oldest is not None and q.oldest <= now for q in found.values())
    early = await store.database.read(lambda tx: queues.queues(tx, now - 60_000))
    assert {(q.due, q.later) for q in early} == {(0, 3), (0, 1)}
    assert isinstance(early[0], Queue)


async def test_a_dead_letter_is_tried_again_for_free(store: Store, clock: TestClock, sql: Sql) -> None:
    (dead,) = await _dead(store, clock, price=500)
    assert (dead.channel, dead.address, dead.has_body) == ("email", "ada@example.com", 1)
    audit = _audit(clock)
    results = [
        await store.database.write(lambda tx: queues.retry(tx, dead.message, dead.position, audit)) for _ in (1, 2)
    ]
    assert results == [True, False]
    assert await store.database.read(queues.dead_letters) == []
    assert await sql("SELECT status, ended_at FROM message") == [("failed", None)]
    (claim,) = await store.claim("email", 10)
    assert isinstance(claim, Claim)
    await store.record(outcome(claim, clock.now(), "sent"))
    assert await sql("SELECT m.status, r.status FROM message m JOIN recipient r ON r.message = m.key") == [
        ("failed", "sent")
    ]
    await store.record(outcome(claim, clock.now(), "sent"))
    check_books(await sql(LEDGER), await sql(ACCOUNTS))
    assert await sql("SELECT charge FROM message") == [("released",)]
    assert await sql("SELECT action FROM audit") == [("deadletter",)]


async def test_a_dropped_one_stays_failed(store: Store, clock: TestClock, sql: Sql) -> None:
    (dead,) = await _dead(store, clock)
    audit = _audit(clock)
    for expected in (True, False):
        done = await store.database.write(lambda tx: queues.drop(tx, dead.message, dead.position, audit))
        assert done is expected
    assert await store.database.read(queues.dead_letters) == []
    assert not await store.database.write(lambda tx: queues.retry(tx, dead.message, dead.position, audit))
    assert await sql("SELECT status FROM recipient") == [("failed",)]
    assert await sql("SELECT count(*) FROM outbox") == [(0,)]


async def test_no_retry_without_its_content(store: Store, clock: TestClock, sql: Sql) -> None:
    (dead,) = await _dead(store, clock)
    await store.database.write(lambda tx: tx.run("purge_contents", messages=[(dead.message,)]))
    audit = _audit(clock)
    assert not await store.database.write(lambda tx: queues.retry(tx, dead.message, dead.position, audit))
    assert len(await store.database.read(queues.dead_letters)) == 1


async def test_pages_of_dead_letters(store: Store, clock: TestClock) -> None:
    await store.accept(message(clock, "a@example.com", "b@example.com"))
    await _dead(store, clock, "c@example.com")
    everything = await store.database.read(queues.dead_letters)
    while len(everything) < 3:
        await _die(store)
        everything = await store.database.read(queues.dead_letters)
    assert [d.address for d in everything] == ["c@example.com", "b@example.com", "a@example.com"]
    last = everything[0]
    rest = await store.database.read(lambda tx: queues.dead_letters(tx, (last.message, last.position), 1))
    assert rest == everything[1:]


async def test_webhooks_with_something_to_be_told(store: Store) -> None:
    await store.tell_webhook(1, "whk_a", "webhook.test", "whk_a", {})
    await store.tell_webhook(1, "whk_a", "webhook.test", "whk_a", {})
    await store.tell_webhook(2, "whk_b", "webhook.test", "whk_b", {})
    found = await store.database.read(queues.waiting_hooks)
    assert [(h.webhook, h.waiting, h.failing_since) for h in found] == [("whk_a", 2, None), ("whk_b", 1, None)]
