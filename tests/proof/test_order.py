"""P28: what is claimed keeps its order and its limits: one slow connection, on every channel and both databases.

The checker is the sink's own list of what it was handed, compared with when each thing became true.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest

from heliograph.carrier_failover import CarrierFailover
from heliograph.carriers.connection_queue import PrioritySemaphore
from heliograph.carriers.contract import Carrier, Carriers, OutboundMessage
from heliograph.carriers.email.connection_pool import PreparedMail
from heliograph.carriers.email.mx import Mx
from heliograph.carriers.email.relay import Relay
from heliograph.carriers.http_client import CarrierHttp
from heliograph.carriers.sms.http import HttpCarrier
from heliograph.carriers.sms.smpp.carrier import Smpp
from heliograph.carriers.whatsapp.cloud_api import CloudApi
from heliograph.deliver.worker import Worker
from heliograph.domain.delivery.content import SmsContent, WhatsappContent
from heliograph.domain.delivery.lanes import CONCURRENCY_START, queue_name
from heliograph.domain.limits import HOUR_MS
from heliograph.domain.sending.acceptance import AcceptedRecipient, AcceptState, Decision
from heliograph.domain.sending.send_options import ExtraFields, Timing
from heliograph.domain.setup.carrier_kinds import (
    CloudApiOptions,
    HttpOptions,
    MxOptions,
    RelayOptions,
    SmppOptions,
)
from heliograph.domain.setup.records import CarrierRecord, Channel, Priority, TeamRecord
from heliograph.domain.setup.snapshot import to_row
from heliograph.storage.setup import NewSuppression
from heliograph.storage.store import Store
from tests.carriers.dns_peer import DnsPeer
from tests.carriers.fakes import NUMBER, SECRET, CloudApiFake, HttpFake
from tests.carriers.smsc import HOLD, Smsc
from tests.carriers.smtp_peer import Peer
from tests.clocks import TestClock
from tests.proof.size import DATABASES, report, size
from tests.setup_helpers import set_up
from tests.storage.conftest import Sql
from tests.storage.conftest import sql as sql
from tests.storage.conftest import store as store
from tests.storage.samples import ENTRY, message

# In short on SQLite: in which order and whose work is claimed, tests/storage/test_outbox.py asks both databases.
pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("database_url", DATABASES, indirect=True)]

SLOW_S = 0.02  # that the sink takes for each
CRITICAL = 20
BULK, EXPIRING = size("P28 bulk"), size("P28 expiring")
SUPPRESSED, SUSPENDED = size("P28 suppressed"), size("P28 suspended")
CLAIMED = "SELECT count(*) FROM outbox WHERE owner IS NOT NULL"
WAITING_CRITICAL = f"SELECT count(*) FROM outbox WHERE owner IS NULL AND lane = '{queue_name('email', 'critical')}'"
ON_THE_WIRE = 1
IN_TWENTY = 1  # of 20 hand-overs one is each waiting priority's (contract 16)
OURS, THEIRS = (TeamRecord(ref=ref, id=f"team_{ref}", name=f"Team {ref}", mode="live") for ref in (1, 2))
CONTENTS: dict[Channel, bytes] = {
    "email": b"{}",
    "sms": msgspec.json.encode(SmsContent(body="hello", sender_id="ACME", encoding="gsm7", segments=1, parts=1)),
    "whatsapp": msgspec.json.encode(WhatsappContent(template="a", language="en", parameters=[], body="hello")),
}
Taken = Callable[[], Sequence[str]]  # the addresses that the sink was handed, in order
shut: list[str] = []  # while there is a reason, the sinks do not answer


async def prepare(message: OutboundMessage) -> PreparedMail:
    mail = b"Subject: hello\r\n\r\nhello\r\n"
    return PreparedMail(envelope_from="from@y.test", chunks=lambda: [mail], size=len(mail))


async def slowly() -> None:
    await asyncio.sleep(SLOW_S)
    while shut:
        await asyncio.sleep(SLOW_S)


class SlowPeer(Peer):
    async def end_mail(self) -> None:
        await slowly()


class SlowHttp(HttpFake):
    async def _answer(self, *given: Any, **more: Any) -> Any:
        await slowly()
        return await super()._answer(*given, **more)


class SlowCloudApi(CloudApiFake):
    async def _answer(self, *given: Any, **more: Any) -> Any:
        await slowly()
        return await super()._answer(*given, **more)


@asynccontextmanager
async def relay(_: AsyncExitStack) -> AsyncIterator[tuple[Carrier, Taken]]:
    async with SlowPeer() as peer:
        options = RelayOptions(host="127.0.0.1", port=peer.port, tls="none", connections=1)
        yield Relay(options, prepare), lambda: [mail.recipient for mail in peer.received]


@asynccontextmanager
async def mx(_: AsyncExitStack) -> AsyncIterator[tuple[Carrier, Taken]]:
    zone = {("x.test", "MX"): ["10 mx.test."], ("mx.test", "A"): ["127.0.0.1"]}
    async with DnsPeer(zone) as dns, SlowPeer() as peer:
        options = MxOptions(resolver=dns.address, port=peer.port, allow_private=["127.0.0.0/8"], per_host=1)
        yield Mx(options, prepare), lambda: [mail.recipient for mail in peer.received]


@asynccontextmanager
async def smpp(_: AsyncExitStack) -> AsyncIterator[tuple[Carrier, Taken]]:
    async def nothing(_: object) -> None: ...

    async def answer() -> None:
        while True:
            await slowly()
            smsc.release()

    async with Smsc({"submit": HOLD}) as smsc:
        answering = asyncio.create_task(answer())
        options = SmppOptions(host="127.0.0.1", port=smsc.port, system_id="acme", password="secret", window=1)
        yield Smpp(options, nothing, nothing), lambda: ["+" + sm.destination.value for sm in smsc.received]
        answering.cancel()


@asynccontextmanager
async def http(stack: AsyncExitStack) -> AsyncIterator[tuple[Carrier, Taken]]:
    web = CarrierHttp(per_host=1)
    stack.push_async_callback(web.close)
    async with SlowHttp() as fake:
        options = HttpOptions(url=f"{fake.url}/send", body='{"to": "{{to}}", "text": "{{text}}"}')
        yield HttpCarrier(options, web, ""), lambda: [sent["to"] for sent in fake.received]


@asynccontextmanager
async def cloud_api(stack: AsyncExitStack) -> AsyncIterator[tuple[Carrier, Taken]]:
    web = CarrierHttp(per_host=1)
    stack.push_async_callback(web.close)
    async with SlowCloudApi() as fake:
        options = CloudApiOptions(base_url=fake.url, phone_number_id=NUMBER, access_token=SECRET)
        yield CloudApi(options, web), lambda: ["+" + sent["to"].lstrip("+") for sent in fake.received]


KINDS: dict[str, tuple[Channel, Any]] = {
    "smtp": ("email", relay),
    "mx": ("email", mx),
    "smpp": ("sms", smpp),
    "http": ("sms", http),
    "cloud_api": ("whatsapp", cloud_api),
}


def taken_for(address: str) -> Callable[[AcceptState], Decision]:
    """Answer what counts against an email quota."""
    said = msgspec.json.encode({"id": "eml_1", "to_addresses": [address], "cc": [], "bcc": []})
    return lambda _: Decision(response=said, recipients=[AcceptedRecipient(address, address, "to")])


class World:
    """A worker on a carrier with one slow connection."""

    def __init__(self, store: Store, clock: TestClock, channel: Channel, taken: Taken) -> None:
        self.store, self.clock, self.channel, self.taken = store, clock, channel, taken
        self._numbers = iter(range(10_000))

    async def send(
        self, count: int, priority: Priority = "normal", team: int = 1, expires_at: int | None = None
    ) -> list[str]:
        numbers = [next(self._numbers) for _ in range(count)]
        to = [f"a{number}@x.test" if self.channel == "email" else f"+4477{number:08}" for number in numbers]
        given: dict[str, Any] = {"channel": self.channel, "team": team, "content": CONTENTS[self.channel]}
        given |= {"extra_fields": ExtraFields(priority=priority), "timing": Timing(expires_at=expires_at)}
        made = [message(self.clock, decide=taken_for(address), **given) for address in to]
        await asyncio.gather(*map(self.store.messages.accept, made))
        return to

    async def took(self, more: Sequence[str] = (), count: int = 1) -> None:
        """Until the sink has as many as that, or all of these."""
        before = len(self.taken())
        await until(lambda: set(more) <= set(self.taken()) and len(self.taken()) >= before + count)

    async def all_done(self) -> None:
        async def empty() -> bool:
            return not any(lane.waiting for lane in await self.store.outbox.lane_depths())

        async with asyncio.timeout(60):
            while not (await empty() and await empty()):
                await asyncio.sleep(0.02)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def working(store: Store, clock: TestClock, kind: str) -> AsyncIterator[World]:
    channel, make = KINDS[kind]
    rows = [to_row("team", team.id, team, team.id) for team in (OURS, THEIRS)]
    await set_up(
        store, rows=[*rows, to_row("carrier", "one", CarrierRecord(id="one", channel=channel, kind=kind), None)]
    )
    shut.clear()
    async with AsyncExitStack() as stack, make(stack) as (carrier, taken):
        stack.push_async_callback(carrier.close)
        worker = Worker(store, CarrierFailover(store, Carriers(lambda _: carrier), clock), clock)
        running = asyncio.create_task(worker.run())
        yield World(store, clock, channel, taken)
        await worker.stop()
        await running


@pytest.mark.parametrize("kind", KINDS)
async def test_most_urgent_message_is_sent_first(
    store: Store, clock: TestClock, sql: Sql, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lined: list[Priority] = []
    take = PrioritySemaphore.acquire

    def noting(line: PrioritySemaphore, message: OutboundMessage, *more: Any) -> Any:
        lined.append(message.priority)
        return take(line, message, *more)

    monkeypatch.setattr(PrioritySemaphore, "acquire", noting)
    async with working(store, clock, kind) as world:
        bulk = await world.send(BULK, "bulk")
        await world.took(count=5)
        shut.append("until all of them wait")
        ((claimed,),) = await sql(CLAIMED)
        critical, before = await world.send(CRITICAL, "critical"), len(world.taken())
        await until(lambda: lined.count("critical") >= CRITICAL)
        shut.clear()
        await world.took(critical)
        after = world.taken()[before:]
        passed = [address in bulk for address in after[: 1 + max(map(after.index, critical))]]
    report("P28", f"{kind}: {claimed} of {BULK} claimed; {sum(passed)} bulk went before {CRITICAL} critical")
    assert claimed <= 2 * CONCURRENCY_START
    assert sum(passed) <= ON_THE_WIRE + IN_TWENTY


async def test_two_processes_send_their_own_critical_messages_first(
    store: Store, other: Store, clock: TestClock, sql: Sql
) -> None:
    """Each orders what it has claimed; meanwhile the other's connection goes on with what that has."""
    async with working(store, clock, "smtp") as world, AsyncExitStack() as stack, relay(stack) as (carrier, taken):
        await other.setup.refresh()
        stack.push_async_callback(carrier.close)
        second = Worker(other, CarrierFailover(other, Carriers(lambda _: carrier), clock), clock)
        running = asyncio.create_task(second.run())
        bulk = await world.send(BULK, "bulk")
        await until(lambda: len(world.taken()) >= 3 and len(taken()) >= 3)
        shut.append("until all of them are claimed")
        before = len(world.taken()), len(taken())
        critical = await world.send(CRITICAL, "critical")
        async with asyncio.timeout(60):
            while await sql(WAITING_CRITICAL) != [(0,)]:
                await asyncio.sleep(0.01)
        shut.clear()
        await until(lambda: set(critical) <= {*world.taken(), *taken()})
        passed = []
        for after in (world.taken()[before[0] :], taken()[before[1] :]):
            own = [place for place, address in enumerate(after) if address in critical]
            passed.append(sum(address in bulk for address in after[: max(own, default=0)]))
        await second.stop()
        await running
    report("P28", f"two processes: {passed} bulk went before the critical ones of the same process")
    assert max(passed) <= ON_THE_WIRE + IN_TWENTY


@pytest.mark.parametrize("kind", KINDS)
async def test_expired_message_is_not_sent(store: Store, clock: TestClock, kind: str) -> None:
    async with working(store, clock, kind) as world:
        expires_at = clock.now() + HOUR_MS
        expiring = [await world.send(size_, priority, expires_at=expires_at) for priority, size_ in PARTS]
        await world.took()
        clock.forward(HOUR_MS)
        before = set(world.taken())
        await world.all_done()
        late = [address for part in expiring for address in part if address in set(world.taken()) - before]
    report("P28", f"{kind}: {len(late)} of {EXPIRING} sent after they had expired")
    assert len(late) <= ON_THE_WIRE


PARTS: list[tuple[Priority, int]] = [("critical", EXPIRING // 4), ("normal", EXPIRING // 2), ("bulk", EXPIRING // 4)]


@pytest.mark.parametrize("kind", KINDS)
async def test_message_of_a_suspended_team_is_not_sent(store: Store, clock: TestClock, kind: str) -> None:
    async with working(store, clock, kind) as world:
        ours, theirs = await world.send(SUSPENDED), await world.send(SUSPENDED, team=THEIRS.ref)
        await world.took()
        suspended = msgspec.structs.replace(THEIRS, suspended=True)
        await set_up(store, rows=[to_row("team", THEIRS.id, suspended, THEIRS.id)])
        before = set(world.taken())
        await world.all_done()
        late = [address for address in theirs if address in set(world.taken()) - before]
        assert set(ours) <= set(world.taken())
    report("P28", f"{kind}: {len(late)} of {SUSPENDED} sent after their team was suspended")
    assert len(late) <= ON_THE_WIRE


@pytest.mark.parametrize("kind", ["smtp", "mx"])
async def test_message_to_a_suppressed_address_is_not_sent(store: Store, clock: TestClock, kind: str) -> None:
    async with working(store, clock, kind) as world:
        addresses = await world.send(4 * SUPPRESSED)
        await world.took()
        for address in addresses[-SUPPRESSED:]:
            await store.suppressions.add(NewSuppression(1, address, address, "manual"), ENTRY)
        await asyncio.sleep(0)
        before = set(world.taken())
        await world.all_done()
        late = [address for address in addresses[-SUPPRESSED:] if address in set(world.taken()) - before]
    report("P28", f"{kind}: {len(late)} of {SUPPRESSED} sent after they were suppressed")
    assert len(late) <= ON_THE_WIRE
