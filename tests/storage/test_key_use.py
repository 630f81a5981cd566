"""The last use of keys, as recorded and written by processes."""

import asyncio

import pytest

from heliograph.storage.store import Store

pytestmark = pytest.mark.anyio


async def test_key_use_of_several_processes_keeps_the_latest(store: Store, other: Store) -> None:
    await store.requests.write_key_uses({"a": 5, "b": 7})
    await other.requests.write_key_uses({"a": 9, "b": 3})
    assert await store.requests.read_key_uses(["a", "b", "never"]) == {"a": 9, "b": 7}


async def test_key_use_noted_during_a_write_is_written_next_time(store: Store) -> None:
    used = {"a": 1, "b": 1}
    writing = asyncio.create_task(store.requests.write_key_uses(used))
    await asyncio.sleep(0)
    used["b"] = 2
    await writing
    assert used == {"b": 2}
    assert await store.requests.read_key_uses(["a", "b"]) == {"a": 1, "b": 1}
