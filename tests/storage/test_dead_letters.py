"""The operators' view of the queues, and retrying or dropping dead letters."""

from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.domain.audit.actor import COMMAND_LINE, AuditEntry
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import CLAIMS_MAX, CRASHES_MAX, DAY_MS, ISOLATED_RETRY_MS
from heliograph.domain.sending.send_options import ExtraFields, Timing
from heliograph.domain.setup.records import TeamRecord
from heliograph.domain.setup.snapshot import to_row
from heliograph.storage import dead_letters, outbox
from heliograph.storage.dead_letters import DeadLetter, RetryResult
from heliograph.storage.engine.database import Tx
from heliograph.storage.outbox import Claim, LaneDepth
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.setup_helpers import set_up
from tests.storage.conftest import CREDIT, Sql
from tests.storage.samples import ENTRY, message
from tests.storage.test_money import ACCOUNTS, LEDGER, check_books, outcome

pytestmark = pytest.mark.anyio


async def _die(store: Store, clock: TestClock) -> None:
    """Kill workers with their claims, at last with one isolated message after the other."""
    for _ in range(CLAIMS_MAX + CRASHES_MAX):
        await store.outbox.claim("email", 10)
        while await store.outbox.claim_poison_candidate():
            continue
        await store.outbox.release_own()
        clock.forward(CRASHES_MAX * ISOLATED_RETRY_MS)
    await store.outbox.reclaim_abandoned()


async def kill(store: Store, clock: TestClock, count: int = 1) -> list[DeadLetter]:
    """Turn the accepted messages into at least this number of dead letters."""
    while len(result := await store.dead_letters.list_page()) < count:
        await _die(store, clock)
    return result


async def _dead(store: Store, clock: TestClock, *to: str, price: int = 0) -> list[DeadLetter]:
    await store.messages.accept(message(clock, *to, price=price))
    return await kill(store, clock)


def _audit(clock: TestClock) -> AuditEntry:
    return COMMAND_LINE.audit_entry(at=clock.now(), action="deadletter", subject="x")


async def test_dead_letter_queues_are_counted_by_lane_and_team(store: Store, clock: TestClock) -> None:
    for team, channel, count in ((1, "email", 3), (2, "email", 1), (2, "sms", 2)):
        for _ in range(count):
            await store.messages.accept(message(clock, team=team, channel=channel))
    await store.outbox.claim("phone", 1)
    now = clock.now()
    result = {(q.lane, q.team): q for q in await store.dead_letters.queues(now)}
    assert {place: (q.due, q.retrying, q.in_progress) for place, q in result.items()} == {
        ("email", 1): (3, 0, 0),
        ("email", 2): (1, 0, 0),
        ("phone", 2): (1, 0, 1),
    }
    assert all(q.oldest_due is not None and q.oldest_due <= now for q in result.values())
    early = await store.dead_letters.queues(now - 60_000)
    assert {(q.due, q.retrying) for q in early} == {(0, 3), (0, 1)}


async def _retry(store: Store, clock: TestClock, *letters: DeadLetter) -> RetryResult:
    return await store.dead_letters.retry([item.key for item in letters], _audit(clock))


async def _record(store: Store, clock: TestClock, target_status: str | None) -> None:
    for claim in await store.outbox.claim("email", 10):
        assert isinstance(claim, Claim)
        change = outcome(claim, clock.now(), target_status)
        assert [await store.outbox.record(change) for _ in (1, 2)] == [True, False]


@pytest.mark.parametrize(
    ("wanted", "charge", "kinds"),
    [
        ("sent", "captured", ["hold", "release", "hold", "capture"]),
        ("failed", "released", ["hold", "release", "hold", "release"]),
    ],
)
async def test_dead_letter_retry_is_charged_once(
    store: Store, clock: TestClock, sql: Sql, wanted: str, charge: str, kinds: list[str]
) -> None:
    (dead,) = await _dead(store, clock, price=500)
    assert (dead.channel, dead.address, dead.has_body) == ("email", "ada@example.com", 1)
    assert [(await _retry(store, clock, dead)).requeued for _ in (1, 2)] == [1, 0]
    assert await store.dead_letters.list_page() == []
    assert await sql("SELECT status, ended_at, charge FROM message") == [("sending", None, "held")]
    check_books(await sql(LEDGER), await sql(ACCOUNTS))
    await _record(store, clock, wanted)
    check_books(await sql(LEDGER), await sql(ACCOUNTS))
    assert await sql("SELECT m.status, r.status, m.charge FROM message m JOIN recipient r ON r.message = m.key") == [
        (wanted, wanted, charge)
    ]
    assert [kind for (kind,) in await sql("SELECT kind FROM ledger WHERE kind <> 'topup' ORDER BY key")] == kinds
    assert await sql("SELECT action, subject FROM audit") == [("deadletter", dead.id)]


async def test_dead_letter_retry_keeps_expiry_and_priority(store: Store, clock: TestClock, sql: Sql) -> None:
    """The message is due like a scheduled one, so that suppression and suspension are checked again."""
    at = clock.now() + 30 * DAY_MS
    added = ExtraFields(expires_at=timestamp(at), priority="bulk")
    await store.messages.accept(message(clock, extra_fields=added, timing=Timing(expires_at=at)))
    (dead,) = await kill(store, clock)
    assert (await _retry(store, clock, dead)).requeued == 1
    assert await sql("SELECT lane, expires_at FROM outbox") == [("email.bulk", at)]
    (claim,) = await store.outbox.claim("email", 1)
    assert claim.scheduled


async def test_dead_letter_can_fail_again_after_each_retry(store: Store, clock: TestClock, sql: Sql) -> None:
    (dead,) = await _dead(store, clock, price=500)
    for _ in range(2):
        assert (await _retry(store, clock, dead)).requeued == 1
        while not await store.dead_letters.list_page():
            await _die(store, clock)
    check_books(await sql(LEDGER), await sql(ACCOUNTS))
    assert await sql("SELECT charge, turn FROM message") == [("released", 2)]


async def test_dead_letter_retry_without_credit_is_refused(store: Store, clock: TestClock, sql: Sql) -> None:
    (dead,) = await _dead(store, clock, price=500)
    await store.messages.accept(message(clock, "bob@example.com", price=CREDIT - 499))
    done = await _retry(store, clock, dead)
    assert (done.requeued, [refusal.details for refusal in done.unpaid]) == (
        0,
        [{"price": "0.0005", "credit": "0.000499"}],
    )
    assert await store.dead_letters.list_page() == [dead]
    assert await sql("SELECT count(*) FROM audit") == [(0,)]
    check_books(await sql(LEDGER), await sql(ACCOUNTS))
    await _record(store, clock, "failed")  # bob's hold is released
    assert (await _retry(store, clock, dead)).requeued == 1
    check_books(await sql(LEDGER), await sql(ACCOUNTS))


@pytest.mark.parametrize(
    ("first", "before", "then"),
    [("sent", "captured", "captured"), (None, "held", "captured"), ("failed", "released", "captured")],
)
async def test_dead_letter_of_one_recipient_leaves_the_other_unchanged(
    store: Store, clock: TestClock, sql: Sql, first: str | None, before: str, then: str
) -> None:
    """The price is per message: if the other recipient's hold is open or captured, it is not held again."""
    await store.messages.accept(message(clock, "a@example.com", "b@example.com", price=500))
    (claim,) = await store.outbox.claim("email", 1)
    change = outcome(claim, clock.now(), first)
    await store.outbox.record(
        replace(change, retry=change.retry and replace(change.retry, due_at=clock.now() + DAY_MS))
    )
    dead = await kill(store, clock)
    assert await sql("SELECT charge FROM message") == [(before,)]
    assert (await _retry(store, clock, *dead)).requeued == 1
    await _record(store, clock, "sent")
    assert await sql("SELECT charge FROM message") == [(then,)]
    assert await sql("SELECT sum(amount) FROM ledger WHERE kind = 'capture'") == [(500,)]
    check_books(await sql(LEDGER), await sql(ACCOUNTS))


async def test_dead_letters_of_one_message_share_its_credit_hold(store: Store, clock: TestClock, sql: Sql) -> None:
    await _dead(store, clock, "a@example.com", "b@example.com", price=500)
    dead = await kill(store, clock, 2)
    assert (await _retry(store, clock, *dead)).requeued == 2
    assert await sql("SELECT count(*), max(turn) FROM ledger WHERE kind = 'hold'") == [(2, 1)]
    await _record(store, clock, "sent")
    assert await sql("SELECT charge FROM message") == [("captured",)]
    check_books(await sql(LEDGER), await sql(ACCOUNTS))


async def test_dead_letter_retry_publishes_low_credit(store: Store, clock: TestClock, sql: Sql) -> None:
    (dead,) = await _dead(store, clock, price=500)
    record = TeamRecord(ref=1, id="team_1", name="T", credit_low=CREDIT)
    await set_up(store, rows=[to_row("team", "team_1", record, "team_1")])
    await _retry(store, clock, dead)
    assert await sql("SELECT count(*) FROM event WHERE type = 'credit.low'") == [(1,)]


async def test_dropped_dead_letter_stays_failed(store: Store, clock: TestClock, sql: Sql) -> None:
    (dead,) = await _dead(store, clock)
    assert [await store.dead_letters.drop([dead.key], _audit(clock)) for _ in range(2)] == [1, 0]
    assert await store.dead_letters.list_page() == []
    assert (await _retry(store, clock, dead)).missing == 1
    assert await sql("SELECT status FROM recipient") == [("failed",)]
    assert await sql("SELECT count(*) FROM outbox") == [(0,)]
    assert await sql("SELECT subject FROM audit") == [(dead.id,)]


async def test_dead_letter_retry_without_content_is_refused(store: Store, clock: TestClock, sql: Sql) -> None:
    (dead,) = await _dead(store, clock)
    await store.database.write(lambda tx: tx.run("purge_contents", messages=[(dead.message,)]))
    assert (await _retry(store, clock, dead)).missing == 1
    assert len(await store.dead_letters.list_page()) == 1


async def test_dead_letter_detail_shows_message_and_error(store: Store, clock: TestClock) -> None:
    await store.messages.accept(message(clock, "a@example.com", "b@example.com", price=500))
    for claim in await store.outbox.claim("email", 10):
        await store.outbox.record(outcome(claim, clock.now(), None if claim.position else "sent"))
    dead = await kill(store, clock)
    result = await store.dead_letters.find(dead[0].key)
    assert result
    assert (result.letter, result.price, result.charge, result.carrier) == (dead[0], 500, "captured", "sim")
    assert [event.type.rpartition(".")[2] for event in result.events][-1] == "failed"
    assert {event.recipient for event in result.events} == {"b@example.com"}
    assert await store.dead_letters.find(dead[0].key._replace(position=0)) is None
    assert await store.dead_letters.count() == 1


async def test_dead_letters_are_listed_page_by_page(store: Store, clock: TestClock) -> None:
    await store.messages.accept(message(clock, "a@example.com", "b@example.com"))
    await _dead(store, clock, "c@example.com")
    everything = await kill(store, clock, 3)
    assert [d.address for d in everything] == ["c@example.com", "b@example.com", "a@example.com"]
    assert await store.dead_letters.list_page(everything[0].key, 1) == everything[1:]
    earlier = min(letter.at for letter in everything) - 1
    assert await store.dead_letters.list_page(until=earlier) == []


async def test_webhook_backlog_counts_due_deliveries(store: Store) -> None:
    await store.deliveries.publish_to_webhook(1, "whk_a", "webhook.test", "whk_a", {}, ENTRY)
    await store.deliveries.publish_to_webhook(1, "whk_a", "webhook.test", "whk_a", {}, ENTRY)
    await store.deliveries.publish_to_webhook(2, "whk_b", "webhook.test", "whk_b", {}, ENTRY)
    result = await store.dead_letters.webhook_backlogs()
    assert [(h.webhook, h.waiting, h.failing_since) for h in result] == [("whk_a", 2, None), ("whk_b", 1, None)]


async def test_webhook_backlog_age_counts_from_the_first_attempt(store: Store, clock: TestClock) -> None:
    """Each attempt changes the time of the next one."""
    began = clock.now()
    event = await store.deliveries.publish_to_webhook(1, "whk_a", "webhook.test", "whk_a", {}, ENTRY)
    [hook] = await store.dead_letters.webhook_backlogs()
    assert began <= hook.since <= clock.now()
    first = clock.now() + 5_000
    for number in range(2):
        at = first + number * 60_000
        tried = (1, event, number, 0, "waiting", at + 3_600_000, at)

        async def put_off(tx: Tx, tried: tuple[Any, ...] = tried) -> None:
            await tx.run("record_attempts", tries=[tried])

        await store.database.write(put_off)
        [hook] = await store.dead_letters.webhook_backlogs()
        assert hook.since == first


async def test_long_queue_is_counted_up_to_a_limit(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "PAGE_COUNT_MAX", 2)
    monkeypatch.setattr(outbox, "DEPTH_COUNT_MAX", 2)
    for _ in range(3):
        await store.messages.accept(message(clock))
    ((due, oldest),) = [(queue.due, queue.oldest_due) for queue in await store.dead_letters.queues(clock.now())]
    assert due == 2
    assert oldest is not None and oldest < clock.now()  # the oldest of all, however many there are
    assert LaneDepth("email", 2, oldest) in await store.outbox.lane_depths()
