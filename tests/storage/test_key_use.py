"""When keys were last used, as processes note and write it down."""

import asyncio

import pytest

from heliograph.storage import requests
from heliograph.storage.requests import Requests, keep_key_uses
from heliograph.storage.store import Store, StoreUnavailable

pytestmark = pytest.mark.anyio


async def test_the_latest_use_of_all_processes_stays(store: Store, other: Store) -> None:
    await store.requests.write_key_uses({"a": 5, "b": 7})
    await other.requests.write_key_uses({"a": 9, "b": 3})
    assert await store.requests.key_uses(["a", "b", "never"]) == {"a": 9, "b": 7}


async def test_what_is_noted_while_it_is_written_waits_for_the_next_time(store: Store) -> None:
    used = {"a": 1, "b": 1}
    writing = asyncio.create_task(store.requests.write_key_uses(used))
    await asyncio.sleep(0)
    used["b"] = 2
    await writing
    assert used == {"b": 2}
    assert await store.requests.key_uses(["a", "b"]) == {"a": 1, "b": 1}


async def test_nothing_is_lost_while_the_database_is_away_nor_at_the_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    away, tried = [True], asyncio.Event()

    class Database:
        async def write(self, story: object) -> None:
            tried.set()
            if away[0]:
                raise StoreUnavailable
            await store.database.write(story)  # type: ignore[arg-type]

    monkeypatch.setattr(requests, "WRITE_USES_S", 0.001)
    used = {"a": 1}
    keeping = asyncio.create_task(keep_key_uses(Requests(Database(), store.clock, ""), used))  # type: ignore[arg-type]
    await tried.wait()
    assert used == {"a": 1}
    away[0] = False
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    assert used == {}
    assert await store.requests.key_uses(["a"]) == {"a": 1}
