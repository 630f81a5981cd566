"""Callbacks of carriers: processed once and in batches; the time of the last verified one is stored."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Sequence

import pytest

from heliograph.carriers.contract import (
    LARGE_CALLBACKS_PER_CLIENT,
    Callback,
    CallbackResult,
    Carrier,
    Carriers,
    OutboundMessage,
)
from heliograph.domain.delivery.outcome import (
    Accepted,
    CarrierReport,
    IncomingText,
    Outcome,
    ProviderReport,
    Report,
)
from heliograph.domain.limits import CALLBACK_INLINE_MAX, HOUR_MS
from heliograph.domain.setup.records import CarrierRecord
from heliograph.domain.setup.snapshot import to_row
from heliograph.inbound.report_service import handle_callback
from heliograph.storage.store import Store
from tests.carriers.providers import OPTIONS, payload, signed
from tests.carriers.test_providers import relay
from tests.clocks import TestClock
from tests.setup_helpers import SET_UP, set_up
from tests.storage.test_reports import accept_recipient, accepted_message, mail, told

pytestmark = pytest.mark.anyio


class Answering(Carrier):
    def __init__(self, answer: CallbackResult | None) -> None:
        self._answer = answer

    async def send_message(self, message: OutboundMessage) -> Outcome:
        return Accepted()

    def parse_callback(self, callback: Callback) -> CallbackResult | None:
        return self._answer


async def no_body() -> bytes:
    return b""


@pytest.mark.parametrize(
    ("method", "answer", "is_kept"),
    [
        ("POST", CallbackResult(), True),
        ("POST", CallbackResult(status=401), False),
        ("POST", None, False),
        ("GET", CallbackResult(), False),  # Meta's verification of the callback URL
    ],
)
async def test_verified_callback_records_its_time(
    store: Store, clock: TestClock, method: str, answer: CallbackResult | None, is_kept: bool
) -> None:
    await set_up(store, rows=[to_row("carrier", "c", CarrierRecord(id="c", channel="sms", kind="http"), None)])
    callback = Callback(method=method, url="", query={}, headers={}, body=b"", now=clock.now())
    await handle_callback(store, Carriers(lambda _: Answering(answer)), "c", callback, no_body)
    assert await store.carrier_stats.read_callbacks() == ({"c": callback.now} if is_kept else {})


REPLAYS = 200
BOUNCES = {
    "ses": "bounce",
    "postmark": "hard_bounce",
    "mailgun": "failed_permanent",
    "sendgrid": "bounce",
    "resend": "bounced",
    "brevo": "hard_bounce",
}


@pytest.mark.slow
@pytest.mark.parametrize("provider", OPTIONS)
async def test_callback_repeated_for_8_hours_changes_nothing_twice(
    store: Store, clock: TestClock, provider: str
) -> None:
    await set_up(
        store, rows=[to_row("carrier", "relay", CarrierRecord(id="relay", channel="email", kind="smtp"), None)]
    )
    id_ = await mail(store, clock)
    await accept_recipient(store, clock)
    carriers = Carriers(lambda _: relay(provider, None, **OPTIONS[provider]))
    bounce = payload(provider, BOUNCES[provider], id_, "ada@example.com")
    headers, body = signed(provider, bounce, clock.now())

    async def take() -> int:
        callback = Callback(method="POST", url="", query={}, headers=headers, body=b"", now=clock.now())
        answer = await handle_callback(store, carriers, "relay", callback, lambda: asyncio.sleep(0, body))
        return answer.status if answer else 404

    clock.forward(8 * HOUR_MS)  # the service was down
    if provider == "resend":  # the provider sets the time of retries
        headers, body = signed(provider, bounce, clock.now())
    assert await take() == 200
    timeline = await told(store, id_)
    assert "email.bounced" in timeline
    await store.suppressions.remove(1, "ada@example.com", SET_UP)
    for _ in range(REPLAYS):
        assert await take() == 200
    assert await told(store, id_) == timeline
    assert await store.suppressions.get(1, "ada@example.com") is None


@pytest.mark.parametrize("status", ["delivered", "read", "failed"])
async def test_meta_callback_repeated_changes_nothing_twice(store: Store, clock: TestClock, status: str) -> None:
    await set_up(store, rows=[to_row("carrier", "c", CarrierRecord(id="c", channel="sms", kind="http"), None)])
    id_ = await accepted_message(store, clock, carrier_id="wamid.1")
    report = CarrierReport("wamid.1", Report(status=status, detail={"at": "1"}))
    carriers = Carriers(lambda _: Answering(CallbackResult(reports=[report])))
    callback = Callback(method="POST", url="", query={}, headers={}, body=b"", now=clock.now())
    await handle_callback(store, carriers, "c", callback, no_body)
    timeline = await told(store, id_)
    for _ in range(REPLAYS):
        await handle_callback(store, carriers, "c", callback, no_body)
    assert await told(store, id_) == timeline


async def test_callback_with_many_events_is_stored_in_batches(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await set_up(store, rows=[to_row("carrier", "c", CarrierRecord(id="c", channel="sms", kind="http"), None)])
    sizes: dict[str, list[int]] = defaultdict(list)

    def note(owner: object, name: str) -> None:
        stored = getattr(owner, name)

        async def noted(first: object, items: Sequence[object], **extra: object) -> object:
            sizes[name].append(len(items))
            return await stored(first, items, **extra)

        monkeypatch.setattr(owner, name, noted)

    for owner, name in (
        (store.reports, "store_by_carrier"),
        (store.reports, "store_by_provider"),
        (store.inbound_texts, "store"),
    ):
        note(owner, name)
    report = Report(status="delivered")
    answer = CallbackResult(
        reports=[CarrierReport(f"{n}", report) for n in range(1_001)],
        incoming_texts=[
            IncomingText(id=f"{n}", sender="+447700900123", to="+12025550123", text="hi") for n in range(101)
        ],
        provider_reports=[ProviderReport(carrier_ids=(f"{n}",), report=report) for n in range(250)],
        replay_id="once",
    )
    callback = Callback(method="POST", url="", query={}, headers={}, body=b"", now=clock.now())
    for _ in range(2):
        await handle_callback(store, Carriers(lambda _: Answering(answer)), "c", callback, no_body)
    assert sizes["store_by_carrier"] == [*[100] * 10, 1] * 2
    assert sizes["store"] == [100, 1] * 2
    assert sizes["store_by_provider"] == [100, 100, 50] * 2


async def test_large_callbacks_of_one_client_beyond_the_limit_get_retry_later(store: Store, clock: TestClock) -> None:
    await set_up(store, rows=[to_row("carrier", "c", CarrierRecord(id="c", channel="sms", kind="http"), None)])
    release = threading.Event()

    class Slow(Answering):
        limit = running = peak_running = 0

        def parse_callback(self, callback: Callback) -> CallbackResult | None:
            if callback.body:
                self.running += 1
                self.peak_running = max(self.peak_running, self.running)
                release.wait()
                self.running -= 1
            return CallbackResult()

    slow = Slow(None)
    carriers = Carriers(lambda _: slow)

    async def take(client: str, size: int) -> int:
        callback = Callback(method="POST", url="", query={}, headers={}, body=b"", now=clock.now(), client=client)
        answer = await handle_callback(store, carriers, "c", callback, lambda: asyncio.sleep(0, b"x" * size))
        assert answer
        return answer.status

    large = [
        asyncio.create_task(take("192.0.2.1", CALLBACK_INLINE_MAX + 1)) for _ in range(LARGE_CALLBACKS_PER_CLIENT + 3)
    ]
    other = asyncio.create_task(take("192.0.2.2", CALLBACK_INLINE_MAX + 1))
    async with asyncio.timeout(60):
        while sum(task.done() for task in large) < 3:
            await asyncio.sleep(0.005)
    assert not other.done()
    release.set()
    assert sorted(await asyncio.gather(*large)) == [200] * LARGE_CALLBACKS_PER_CLIENT + [503] * 3
    assert await other == 200
    assert slow.peak_running == 1  # one at a time for a carrier
    assert await take("192.0.2.1", CALLBACK_INLINE_MAX + 1) == 200
