"""Webhook delivery: order, limits, leases, retries with an advanced clock, disabling, outages, shutdown."""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace

from heliograph.app import webhook_secrets
from heliograph.domain.limits import DAY_MS, HOUR_MS, LEASE_MS, MINUTE_MS
from heliograph.domain.sending.send_options import ExtraFields
from heliograph.domain.setup.records import TeamRecord, Webhook
from heliograph.domain.setup.snapshot import to_row
from heliograph.encryption import Cipher
from heliograph.storage.engine import wakeups
from heliograph.storage.events import Event
from heliograph.storage.store import Store, StoreUnavailable
from heliograph.webhooks import endpoint as serving
from heliograph.webhooks import worker as telling
from heliograph.webhooks.client.http_post import PostResult, WebhookHttpClient
from heliograph.webhooks.client.ssrf_guard import SsrfGuard
from heliograph.webhooks.policy.signature import make_secret
from heliograph.webhooks.store import DeliveryAttempt, DueDelivery, Lease, ReplaySelection, StoredDelivery
from heliograph.webhooks.verification import verify_webhook
from heliograph.webhooks.worker import WebhookWorker
from tests.carriers.hook_receiver import Receiver
from tests.clocks import TestClock
from tests.deliver.test_worker import wait_until
from tests.setup_helpers import set_up
from tests.storage.samples import ENTRY, message

pytestmark = pytest.mark.anyio

SECRET, OLD_SECRET = make_secret(bytes(24)), make_secret(bytes([1] * 24))
SEALER = Cipher(bytes(32))
HOOK = "whk_1"


class FakePoster:
    """A fake HTTP client that responds once released; records requests, and the maximum number in flight per URL."""

    def __init__(self, *answers: PostResult) -> None:
        self.open = asyncio.Event()
        self.posts: list[tuple[str, dict[str, Any]]] = []  # (URL, event)
        self.headers: list[Mapping[str, str]] = []
        self.bodies: list[bytes] = []
        self.inside: dict[str, int] = defaultdict(int)
        self.most_in_flight: dict[str, int] = defaultdict(int)
        self.answers = list(answers) or [answer(200)]  # the last one repeats
        self.shut: set[str] = set()  # URLs that never respond

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> PostResult:
        self.posts.append((url, json.loads(body) if body.startswith(b"{") else {}))
        self.headers.append(headers)
        self.bodies.append(body)
        self.inside[url] += 1
        self.most_in_flight[url] = max(self.most_in_flight[url], self.inside[url])
        try:
            await self.open.wait()
            while url in self.shut:
                await asyncio.sleep(0.01)
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        finally:
            self.inside[url] -= 1

    async def close(self) -> None: ...

    def event_types(self, url: str = f"https://{HOOK}.test") -> list[str]:
        return [event["id"] for came_to, event in self.posts if came_to == url]


def answer(status: int | None, **extra: Any) -> PostResult:
    return PostResult(status=status, duration_ms=1, **extra)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "FALLBACK_POLL_S", 0.02)


@pytest.fixture
def gate() -> FakePoster:
    gate = FakePoster()
    gate.open.set()
    return gate


@asynccontextmanager
async def running(store: Store, poster: Any, clock: TestClock) -> AsyncIterator[WebhookWorker]:
    worker = WebhookWorker(store, poster, clock, lambda hook, now: webhook_secrets(SEALER, hook, now))
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        poster.open.set()
        await worker.stop()
        await task


async def save(store: Store, *hooks: Webhook) -> None:
    team = TeamRecord(ref=1, id="team_1", name="One")
    rows = [to_row("team", "team_1", team, "team_1"), *(to_row("webhook", hook.id, hook, "team_1") for hook in hooks)]
    await set_up(store, rows=rows)


def webhook(id_: str = HOOK, **extra: Any) -> Webhook:
    secret = SEALER.encrypt(SECRET.encode(), f"webhook/{id_}")
    return Webhook(id=id_, team="team_1", url=f"https://{id_}.test", secret=secret, **extra)


async def tell(store: Store, count: int = 1, id_: str = HOOK, subject: str | None = None) -> list[str]:
    """Publish events, of one subject or each of its own."""
    return [
        await store.deliveries.publish_to_webhook(1, id_, "domain.verified", subject or f"s{n}", {"number": n}, ENTRY)
        for n in range(count)
    ]


async def only(store: Store, id_: str = HOOK) -> StoredDelivery:
    (stored,) = await store.deliveries.list_page(id_, None, 10)
    return stored


def all_are(store: Store, state: str, id_: str = HOOK) -> Callable[[], Any]:
    async def check() -> bool:
        return {stored.state for stored in await store.deliveries.list_page(id_, None, 1000)} == {state}

    return check


def one_has_failed(store: Store, attempts: int) -> Callable[[], Any]:
    """Return whether a delivery that waits for its next attempt has this many recorded attempts."""

    async def check() -> bool:
        deliveries = await store.deliveries.list_page(HOOK, None, 1000)
        return any(stored.state == "waiting" and stored.attempt == attempts for stored in deliveries)

    return check


def tried(store: Store, attempts: int) -> Callable[[], Any]:
    """Return whether the only delivery has this many recorded attempts."""

    async def check() -> bool:
        return (await only(store)).attempt == attempts

    return check


# -- what arrives --------------------------------------------------------------------------------------------------


async def test_events_arrive_signed_and_in_order(store: Store, clock: TestClock) -> None:
    async with Receiver() as receiver:
        await save(store, replace(webhook(), url=receiver.url))
        events = {subject: await tell(store, 8, subject=subject) for subject in ("a", "b", "c")}
        poster = WebhookHttpClient(SsrfGuard(["127.0.0.0/8"]))
        worker = WebhookWorker(store, poster, clock, lambda hook, now: webhook_secrets(SEALER, hook, now))
        task = asyncio.create_task(worker.run())
        await wait_until(all_are(store, "delivered"))
        await worker.stop()
        await task
        await poster.close()
    verified_events = [verify_webhook(request.body.encode(), request.headers, SECRET) for request in receiver.received]
    for ids in events.values():
        assert [event["id"] for event in verified_events if event["id"] in ids] == ids
    assert len(verified_events) == 24
    assert receiver.accepted <= serving.WINDOW
    assert [request.headers["webhook-id"] for request in receiver.received] == [
        event["id"] for event in verified_events
    ]


async def test_webhook_with_an_undecryptable_secret_sends_nothing(
    store: Store, clock: TestClock, gate: FakePoster
) -> None:
    await save(store, replace(webhook(), secret=Cipher(bytes([1] * 32)).encrypt(SECRET.encode(), f"webhook/{HOOK}")))
    async with running(store, gate, clock):
        await tell(store)
        await wait_until(tried(store, 1))
    assert (gate.posts, (await only(store)).state) == ([], "waiting")
    assert "the service's secret was changed. Rotate it" in str((await only(store)).attempts[0].error)


async def test_secret_rotation_signs_with_both_secrets(store: Store, clock: TestClock, gate: FakePoster) -> None:
    old = SEALER.encrypt(OLD_SECRET.encode(), f"webhook/{HOOK}/old")
    await save(store, webhook(old_secret=old, old_until=clock.now() + DAY_MS))
    async with running(store, gate, clock):
        await tell(store)
        await wait_until(all_are(store, "delivered"))
        clock.forward(DAY_MS)
        await tell(store)
        await wait_until(lambda: len(gate.posts) == 2)
    assert [headers["X-Service-Signature"].count("v1=") for headers in gate.headers] == [2, 1]
    assert [len(headers["webhook-signature"].split()) for headers in gate.headers] == [2, 1]
    for secret in (SECRET, OLD_SECRET):
        assert verify_webhook(gate.bodies[0], gate.headers[0], secret, now=clock.now() / 1000 - 86_400)


async def test_wakeup_delivers_at_once(
    store: Store, clock: TestClock, gate: FakePoster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "FALLBACK_POLL_S", 3600)
    await save(store, webhook())
    async with running(store, gate, clock):
        for n in range(3):
            await asyncio.sleep(0.05)
            await tell(store)
            await wait_until(lambda n=n: len(gate.posts) == n + 1)


# -- order and windows ---------------------------------------------------------------------------------------------


async def test_event_waits_for_the_first_attempt_of_earlier_events(store: Store, clock: TestClock) -> None:
    gate = FakePoster(answer(500), answer(200))
    await save(store, webhook())
    first, second = await tell(store, 2, subject="a")
    (alone,) = await tell(store)
    async with running(store, gate, clock):
        await wait_until(lambda: len(gate.posts) == 2)
        await asyncio.sleep(0.1)
        assert gate.event_types() == [first, alone]
        gate.open.set()
        await wait_until(lambda: len(gate.posts) == 3)  # a failure does not delay others
    assert gate.event_types() == [first, alone, second]


async def test_endpoint_has_at_most_ten_attempts_in_flight(store: Store, clock: TestClock) -> None:
    gate = FakePoster()
    await save(store, webhook())
    await tell(store, 25)
    async with running(store, gate, clock):
        await wait_until(lambda: len(gate.posts) == 10)
        await asyncio.sleep(0.3)
        assert len(gate.posts) == 10
        gate.open.set()
        await wait_until(all_are(store, "delivered"))
    assert max(gate.most_in_flight.values()) == 10
    assert len(gate.posts) == 25


async def test_ten_concurrent_attempts_are_read_and_recorded_together(
    store: Store, clock: TestClock, gate: FakePoster, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        async def counted(*args: Any) -> Any:
            calls[name] += 1
            return await real(*args)

        monkeypatch.setattr(owner, name, counted)

    await save(store, webhook())
    await tell(store, 100)
    count(store.deliveries, "due")
    count(store.database, "write")
    async with running(store, gate, clock):
        await wait_until(all_are(store, "delivered"))
        # 21 and 5 on an idle machine; delivered separately, it would be a hundred each
        assert calls["write"] <= 50
        assert calls["due"] <= 20
    assert len(gate.posts) == 100


async def test_recording_delays_the_next_attempts_only_up_to_a_limit(
    store: Store, clock: TestClock, gate: FakePoster, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded, record = asyncio.Event(), store.deliveries.record

    async def slowly(attempt: Any) -> Any:
        await recorded.wait()
        return await record(attempt)

    monkeypatch.setattr(store.deliveries, "record", slowly)
    await save(store, webhook())
    await tell(store, 100)
    async with running(store, gate, clock):
        await wait_until(lambda: len(gate.posts) == serving.UNRECORDED_MAX)
        await asyncio.sleep(0.1)
        assert len(gate.posts) == serving.UNRECORDED_MAX
        recorded.set()
        await wait_until(all_are(store, "delivered"))
    assert len(gate.posts) == len(set(gate.event_types())) == 100


async def test_attempt_recorded_during_a_read_is_not_sent_again(
    store: Store, clock: TestClock, gate: FakePoster, monkeypatch: pytest.MonkeyPatch
) -> None:
    due = store.deliveries.due

    async def slowly(*args: Any) -> Any:
        deliveries = await due(*args)
        await asyncio.sleep(0.05)
        return deliveries

    monkeypatch.setattr(store.deliveries, "due", slowly)
    await save(store, webhook())
    async with running(store, gate, clock):
        for _ in range(10):
            await tell(store, 15)
            await asyncio.sleep(0.03)
        await wait_until(all_are(store, "delivered"))
    assert len(gate.posts) == len(set(gate.event_types())) == 150


async def test_endpoint_has_at_most_ten_attempts_over_all_processes(
    store: Store, other: Store, clock: TestClock, gate: FakePoster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "IDLE_S", 0.01)  # so that the endpoint is released and claimed repeatedly
    await save(store, webhook())
    await other.setup.refresh()
    async with running(store, gate, clock), running(other, gate, clock):
        for _ in range(20):
            await tell(store, 15)
            await asyncio.sleep(0.02)
        await wait_until(all_are(store, "delivered"))
    assert max(gate.most_in_flight.values()) <= 10
    assert len(gate.posts) == len(set(gate.event_types())) == 300


async def test_hanging_endpoint_delays_no_other(
    store: Store, clock: TestClock, gate: FakePoster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "IN_FLIGHT_SOFT_MAX", 10)  # the limit is reached
    await save(store, webhook(), webhook("whk_2"), webhook("whk_3"))
    gate.shut = {f"https://{HOOK}.test"}
    async with running(store, gate, clock):
        await tell(store, 20)
        await wait_until(lambda: len(gate.posts) == 10)
        for id_ in ("whk_2", "whk_3"):
            await tell(store, 20, id_)
        await wait_until(all_are(store, "delivered", "whk_2"))
        await wait_until(all_are(store, "delivered", "whk_3"))
        assert gate.inside[f"https://{HOOK}.test"] == 10
        gate.shut.clear()
    assert max(gate.most_in_flight.values()) == 10


async def test_retries_and_replays_do_not_delay_new_events(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "WINDOW", 1)
    gate = FakePoster()
    await save(store, webhook())
    old = await tell(store, 30)
    gate.open.set()
    async with running(store, gate, clock):
        await wait_until(all_are(store, "delivered"))
    gate.posts.clear()
    await store.deliveries.replay(1, HOOK, ReplaySelection(event_ids=old), lambda _: True, ENTRY)
    clock.forward(100)
    new = [await store.deliveries.publish_to_webhook(1, HOOK, "domain.failed", f"n{n}", {}, ENTRY) for n in range(5)]
    async with running(store, gate, clock):
        await wait_until(all_are(store, "delivered"))
    assert set(new) <= set(gate.event_types()[:11])
    assert sorted(gate.event_types()) == sorted(old + new)


# -- retries -------------------------------------------------------------------------------------------------------


async def test_failed_event_is_retried_by_the_schedule(store: Store, clock: TestClock) -> None:
    gate = FakePoster(answer(500, answer=b"no"), answer(None, error="no response within 15 s"), answer(204))
    gate.open.set()
    await save(store, webhook())
    await tell(store)
    async with running(store, gate, clock):
        for number, wait_ms in ((1, 5_000), (2, 5 * MINUTE_MS)):
            await wait_until(tried(store, number))
            stored = await only(store)
            assert stored.due_at
            assert 0.8 * wait_ms <= stored.due_at - stored.attempts[-1].at <= 1.2 * wait_ms + 1000
            clock.forward(stored.due_at - clock.now())
        await wait_until(all_are(store, "delivered"))
    stored = await only(store)
    assert [(a.number, a.status, a.error, a.answer) for a in stored.attempts] == [
        (1, 500, None, "no"),
        (2, None, "no response within 15 s", ""),
        (3, 204, None, ""),
    ]
    assert len(set(gate.bodies)) == 1
    assert len({headers["webhook-id"] for headers in gate.headers}) == 1
    assert len({headers["webhook-timestamp"] for headers in gate.headers}) == 3


async def test_event_fails_permanently_after_the_last_retry(store: Store, clock: TestClock) -> None:
    gate = FakePoster(answer(404))
    gate.open.set()
    await save(store, webhook())
    await tell(store)
    async with running(store, gate, clock):
        for number in range(1, 10):
            await wait_until(tried(store, number))
            clock.forward(((await only(store)).due_at or 0) - clock.now())
        await wait_until(all_are(store, "exhausted"))
    assert ((await only(store)).attempt, (await only(store)).due_at) == (10, None)
    await store.deliveries.replay(1, HOOK, ReplaySelection(event_ids=gate.event_types()[:1]), lambda _: True, ENTRY)
    gate.answers = [answer(500), answer(200)]
    async with running(store, gate, clock):
        await wait_until(tried(store, 11))
        stored = await only(store)
        assert 4000 <= (stored.due_at or 0) - stored.attempts[-1].at <= 7000  # from the beginning of the attempt
        clock.forward(7000)
        await wait_until(all_are(store, "delivered"))


async def test_retry_after_is_honoured(store: Store, clock: TestClock) -> None:
    gate = FakePoster(answer(429, retry_after_s=3600), answer(200))
    gate.open.set()
    await save(store, webhook())
    await tell(store)
    async with running(store, gate, clock):
        await wait_until(tried(store, 1))
        stored = await only(store)
        assert HOUR_MS <= (stored.due_at or 0) - stored.attempts[0].at <= HOUR_MS + 1000
        clock.forward(HOUR_MS)
        await wait_until(all_are(store, "delivered"))


async def test_response_with_any_bytes_is_stored(store: Store, clock: TestClock) -> None:
    gate = FakePoster(answer(200, answer=b"\0a\xff\xed\xa0\x80" + "é".encode()[:1]))
    gate.open.set()
    await save(store, webhook())
    await tell(store)
    async with running(store, gate, clock):
        await wait_until(all_are(store, "delivered"))
    assert (await only(store)).attempts[0].answer.startswith("a\ufffd")


async def test_undeliverable_event_does_not_block_others(store: Store, clock: TestClock, gate: FakePoster) -> None:
    await save(store, replace(webhook(), secret="v1.not-sealed-by-us"), webhook("whk_2"))
    await tell(store)
    await tell(store, 1, "whk_2")
    async with running(store, gate, clock):
        await wait_until(all_are(store, "delivered", "whk_2"))
        await wait_until(tried(store, 1))
    assert "its signing secret cannot be decrypted" in str((await only(store)).attempts[0].error)


# -- disabling -----------------------------------------------------------------------------------------------------


def current(store: Store, id_: str = HOOK) -> Webhook:
    hook = store.setup.current.records["webhook", id_]
    assert isinstance(hook, Webhook)
    return hook


async def test_410_disables_the_webhook_at_once_and_keeps_waiting_events(store: Store, clock: TestClock) -> None:
    gate = FakePoster(answer(410), answer(200))
    gate.open.set()
    await save(store, webhook())
    first, second = await tell(store, 2, subject="a")
    async with running(store, gate, clock):
        await wait_until(lambda: not current(store).enabled)
        assert current(store).disabled_reason == "the endpoint responded 410 Gone"
        clock.forward(MINUTE_MS)
        await asyncio.sleep(0.3)
        assert gate.event_types() == [first]
        await save(store, webhook())
        await wait_until(all_are(store, "delivered"))
    assert sorted(gate.event_types()) == sorted([first, first, second])


async def test_five_days_of_failures_disable_the_webhook(store: Store, clock: TestClock) -> None:
    gate = FakePoster(answer(200), answer(500))
    gate.open.set()
    await save(store, webhook())
    async with running(store, gate, clock):
        await tell(store)
        await wait_until(all_are(store, "delivered"))
        await store.deliveries.publish_to_webhook(1, HOOK, "domain.failed", "b", {}, ENTRY)
        await wait_until(lambda: len(gate.posts) == 2)
        clock.forward(5 * DAY_MS - HOUR_MS)
        await wait_until(one_has_failed(store, 2))
        assert current(store).enabled
        clock.forward(HOUR_MS)
        # the first failure does not disable it
        await store.deliveries.publish_to_webhook(1, HOOK, "domain.failed", "c", {}, ENTRY)
        await wait_until(lambda: len(gate.posts) > 3)
        clock.forward(MINUTE_MS)
        await wait_until(lambda: not current(store).enabled)
    assert current(store).disabled_reason.startswith("every delivery has failed since ")
    assert current(store).disabled_reason.endswith("Z, most recently: status 500")


async def publish_message_event(store: Store, clock: TestClock, callback: str | None) -> None:
    """Publish that a message was sent; the message may have its own callback URL."""
    phone = "+15005550006"
    added = ExtraFields(metadata={"StatusCallback": "https://metadata.test"})
    message_row = message(clock, phone, channel="sms", callback=callback, extra_fields=added, says={"to": phone})
    await store.messages.accept(message_row)

    async def insert(tx: Any) -> None:
        ((key, *_),) = await tx.run("find_message", team=1, id=message_row.id)
        sent: dict[str, Any] = {"type": "sms.sent", "status": "sent", "created_at": clock.now()}
        event = Event(id=clock.new_id("evt_"), team=1, subject=message_row.id, message=key, **sent)
        await store.setup.publisher.publish(tx, [event])

    await store.database.write(insert)


async def test_failures_of_a_message_callback_url_do_not_disable_the_webhook(store: Store, clock: TestClock) -> None:
    """Any sender chooses this URL, so it must not disable the webhook of others.

    Those attempts do not change the endpoint's health.
    """
    gate = FakePoster(answer(410))
    gate.open.set()
    await save(store, webhook(format="twilio", events=("sms.failed",)))
    await publish_message_event(store, clock, "https://own.test")
    async with running(store, gate, clock):
        await wait_until(tried(store, 1))
        assert await store.deliveries.failing_since([HOOK]) == {}
        clock.forward(5 * DAY_MS)
        await wait_until(tried(store, 2))
    assert current(store).enabled
    assert {url for url, _ in gate.posts} == {"https://own.test"}


async def test_callback_to_a_metadata_address_is_refused(store: Store, clock: TestClock, gate: FakePoster) -> None:
    await save(store, webhook(format="twilio"))
    await publish_message_event(store, clock, None)
    async with running(store, gate, clock):
        await wait_until(all_are(store, "delivered"))
    assert [url for url, _ in gate.posts] == [f"https://{HOOK}.test"]


async def test_hanging_callbacks_delay_no_endpoint(store: Store, clock: TestClock) -> None:
    gate = FakePoster()  # all requests wait
    await save(store, webhook(format="twilio"))
    for _ in range(2 * serving.WINDOW):
        await publish_message_event(store, clock, "https://hangs.test")
    await publish_message_event(store, clock, None)
    async with running(store, gate, clock):
        await wait_until(lambda: len(gate.posts) == serving.WINDOW + 1)
        assert Counter(url for url, _ in gate.posts) == {
            "https://hangs.test": serving.WINDOW,
            f"https://{HOOK}.test": 1,
        }


async def test_hanging_callbacks_delay_no_other_host(store: Store, clock: TestClock) -> None:
    gate = FakePoster()
    await save(store, webhook(format="twilio"))
    for number in range(4 * serving.WINDOW):
        await publish_message_event(store, clock, f"https://hangs.test/{number}")
    await publish_message_event(store, clock, "https://other.test")
    async with running(store, gate, clock):
        await wait_until(lambda: len(gate.posts) == serving.WINDOW + 1)
        hosts = Counter(urlsplit(url).netloc for url, _ in gate.posts)
    assert hosts == {"hangs.test": serving.WINDOW, "other.test": 1}


@pytest.mark.parametrize(
    ("status", "attempt", "days", "disabled"),
    [
        (410, 0, 0, True),
        (500, 1, 4.9, False),
        (500, 0, 6, False),  # one failure after a long idle time is weak evidence
        (500, 1, 6, True),
        (None, 1, 6, True),
    ],
)
def test_webhook_is_disabled_by_lasting_failures_only(
    status: int | None, attempt: int, days: float, disabled: bool
) -> None:
    due = DueDelivery(1, 1, "evt_1", "s", attempt, 0, None)
    now = round(10 * DAY_MS)
    result = serving.to_attempt(
        Lease(HOOK, 1), due, answer(status, error="e"), started_at=now, now=now, jitter=lambda: 0
    )
    assert bool(serving.disable_reason(result, round(now - days * DAY_MS), now)) == disabled
    assert serving.disable_reason(result, None, now) is None or status == 410


async def test_success_resets_the_failures_of_a_webhook(store: Store, clock: TestClock) -> None:
    gate = FakePoster(answer(500), answer(200), answer(500))
    gate.open.set()
    await save(store, webhook())
    async with running(store, gate, clock):
        await tell(store)
        await wait_until(tried(store, 1))
        clock.forward(6 * DAY_MS)
        await wait_until(all_are(store, "delivered"))
        await tell(store)
        await wait_until(lambda: len(gate.posts) == 3)
        clock.forward(MINUTE_MS)
        await wait_until(lambda: len(gate.posts) == 4)
        await asyncio.sleep(0.05)
    assert current(store).enabled


async def test_disabled_webhook_gets_no_events_and_a_deleted_one_loses_them(
    store: Store, clock: TestClock, gate: FakePoster
) -> None:
    await save(store, webhook(enabled=False), webhook("whk_2"))
    await tell(store)
    await tell(store, 3, "whk_2")
    await tell(store, 3, "whk_deleted")
    async with running(store, gate, clock):
        await wait_until(all_are(store, "delivered", "whk_2"))
        await wait_until(all_are(store, "waiting"))

        async def dropped() -> bool:
            return not await store.deliveries.list_page("whk_deleted", None, 10)

        await wait_until(dropped)
    assert gate.event_types() == []


async def test_webhook_created_by_another_process_gets_its_events(
    store: Store, other: Store, clock: TestClock, gate: FakePoster
) -> None:
    await save(store, webhook())
    await tell(store)
    async with running(other, gate, clock):
        await wait_until(all_are(store, "delivered"))


# -- owners, stops, outages ----------------------------------------------------------------------------------------


async def test_events_of_a_killed_process_are_delivered_by_another(
    store: Store, other: Store, clock: TestClock
) -> None:
    dead, gate = FakePoster(), FakePoster()
    gate.open.set()
    await save(store, webhook())
    await other.setup.refresh()
    events = await tell(store, 12)
    killed = asyncio.create_task(
        WebhookWorker(store, dead, clock, lambda hook, now: webhook_secrets(SEALER, hook, now)).run()  # type: ignore[arg-type]
    )
    await wait_until(lambda: len(dead.posts) == 10)
    killed.cancel()
    await asyncio.wait([killed])
    async with running(other, gate, clock):
        await asyncio.sleep(0.3)
        assert gate.posts == []  # the lease has not expired
        clock.forward(LEASE_MS)
        await wait_until(all_are(store, "delivered"))
    assert sorted(gate.event_types()) == sorted(events)


@pytest.mark.parametrize(("how", "most"), [("its lease ended", 10), ("it was taken", serving.UNRECORDED_MAX)])
async def test_endpoint_with_a_lost_lease_is_not_served(
    store: Store, other: Store, clock: TestClock, how: str, most: int
) -> None:
    gate = FakePoster()
    await save(store, webhook())
    await tell(store, 100)
    async with running(store, gate, clock):
        await wait_until(lambda: len(gate.posts) == 10)
        if how == "its lease ended":
            clock.forward(LEASE_MS)
        else:
            await store.outbox.release_own()
        assert await other.deliveries.claim([HOOK])
        gate.open.set()
        await asyncio.sleep(0.3)
        assert len(gate.posts) <= most
        assert await all_are(store, "waiting")()


async def test_idle_endpoint_lease_is_released(
    store: Store, other: Store, clock: TestClock, gate: FakePoster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "IDLE_S", 0.05)
    await save(store, webhook())
    async with running(store, gate, clock):
        await tell(store)
        await wait_until(all_are(store, "delivered"))
        await wait_until(lambda: other.deliveries.claim([HOOK]))


async def test_endpoint_leases_are_renewed(
    store: Store, other: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "HEARTBEAT_MS", 10)
    gate, keep, renewals = FakePoster(), store.deliveries.renew, 0

    async def count_kept(leases: Any) -> Any:
        nonlocal renewals
        done = await keep(leases)
        renewals += 1
        return done

    monkeypatch.setattr(store.deliveries, "renew", count_kept)
    await save(store, webhook())
    await tell(store)
    async with running(store, gate, clock):
        await wait_until(lambda: gate.posts)
        for _ in range(3):
            clock.forward(LEASE_MS - 10_000)
            observed = renewals
            # one attempt began after the clock was advanced
            await wait_until(lambda observed=observed: renewals > observed + 1)
            assert await other.deliveries.claim([HOOK]) == []


async def test_stop_waits_for_attempts_records_them_and_releases_leases(
    store: Store, other: Store, clock: TestClock
) -> None:
    gate = FakePoster()
    await save(store, webhook())
    await tell(store, 12)
    worker = WebhookWorker(store, gate, clock, lambda hook, now: webhook_secrets(SEALER, hook, now))  # type: ignore[arg-type]
    task = asyncio.create_task(worker.run())
    await wait_until(lambda: len(gate.posts) == 10)
    stopped = asyncio.create_task(worker.stop())
    await asyncio.sleep(0.05)
    assert not stopped.done()
    gate.open.set()
    await stopped
    await task
    states = sorted(stored.state for stored in await store.deliveries.list_page(HOOK, None, 100))
    assert states == ["delivered"] * 10 + ["waiting"] * 2
    assert await other.deliveries.claim([HOOK])


async def test_webhook_worker_stop_is_bounded_in_time(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "STOP_TIMEOUT_S", 0.05)
    gate = FakePoster()
    await save(store, webhook())
    await tell(store)
    worker = WebhookWorker(store, gate, clock, lambda hook, now: webhook_secrets(SEALER, hook, now))  # type: ignore[arg-type]
    task = asyncio.create_task(worker.run())
    await wait_until(lambda: gate.posts)
    await worker.stop()
    await task
    await wait_until(lambda: not gate.inside[f"https://{HOOK}.test"])  # the attempt is cancelled
    assert await all_are(store, "waiting")()


async def test_nothing_is_sent_while_an_attempt_cannot_be_recorded(
    store: Store, clock: TestClock, gate: FakePoster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "STORE_RETRY_S", 0.02)
    record, back, record_calls = store.deliveries.record, asyncio.Event(), 0

    async def record_when_back(attempt: DeliveryAttempt) -> int | None:
        nonlocal record_calls
        record_calls += 1
        if not back.is_set():
            raise StoreUnavailable
        return await record(attempt)

    monkeypatch.setattr(store.deliveries, "record", record_when_back)
    await save(store, webhook(), webhook("whk_2"))
    first = await tell(store)
    async with running(store, gate, clock):
        await wait_until(lambda: record_calls > 2)
        await tell(store, 5)
        await tell(store, 5, "whk_2")
        await asyncio.sleep(0.3)
        assert gate.event_types() == first
        back.set()
        await wait_until(all_are(store, "delivered"))
        await wait_until(all_are(store, "delivered", "whk_2"))
    assert len(gate.posts) == 11


@pytest.mark.parametrize("method", ["due_webhooks", "claim", "due"])
async def test_webhook_worker_continues_after_a_database_outage(
    store: Store, clock: TestClock, gate: FakePoster, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(serving, "STORE_RETRY_S", 0.01)
    monkeypatch.setattr(telling, "STORE_RETRY_S", 0.01)
    real, failures = getattr(store.deliveries, method), iter(range(4))

    async def at_last(*arguments: Any) -> Any:
        if next(failures, None) is not None:
            raise StoreUnavailable
        return await real(*arguments)

    monkeypatch.setattr(store.deliveries, method, at_last)
    await save(store, webhook())
    await tell(store, 3)
    async with running(store, gate, clock):
        await wait_until(all_are(store, "delivered"))
    assert len(gate.posts) == 3
