"""The claim loop with real simulators: fairness, pause, shutdown, outages, poison messages."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from heliograph.carrier_failover import CarrierFailover
from heliograph.carriers.contract import Carrier, Carriers, OutboundMessage
from heliograph.deliver import worker as loops
from heliograph.deliver.worker import Worker
from heliograph.domain.delivery.lanes import CONCURRENCY_MAX_BY_LANE
from heliograph.domain.delivery.outcome import Accepted, Outcome
from heliograph.domain.limits import CLAIMS_MAX, CRASHES_MAX, HEARTBEAT_MS, LEASE_MS
from heliograph.domain.setup.records import Platform
from heliograph.domain.setup.snapshot import PLATFORM_ID, to_row
from heliograph.storage.engine import wakeups
from heliograph.storage.outbox import Claim
from heliograph.storage.outcomes import RecipientUpdate
from heliograph.storage.store import Store, StoreUnavailable
from tests.setup_helpers import set_up
from tests.storage.samples import let_leases_end

pytestmark = pytest.mark.anyio

PRICE = 45_000

Send = Callable[..., Awaitable[str]]
Told = Callable[[str], Awaitable[list[str]]]


class BlockingCarrier(Carrier):
    """A carrier that responds once released; counts concurrent sends."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.started_ids: list[str] = []
        self.inside = 0
        self.at_once: list[int] = []  # number of concurrent sends when each one began

    async def send_message(self, message: OutboundMessage) -> Outcome:
        self.started_ids.append(message.address)
        self.inside += 1
        self.at_once.append(self.inside)
        await self.opened.wait()
        await asyncio.sleep(0.01)
        self.inside -= 1
        return Accepted(carrier_id=f"{message.message_id}/{message.address}", delivered=True)


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[Worker]:
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        await worker.stop()
        await task


async def wait_until(condition: Callable[..., Any]) -> None:
    """Wait until the condition is true."""
    async with asyncio.timeout(60):
        while not (await answer if inspect.isawaitable(answer := condition()) else answer):
            await asyncio.sleep(0.005)


def is_empty(store: Store) -> Callable[[], Awaitable[bool]]:
    async def empty() -> bool:
        for _ in range(2):  # while a row moves from waiting to claimed, a single pass may miss it
            if any(lane.waiting for lane in await store.outbox.lane_depths()):
                return False
        return True

    return empty


async def pause(store: Store, paused: bool) -> None:
    row = to_row("platform", PLATFORM_ID, Platform(paused=paused), None)
    await set_up(store, rows=[row])


async def has_status(store: Store, id_: str, expected: str) -> bool:
    return await status(store, id_) == expected


async def status(store: Store, id_: str) -> str:
    message = await store.messages.get(1, id_)
    assert message
    return message.status


async def die(store: Store, clock: Any, times: int) -> None:
    """Claim all due messages and record no outcome, as if the process was killed."""
    for _ in range(times):
        for lane in ("email", "phone"):
            await store.outbox.claim(lane, 100)
        await let_leases_end(store, clock)


async def test_worker_delivers_all_messages(store: Store, clock: Any, carriers: Carriers, send: Send) -> None:
    ids = [await send("email", f"person{n}@example.com") for n in range(150)]
    ids += [await send("sms", f"+4477009001{n:02}") for n in range(20)]
    ids += [await send("whatsapp", "+15005550005")]
    async with running(Worker(store, CarrierFailover(store, carriers, clock), clock)):
        await wait_until(is_empty(store))
    assert {await status(store, id_) for id_ in ids} == {"delivered"}


async def test_wakeup_makes_the_worker_claim_at_once(
    store: Store, clock: Any, carriers: Carriers, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "FALLBACK_POLL_S", 3600)
    async with running(Worker(store, CarrierFailover(store, carriers, clock), clock)):
        await asyncio.sleep(0.1)
        await send("email", "failed@simulator.test")
        await wait_until(is_empty(store))


async def test_paused_worker_claims_nothing(
    store: Store, clock: Any, carriers: Carriers, send: Send, timeline: Told
) -> None:
    await pause(store, True)
    id_ = await send("email", "anyone@example.com", status="queued")
    async with running(Worker(store, CarrierFailover(store, carriers, clock), clock)):
        for _ in range(10):
            store.wakeups.receive()
            await asyncio.sleep(0.03)
        assert await timeline(id_) == []
        await pause(store, False)
        await wait_until(is_empty(store))
    assert await timeline(id_) == ["sending", "sent", "delivered"]


async def test_small_team_does_not_wait_behind_a_large_one(store: Store, send: Send) -> None:
    for _ in range(300):
        await send("email", "anyone@example.com", team=1)
    await send("email", "someone@example.com", team=2)
    claims = await store.outbox.claim("email", 100)
    assert [claim.team for claim in claims].count(2) == 1
    assert len(claims) == 100  # the large team uses what the small one leaves


async def test_lanes_have_separate_slots(store: Store, clock: Any, send: Send, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONCURRENCY_MAX_BY_LANE, "email", 2)
    gates = {"email": BlockingCarrier(), "sms": BlockingCarrier()}
    gates["sms"].opened.set()
    for n in range(5):
        await send("email", f"person{n}@example.com")
    async with running(
        Worker(store, CarrierFailover(store, Carriers(lambda record: gates[record.channel]), clock), clock)
    ):
        await wait_until(lambda: gates["email"].inside == 2)
        await send("sms", "+447700900123")
        await wait_until(lambda: gates["sms"].started_ids)
        gates["email"].opened.set()
        await wait_until(is_empty(store))
    assert max(gates["email"].at_once) == 2


async def test_stop_waits_for_sends_and_records_them(store: Store, clock: Any, send: Send) -> None:
    gate = BlockingCarrier()
    id_ = await send("email", "anyone@example.com")
    worker = Worker(store, CarrierFailover(store, Carriers(lambda _: gate), clock), clock)
    ran = asyncio.create_task(worker.run())
    await wait_until(lambda: gate.started_ids)
    stopped = asyncio.create_task(worker.stop())
    await send("email", "later@example.com")
    await asyncio.sleep(0.05)
    assert not stopped.done()
    gate.opened.set()
    await stopped
    await ran
    assert await status(store, id_) == "delivered"
    assert gate.started_ids == ["anyone@example.com"]


async def test_claim_received_during_a_stop_is_released(
    store: Store, other: Store, clock: Any, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, claim = BlockingCarrier(), store.outbox.claim
    worker = Worker(store, CarrierFailover(store, Carriers(lambda _: gate), clock), clock)
    stopping: list[asyncio.Task[None]] = []

    async def claim_and_stop(lane: str, limit: int, *free_capacity: Any) -> list[Claim]:
        claims = await claim(lane, limit, *free_capacity)
        stopping.append(asyncio.create_task(worker.stop()))
        await asyncio.sleep(0)
        return claims

    monkeypatch.setattr(store.outbox, "claim", claim_and_stop)
    await send("email", "anyone@example.com")
    await worker.run()
    await asyncio.gather(*stopping)
    assert gate.started_ids == []
    assert len(await other.outbox.claim("email", 10)) == 1


async def test_released_claim_counts_no_attempt(store: Store, send: Send) -> None:
    await send("email", "anyone@example.com")
    for _ in range(CLAIMS_MAX + 1):
        claims = await store.outbox.claim("email", 1)
        assert len(claims) == 1
        await store.outbox.release(claims)


async def test_worker_stop_is_bounded_in_time(
    store: Store, other: Store, clock: Any, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "STOP_TIMEOUT_S", 0.05)
    gate = BlockingCarrier()
    await send("email", "anyone@example.com")
    async with running(Worker(store, CarrierFailover(store, Carriers(lambda _: gate), clock), clock)):
        await wait_until(lambda: gate.started_ids)
    # It may have been sent, so it stays claimed until the lease expires
    assert await other.outbox.claim("email", 10) == []
    await store.outbox.release_own()
    assert len(await other.outbox.claim("email", 10)) == 1


async def test_worker_continues_after_a_database_outage(
    store: Store, clock: Any, carriers: Carriers, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "DATABASE_RETRY_S", 0.01)
    claim, failures = store.outbox.claim, iter(range(4))

    async def claim_at_last(lane: str, limit: int, *_: Any) -> list[Claim]:
        if next(failures, None) is not None:
            raise StoreUnavailable
        return await claim(lane, limit)

    monkeypatch.setattr(store.outbox, "claim", claim_at_last)
    await send("email", "anyone@example.com")
    async with running(Worker(store, CarrierFailover(store, carriers, clock), clock)):
        await wait_until(is_empty(store))
    assert next(failures, None) is None


async def test_nothing_is_sent_while_an_outcome_cannot_be_recorded(
    store: Store, clock: Any, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, away = store.outbox.record, asyncio.Event()
    tried = 0

    async def record_when_back(change: RecipientUpdate) -> bool:
        nonlocal tried
        tried += 1
        if not away.is_set():
            raise StoreUnavailable
        return await record(change)

    monkeypatch.setattr(store.outbox, "record", record_when_back)
    gate = BlockingCarrier()
    gate.opened.set()
    await send("email", "first@example.com")
    async with running(Worker(store, CarrierFailover(store, Carriers(lambda _: gate), clock), clock)):
        await wait_until(lambda: tried)
        await send("email", "second@example.com")
        for _ in range(10):
            store.wakeups.receive()
            await asyncio.sleep(0.03)
        assert gate.started_ids == ["first@example.com"]
        away.set()
        await wait_until(is_empty(store))
    assert gate.started_ids == ["first@example.com", "second@example.com"]


async def test_heartbeat_renews_only_work_in_progress(store: Store, other: Store, clock: Any, send: Send) -> None:
    await send("email", "working@example.com")
    await send("email", "lost@example.com")
    working, _ = sorted(await store.outbox.claim("email", 2), key=lambda claim: claim.address, reverse=True)
    await let_leases_end(other, clock, LEASE_MS - HEARTBEAT_MS)
    await store.outbox.renew([working])
    await let_leases_end(other, clock, HEARTBEAT_MS)
    assert [claim.address for claim in await other.outbox.claim("email", 2)] == ["lost@example.com"]


async def test_poison_is_quarantined_and_its_hold_released(
    store: Store, clock: Any, send: Send, timeline: Told
) -> None:
    before = (await store.ledger.get_account(1)).available
    id_ = await send("sms", "+447700900123", price=PRICE)
    await die(store, clock, CLAIMS_MAX)
    assert await store.outbox.claim("phone", 10) == []
    for deaths in range(1, CRASHES_MAX + 1):
        assert await store.outbox.count_poison_candidates() == 1
        assert len(await store.outbox.claim_poison_candidate()) == 1
        assert await let_leases_end(store, clock) == (deaths == CRASHES_MAX)
    assert await is_empty(store)()
    assert await timeline(id_) == ["failed"]
    account = await store.ledger.get_account(1)
    assert (account.available, account.held) == (before, 0)


@pytest.fixture
async def suspects(store: Store, clock: Any, send: Send, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return addresses of messages during which a worker died; they are soon retried in isolation."""
    monkeypatch.setattr(loops, "CANDIDATE_POLL_S", 0.05)
    addresses = [f"suspect{n}@example.com" for n in range(4)]
    for address in addresses:
        await send("email", address)
    await die(store, clock, CLAIMS_MAX)
    return addresses


async def test_poison_candidates_are_retried_one_by_one_in_isolation(
    store: Store, clock: Any, send: Send, suspects: list[str]
) -> None:
    gate = BlockingCarrier()
    gate.opened.set()
    for n in range(3):
        await send("sms", f"+44770090012{n}")
    async with running(Worker(store, CarrierFailover(store, Carriers(lambda _: gate), clock), clock)):
        await wait_until(is_empty(store))
    at_once = dict(zip(gate.started_ids, gate.at_once, strict=True))
    assert {address: at_once[address] for address in suspects} == dict.fromkeys(suspects, 1)


async def test_new_process_retries_no_poison_candidate(
    store: Store, clock: Any, carriers: Carriers, send: Send, suspects: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a crash loop, each crash would count against them (P22)."""
    monkeypatch.setattr(loops, "CANDIDATE_POLL_S", 3600)
    id_ = await send("email", "innocent@example.com")
    async with running(Worker(store, CarrierFailover(store, carriers, clock), clock)):
        await wait_until(lambda: has_status(store, id_, "delivered"))
    assert await store.outbox.count_poison_candidates() == len(suspects)


@pytest.mark.parametrize("how", ["the lanes do not run dry", "the suspect takes long", "a stop"])
async def test_message_processed_beside_others_is_not_blamed_for_a_crash(
    store: Store, clock: Any, send: Send, suspects: list[str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(loops, "ISOLATION_WAIT_S", 3600 if how == "a stop" else 0.05)
    monkeypatch.setattr(loops, "STOP_TIMEOUT_S", 0.05)
    gate = BlockingCarrier()
    if how == "the lanes do not run dry":
        await send("email", "slow@example.com")
    for _ in range(CRASHES_MAX):  # the worker ends during the send, and the next one starts
        gate.started_ids.clear()
        async with running(Worker(store, CarrierFailover(store, Carriers(lambda _: gate), clock), clock)) as worker:
            await wait_until(lambda: gate.started_ids)
            if how != "a stop":
                await wait_until(lambda: not worker._is_isolating)
        assert await let_leases_end(store, clock) == 0
    gate.opened.set()
    async with running(Worker(store, CarrierFailover(store, Carriers(lambda _: gate), clock), clock)):
        await wait_until(is_empty(store))
