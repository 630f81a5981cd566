"""Group commit: all items that wait at the same time go into one transaction (architecture, write path)."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

from heliograph.runtime import metrics
from heliograph.storage.engine.database import Conflict, Database, StoreUnavailable, Tx

Item = TypeVar("Item")
Result = TypeVar("Result")

# A transaction function for many items returns one result per item, in order; an exception in the list belongs to that
# item only.
BatchTxFunction = Callable[[Tx, Sequence[Item]], Coroutine[Any, Any, Sequence[Result | Exception]]]

GROUP_MAX = 512  # weight at which a transaction takes no further items, to bound its duration and statement size


class GroupCommit(Generic[Item, Result]):
    """Runs one transaction at a time, each for all items that were submitted during the previous transaction.

    `weigh`: returns the weight of an item, which counts toward GROUP_MAX; None counts each item as 1.
    """

    def __init__(
        self, database: Database, function: BatchTxFunction[Item, Result], weigh: Callable[[Item], int] | None = None
    ) -> None:
        self._database = database
        self._function = function
        self._weigh = weigh
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._task: asyncio.Task[None] | None = None

    def submit(self, item: Item) -> "asyncio.Future[Result]":
        """Return a future that completes when the item is durable, or raises the exception for this item."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._task = asyncio.create_task(self._run_groups())
        return future

    async def _run_groups(self) -> None:
        try:
            while self._waiting:
                count = self._count_next()
                group, self._waiting = self._waiting[:count], self._waiting[count:]
                await self._commit(group)
        finally:
            self._task = None

    def _count_next(self) -> int:
        """Return how many waiting items go into the next transaction."""
        if self._weigh is None:
            return GROUP_MAX
        weight = 0
        for count, (item, _) in enumerate(self._waiting):
            if weight >= GROUP_MAX:
                return count
            weight += self._weigh(item)
        return len(self._waiting)

    async def _commit(self, group: list[tuple[Item, "asyncio.Future[Result]"]]) -> None:
        items = [item for item, _ in group]
        loop_time = asyncio.get_running_loop().time
        metrics.COMMIT_SIZE.observe(len(items))

        async def run_items(tx: Tx) -> Sequence[Any]:
            return await self._function(tx, items)

        run_items.__qualname__ = self._function.__qualname__  # label for the metrics
        try:
            started_at = loop_time()
            results: Sequence[Any] = await self._database.write(run_items)
            metrics.COMMIT_S.observe(loop_time() - started_at)
        except Exception as error:
            # One item may have broken the statement for all: retry each alone, so that only the broken item fails.
            is_outage = isinstance(error, StoreUnavailable) and not isinstance(error, Conflict)
            if len(group) > 1 and not is_outage:
                for entry in group:
                    await self._commit([entry])
                return
            results = [error] * len(group)
        for (_, future), result in zip(group, results, strict=True):
            if future.done():  # the request was cancelled while the group ran
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
                future.exception()  # mark as retrieved: asyncio must not log an error if the submitter was cancelled
            else:
                future.set_result(result)
