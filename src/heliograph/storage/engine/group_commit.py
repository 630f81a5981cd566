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
ManyStory = Callable[[Tx, Sequence[Item]], Coroutine[Any, Any, Sequence[Result | Exception]]]

GROUP_MAX = 512  # weight per transaction, which the last item may exceed: bounds its duration and statement size


class GroupCommit(Generic[Item, Result]):
    """Runs one transaction at a time for all items submitted meanwhile.

    `weigh`: weight of an item against GROUP_MAX; None counts each item as 1.
    """

    def __init__(
        self, database: Database, story: ManyStory[Item, Result], weigh: Callable[[Item], int] | None = None
    ) -> None:
        self._database = database
        self._story = story
        self._weigh = weigh
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._task: asyncio.Task[None] | None = None

    def submit(self, item: Item) -> "asyncio.Future[Result]":
        """Return a future that completes when the item is durable, or raises the exception of this item."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return future

    async def _work(self) -> None:
        try:
            while self._waiting:
                count = self._count()
                taken, self._waiting = self._waiting[:count], self._waiting[count:]
                await self._commit(taken)
        finally:
            self._task = None

    def _count(self) -> int:
        """Return how many waiting items go into the next transaction."""
        if self._weigh is None:
            return GROUP_MAX
        weight = 0
        for count, (item, _) in enumerate(self._waiting):
            if weight >= GROUP_MAX:
                return count
            weight += self._weigh(item)
        return len(self._waiting)

    async def _commit(self, taken: list[tuple[Item, "asyncio.Future[Result]"]]) -> None:
        items = [item for item, _ in taken]
        time = asyncio.get_running_loop().time
        metrics.COMMIT_SIZE.observe(len(items))

        async def story(tx: Tx) -> Sequence[Any]:
            return await self._story(tx, items)

        story.__qualname__ = self._story.__qualname__  # label for the metrics
        try:
            began = time()
            results: Sequence[Any] = await self._database.write(story)
            metrics.COMMIT_S.observe(time() - began)
        except Exception as error:
            # One item may have broken the statement for all: retry each in isolation, so that only the broken item
            # fails.
            away = isinstance(error, StoreUnavailable) and not isinstance(error, Conflict)
            if len(taken) > 1 and not away:
                for one in taken:
                    await self._commit([one])
                return
            results = [error] * len(taken)
        for (_, future), result in zip(taken, results, strict=True):
            if future.done():  # the request was cancelled while the group ran
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
                future.exception()  # mark as retrieved: asyncio must not log an error if the submitter was cancelled
            else:
                future.set_result(result)
