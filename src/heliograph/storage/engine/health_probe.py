"""Caches health checks of the database for load balancers and Prometheus, which need an answer within a second."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic

from heliograph.storage.engine.database import StoreUnavailable, T

TIMEOUT_S = 1.0
FRESH_S = 1.0  # how long a result is reused
FAILURE_FRESH_S = 0.1  # how long a failure is reused: the database may be available again


class Probe(Generic[T]):
    """Runs a query for all callers at once, never twice at the same time, and caches its result."""

    def __init__(self, query: Callable[[], Awaitable[T]]) -> None:
        self._query = query
        self._running: asyncio.Future[T] | None = None
        self._started_at = 0.0

    async def get(self) -> T:
        """Return the cached result of the query, or wait for the query that is running for all callers.

        Raises StoreUnavailable if the query fails or takes longer than TIMEOUT_S. A slow query continues: the next
        caller waits for its result.
        """
        loop = asyncio.get_running_loop()
        if self._running is None or (
            self._running.done() and loop.time() - self._started_at >= self._reused_s(self._running)
        ):
            self._running, self._started_at = asyncio.ensure_future(self._query()), loop.time()
            self._running.add_done_callback(_retrieve_exception)
        query = self._running  # another caller may start a new query meanwhile
        done, _ = await asyncio.wait([query], timeout=TIMEOUT_S)
        if not done:
            raise StoreUnavailable(f"no answer within {TIMEOUT_S:.0f} s")
        return query.result()

    def _reused_s(self, future: "asyncio.Future[T]") -> float:
        return FAILURE_FRESH_S if future.cancelled() or future.exception() else FRESH_S


def _retrieve_exception(future: "asyncio.Future[T]") -> None:
    """Retrieve the exception of a query, so that asyncio does not log it if all callers have gone."""
    if not future.cancelled():
        future.exception()
