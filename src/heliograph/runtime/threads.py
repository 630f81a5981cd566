"""Thread pools by purpose, so that reads of pages and the API never wait for sends, or sends for reads.

Other slow work runs in asyncio's default executor.
"""

import asyncio
import contextvars
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, ParamSpec, TypeVar, cast

from heliograph.domain.limits import PARSE_IN_THREAD_MIN

P = ParamSpec("P")
T = TypeVar("T")


class ThreadPool:
    """Thread pool that starts up to `count` threads on demand, and returns results to the event loop.

    The standard library's executor takes twice the CPU time. It adds a future, locks and conditions, so that other
    threads can wait for a result, which is not needed here.
    """

    def __init__(self, name: str, count: int) -> None:
        self._name, self._count = name, count
        self._queue: SimpleQueue[tuple[Any, ...] | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._unfinished = 0  # number of submitted calls that are not finished; used on the event loop only
        self._closed = False

    def submit(self, work: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        if self._closed:
            raise RuntimeError(f"{self._name}: closed")
        if self._unfinished >= len(self._threads) < self._count:
            self._start_thread()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._unfinished += 1
        self._queue.put((loop, future, work, args))
        return future

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.submit(partial(contextvars.copy_context().run, work, *args, **kwargs))

    def close(self) -> None:
        """Wait for all submitted work and stop the threads."""
        self._closed = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _start_thread(self) -> None:
        """Start another thread. If the system refuses, existing threads do the work; without any, raise the error."""
        thread = Thread(target=self._run_items, name=f"{self._name}_{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                raise
        else:
            self._threads.append(thread)

    def _run_items(self) -> None:
        while item := self._queue.get():
            loop, future, work, args = item
            result, error = None, cast(BaseException | None, None)
            if not future.cancelled():
                try:
                    result = work(*args)
                except StopIteration as raised:  # a future cannot hold a StopIteration
                    error = RuntimeError(repr(raised))
                except BaseException as raised:
                    error = raised
            with suppress(RuntimeError):  # the loop is closed, so the result is not needed
                loop.call_soon_threadsafe(self._set_outcome, future, result, error)
            # Release the references, which would otherwise live until the next item
            del item, future, work, args, result, error

    def _set_outcome(self, future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
        self._unfinished -= 1
        if future.done():  # the caller was cancelled
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    async def run_large(self, size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` on `size` bytes of input: in a thread if large, else directly."""
        return work(*args, **kwargs) if size <= PARSE_IN_THREAD_MIN else await self.run(work, *args, **kwargs)


# two threads each, because more would only compete for the GIL
READ_POOL = ThreadPool("reading", 2)  # API responses, pages, previews
ACCEPT_POOL = ThreadPool("accepting", 2)  # preparing messages to accept
BUILD_POOL = ThreadPool("building", 2)  # building MIME messages for SMTP
