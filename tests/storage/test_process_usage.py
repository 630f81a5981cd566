"""Request counts of API processes, exchanged through the database."""

import pytest
from msgspec.structs import astuple

from heliograph.storage.requests import USAGE_FRESH_MS, ProcessUsage
from heliograph.storage.store import Store
from tests.clocks import TestClock

pytestmark = pytest.mark.anyio


async def test_process_usage_includes_live_peers(store: Store, other: Store) -> None:
    assert await store.requests.sync_usage({"key": 3}) == []
    assert sorted(map(astuple, await other.requests.sync_usage({"key": 5, "more": 1}))) == [
        ("seat/0", "", 0),
        ("seat/0", "key", 3),
    ]
    expected = [("seat/1", "", 0), ("seat/1", "key", 5), ("seat/1", "more", 1)]
    assert sorted(map(astuple, await store.requests.sync_usage({"key": 4}))) == expected
    assert ProcessUsage("seat/0", "key", 4) in await other.requests.sync_usage({})


async def test_process_usage_excludes_dead_peers(store: Store, other: Store, clock: TestClock) -> None:
    await other.requests.sync_usage({"key": 5})
    clock.forward(USAGE_FRESH_MS)
    assert await store.requests.sync_usage({}) == []
