"""What API processes let through, told to each other."""

import pytest
from msgspec.structs import astuple

from heliograph.storage.requests import SPENT_FRESH_MS, Spent
from heliograph.storage.store import Store
from tests.clocks import TestClock

pytestmark = pytest.mark.anyio


async def test_each_hears_of_the_others(store: Store, other: Store) -> None:
    assert await store.requests.exchange_spent({"key": 3}) == []
    assert sorted(map(astuple, await other.requests.exchange_spent({"key": 5, "more": 1}))) == [
        ("seat/0", "", 0),
        ("seat/0", "key", 3),
    ]
    expected = [("seat/1", "", 0), ("seat/1", "key", 5), ("seat/1", "more", 1)]
    assert sorted(map(astuple, await store.requests.exchange_spent({"key": 4}))) == expected
    assert Spent("seat/0", "key", 4) in await other.requests.exchange_spent({})


async def test_the_dead_are_not_heard(store: Store, other: Store, clock: TestClock) -> None:
    await other.requests.exchange_spent({"key": 5})
    clock.forward(SPENT_FRESH_MS)
    assert await store.requests.exchange_spent({}) == []
