"""Cached health checks of the database for load balancers and Prometheus: answered within a second.

Concurrent callers share one query.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic

from heliograph.storage.engine.database import StoreUnavailable, T

ANSWER_S = 1.0
FRESH_S = 1.0  # how long a result is reused
FAILED_S = 0.1  # how long a failure is reused: the database may be available again


class Probe(Generic[T]):
    """Runs `ask` at most once at a time and caches its result."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._asking: asyncio.Future[T] | None = None
        self._at = 0.0

    async def answer(self) -> T:
        """Return the shared or cached result.

        Raises StoreUnavailable, also on a timeout; the next caller then waits for the same query.
        """
        loop = asyncio.get_running_loop()
        if self._asking is None or (self._asking.done() and loop.time() - self._at >= self._reused_s(self._asking)):
            self._asking, self._at = asyncio.ensure_future(self._ask()), loop.time()
            self._asking.add_done_callback(_seen)
        asked = self._asking  # another caller may start a new query meanwhile
        done, _ = await asyncio.wait([asked], timeout=ANSWER_S)
        if not done:
            raise StoreUnavailable(f"no answer within {ANSWER_S:.0f} s")
        return asked.result()

    def _reused_s(self, asked: "asyncio.Future[T]") -> float:
        return FAILED_S if asked.cancelled() or asked.exception() else FRESH_S


def _seen(asked: "asyncio.Future[T]") -> None:
    """Retrieve the exception, so that asyncio does not log it if all callers have gone."""
    if not asked.cancelled():
        asked.exception()
