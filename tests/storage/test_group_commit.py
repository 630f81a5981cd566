"""Group commit: all waiting items share a transaction, and a failure affects only its own item."""

import asyncio
import gc
from collections.abc import Sequence
from typing import Any

import pytest

from heliograph.runtime.fair_limiter import FairLimiter
from heliograph.storage.engine.database import StoreUnavailable, T, Tx, TxFunction
from heliograph.storage.engine.group_commit import GROUP_MAX, GroupCommit
from heliograph.storage.engine.wakeups import Wakeups

pytestmark = pytest.mark.anyio


class Gate:
    """A database that runs transaction functions while its gate is open; `fail` is raised once instead."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.sizes: list[int] = []
        self.begun = 0
        self.fail: Exception | None = None
        self.wakeups = Wakeups(asyncio.sleep)  # type: ignore[arg-type]
        self.serialized = FairLimiter(1)

    async def write(self, function: TxFunction[T]) -> T:
        self.begun += 1
        await self.open.wait()
        if self.fail:
            error, self.fail = self.fail, None
            raise error
        return await function(None)  # type: ignore[arg-type]

    read = write

    read_standby = read

    async def probe(self) -> None: ...

    async def listen(self) -> None: ...

    async def close(self) -> None: ...


class Broken(Exception):
    """Raised for one item."""


@pytest.fixture
def database() -> Gate:
    return Gate()


@pytest.fixture
def group(database: Gate) -> GroupCommit[Any, Any]:
    async def double(tx: Tx, items: Sequence[Any]) -> Sequence[Any]:
        database.sizes.append(len(items))
        if "bomb" in items:
            raise Broken
        return [Broken("refused") if item == "bad" else item * 2 for item in items]

    return GroupCommit(database, double)


async def submit(group: GroupCommit[Any, Any], items: Sequence[Any]) -> list[Any]:
    return await asyncio.gather(*(group.submit(item) for item in items), return_exceptions=True)


async def test_waiting_items_are_committed_together_in_order(group: GroupCommit[Any, Any], database: Gate) -> None:
    assert await submit(group, range(100)) == [2 * i for i in range(100)]
    assert database.sizes == [100]


async def test_items_added_during_a_commit_form_the_next_group(group: GroupCommit[Any, Any], database: Gate) -> None:
    database.open.clear()
    first = asyncio.create_task(submit(group, [1]))
    while not database.begun:
        await asyncio.sleep(0)
    rest = asyncio.create_task(submit(group, [2, 3, 4]))
    for _ in range(10):
        await asyncio.sleep(0)
    database.open.set()
    assert [await first, await rest] == [[2], [4, 6, 8]]
    assert database.sizes == [1, 3]


async def test_group_larger_than_the_limit_is_split(group: GroupCommit[Any, Any], database: Gate) -> None:
    await submit(group, range(GROUP_MAX + 1))
    assert database.sizes == [GROUP_MAX, 1]


async def test_refused_item_fails_alone(group: GroupCommit[Any, Any], database: Gate) -> None:
    item, bad, two = await submit(group, [1, "bad", 2])
    assert (item, two) == (2, 4)
    assert isinstance(bad, Broken)
    assert database.sizes == [3]


async def test_item_that_breaks_the_transaction_fails_alone(group: GroupCommit[Any, Any], database: Gate) -> None:
    item, bomb, two = await submit(group, [1, "bomb", 2])
    assert (item, two) == (2, 4)
    assert isinstance(bomb, Broken)
    assert database.sizes == [3, 1, 1, 1]


async def test_outage_fails_the_whole_group_and_the_next_group_succeeds(
    group: GroupCommit[Any, Any], database: Gate
) -> None:
    database.fail = StoreUnavailable("away")
    assert [type(error) for error in await submit(group, range(5))] == [StoreUnavailable] * 5
    assert database.sizes == []
    assert await submit(group, [1]) == [2]


@pytest.mark.parametrize("who", [0, 1, 2])
async def test_cancelled_waiter_does_not_block_the_group(
    group: GroupCommit[Any, Any], database: Gate, who: int
) -> None:
    database.open.clear()
    waiters = [asyncio.ensure_future(group.submit(item)) for item in range(3)]
    await asyncio.sleep(0)
    waiters[who].cancel()
    await asyncio.sleep(0)
    database.open.set()
    async with asyncio.timeout(60):
        results = await asyncio.gather(*waiters, return_exceptions=True)
    assert [type(r) for i, r in enumerate(results) if i == who] == [asyncio.CancelledError]
    assert [r for i, r in enumerate(results) if i != who] == [2 * i for i in range(3) if i != who]
    assert await submit(group, [7]) == [14]


async def test_failure_after_all_waiters_were_cancelled_is_not_logged(
    database: Gate, group: GroupCommit[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    """As at shutdown during an outage; asyncio would log "Future exception was never retrieved"."""
    database.fail = StoreUnavailable("away")
    group.submit(1)
    while group._task:
        await asyncio.sleep(0)
    gc.collect()
    assert caplog.records == []
