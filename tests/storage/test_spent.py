"""What API processes let through, told to each other."""

import pytest

from heliograph.storage.store import SPENT_FRESH_MS, Store
from tests.clocks import TestClock

pytestmark = pytest.mark.anyio


async def test_each_hears_of_the_others(store: Store, other: Store) -> None:
    assert await store.exchange_spent({"key": 3}) == []
    assert sorted(await other.exchange_spent({"key": 5, "more": 1})) == [("seat/0", "", 0), ("seat/0", "key", 3)]
    expected = [("seat/1", "", 0), ("seat/1", "key", 5), ("seat/1", "more", 1)]
    assert sorted(await store.exchange_spent({"key": 4})) == expected
    assert ("seat/0", "key", 4) in await other.exchange_spent({})


async def test_the_dead_are_not_heard(store: Store, other: Store, clock: TestClock) -> None:
    await other.exchange_spent({"key": 5})
    clock.forward(SPENT_FRESH_MS)
    assert await store.exchange_spent({}) == []
