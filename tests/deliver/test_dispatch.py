"""From a claimed message to its recorded outcome, on a real store; tests move the time."""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from heliograph import carrier_failover
from heliograph.carrier_failover import CarrierFailover
from heliograph.carriers import contract as channels
from heliograph.carriers.contract import Carriers, OutboundMessage
from heliograph.deliver.dispatch import Dispatch, choose_carrier
from heliograph.domain.delivery.lanes import CONCURRENCY_MAX_BY_LANE
from heliograph.domain.delivery.outcome import Accepted, Deferred, IncomingText, Outcome, Refused
from heliograph.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS
from heliograph.domain.setup.records import CarrierRecord, TeamRecord
from heliograph.domain.setup.snapshot import to_row
from heliograph.inbound.store.inbound_texts import TextSource
from heliograph.storage.outcomes import RecipientUpdate
from heliograph.storage.store import Store, StoreUnavailable
from tests.setup_helpers import set_up
from tests.storage.samples import let_leases_end

pytestmark = pytest.mark.anyio

PRICE = 45_000
ABSENT = Refused(bounced=True, absent=True)

Send = Callable[..., Awaitable[str]]
Told = Callable[[str], Awaitable[list[str]]]


class Scripted(channels.Carrier):
    """A carrier with these outcomes, in order; the last one repeats."""

    def __init__(self, *answers: Outcome | Exception) -> None:
        self.answers = list(answers)
        self.messages: list[OutboundMessage] = []

    async def send_message(self, message: OutboundMessage) -> Outcome:
        self.messages.append(message)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def working(store: Store, carriers: Carriers, clock: Any) -> Dispatch:
    return Dispatch(store, CarrierFailover(store, carriers, clock), clock)


async def set_carriers(store: Store, *carriers: CarrierRecord) -> None:
    rows = [to_row("carrier", carrier.id, carrier, None) for carrier in carriers]
    await set_up(store, rows=rows)


async def status(store: Store, id_: str) -> str:
    message = await store.messages.get(1, id_)
    assert message
    return message.status


async def deliver_all(store: Store, worker: Dispatch, clock: Any) -> None:
    """Deliver and advance the clock until the outbox is empty."""
    while queues := await store.dead_letters.queues(clock.now()):
        clock.forward(min(queue.oldest_due for queue in queues if queue.oldest_due is not None) - clock.now())
        for lane in CONCURRENCY_MAX_BY_LANE:
            for claim in await store.outbox.claim(lane, 100):
                assert await worker.deliver(claim)


@pytest.mark.parametrize(
    ("channel", "address", "states"),
    [
        ("email", "delivered@simulator.test", ["sent", "delivered"]),
        ("email", "bounced@simulator.test", ["bounced"]),
        ("email", "asyncbounce@simulator.test", ["sent", "delivered", "bounced"]),
        ("email", "complained@simulator.test", ["sent", "delivered", "complained"]),
        ("email", "failed@simulator.test", ["failed"]),
        ("email", "softbounce@simulator.test", ["deferred", "deferred", "sent", "delivered"]),
        ("sms", "+15005550006", ["sent", "delivered"]),
        ("sms", "+15005550001", ["failed"]),
        ("sms", "+15005550004", ["sent", "failed"]),
        ("sms", "+15005550005", ["sent", "delivered"]),
        ("sms", "+15005550007", ["failed"]),
        ("whatsapp", "+15005550006", ["sent", "delivered", "read"]),
        ("whatsapp", "+15005550001", ["failed"]),
        ("whatsapp", "+15005550004", ["sent", "failed"]),
        ("whatsapp", "+15005550005", ["sent", "delivered"]),
        ("whatsapp", "+15005550009", ["sent", "delivered", "read"]),
    ],
)
async def test_magic_recipients_get_their_documented_states(
    store: Store,
    clock: Any,
    carriers: Carriers,
    send: Send,
    timeline: Told,
    channel: str,
    address: str,
    states: list[str],
) -> None:
    id_ = await send(channel, address)
    await deliver_all(store, working(store, carriers, clock), clock)
    assert await timeline(id_) == states
    assert await status(store, id_) == states[-1]
    assert await store.suppressions.list_page(1, None, 10) == []


async def test_recipients_of_one_message_get_separate_outcomes(
    store: Store, clock: Any, carriers: Carriers, send: Send
) -> None:
    id_ = await send("email", "delivered@simulator.test", "bounced@simulator.test", price=PRICE)
    await deliver_all(store, working(store, carriers, clock), clock)
    message = await store.messages.get(1, id_)
    assert message
    assert [recipient.status for recipient in message.recipients] == ["delivered", "bounced"]
    assert message.status == "delivered"


@pytest.mark.parametrize(
    ("address", "reason"), [("bounced@example.com", "bounce"), ("complained@example.com", "complaint")]
)
async def test_bounce_or_complaint_suppresses_the_address(
    store: Store, clock: Any, carriers: Carriers, send: Send, address: str, reason: str
) -> None:
    id_ = await send("email", address, "anyone@example.com")
    await deliver_all(store, working(store, carriers, clock), clock)
    (suppression,) = await store.suppressions.list_page(1, None, 10)
    assert (suppression.email, suppression.reason, suppression.source_message_id) == (address, reason, id_)


async def test_refusal_by_the_recipients_server_bounces_without_suppression(
    store: Store, clock: Any, send: Send, timeline: Told
) -> None:
    reply = {"code": "554", "enhanced": "5.7.1", "text": "554 5.7.1 Message blocked by policy"}
    id_ = await send("email", "ada@example.com")
    inbox = Carriers(lambda _: Scripted(Refused(detail=reply, by_inbox=True)))
    await deliver_all(store, working(store, inbox, clock), clock)
    assert await timeline(id_) == ["bounced"]
    assert await store.suppressions.list_page(1, None, 10) == []
    message = await store.messages.get(1, id_)
    assert message and message.recipients[0].detail
    assert json.loads(message.recipients[0].detail) == reply | {"suppressed": False, "simulated": True}
    counts = await store.database.read(lambda tx: tx.run("newest_reputation", after=0, enough=1))
    assert not counts  # the reputation guard counts only hard bounces


@pytest.mark.parametrize(("address", "spent"), [("+447700900123", PRICE), ("+15005550001", 0)])
async def test_money_is_captured_when_accepted_and_released_when_refused(
    store: Store, clock: Any, carriers: Carriers, send: Send, address: str, spent: int
) -> None:
    before = (await store.ledger.get_account(1)).available
    await send("sms", address, price=PRICE)
    await deliver_all(store, working(store, carriers, clock), clock)
    account = await store.ledger.get_account(1)
    assert (account.available, account.held) == (before - spent, 0)


async def test_message_is_delivered_by_an_accepting_last_carrier(
    store: Store, clock: Any, send: Send, timeline: Told
) -> None:
    id_ = await send("email", "anyone@example.com")
    last = Carriers(lambda _: Scripted(Accepted(delivered=True, carrier_id="1")))
    await deliver_all(store, working(store, last, clock), clock)
    assert await timeline(id_) == ["sent", "delivered"]


async def test_magic_recipients_never_reach_a_real_carrier(
    store: Store, clock: Any, carriers: Carriers, send: Send
) -> None:
    await set_carriers(store, CarrierRecord(id="mx", channel="email", kind="mx"))
    await send("email", "delivered+x@simulator.test")
    await send("email", "anyone@example.com")
    magic, plain = await store.outbox.claim("email", 2)
    chosen = choose_carrier(magic, store.setup.current), choose_carrier(plain, store.setup.current)
    assert [carrier.kind for carrier in chosen if carrier] == ["simulator", "mx"]


async def test_team_with_a_test_clock_never_uses_a_real_carrier(store: Store, clock: Any, send: Send) -> None:
    """This includes messages accepted before the clock was enabled, and replies to real inbound texts."""
    await set_carriers(
        store,
        CarrierRecord(id="mx", channel="email", kind="mx"),
        CarrierRecord(id="twilio", channel="sms", kind="twilio"),
    )
    await send("email", "anyone@example.com")
    clocked = TeamRecord(id="team_clocked", name="Clocked", ref=1, mode="sandbox", test_clock=True)
    await set_up(store, rows=[to_row("team", clocked.id, clocked, clocked.id)])
    stop = IncomingText(id="1", sender="+447700900123", to="", text="STOP")
    await store.inbound_texts.store(TextSource(carrier="twilio", channel="sms", team=1), [stop])
    claims = [*await store.outbox.claim("email", 2), *await store.outbox.claim("phone", 2)]
    chosen = [choose_carrier(claim, store.setup.current) for claim in claims]
    assert [carrier and carrier.id for carrier in chosen] == ["simulator-email", "simulator-sms"]


@pytest.mark.parametrize(
    ("word", "age_ms", "waits_ms", "state"),
    [
        ("STOP", 0, DAY_MS - 2 * MINUTE_MS, "delivered"),
        ("STOP", 0, DAY_MS, "failed"),
        ("START", 0, DAY_MS, "failed"),
        ("HELP", 0, DAY_MS, "failed"),
        ("STOP", DAY_MS - HOUR_MS, 0, "delivered"),  # Meta's callback was late
        ("STOP", DAY_MS - HOUR_MS, HOUR_MS, "failed"),
        ("STOP", -DAY_MS, DAY_MS, "failed"),  # a clock that is ahead does not lengthen the window
    ],
)
async def test_whatsapp_reply_outside_the_conversation_window_is_not_sent(
    store: Store, clock: Any, word: str, age_ms: int, waits_ms: int, state: str
) -> None:
    await set_carriers(store, CarrierRecord(id="meta", channel="whatsapp", kind="cloud_api"))
    team = TeamRecord(id="team_live", name="Live", ref=1)
    await set_up(store, rows=[to_row("team", team.id, team, team.id)])
    text = IncomingText(id="1", sender="+447700900123", to="", text=word, sent_at=clock.now() - age_ms)
    await store.inbound_texts.store(TextSource(carrier="meta", channel="whatsapp", team=1), [text])
    clock.forward(waits_ms)
    (claim,) = await store.outbox.claim("phone", 2)
    meta = Scripted(Accepted(delivered=True))
    assert await working(store, Carriers(lambda _: meta), clock).deliver(claim)
    assert (await status(store, claim.message_id), len(meta.messages)) == (state, int(state == "delivered"))


async def test_next_carrier_is_tried_after_two_deferrals(store: Store, clock: Any, send: Send) -> None:
    carriers_used: list[str] = []

    class Busy(Scripted):
        def __init__(self, id_: str) -> None:
            super().__init__(Deferred())
            self.id = id_

        async def send_message(self, message: OutboundMessage) -> Outcome:
            carriers_used.append(self.id)
            return await super().send_message(message)

    await set_carriers(
        store,
        CarrierRecord(id="first", channel="sms", kind="busy", priority=1),
        CarrierRecord(id="second", channel="sms", kind="busy", priority=2),
    )
    await send("sms", "+447700900123")
    await deliver_all(store, working(store, Carriers(lambda record: Busy(record.id)), clock), clock)
    assert carriers_used[:4] == ["first", "first", "second", "second"]


@pytest.mark.parametrize("answer", [Deferred(), OSError("no route to 203.0.113.9"), "hangs"])
async def test_temporary_failure_is_retried(
    store: Store,
    clock: Any,
    send: Send,
    timeline: Told,
    monkeypatch: pytest.MonkeyPatch,
    answer: Outcome | Exception | str,
) -> None:
    class Hanging(Scripted):
        async def send_message(self, message: OutboundMessage) -> Outcome:
            if not self.messages:
                self.messages.append(message)
                await asyncio.Event().wait()
            return await super().send_message(message)

    monkeypatch.setattr(carrier_failover, "SEND_TIMEOUT_S", 0.01)
    accepted = Accepted(carrier_id="1")
    carrier = Hanging(accepted) if isinstance(answer, str) else Scripted(answer, accepted)
    id_ = await send("sms", "+447700900123")
    await deliver_all(store, working(store, Carriers(lambda _: carrier), clock), clock)
    assert await timeline(id_) == ["deferred", "sent"]
    assert [message.attempt for message in carrier.messages] == [0, 1]
    assert "203.0.113.9" not in repr(await store.messages.get(1, id_))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ((ABSENT, ABSENT), ["deferred", "bounced"]),
        ((ABSENT, Accepted(carrier_id="1")), ["deferred", "sent"]),
        # any other outcome in between restarts the count
        ((ABSENT, Deferred(), ABSENT, ABSENT), ["deferred", "deferred", "deferred", "bounced"]),
    ],
)
async def test_nonexistent_domain_fails_at_the_second_attempt(
    store: Store, clock: Any, send: Send, timeline: Told, said: tuple[Any, ...], told: list[str]
) -> None:
    id_ = await send("email", "ada@example.com")
    started_at = clock.now()
    await deliver_all(store, working(store, Carriers(lambda _: Scripted(*said)), clock), clock)
    assert await timeline(id_) == told
    assert clock.now() - started_at >= (900_000 if ABSENT in said[1:] else 0)
    assert bool(await store.suppressions.get(1, "ada@example.com")) is (told[-1] == "bounced")


async def test_destination_without_a_carrier_waits_for_one(
    store: Store, clock: Any, carriers: Carriers, send: Send, timeline: Told
) -> None:
    simulator = CarrierRecord(id="sim", channel="sms", kind="simulator", countries=("FR",))
    await set_carriers(store, simulator)
    id_ = await send("sms", "+447700900123")
    worker = working(store, carriers, clock)
    (claim,) = await store.outbox.claim("phone", 1)
    assert await worker.deliver(claim)
    await set_carriers(store, CarrierRecord(id="sim", channel="sms", kind="simulator"))
    await deliver_all(store, worker, clock)
    assert await timeline(id_) == ["deferred", "sent", "delivered"]


async def test_message_deferred_too_long_fails_uncharged(store: Store, clock: Any, send: Send) -> None:
    before = (await store.ledger.get_account(1)).available
    id_ = await send("sms", "+447700900123", price=PRICE)
    await deliver_all(store, working(store, Carriers(lambda _: Scripted(Deferred())), clock), clock)
    assert await status(store, id_) == "failed"
    assert (await store.ledger.get_account(1)).available == before


async def test_long_pause_does_not_shorten_the_retry_period(
    store: Store, clock: Any, send: Send, timeline: Told
) -> None:
    id_ = await send("sms", "+447700900123", status="queued")
    clock.forward(DAY_MS)
    busy = Scripted(Deferred(), Deferred(), Accepted(carrier_id="1"))
    await deliver_all(store, working(store, Carriers(lambda _: busy), clock), clock)
    assert await timeline(id_) == ["sending", "deferred", "deferred", "sent"]


async def test_late_completion_changes_nothing(
    store: Store, other: Store, clock: Any, carriers: Carriers, send: Send, timeline: Told
) -> None:
    id_ = await send("email", "bounced@simulator.test")
    (lost,) = await store.outbox.claim("email", 1)
    await let_leases_end(other, clock)
    late_worker = working(store, carriers, clock)
    (reclaimed,) = await other.outbox.claim("email", 1)
    assert not await late_worker.deliver(lost)
    assert await timeline(id_) == []
    assert await working(other, carriers, clock).deliver(reclaimed)
    assert await timeline(id_) == ["bounced"]


class Admitting(Scripted):
    """A carrier that calls `before_send`, as carriers with connections do."""

    async def send_message(self, message: OutboundMessage) -> Outcome:
        await message.hooks.before_send()
        return await super().send_message(message)


@pytest.mark.parametrize("doubt", ["reclaimed", "no heartbeat", "heartbeat lost it"])
async def test_message_that_another_worker_sent_is_not_sent_again(
    store: Store, other: Store, clock: Any, send: Send, timeline: Told, doubt: str
) -> None:
    id_ = await send("email", "anyone@example.com")
    (first,) = await store.outbox.claim("email", 1)
    await let_leases_end(other, clock)
    (second,) = await other.outbox.claim("email", 1)
    sending, reclaimed = Admitting(Accepted(carrier_id="1")), Admitting(Accepted(carrier_id="2"))
    if doubt == "reclaimed":  # the first worker has sent it
        assert await working(store, Carriers(lambda _: sending), clock).deliver(first)
        assert not await working(other, Carriers(lambda _: reclaimed), clock).deliver(second)
        assert (len(sending.messages), len(reclaimed.messages)) == (1, 0)
    else:  # the second worker has sent it
        late_worker = working(store, Carriers(lambda _: sending), clock)
        late_worker.renewed_at, late_worker.lost_keys = (
            (float("-inf"), set()) if doubt == "no heartbeat" else (math.inf, {first.key})
        )
        assert not await late_worker.deliver(first)
        assert await working(other, Carriers(lambda _: reclaimed), clock).deliver(second)
        assert (len(sending.messages), len(reclaimed.messages)) == (0, 1)
    assert await timeline(id_) == ["sent"]


async def test_outcome_is_recorded_when_the_store_returns(
    store: Store, clock: Any, carriers: Carriers, send: Send, timeline: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, worker, waiting = store.outbox.record, working(store, carriers, clock), []

    async def record_at_last(change: RecipientUpdate) -> bool:
        waiting.append(len(worker.unrecorded_keys))
        if len(waiting) < 3:
            raise StoreUnavailable
        return await record(change)

    monkeypatch.setattr(store.outbox, "record", record_at_last)
    monkeypatch.setattr("heliograph.deliver.dispatch.DATABASE_RETRY_S", 0)
    id_ = await send("email", "bounced@simulator.test")
    (claim,) = await store.outbox.claim("email", 1)
    assert await worker.deliver(claim)
    assert waiting == [0, 1, 1]
    assert not worker.unrecorded_keys
    assert await timeline(id_) == ["bounced"]


async def test_outcome_that_cannot_be_written_leaves_the_claim(
    store: Store, clock: Any, carriers: Carriers, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def record(change: RecipientUpdate) -> bool:
        raise ValueError("broken")

    monkeypatch.setattr(store.outbox, "record", record)
    await send("email", "bounced@simulator.test")
    (claim,) = await store.outbox.claim("email", 1)
    assert not await working(store, carriers, clock).deliver(claim)
    assert await store.outbox.claim("email", 1) == []
    await let_leases_end(store, clock)
    assert len(await store.outbox.claim("email", 1)) == 1


async def test_message_waits_while_its_body_cannot_be_read(
    store: Store, clock: Any, carriers: Carriers, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: bytes) -> bytes:
        raise StoreUnavailable("no object store")

    id_ = await send("email", "delivered@simulator.test")
    worker = working(store, carriers, clock)
    with monkeypatch.context() as patched:
        patched.setattr(store.contents, "load_bytes", fail)
        (claim,) = await store.outbox.claim("email", 10)
        assert await worker.deliver(claim)
    assert await store.outbox.claim("email", 10) == []
    assert await status(store, id_) == "sending"  # nothing was attempted
    await deliver_all(store, worker, clock)
    assert await status(store, id_) == "delivered"
