"""Retention: bodies for 7 days after the end, the rest for 90; files as long as a message needs them."""

import pytest

from heliograph.rules.limits import DAY_MS
from heliograph.storage.store import Change, Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql
from tests.storage.samples import message, once

pytestmark = pytest.mark.anyio

TABLES = ("message", "recipient", "event", "content", "blob", "ledger", "idempotency", "marketing")


async def end(store: Store, clock: TestClock, status: str = "delivered") -> None:
    """Hand over whatever is due."""
    for lane in ("email", "phone"):
        for claim in await store.claim(lane, 100):
            change = Change(
                at=clock.now(),
                message=claim.message,
                position=claim.position,
                claim=(claim.key, claim.epoch),
                wanted=status,
                accepted=True,
            )
            await store.record(change)


async def put_away(store: Store) -> None:
    await store.purge()
    await store.sweep_blobs()


async def counts(sql: Sql) -> dict[str, int]:
    return {table: (await sql(f"SELECT count(*) FROM {table}"))[0][0] for table in TABLES}


async def test_bodies_go_after_seven_days_and_the_rest_after_ninety(store: Store, clock: TestClock, sql: Sql) -> None:
    file = store.blobs.put(b"attachment")
    await store.accept(message(clock, price=5, blobs=[file], once=once("k"), marketing_to="a@example.com"))
    await end(store, clock)
    whole = await counts(sql)
    assert whole["event"] == 2
    clock.forward(7 * DAY_MS - 1000)
    await store.purge()
    assert await counts(sql) == whole | {"idempotency": 0, "marketing": 0}
    await store.sweep_blobs()
    assert store.blobs.get(file) == b"attachment"
    clock.forward(1000)
    await put_away(store)
    assert await counts(sql) == whole | {"idempotency": 0, "marketing": 0, "content": 0, "blob": 0}
    with pytest.raises(FileNotFoundError):
        store.blobs.get(file)
    clock.forward(83 * DAY_MS - 1000)
    await store.purge()
    assert (await counts(sql))["message"] == 1
    clock.forward(1000)
    await store.purge()
    assert await counts(sql) == dict.fromkeys(TABLES, 0) | {"ledger": whole["ledger"]}  # the ledger stays


async def test_nothing_unfinished_is_ever_purged(store: Store, clock: TestClock, sql: Sql) -> None:
    await store.accept(message(clock))
    await store.accept(message(clock, "a@example.com", "b@example.com"))
    one, *_ = await store.claim("email", 1)
    await store.record(Change(at=clock.now(), message=one.message, position=0, wanted="sent", claim=(one.key, 1)))
    whole = await counts(sql)
    clock.forward(1000 * DAY_MS)
    await store.purge()
    assert await counts(sql) == whole


async def test_a_file_stays_while_another_message_needs_it(store: Store, clock: TestClock, sql: Sql) -> None:
    file = store.blobs.put(b"attachment")
    await store.accept(message(clock, blobs=[file]))
    await end(store, clock)
    clock.forward(6 * DAY_MS)
    await store.accept(message(clock, blobs=[file]))
    await end(store, clock)
    clock.forward(DAY_MS)
    await put_away(store)
    assert (await counts(sql))["blob"] == 1
    assert store.blobs.get(file) == b"attachment"
    clock.forward(6 * DAY_MS)
    await put_away(store)
    with pytest.raises(FileNotFoundError):
        store.blobs.get(file)


async def test_a_file_that_was_just_put_again_stays(store: Store, clock: TestClock) -> None:
    """Its new message is not written yet, so the database cannot know."""
    file = store.blobs.put(b"attachment")
    assert store.blobs.old(clock.now()) == []
    store.blobs.drop(file, clock.now())
    assert store.blobs.get(file) == b"attachment"


async def test_a_file_whose_message_never_came_goes(store: Store, clock: TestClock) -> None:
    file = store.blobs.put(b"attachment")
    clock.forward(DAY_MS)
    await store.sweep_blobs()
    with pytest.raises(FileNotFoundError):
        store.blobs.get(file)
