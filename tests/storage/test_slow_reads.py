"""Slow reads, such as a search over everything, delay neither quick reads nor writes."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from heliograph.bootstrap import sqlite_path
from heliograph.settings import Settings
from heliograph.storage.engine.database import Tx
from heliograph.storage.engine.postgres import POOL_MAX, reads_max
from heliograph.storage.engine.sqlite import READERS
from heliograph.storage.store import Store
from tests.service import PATIENCE_S

pytestmark = pytest.mark.anyio


class Slow:
    """Reads that end when released."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._database = store.database
        self._blocks = sqlite_path(settings) is not None
        self._over, self._blocked_over = asyncio.Event(), threading.Event()
        self._begun = 0
        self.most = (READERS if self._blocks else reads_max(POOL_MAX)) - 1  # leaves one connection for reads
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self, count: int) -> None:
        self._tasks += [asyncio.create_task(self._database.read(self._story)) for _ in range(count)]
        while self._begun < min(len(self._tasks), self.most):
            await asyncio.sleep(0.001)

    async def end(self) -> None:
        self._over.set()
        self._blocked_over.set()
        await asyncio.gather(*self._tasks)

    async def _story(self, tx: Tx) -> None:
        self._begun += 1
        if self._blocks:
            self._blocked_over.wait()
        else:
            await self._over.wait()


@pytest.fixture
async def slow(store: Store, settings: Settings) -> AsyncIterator[Slow]:
    slow = Slow(store, settings)
    yield slow
    await slow.end()


async def test_lookup_does_not_wait_for_slow_reads(store: Store, slow: Slow) -> None:
    await slow.begin(slow.most)
    async with asyncio.timeout(PATIENCE_S):
        assert await store.messages.find_stored_response("key", "hash") is None


async def test_write_does_not_wait_for_many_slow_reads(store: Store, slow: Slow) -> None:
    await slow.begin(POOL_MAX + READERS)
    writes = (store.database.write(lambda tx: tx.run("increase_restore_counter")) for _ in range(POOL_MAX))
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*writes)
