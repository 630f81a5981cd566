"""The daily storage limit of a team: exact over single messages and batches, and reset the next day."""

import asyncio
import json
from typing import Any

import pytest

from heliograph.domain.limits import DAY_MS, MIB, SECOND_MS
from heliograph.domain.refusals import StorageLimitReached
from heliograph.domain.setup.records import TeamRecord
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.samples import message
from tests.storage.test_batches import batch

pytestmark = pytest.mark.anyio

ONE = b"x" * 100
MOST = 450  # the limit is four contents


def one(clock: TestClock, **more: Any) -> Any:
    return message(clock, content=ONE, daily_bytes_limit=MOST, **more)


async def used(store: Store) -> int:
    return (await store.ledger.get_account(1)).octets_used


async def test_daily_byte_quota_is_enforced_and_reset_at_midnight(store: Store, clock: TestClock) -> None:
    await store.messages.accept(one(clock, file_bytes=250))
    with pytest.raises(StorageLimitReached) as refused:
        await store.messages.accept(one(clock, file_bytes=1))
    left = DAY_MS - clock.now() % DAY_MS
    assert left // SECOND_MS <= (refused.value.retry_after or 0) <= left // SECOND_MS + 1
    await store.messages.accept(one(clock))
    assert await used(store) == MOST
    await store.messages.accept(message(clock, content=ONE))  # a team without a limit is not counted
    clock.forward(DAY_MS)
    await store.messages.accept(one(clock))
    assert await used(store) == 100


async def test_concurrent_messages_store_exactly_the_byte_quota(store: Store, clock: TestClock) -> None:
    done = await asyncio.gather(*(store.messages.accept(one(clock)) for _ in range(10)), return_exceptions=True)
    assert [type(refusal) for refusal in done if isinstance(refusal, Exception)] == [StorageLimitReached] * 6
    assert await used(store) == 400


@pytest.mark.parametrize("strict", [True, False])
async def test_batch_uses_the_byte_quota_it_stores(store: Store, clock: TestClock, strict: bool) -> None:
    sends = batch(clock, *(one(clock) for _ in range(6)), strict=strict)
    if strict:
        with pytest.raises(StorageLimitReached):
            await store.messages.accept(sends)
        assert await used(store) == 0
    else:
        events = json.loads((await store.messages.accept(sends)).body)
        assert events[4:] == ["storage_limit_reached"] * 2
        assert await used(store) == 400


@pytest.mark.parametrize(
    ("mode", "own", "most"),
    [("live", None, 10 * 1024 * MIB), ("sandbox", None, 200 * MIB), ("sandbox", 5, 5), ("live", 0, 0)],
)
def test_byte_quota_depends_on_the_mode_and_the_setting_of_the_team(mode: Any, own: int | None, most: int) -> None:
    assert TeamRecord(ref=1, id="team_a", name="A", mode=mode, octets_per_day=own).daily_bytes_limit == most
