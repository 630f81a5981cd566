"""The claim loop with real simulators: fairness, pause, stop, outages, poison."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from heliograph.carrier_failover import Handover
from heliograph.carriers.contract import Carrier, Carriers, Parcel
from heliograph.deliver import worker as loops
from heliograph.deliver.worker import Worker
from heliograph.domain.delivery.lanes import SLOTS
from heliograph.domain.delivery.outcome import Accepted, Outcome
from heliograph.domain.limits import CLAIMS_MAX, DEATHS_MAX, HEARTBEAT_MS, LEASE_MS
from heliograph.domain.setup.records import Platform
from heliograph.domain.setup.snapshot import PLATFORM_ID, to_row
from heliograph.storage.engine import wakeups
from heliograph.storage.outbox import Claim
from heliograph.storage.outcomes import Change
from heliograph.storage.store import Store, StoreUnavailable
from tests.setup_helpers import set_up
from tests.storage.samples import let_leases_end

pytestmark = pytest.mark.anyio

PRICE = 45_000

Send = Callable[..., Awaitable[str]]
Told = Callable[[str], Awaitable[list[str]]]


class Gate(Carrier):
    """A carrier that takes a message when it is opened; counts what it holds at once."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.begun: list[str] = []
        self.inside = 0
        self.at_once: list[int] = []  # how many were inside when each one began

    async def hand_over(self, parcel: Parcel) -> Outcome:
        self.begun.append(parcel.address)
        self.inside += 1
        self.at_once.append(self.inside)
        await self.opened.wait()
        await asyncio.sleep(0.01)
        self.inside -= 1
        return Accepted(carrier_id=f"{parcel.message_id}/{parcel.address}", delivered=True)


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[Worker]:
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        await worker.stop()
        await task


async def until(true: Callable[..., Any]) -> None:
    """Wait until the question, asked now and then, is answered with yes."""
    async with asyncio.timeout(60):
        while not (await answer if inspect.isawaitable(answer := true()) else answer):
            await asyncio.sleep(0.005)


def is_empty(store: Store) -> Callable[[], Awaitable[bool]]:
    async def empty() -> bool:
        for _ in range(2):  # one reading, of what waits and then of what is at work, may miss a row that changes hands
            if any(lane.waiting for lane in await store.outbox.depth()):
                return False
        return True

    return empty


async def pause(store: Store, paused: bool) -> None:
    row = to_row("platform", PLATFORM_ID, Platform(paused=paused), None)
    await set_up(store, rows=[row])


async def has_status(store: Store, id_: str, wanted: str) -> bool:
    return await status(store, id_) == wanted


async def status(store: Store, id_: str) -> str:
    message = await store.messages.get(1, id_)
    assert message
    return message.status


async def die(store: Store, clock: Any, times: int) -> None:
    """Claim all that is due and end without an outcome, as a killed process does."""
    for _ in range(times):
        for lane in ("email", "phone"):
            await store.outbox.claim(lane, 100)
        await let_leases_end(store, clock)


async def test_everything_is_delivered(store: Store, clock: Any, carriers: Carriers, send: Send) -> None:
    ids = [await send("email", f"person{n}@example.com") for n in range(150)]
    ids += [await send("sms", f"+4477009001{n:02}") for n in range(20)]
    ids += [await send("whatsapp", "+15005550005")]
    async with running(Worker(store, Handover(store, carriers, clock), clock)):
        await until(is_empty(store))
    assert {await status(store, id_) for id_ in ids} == {"delivered"}


async def test_a_hint_makes_it_claim_at_once(
    store: Store, clock: Any, carriers: Carriers, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "DEAF_POLL_S", 3600)
    async with running(Worker(store, Handover(store, carriers, clock), clock)):
        await asyncio.sleep(0.1)
        await send("email", "failed@simulator.test")
        await until(is_empty(store))


async def test_nothing_is_claimed_while_paused(
    store: Store, clock: Any, carriers: Carriers, send: Send, story: Told
) -> None:
    await pause(store, True)
    id_ = await send("email", "anyone@example.com", status="queued")
    async with running(Worker(store, Handover(store, carriers, clock), clock)):
        for _ in range(10):
            store.hints.hear()
            await asyncio.sleep(0.03)
        assert await story(id_) == []
        await pause(store, False)
        await until(is_empty(store))
    assert await story(id_) == ["sending", "sent", "delivered"]


async def test_a_small_team_is_not_behind_a_large_one(store: Store, send: Send) -> None:
    for _ in range(300):
        await send("email", "anyone@example.com", team=1)
    await send("email", "someone@example.com", team=2)
    claims = await store.outbox.claim("email", 100)
    assert [claim.team for claim in claims].count(2) == 1
    assert len(claims) == 100  # the large team takes what the small one leaves


async def test_lanes_do_not_take_each_others_slots(
    store: Store, clock: Any, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SLOTS, "email", 2)
    gates = {"email": Gate(), "sms": Gate()}
    gates["sms"].opened.set()
    for n in range(5):
        await send("email", f"person{n}@example.com")
    async with running(Worker(store, Handover(store, Carriers(lambda record: gates[record.channel]), clock), clock)):
        await until(lambda: gates["email"].inside == 2)
        await send("sms", "+447700900123")
        await until(lambda: gates["sms"].begun)
        gates["email"].opened.set()
        await until(is_empty(store))
    assert max(gates["email"].at_once) == 2


async def test_stopping_waits_for_hand_overs_and_records_them(store: Store, clock: Any, send: Send) -> None:
    gate = Gate()
    id_ = await send("email", "anyone@example.com")
    worker = Worker(store, Handover(store, Carriers(lambda _: gate), clock), clock)
    ran = asyncio.create_task(worker.run())
    await until(lambda: gate.begun)
    stopped = asyncio.create_task(worker.stop())
    await send("email", "later@example.com")
    await asyncio.sleep(0.05)
    assert not stopped.done()
    gate.opened.set()
    await stopped
    await ran
    assert await status(store, id_) == "delivered"
    assert gate.begun == ["anyone@example.com"]


async def test_a_claim_that_comes_while_stopping_is_given_back(
    store: Store, other: Store, clock: Any, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, claim = Gate(), store.outbox.claim
    worker = Worker(store, Handover(store, Carriers(lambda _: gate), clock), clock)
    stopping: list[asyncio.Task[None]] = []

    async def claim_and_stop(lane: str, most: int, *room: Any) -> list[Claim]:
        claims = await claim(lane, most, *room)
        stopping.append(asyncio.create_task(worker.stop()))
        await asyncio.sleep(0)
        return claims

    monkeypatch.setattr(store.outbox, "claim", claim_and_stop)
    await send("email", "anyone@example.com")
    await worker.run()
    await asyncio.gather(*stopping)
    assert gate.begun == []
    assert len(await other.outbox.claim("email", 10)) == 1


async def test_a_released_claim_does_not_count(store: Store, send: Send) -> None:
    await send("email", "anyone@example.com")
    for _ in range(CLAIMS_MAX + 1):
        claims = await store.outbox.claim("email", 1)
        assert len(claims) == 1
        await store.outbox.release(claims)


async def test_stopping_does_not_wait_for_ever(
    store: Store, other: Store, clock: Any, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "STOP_S", 0.05)
    gate = Gate()
    await send("email", "anyone@example.com")
    async with running(Worker(store, Handover(store, Carriers(lambda _: gate), clock), clock)):
        await until(lambda: gate.begun)
    assert await other.outbox.claim("email", 10) == []  # it may have been sent: not free before the lease ends
    await store.outbox.take_back()
    assert len(await other.outbox.claim("email", 10)) == 1


async def test_an_outage_is_survived(
    store: Store, clock: Any, carriers: Carriers, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "AWAY_S", 0.01)
    claim, failures = store.outbox.claim, iter(range(4))

    async def claim_at_last(lane: str, most: int, *_: Any) -> list[Claim]:
        if next(failures, None) is not None:
            raise StoreUnavailable
        return await claim(lane, most)

    monkeypatch.setattr(store.outbox, "claim", claim_at_last)
    await send("email", "anyone@example.com")
    async with running(Worker(store, Handover(store, carriers, clock), clock)):
        await until(is_empty(store))
    assert next(failures, None) is None


async def test_nothing_is_sent_while_an_outcome_cannot_be_recorded(
    store: Store, clock: Any, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, away = store.outbox.record, asyncio.Event()
    tried = 0

    async def record_when_back(change: Change) -> bool:
        nonlocal tried
        tried += 1
        if not away.is_set():
            raise StoreUnavailable
        return await record(change)

    monkeypatch.setattr(store.outbox, "record", record_when_back)
    gate = Gate()
    gate.opened.set()
    await send("email", "first@example.com")
    async with running(Worker(store, Handover(store, Carriers(lambda _: gate), clock), clock)):
        await until(lambda: tried)
        await send("email", "second@example.com")
        for _ in range(10):
            store.hints.hear()
            await asyncio.sleep(0.03)
        assert gate.begun == ["first@example.com"]
        away.set()
        await until(is_empty(store))
    assert gate.begun == ["first@example.com", "second@example.com"]


async def test_the_heartbeat_keeps_what_is_in_work_and_nothing_else(
    store: Store, other: Store, clock: Any, send: Send
) -> None:
    await send("email", "working@example.com")
    await send("email", "lost@example.com")
    working, _ = sorted(await store.outbox.claim("email", 2), key=lambda claim: claim.address, reverse=True)
    await let_leases_end(other, clock, LEASE_MS - HEARTBEAT_MS)
    await store.outbox.heartbeat([working])
    await let_leases_end(other, clock, HEARTBEAT_MS)
    assert [claim.address for claim in await other.outbox.claim("email", 2)] == ["lost@example.com"]


async def test_poison_is_quarantined_and_its_hold_released(store: Store, clock: Any, send: Send, story: Told) -> None:
    before = (await store.ledger.account(1)).available
    id_ = await send("sms", "+447700900123", price=PRICE)
    await die(store, clock, CLAIMS_MAX)
    assert await store.outbox.claim("phone", 10) == []
    for deaths in range(1, DEATHS_MAX + 1):
        assert await store.outbox.suspects() == 1
        assert len(await store.outbox.claim_suspect()) == 1
        assert await let_leases_end(store, clock) == (deaths == DEATHS_MAX)
    assert await is_empty(store)()
    assert await story(id_) == ["failed"]
    account = await store.ledger.account(1)
    assert (account.available, account.held) == (before, 0)


@pytest.fixture
async def suspects(store: Store, clock: Any, send: Send, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses whose workers died with them; they are soon tried alone."""
    monkeypatch.setattr(loops, "SUSPECTS_S", 0.05)
    addresses = [f"suspect{n}@example.com" for n in range(4)]
    for address in addresses:
        await send("email", address)
    await die(store, clock, CLAIMS_MAX)
    return addresses


async def test_suspects_are_tried_one_by_one_while_nothing_else_is(
    store: Store, clock: Any, send: Send, suspects: list[str]
) -> None:
    gate = Gate()
    gate.opened.set()
    for n in range(3):
        await send("sms", f"+44770090012{n}")
    async with running(Worker(store, Handover(store, Carriers(lambda _: gate), clock), clock)):
        await until(is_empty(store))
    at_once = dict(zip(gate.begun, gate.at_once, strict=True))
    assert {address: at_once[address] for address in suspects} == dict.fromkeys(suspects, 1)


async def test_a_process_that_just_began_tries_no_suspect(
    store: Store, clock: Any, carriers: Carriers, send: Send, suspects: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a crash loop they would be what each kill meets (P22)."""
    monkeypatch.setattr(loops, "SUSPECTS_S", 3600)
    id_ = await send("email", "innocent@example.com")
    async with running(Worker(store, Handover(store, carriers, clock), clock)):
        await until(lambda: has_status(store, id_, "delivered"))
    assert await store.outbox.suspects() == len(suspects)


@pytest.mark.parametrize("how", ["the lanes do not run dry", "the suspect takes long", "a stop"])
async def test_who_is_not_alone_is_not_blamed(
    store: Store, clock: Any, send: Send, suspects: list[str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(loops, "ALONE_S", 3600 if how == "a stop" else 0.05)
    monkeypatch.setattr(loops, "STOP_S", 0.05)
    gate = Gate()
    if how == "the lanes do not run dry":
        await send("email", "slow@example.com")
    for _ in range(DEATHS_MAX):  # the worker ends with the hand-over in flight, and the next one begins
        gate.begun.clear()
        async with running(Worker(store, Handover(store, Carriers(lambda _: gate), clock), clock)) as worker:
            await until(lambda: gate.begun)
            if how != "a stop":
                await until(lambda: not worker._suspects_first)
        assert await let_leases_end(store, clock) == 0
    gate.opened.set()
    async with running(Worker(store, Handover(store, Carriers(lambda _: gate), clock), clock)):
        await until(is_empty(store))
