"""Carriers that cannot be reached or fall silent: the next one, the wait, the one second try; nothing twice."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.carrier_failover import Handover, first_of
from heliograph.carriers.contract import Carrier, Carriers, Parcel
from heliograph.deliver.dispatch import SPREAD_MS, Dispatch
from heliograph.domain.delivery.circuit import FIRST_MS, MISSES_TO_OPEN, MOST_MS, opened
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


class Line(Carrier):
    """A carrier whose answer the test sets."""

    def __init__(self, *answers: Outcome) -> None:
        self.answers = list(answers)
        self.parcels: list[Parcel] = []

    async def hand_over(self, parcel: Parcel) -> Outcome:
        self.parcels.append(parcel)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class Lines:
    """Carriers `a`, `b`, … by priority, and what delivers through them."""

    def __init__(self, store: Store, clock: Any, lines: dict[str, Line]) -> None:
        self.store, self.clock, self.lines = store, clock, lines
        self.handover = Handover(store, Carriers(lambda record: lines[record.id]), clock)
        self.dispatch = Dispatch(store, self.handover, clock)

    async def set_up(self) -> None:
        rows = [
            to_row("carrier", id_, records.CarrierRecord(id=id_, channel="sms", kind="test", priority=place), None)
            for place, id_ in enumerate(self.lines)
        ]
        await set_up(self.store, rows=rows)

    async def deliver(self) -> int:
        claims = await self.store.outbox.claim("phone", 100)
        for claim in claims:
            assert await self.dispatch.deliver(claim)
        return len(claims)

    def asked(self) -> dict[str, int]:
        return {id_: len(line.parcels) for id_, line in self.lines.items()}


@pytest.fixture
async def lines(store: Store, clock: Any) -> Callable[..., Awaitable[Lines]]:
    async def make(**given: Line) -> Lines:
        made = Lines(store, clock, given)
        await made.set_up()
        return made

    return make


def wait(store: Store, clock: TestClock) -> int:
    """Until the next probe, in whole seconds as ms: the clock runs on a little."""
    return round((store.circuits.current["a"].until - clock.now()) / 1000) * 1000


async def status(store: Store, id_: str) -> str:
    message = await store.messages.get(1, id_)
    assert message
    return message.status


async def test_the_next_carrier_is_asked_at_once(store: Store, send: Send, story: Told, lines: Any) -> None:
    both = await lines(a=Line(AWAY), b=Line(TAKEN))
    id_ = await send("sms", PHONE)
    await both.deliver()
    assert await story(id_) == ["sent"]
    assert both.asked() == {"a": 1, "b": 1}
    assert "connection refused" in repr(await store.messages.get(1, id_))
    uses = await store.carrier_use.recent(both.clock.now())
    assert {id_: one.hour[:3] for id_, one in uses.items()} == {"a": (0, 0, 1), "b": (1, 0, 0)}


async def test_a_silent_carrier_is_asked_again_and_no_other(store: Store, clock: Any, send: Send, lines: Any) -> None:
    both = await lines(a=Line(SILENT, TAKEN), b=Line(TAKEN))
    id_ = await send("sms", PHONE)
    await both.deliver()
    assert both.asked() == {"a": 1, "b": 0}
    clock.forward(60_000)
    await both.deliver()
    assert both.asked() == {"a": 2, "b": 0}
    assert [parcel.uncertain for parcel in both.lines["a"].parcels] == [False, True]
    assert await status(store, id_) == "sent"


async def test_twice_silent_is_failed_and_not_charged(store: Store, clock: Any, send: Send, lines: Any) -> None:
    both = await lines(a=Line(SILENT), b=Line(TAKEN))
    id_ = await send("sms", PHONE, price=45_000)
    for _ in range(3):
        await both.deliver()
        clock.forward(60_000)
    assert await status(store, id_) == "failed"
    assert both.asked() == {"a": 2, "b": 0}
    account = await store.ledger.account(1)
    assert (account.available, account.held) == (1_000_000, 0)


async def test_a_refusal_is_not_taken_to_the_next(store: Store, send: Send, lines: Any) -> None:
    both = await lines(a=Line(Refused()), b=Line(TAKEN))
    id_ = await send("sms", PHONE)
    await both.deliver()
    assert (await status(store, id_), both.asked()) == ("failed", {"a": 1, "b": 0})


async def test_misses_open_the_circuit_and_a_probe_closes_it(
    store: Store, other: Store, clock: Any, send: Send, lines: Any
) -> None:
    both = await lines(a=Line(AWAY), b=Line(TAKEN))
    version = store.setup.current.version
    for _ in range(MISSES_TO_OPEN + 3):
        await send("sms", PHONE)
    await both.deliver()
    assert both.asked() == {"a": MISSES_TO_OPEN, "b": MISSES_TO_OPEN + 3}
    assert list(both.handover.closed_to()) == ["a"]
    await other.refresh()  # every process learns of it, and has no new setup to load
    assert (await other.setup.refresh()).version == version
    assert list(other.circuits.current) == ["a"]

    clock.forward(FIRST_MS)  # half open: one probe, which fails
    for _ in range(3):
        await send("sms", PHONE)
    await both.deliver()
    assert both.asked()["a"] == MISSES_TO_OPEN + 1
    assert wait(store, clock) == 2 * FIRST_MS

    both.lines["a"].answers = [TAKEN]
    clock.forward(2 * FIRST_MS)
    for _ in range(3):
        await send("sms", PHONE)
    await both.deliver()
    assert both.asked()["a"] == MISSES_TO_OPEN + 4
    assert not store.circuits.current
    assert not both.handover.closed_to()


async def test_the_wait_between_probes_is_bounded(store: Store, clock: Any, send: Send, lines: Any) -> None:
    one = await lines(a=Line(AWAY))
    for _ in range(MISSES_TO_OPEN):
        await send("sms", PHONE)
    await one.deliver()
    waits = []
    for _ in range(6):
        clock.forward(store.circuits.current["a"].until - clock.now())
        await send("sms", PHONE)
        await one.deliver()
        waits.append(wait(store, clock))
    assert waits == [min(FIRST_MS << n, MOST_MS) for n in range(1, 7)]


async def test_all_away_messages_wait_and_leave_when_one_returns(
    store: Store, clock: Any, send: Send, lines: Any
) -> None:
    both = await lines(a=Line(AWAY), b=Line(AWAY))
    ids = [await send("sms", PHONE, price=10) for _ in range(MISSES_TO_OPEN + 3)]
    await both.deliver()
    assert sorted(both.handover.closed_to()) == ["a", "b"]
    assert {await status(store, id_) for id_ in ids} == {"sending"}
    both.lines["b"].answers = [TAKEN]
    for _ in range(3):
        clock.forward(FIRST_MS + 1000)
        await both.deliver()
    assert {await status(store, id_) for id_ in ids} == {"sent"}


async def test_an_outage_of_ours_is_no_attempt_and_what_met_it_leaves_first(
    store: Store, clock: Any, send: Send, story: Told, lines: Any
) -> None:
    one = await lines(a=Line(AWAY))
    old = [await send("sms", PHONE) for _ in range(MISSES_TO_OPEN + 3)]
    for _ in range(4):
        await one.deliver()
        clock.forward(store.circuits.current["a"].until - clock.now() + SPREAD_MS)
    one.lines["a"].answers, tried = [TAKEN], len(one.lines["a"].parcels)
    await one.deliver()
    await asyncio.gather(*one.handover._tasks)  # the others are told
    new = await send("sms", PHONE)
    await one.deliver()
    sent = one.lines["a"].parcels[tried:]
    assert [parcel.message_id for parcel in sent[-1:]] == [new]
    assert {parcel.message_id for parcel in sent[:-1]} == set(old)
    assert {parcel.attempt for parcel in sent} == {0}
    assert await story(old[0]) == ["deferred", "sent"]  # told once, however often it was looked at


@pytest.mark.parametrize(("minutes", "ends"), [(14, "sending"), (16, "failed")])
async def test_an_outage_that_lasts_ends_what_waits(
    store: Store, clock: Any, send: Send, lines: Any, minutes: int, ends: str
) -> None:
    one = await lines(a=Line(AWAY))
    id_, until = await send("sms", PHONE, price=10), clock.now() + minutes * 60_000
    while clock.now() < until:
        await one.deliver()
        clock.forward(30_000)
    assert await status(store, id_) == ends
    assert (await store.ledger.account(1)).held == (0 if ends == "failed" else 10)


async def test_an_exception_is_a_miss_too(store: Store, send: Send, lines: Any) -> None:
    class Broken(Line):
        async def hand_over(self, parcel: Parcel) -> Outcome:
            self.parcels.append(parcel)
            raise RuntimeError("secret words")

    one = await lines(a=Broken())
    ids = [await send("sms", PHONE) for _ in range(MISSES_TO_OPEN)]
    await one.deliver()
    assert list(one.handover.closed_to()) == ["a"]
    assert "secret words" not in repr([await store.messages.get(1, id_) for id_ in ids])


async def test_a_hand_over_that_nobody_can_wait_for_is_a_miss_too(store: Store, lines: Any) -> None:
    """As Verify does after 8 seconds."""

    class Hanging(Line):
        async def hand_over(self, parcel: Parcel) -> Outcome:
            await asyncio.Event().wait()
            raise AssertionError

    one = await lines(a=Hanging())
    parcel = Parcel(message_id="vrf_1", address=PHONE, content=b"{}", attempt=0)
    for _ in range(MISSES_TO_OPEN):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await one.handover.ask(store.setup.current.carriers[0], parcel)
    async with asyncio.timeout(60):
        while not store.circuits.current:
            await asyncio.sleep(0.01)
    assert list(one.handover.closed_to()) == ["a"]


async def test_a_circuit_is_changed_only_as_it_was_seen(store: Store, other: Store) -> None:
    first, second = (opened(None, "a", reason, 1) for reason in ("one", "two"))
    assert await store.circuits.change("a", None, first)
    assert not await other.circuits.change("a", None, second)
    later = opened(first, "a", "still", 2)
    assert await other.circuits.change("a", first, later)
    assert not await store.circuits.change("a", first, None)
    assert store.circuits.current == {"a": later}
    assert await store.circuits.change("a", later, None)
    assert not await other.circuits.change("a", later, second)
    assert store.circuits.current == other.circuits.current == {}


@pytest.mark.parametrize(
    ("first", "may_wait", "asked"),
    [
        (TAKEN, True, "a"),
        (Refused(), True, "a"),
        (AWAY, True, "ab"),
        (Deferred(), True, "a"),
        (SILENT, True, "a"),  # another one might send it a second time
        (TAKEN, False, "a"),
        (Refused(), False, "a"),
        (AWAY, False, "ab"),
        (Deferred(), False, "ab"),
        (SILENT, False, "ab"),
    ],
)
async def test_who_is_asked_after_the_first(
    store: Store, lines: Any, first: Outcome, may_wait: bool, asked: str
) -> None:
    both = await lines(a=Line(first), b=Line(TAKEN))
    parcel = Parcel(message_id="eml_1", address=PHONE, content=b"{}", attempt=0)
    found = await both.handover.in_turn(first_of(store.setup.current.carriers), lambda _: parcel, may_wait=may_wait)
    assert "".join(one.carrier.id for one in found) == asked
    assert found[0].outcome == first


async def test_nobody_to_ask(lines: Any) -> None:
    none = await lines()
    assert await none.handover.in_turn(first_of([]), lambda _: Parcel) == []


async def test_carrier_changed_meanwhile_is_asked_with_its_new_settings(store: Store, clock: Any, lines: Any) -> None:
    both = await lines(a=Line(AWAY), b=Line(TAKEN), c=Line(TAKEN))
    changed = records.CarrierRecord(id="b", channel="sms", kind="test", priority=7)
    choose = both.handover.first_of_current(both.store.setup.current.carriers)
    first = choose([])
    assert first and first.id == "a"
    await set_up(store, rows=[to_row("carrier", "b", changed, None)])
    assert choose(["a"]) == changed
    await set_up(store, rows=[to_row("carrier", "b", None, None)])
    last = choose(["a"])
    assert last and last.id == "c"


async def test_carrier_replaced_during_the_close_of_another_stays(clock: Any) -> None:
    """The list that is kept was taken before: the setup has changed since."""
    old = [records.CarrierRecord(id=id_, channel="sms", kind="test") for id_ in "ab"]
    new = [replace(record, priority=9) for record in old]
    newest = replace(old[1], priority=10)
    closing, made = asyncio.Event(), list[records.CarrierRecord]()

    class Closing(Line):
        async def close(self) -> None:
            await closing.wait()

    def make(record: records.CarrierRecord) -> Carrier:
        made.append(record)
        return Closing(TAKEN)

    carriers = Carriers(make)
    await carriers.keep(old)
    keeping = asyncio.create_task(carriers.keep(new))
    await asyncio.sleep(0)
    getting = asyncio.create_task(carriers.get(newest))
    await asyncio.sleep(0)
    closing.set()
    await asyncio.gather(keeping, getting)
    assert made == [*old, *new, newest]
