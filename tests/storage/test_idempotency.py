"""One message per key: in one process, across two, after a day, and while the first request runs."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from heliograph.accept.context import Context
from heliograph.accept.idempotency import run_idempotent
from heliograph.app import make_chats, make_domains, make_webhooks
from heliograph.bootstrap import make_secrets
from heliograph.carrier_failover import CarrierFailover
from heliograph.carriers.contract import Carriers
from heliograph.domain.limits import DAY_MS, IDEMPOTENCY_LEASE_MS
from heliograph.domain.refusals import IdempotencyKeyReused, IdempotencyRequestInProgress
from heliograph.domain.sending.acceptance import IdempotencyKey, SendResult
from heliograph.manage.management import Management
from heliograph.runtime.clock import Clock
from heliograph.settings import Settings
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql
from tests.storage.samples import KEY, finish, message, refusals, retry_key, start

pytestmark = pytest.mark.anyio


def make_context(store: Store, clock: Clock) -> Context:
    def none(record: Any) -> Any:
        raise AssertionError("no carrier is asked here")

    return Context(
        store=store,
        clock=clock,
        failover=CarrierFailover(store, Carriers(none), clock),
        base_url="",
        code_key=b"",
        running_requests={},
    )


def make_management(context: Context) -> Management:
    settings = Settings(data=context.store.local_files._folder)
    return Management(
        domains=make_domains(settings, make_secrets(settings), context.store, context.clock),
        webhooks=make_webhooks(settings, make_secrets(settings), context.store, context.clock),
        chats=make_chats(settings, make_secrets(settings), context.store, context.clock),
        encrypt=make_secrets(settings).cipher.encrypt,
    )


async def send(store: Store, clock: TestClock, key: IdempotencyKey) -> SendResult[Any]:
    return await store.messages.accept(message(clock, idempotency_key=key))


async def send_until_answered(context: Context, key: IdempotencyKey) -> SendResult[Any]:
    """Send like a client, which repeats a request while the first one is in progress."""
    while True:
        try:
            return await run_idempotent(
                context, KEY, key, lambda: context.store.messages.accept(message(context.clock, idempotency_key=key))
            )
        except IdempotencyRequestInProgress:
            await asyncio.sleep(0.001)


async def test_twenty_concurrent_requests_with_one_key_store_one_message(
    store: Store, clock: TestClock, sql: Sql
) -> None:
    context = make_context(store, clock)
    answers = await asyncio.gather(*(send_until_answered(context, retry_key("k")) for _ in range(20)))
    assert len({answer.body for answer in answers}) == 1
    assert Counter(answer.replayed for answer in answers) == {True: 19, False: 1}
    assert await sql("SELECT count(*) FROM message") == [(1,)]


async def test_hundred_keys_in_two_processes_store_a_hundred_messages(
    store: Store, other: Store, clock: TestClock, sql: Sql
) -> None:
    contexts = [make_context(process, clock) for process in (store, other)]
    requested = [(context, retry_key(f"k{number}")) for number in range(100) for context in contexts for _ in range(2)]
    answers = await asyncio.gather(*(send_until_answered(context, key) for context, key in requested))
    assert await sql("SELECT count(*) FROM message") == [(100,)]
    bodies: dict[str, set[bytes]] = {}
    for (_, key), answer in zip(requested, answers, strict=True):
        bodies.setdefault(key.hash, set()).add(answer.body)
    assert all(len(equal) == 1 for equal in bodies.values())
    assert sum(not answer.replayed for answer in answers) == 100


async def test_same_key_twice_in_one_transaction_stores_one_message(store: Store, clock: TestClock, sql: Sql) -> None:
    """`send_once` prevents this within a process; the transaction would detect it too."""
    answers = await asyncio.gather(*(send(store, clock, retry_key("k")) for _ in range(3)))
    assert len({answer.body for answer in answers}) == 1
    assert await sql("SELECT count(*) FROM message") == [(1,)]


async def test_same_key_with_another_body_is_refused_alone(store: Store, clock: TestClock) -> None:
    await send(store, clock, retry_key("k"))
    results = await asyncio.gather(
        send(store, clock, retry_key("k", "another body")), send(store, clock, retry_key("k2")), return_exceptions=True
    )
    assert refusals(results) == ["idempotency_key_reused"]


async def test_same_key_with_another_body_is_refused_before_in_progress(store: Store, clock: TestClock) -> None:
    context, gate = make_context(store, clock), asyncio.Event()

    async def slow() -> SendResult[Any]:
        await gate.wait()
        return await send(store, clock, retry_key("k"))

    first = asyncio.create_task(run_idempotent(context, KEY, retry_key("k"), slow))
    await asyncio.sleep(0)
    with pytest.raises(IdempotencyKeyReused):
        await run_idempotent(context, KEY, retry_key("k", "another body"), slow)
    with pytest.raises(IdempotencyRequestInProgress) as events:
        await run_idempotent(context, KEY, retry_key("k"), slow)
    assert events.value.retry_after == 1
    gate.set()
    assert not (await first).replayed


async def test_refused_request_releases_its_key(store: Store, clock: TestClock) -> None:
    with pytest.raises(Exception, match="costs"):
        await store.messages.accept(message(clock, price=10**12, idempotency_key=retry_key("k")))
    assert await store.messages.find_stored_response(KEY, "k") is None
    assert not (await send(store, clock, retry_key("k"))).replayed


@pytest.mark.parametrize(("later_ms", "replayed"), [(DAY_MS - 1000, True), (DAY_MS, False)])
async def test_idempotency_key_is_stored_for_a_day(
    store: Store, clock: TestClock, later_ms: int, replayed: bool
) -> None:
    first = await send(store, clock, retry_key("k"))
    clock.forward(later_ms)
    again = await send(store, clock, retry_key("k"))
    assert again.replayed is replayed
    assert (again.body == first.body) is replayed


async def test_same_idempotency_key_of_two_api_keys_stores_two_messages(
    store: Store, clock: TestClock, sql: Sql
) -> None:
    for key_id in ("one", "two"):
        await store.messages.accept(message(clock, key_id=key_id, idempotency_key=retry_key("k")))
    assert await sql("SELECT count(*) FROM message") == [(2,)]


# -- a verification holds its key while the carrier is asked ----------------------------------------------------


async def test_verification_start_in_progress_keeps_its_key(store: Store, other: Store, clock: TestClock) -> None:
    started = start(clock, idempotency_key=retry_key("k"))
    assert await store.verifications.start(started) is None
    with pytest.raises(IdempotencyRequestInProgress):
        await other.verifications.start(start(clock, idempotency_key=retry_key("k"), owner="seat/1"))
    await store.verifications.finish(finish(started, clock, response=b'{"first":1}'))
    replay = await other.verifications.start(start(clock, idempotency_key=retry_key("k"), owner="seat/1"))
    assert replay
    assert (replay.id, replay.body, replay.replayed) == (started.id, b'{"first":1}', True)


async def test_crash_releases_the_key_after_its_lease(store: Store, other: Store, clock: TestClock) -> None:
    await store.verifications.start(start(clock, idempotency_key=retry_key("k")))
    clock.forward(IDEMPOTENCY_LEASE_MS)
    assert await other.verifications.start(start(clock, idempotency_key=retry_key("k"), owner="seat/1")) is None


async def test_restart_releases_the_key_at_once(store: Store, other: Store, clock: TestClock) -> None:
    await store.verifications.start(start(clock, idempotency_key=retry_key("k")))
    await other.verifications.start(start(clock, idempotency_key=retry_key("theirs"), owner="seat/1"))
    await store.outbox.release_own()
    assert await store.verifications.start(start(clock, idempotency_key=retry_key("k"))) is None
    with pytest.raises(IdempotencyRequestInProgress):  # another process's key stays
        await store.verifications.start(start(clock, idempotency_key=retry_key("theirs")))


async def test_late_finish_does_not_store_a_response_for_another_holder(
    store: Store, other: Store, clock: TestClock
) -> None:
    """The lease expired and another process took the key: the late response is not stored."""
    slow = start(clock, idempotency_key=retry_key("k"))
    await store.verifications.start(slow)
    clock.forward(IDEMPOTENCY_LEASE_MS)
    quick = start(clock, idempotency_key=retry_key("k"), owner="seat/1")
    await other.verifications.start(quick)
    await store.verifications.finish(finish(slow, clock, response=b'"slow"'))
    await other.verifications.finish(finish(quick, clock, response=b'"quick"'))
    result = await store.messages.find_stored_response(KEY, "k")
    assert result
    assert result.response == b'"quick"'
