"""Unreachable and silent carriers: failover, delays, the single second attempt, and no duplicates."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.carrier_failover import CarrierFailover, choose_in_order
from heliograph.carriers.contract import Carrier, Carriers, OutboundMessage
from heliograph.deliver.dispatch import UNREACHABLE_SPREAD_MS, Dispatch
from heliograph.domain.delivery.circuit import FAILURES_TO_OPEN, FIRST_WAIT_MS, WAIT_MAX_MS, open_circuit
from heliograph.domain.delivery.outcome import Accepted, Deferred, Outcome, Refused
from heliograph.domain.setup import records
from heliograph.domain.setup.snapshot import to_row
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.setup_helpers import set_up

pytestmark = pytest.mark.anyio

PHONE = "+447700900123"
TAKEN = Accepted(carrier_id="1")
AWAY = Deferred(detail={"text": "connection refused"}, unreachable=True)
SILENT = Deferred(detail={"text": "no answer"}, uncertain=True)

Send = Callable[..., Awaitable[str]]
Told = Callable[[str], Awaitable[list[str]]]


class ScriptedCarrier(Carrier):
    """A carrier whose responses the test sets."""

    def __init__(self, *answers: Outcome) -> None:
        self.answers = list(answers)
        self.messages: list[OutboundMessage] = []

    async def send_message(self, message: OutboundMessage) -> Outcome:
        self.messages.append(message)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class FailoverSetup:
    """Carriers `a`, `b`, … by priority, and a worker that delivers through them."""

    def __init__(self, store: Store, clock: Any, lines: dict[str, ScriptedCarrier]) -> None:
        self.store, self.clock, self.lines = store, clock, lines
        self.failover = CarrierFailover(store, Carriers(lambda record: lines[record.id]), clock)
        self.dispatch = Dispatch(store, self.failover, clock)

    async def set_up(self, channel: records.Channel = "sms") -> None:
        rows = [
            to_row("carrier", id_, records.CarrierRecord(id=id_, channel=channel, kind="test", priority=position), None)
            for position, id_ in enumerate(self.lines)
        ]
        await set_up(self.store, rows=rows)

    async def deliver(self, lane: str = "phone") -> int:
        claims = await self.store.outbox.claim(lane, 100)
        for claim in claims:
            assert await self.dispatch.deliver(claim)
        return len(claims)

    def send_counts(self) -> dict[str, int]:
        return {id_: len(line.messages) for id_, line in self.lines.items()}


@pytest.fixture
async def lines(store: Store, clock: Any) -> Callable[..., Awaitable[FailoverSetup]]:
    async def make(**options: ScriptedCarrier) -> FailoverSetup:
        setup = FailoverSetup(store, clock, options)
        await setup.set_up()
        return setup

    return make


def wait(store: Store, clock: TestClock) -> int:
    """Return the ms until the next probe, rounded to ten seconds because the clock goes on during the test."""
    return round((store.circuits.current["a"].until - clock.now()) / 10_000) * 10_000


async def status(store: Store, id_: str) -> str:
    message = await store.messages.get(1, id_)
    assert message
    return message.status


async def test_next_carrier_is_tried_at_once_when_the_first_is_unreachable(
    store: Store, send: Send, timeline: Told, lines: Any
) -> None:
    setup = await lines(a=ScriptedCarrier(AWAY), b=ScriptedCarrier(TAKEN))
    id_ = await send("sms", PHONE)
    await setup.deliver()
    assert await timeline(id_) == ["sent"]
    assert setup.send_counts() == {"a": 1, "b": 1}
    assert "connection refused" in repr(await store.messages.get(1, id_))
    uses = await store.carrier_stats.read_recent(setup.clock.now())
    assert {id_: item.hour[:3] for id_, item in uses.items()} == {"a": (0, 0, 1), "b": (1, 0, 0)}


HELD = Deferred(detail={"reason": "provider_rate"}, held=True, retry_after_ms=60_000, overflow="c")


@pytest.mark.parametrize(
    ("answer", "sent", "counts"), [(TAKEN, "sent", (1, 0, 1)), (AWAY, "deferred", (1, 0, 1))], ids=["taken", "away"]
)
async def test_held_message_goes_by_the_overflow_carrier_alone(
    store: Store, send: Send, timeline: Told, lines: Any, answer: Outcome, sent: str, counts: tuple[int, ...]
) -> None:
    setup = await lines(a=ScriptedCarrier(HELD), b=ScriptedCarrier(TAKEN), c=ScriptedCarrier(answer))
    await setup.set_up("email")
    id_ = await send("email", "ada@example.com")
    await setup.deliver("email")
    assert (await timeline(id_))[-1] == sent
    assert tuple(setup.send_counts().values()) == counts


async def test_held_message_waits_when_its_overflow_carrier_is_disabled(
    store: Store, clock: Any, send: Send, lines: Any
) -> None:
    setup = await lines(a=ScriptedCarrier(HELD), b=ScriptedCarrier(TAKEN))
    await setup.set_up("email")
    await send("email", "ada@example.com")
    await setup.deliver("email")
    clock.forward(59_000)
    assert await setup.deliver("email") == 0
    clock.forward(1_100)
    assert await setup.deliver("email") == 1
    assert setup.send_counts() == {"a": 2, "b": 0}


async def test_carrier_without_an_answer_is_retried_alone(store: Store, clock: Any, send: Send, lines: Any) -> None:
    setup = await lines(a=ScriptedCarrier(SILENT, TAKEN), b=ScriptedCarrier(TAKEN))
    id_ = await send("sms", PHONE)
    await setup.deliver()
    assert setup.send_counts() == {"a": 1, "b": 0}
    clock.forward(60_000)
    await setup.deliver()
    assert setup.send_counts() == {"a": 2, "b": 0}
    assert [message.uncertain for message in setup.lines["a"].messages] == [False, True]
    assert await status(store, id_) == "sent"


async def test_carrier_without_an_answer_twice_fails_the_message_uncharged(
    store: Store, clock: Any, send: Send, lines: Any
) -> None:
    setup = await lines(a=ScriptedCarrier(SILENT), b=ScriptedCarrier(TAKEN))
    id_ = await send("sms", PHONE, price=45_000)
    for _ in range(3):
        await setup.deliver()
        clock.forward(60_000)
    assert await status(store, id_) == "failed"
    assert setup.send_counts() == {"a": 2, "b": 0}
    account = await store.ledger.get_account(1)
    assert (account.available, account.held) == (1_000_000, 0)


async def test_refusal_is_not_retried_with_the_next_carrier(store: Store, send: Send, lines: Any) -> None:
    setup = await lines(a=ScriptedCarrier(Refused()), b=ScriptedCarrier(TAKEN))
    id_ = await send("sms", PHONE)
    await setup.deliver()
    assert (await status(store, id_), setup.send_counts()) == ("failed", {"a": 1, "b": 0})


async def test_failures_open_the_circuit_and_a_probe_closes_it(
    store: Store, other: Store, clock: Any, send: Send, lines: Any
) -> None:
    setup = await lines(a=ScriptedCarrier(AWAY), b=ScriptedCarrier(TAKEN))
    version = store.setup.current.version
    for _ in range(FAILURES_TO_OPEN + 3):
        await send("sms", PHONE)
    await setup.deliver()
    assert setup.send_counts() == {"a": FAILURES_TO_OPEN, "b": FAILURES_TO_OPEN + 3}
    assert list(setup.failover.open_circuits()) == ["a"]
    await other.refresh()  # other processes learn of it without a new setup
    assert (await other.setup.refresh()).version == version
    assert list(other.circuits.current) == ["a"]

    clock.forward(FIRST_WAIT_MS)  # half open: one probe, which fails
    for _ in range(3):
        await send("sms", PHONE)
    await setup.deliver()
    assert setup.send_counts()["a"] == FAILURES_TO_OPEN + 1
    assert wait(store, clock) == 2 * FIRST_WAIT_MS

    setup.lines["a"].answers = [TAKEN]
    clock.forward(2 * FIRST_WAIT_MS)
    for _ in range(3):
        await send("sms", PHONE)
    await setup.deliver()
    assert setup.send_counts()["a"] == FAILURES_TO_OPEN + 4
    assert not store.circuits.current
    assert not setup.failover.open_circuits()


async def test_probe_interval_of_an_open_circuit_is_bounded(store: Store, clock: Any, send: Send, lines: Any) -> None:
    setup = await lines(a=ScriptedCarrier(AWAY))
    for _ in range(FAILURES_TO_OPEN):
        await send("sms", PHONE)
    await setup.deliver()
    waits = []
    for _ in range(6):
        clock.forward(store.circuits.current["a"].until - clock.now())
        await send("sms", PHONE)
        await setup.deliver()
        waits.append(wait(store, clock))
    assert waits == [min(FIRST_WAIT_MS << n, WAIT_MAX_MS) for n in range(1, 7)]


async def test_messages_wait_while_all_carriers_are_unavailable_and_leave_afterwards(
    store: Store, clock: Any, send: Send, lines: Any
) -> None:
    setup = await lines(a=ScriptedCarrier(AWAY), b=ScriptedCarrier(AWAY))
    ids = [await send("sms", PHONE, price=10) for _ in range(FAILURES_TO_OPEN + 3)]
    await setup.deliver()
    assert sorted(setup.failover.open_circuits()) == ["a", "b"]
    assert {await status(store, id_) for id_ in ids} == {"sending"}
    setup.lines["b"].answers = [TAKEN]
    for _ in range(3):
        clock.forward(FIRST_WAIT_MS + 1000)
        await setup.deliver()
    assert {await status(store, id_) for id_ in ids} == {"sent"}


async def test_local_outage_counts_no_attempt_and_its_messages_leave_first(
    store: Store, clock: Any, send: Send, timeline: Told, lines: Any
) -> None:
    setup = await lines(a=ScriptedCarrier(AWAY))
    old = [await send("sms", PHONE) for _ in range(FAILURES_TO_OPEN + 3)]
    for _ in range(4):
        await setup.deliver()
        clock.forward(store.circuits.current["a"].until - clock.now() + UNREACHABLE_SPREAD_MS)
    setup.lines["a"].answers, tried = [TAKEN], len(setup.lines["a"].messages)
    await setup.deliver()
    await asyncio.gather(*setup.failover._tasks)  # other processes are notified
    new = await send("sms", PHONE)
    await setup.deliver()
    sent = setup.lines["a"].messages[tried:]
    assert [message.message_id for message in sent[-1:]] == [new]
    assert {message.message_id for message in sent[:-1]} == set(old)
    assert {message.attempt for message in sent} == {0}
    assert await timeline(old[0]) == ["deferred", "sent"]  # recorded once, although it was tried repeatedly


@pytest.mark.parametrize(("minutes", "ends"), [(14, "sending"), (16, "failed")])
async def test_lasting_outage_fails_waiting_messages(
    store: Store, clock: Any, send: Send, lines: Any, minutes: int, ends: str
) -> None:
    setup = await lines(a=ScriptedCarrier(AWAY))
    id_, deadline = await send("sms", PHONE, price=10), clock.now() + minutes * 60_000
    while clock.now() < deadline:
        await setup.deliver()
        clock.forward(30_000)
    assert await status(store, id_) == ends
    assert (await store.ledger.get_account(1)).held == (0 if ends == "failed" else 10)


async def test_carrier_exception_counts_as_a_failure(store: Store, send: Send, lines: Any) -> None:
    class Broken(ScriptedCarrier):
        async def send_message(self, message: OutboundMessage) -> Outcome:
            self.messages.append(message)
            raise RuntimeError("secret words")

    setup = await lines(a=Broken())
    ids = [await send("sms", PHONE) for _ in range(FAILURES_TO_OPEN)]
    await setup.deliver()
    assert list(setup.failover.open_circuits()) == ["a"]
    assert "secret words" not in repr([await store.messages.get(1, id_) for id_ in ids])


async def test_cancelled_send_counts_as_a_failure(store: Store, lines: Any) -> None:
    """Verify cancels a send after 8 seconds."""

    class Hanging(ScriptedCarrier):
        async def send_message(self, message: OutboundMessage) -> Outcome:
            await asyncio.Event().wait()
            raise AssertionError

    setup = await lines(a=Hanging())
    message = OutboundMessage(message_id="vrf_1", address=PHONE, content=b"{}", attempt=0)
    for _ in range(FAILURES_TO_OPEN):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await setup.failover.send(store.setup.current.carriers[0], message)
    async with asyncio.timeout(60):
        while not store.circuits.current:
            await asyncio.sleep(0.01)
    assert list(setup.failover.open_circuits()) == ["a"]


async def test_circuit_is_replaced_only_if_unchanged(store: Store, other: Store) -> None:
    first, second = (open_circuit(None, "a", reason, 1) for reason in ("one", "two"))
    assert await store.circuits.replace("a", None, first)
    assert not await other.circuits.replace("a", None, second)
    later = open_circuit(first, "a", "still", 2)
    assert await other.circuits.replace("a", first, later)
    assert not await store.circuits.replace("a", first, None)
    assert store.circuits.current == {"a": later}
    assert await store.circuits.replace("a", later, None)
    assert not await other.circuits.replace("a", later, second)
    assert store.circuits.current == other.circuits.current == {}


@pytest.mark.parametrize(
    ("first", "stop_unless_unreachable", "tried"),
    [
        (TAKEN, True, "a"),
        (Refused(), True, "a"),
        (AWAY, True, "ab"),
        (Deferred(), True, "a"),
        (SILENT, True, "a"),  # another carrier might send a duplicate
        (TAKEN, False, "a"),
        (Refused(), False, "a"),
        (AWAY, False, "ab"),
        (Deferred(), False, "ab"),
        (SILENT, False, "ab"),
    ],
)
async def test_failover_continues_by_the_first_outcome(
    store: Store, lines: Any, first: Outcome, stop_unless_unreachable: bool, tried: str
) -> None:
    setup = await lines(a=ScriptedCarrier(first), b=ScriptedCarrier(TAKEN))
    message = OutboundMessage(message_id="eml_1", address=PHONE, content=b"{}", attempt=0)
    attempts = await setup.failover.send_with_failover(
        choose_in_order(store.setup.current.carriers),
        lambda _: message,
        stop_unless_unreachable=stop_unless_unreachable,
    )
    assert "".join(item.carrier.id for item in attempts) == tried
    assert attempts[0].outcome == first


async def test_failover_without_carriers_returns_no_attempt(lines: Any) -> None:
    none = await lines()
    assert await none.failover.send_with_failover(choose_in_order([]), lambda _: OutboundMessage) == []


async def test_carrier_changed_meanwhile_is_used_with_its_new_settings(store: Store, clock: Any, lines: Any) -> None:
    setup = await lines(a=ScriptedCarrier(AWAY), b=ScriptedCarrier(TAKEN), c=ScriptedCarrier(TAKEN))
    changed = records.CarrierRecord(id="b", channel="sms", kind="test", priority=7)
    choose = setup.failover.choose_in_order_from_setup(setup.store.setup.current.carriers)
    first = choose([])
    assert first and first.id == "a"
    await set_up(store, rows=[to_row("carrier", "b", changed, None)])
    assert choose(["a"]) == changed
    await set_up(store, rows=[to_row("carrier", "b", None, None)])
    last = choose(["a"])
    assert last and last.id == "c"


async def test_carrier_replaced_during_the_close_of_another_stays(clock: Any) -> None:
    """The list of carriers was read before the setup changed."""
    old = [records.CarrierRecord(id=id_, channel="sms", kind="test") for id_ in "ab"]
    new = [replace(record, priority=9) for record in old]
    newest = replace(old[1], priority=10)
    closing, built = asyncio.Event(), list[records.CarrierRecord]()

    class Closing(ScriptedCarrier):
        async def close(self) -> None:
            await closing.wait()

    def make(record: records.CarrierRecord) -> Carrier:
        built.append(record)
        return Closing(TAKEN)

    carriers = Carriers(make)
    await carriers.sync(old)
    keeping = asyncio.create_task(carriers.sync(new))
    await asyncio.sleep(0)
    getting = asyncio.create_task(carriers.get(newest))
    await asyncio.sleep(0)
    closing.set()
    await asyncio.gather(keeping, getting)
    assert built == [*old, *new, newest]
