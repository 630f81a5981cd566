"""One message for one key: in one process, over two, after a day, and while the first one runs."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from heliograph.accept.context import Context
from heliograph.accept.idempotency import run_idempotent
from heliograph.app import make_chats, make_domains, make_webhooks
from heliograph.bootstrap import make_secrets
from heliograph.carrier_failover import Handover
from heliograph.carriers.contract import Carriers
from heliograph.domain.limits import DAY_MS, IDEMPOTENCY_LEASE_MS
from heliograph.domain.refusals import IdempotencyKeyReused, IdempotencyRequestInProgress
from heliograph.domain.sending.acceptance import IdempotencyKey, Sent
from heliograph.manage.management import Management
from heliograph.settings import Settings
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql
from tests.storage.samples import KEY, finish, message, refusals, retry_key, start

pytestmark = pytest.mark.anyio


def make_context(store: Store, clock: TestClock) -> Context:
    def none(record: Any) -> Any:
        raise AssertionError("no carrier is asked here")

    return Context(
        store=store,
        clock=clock,
        handover=Handover(store, Carriers(none), clock),
        base_url="",
        code_key=b"",
        running={},
    )


def make_management(context: Context) -> Management:
    settings = Settings(data=context.store.blobs._folder)
    return Management(
        domains=make_domains(settings, make_secrets(settings), context.store, context.clock),
        webhooks=make_webhooks(settings, make_secrets(settings), context.store, context.clock),
        chats=make_chats(settings, make_secrets(settings), context.store, context.clock),
        seal=make_secrets(settings).sealer.seal,
    )


async def send(store: Store, clock: TestClock, key: IdempotencyKey) -> Sent[Any]:
    return await store.messages.accept(message(clock, retry_key=key))


async def send_until_answered(context: Context, key: IdempotencyKey) -> Sent[Any]:
    """As a client does: told that the first request still runs, it asks again."""
    while True:
        try:
            return await run_idempotent(
                context, KEY, key, lambda: context.store.messages.accept(message(context.clock, retry_key=key))
            )
        except IdempotencyRequestInProgress:
            await asyncio.sleep(0.001)


async def test_twenty_at_once_are_one_message(store: Store, clock: TestClock, sql: Sql) -> None:
    context = make_context(store, clock)
    answers = await asyncio.gather(*(send_until_answered(context, retry_key("k")) for _ in range(20)))
    assert len({answer.body for answer in answers}) == 1
    assert Counter(answer.replayed for answer in answers) == {True: 19, False: 1}
    assert await sql("SELECT count(*) FROM message") == [(1,)]


async def test_a_hundred_keys_in_two_processes(store: Store, other: Store, clock: TestClock, sql: Sql) -> None:
    contexts = [make_context(process, clock) for process in (store, other)]
    asked = [(context, retry_key(f"k{number}")) for number in range(100) for context in contexts for _ in range(2)]
    answers = await asyncio.gather(*(send_until_answered(context, key) for context, key in asked))
    assert await sql("SELECT count(*) FROM message") == [(100,)]
    bodies: dict[str, set[bytes]] = {}
    for (_, key), answer in zip(asked, answers, strict=True):
        bodies.setdefault(key.hash, set()).add(answer.body)
    assert all(len(equal) == 1 for equal in bodies.values())
    assert sum(not answer.replayed for answer in answers) == 100


async def test_two_in_one_transaction_are_one_message(store: Store, clock: TestClock, sql: Sql) -> None:
    """`run_once` keeps them apart; the transaction would too."""
    answers = await asyncio.gather(*(send(store, clock, retry_key("k")) for _ in range(3)))
    assert len({answer.body for answer in answers}) == 1
    assert await sql("SELECT count(*) FROM message") == [(1,)]


async def test_another_body_is_refused_and_its_neighbours_are_not(store: Store, clock: TestClock) -> None:
    await send(store, clock, retry_key("k"))
    results = await asyncio.gather(
        send(store, clock, retry_key("k", "another body")), send(store, clock, retry_key("k2")), return_exceptions=True
    )
    assert refusals(results) == ["idempotency_key_reused"]


async def test_another_body_is_told_before_in_progress(store: Store, clock: TestClock) -> None:
    context, gate = make_context(store, clock), asyncio.Event()

    async def slow() -> Sent[Any]:
        await gate.wait()
        return await send(store, clock, retry_key("k"))

    first = asyncio.create_task(run_idempotent(context, KEY, retry_key("k"), slow))
    await asyncio.sleep(0)
    with pytest.raises(IdempotencyKeyReused):
        await run_idempotent(context, KEY, retry_key("k", "another body"), slow)
    with pytest.raises(IdempotencyRequestInProgress) as told:
        await run_idempotent(context, KEY, retry_key("k"), slow)
    assert told.value.retry_after == 1
    gate.set()
    assert not (await first).replayed


async def test_a_refused_request_leaves_its_key_free(store: Store, clock: TestClock) -> None:
    with pytest.raises(Exception, match="costs"):
        await store.messages.accept(message(clock, price=10**12, retry_key=retry_key("k")))
    assert await store.messages.remembered(KEY, "k") is None
    assert not (await send(store, clock, retry_key("k"))).replayed


@pytest.mark.parametrize(("later_ms", "replayed"), [(DAY_MS - 1000, True), (DAY_MS, False)])
async def test_a_key_is_remembered_for_a_day(store: Store, clock: TestClock, later_ms: int, replayed: bool) -> None:
    first = await send(store, clock, retry_key("k"))
    clock.forward(later_ms)
    again = await send(store, clock, retry_key("k"))
    assert again.replayed is replayed
    assert (again.body == first.body) is replayed


async def test_keys_of_two_api_keys_are_two(store: Store, clock: TestClock, sql: Sql) -> None:
    for key_id in ("one", "two"):
        await store.messages.accept(message(clock, key_id=key_id, retry_key=retry_key("k")))
    assert await sql("SELECT count(*) FROM message") == [(2,)]


# -- a verification holds its key while the carrier is asked ----------------------------------------------------


async def test_a_running_start_keeps_its_key(store: Store, other: Store, clock: TestClock) -> None:
    begun = start(clock, retry_key=retry_key("k"))
    assert await store.verifications.start(begun) is None
    with pytest.raises(IdempotencyRequestInProgress):
        await other.verifications.start(start(clock, retry_key=retry_key("k"), owner="seat/1"))
    await store.verifications.finish(finish(begun, clock, response=b'{"first":1}'))
    replay = await other.verifications.start(start(clock, retry_key=retry_key("k"), owner="seat/1"))
    assert replay
    assert (replay.id, replay.body, replay.replayed) == (begun.id, b'{"first":1}', True)


async def test_a_crash_frees_the_key_after_its_lease(store: Store, other: Store, clock: TestClock) -> None:
    await store.verifications.start(start(clock, retry_key=retry_key("k")))
    clock.forward(IDEMPOTENCY_LEASE_MS)
    assert await other.verifications.start(start(clock, retry_key=retry_key("k"), owner="seat/1")) is None


async def test_a_restart_frees_the_key_at_once(store: Store, other: Store, clock: TestClock) -> None:
    await store.verifications.start(start(clock, retry_key=retry_key("k")))
    await other.verifications.start(start(clock, retry_key=retry_key("theirs"), owner="seat/1"))
    await store.outbox.take_back()
    assert await store.verifications.start(start(clock, retry_key=retry_key("k"))) is None
    with pytest.raises(IdempotencyRequestInProgress):  # another process's key stays
        await store.verifications.start(start(clock, retry_key=retry_key("theirs")))


async def test_a_late_finish_does_not_answer_for_another(store: Store, other: Store, clock: TestClock) -> None:
    """The lease ran out and another process took the key: what the slow one says is not remembered."""
    slow = start(clock, retry_key=retry_key("k"))
    await store.verifications.start(slow)
    clock.forward(IDEMPOTENCY_LEASE_MS)
    quick = start(clock, retry_key=retry_key("k"), owner="seat/1")
    await other.verifications.start(quick)
    await store.verifications.finish(finish(slow, clock, response=b'"slow"'))
    await other.verifications.finish(finish(quick, clock, response=b'"quick"'))
    found = await store.messages.remembered(KEY, "k")
    assert found
    assert found.response == b'"quick"'
