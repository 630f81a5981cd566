"""Thread pools by purpose, so that reads for people and sends never wait for each other.

All other slow work runs in asyncio's default executor.
"""

import asyncio
import contextvars
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, ParamSpec, TypeVar, cast

from heliograph.domain.limits import IN_THREAD

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """Thread pool that starts threads on demand, up to `count`.

    A result returns to the event loop with one call. The standard library's executor takes twice the CPU time, because
    it adds a future, locks and conditions for waiting from other threads, which is not needed here.
    """

    def __init__(self, name: str, count: int) -> None:
        self._name, self._count = name, count
        self._line: SimpleQueue[tuple[Any, ...] | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._asked = 0  # submitted and not finished; used on the event loop only
        self._closed = False

    def submit(self, work: Callable[..., T], *given: Any) -> "asyncio.Future[T]":
        if self._closed:
            raise RuntimeError(f"{self._name}: closed")
        if self._asked >= len(self._threads) < self._count:
            self._start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._asked += 1
        self._line.put((loop, future, work, given))
        return future

    async def run(self, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        return await self.submit(partial(contextvars.copy_context().run, work, *given, **named))

    def close(self) -> None:
        """Wait for all submitted work and stop the threads."""
        self._closed = True
        for _ in self._threads:
            self._line.put(None)
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        """Start another thread. If the system refuses, the existing threads do the work; without any, raise."""
        thread = Thread(target=self._work, name=f"{self._name}_{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                raise
        else:
            self._threads.append(thread)

    def _work(self) -> None:
        while item := self._line.get():
            loop, future, work, given = item
            result, error = None, cast(BaseException | None, None)
            if not future.cancelled():
                try:
                    result = work(*given)
                except StopIteration as raised:  # cannot be set on a future
                    error = RuntimeError(repr(raised))
                except BaseException as raised:
                    error = raised
            with suppress(RuntimeError):  # the loop is closed, so the result is not needed
                loop.call_soon_threadsafe(self._answer, future, result, error)
            del item, future, work, given, result, error  # release references while waiting for the next item

    def _answer(self, future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
        self._asked -= 1
        if future.done():  # the caller was cancelled
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    async def run_large(self, octets: int, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Run `work` on `octets` bytes of input: in a thread if large, else directly."""
        return work(*given, **named) if octets <= IN_THREAD else await self.run(work, *given, **named)


# Two threads each: more would only compete for the GIL.
LOOKING = Threads("looking", 2)  # API responses, pages, previews
ACCEPTING = Threads("accepting", 2)  # preparing messages to accept
BUILDING = Threads("building", 2)  # building MIME messages for SMTP
