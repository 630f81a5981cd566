"""Threads by purpose: what people look at never waits in the line of what is sent, nor the other way round.

All else that takes long is in asyncio's own threads.
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
    """Threads that are started as they are needed, up to so many.

    A result comes back to the event loop by one call. The standard library's executor takes twice the CPU time for it,
    with a future of its own, locks and conditions for whoever waits in another thread; here nobody does.
    """

    def __init__(self, name: str, count: int) -> None:
        self._name, self._count = name, count
        self._line: SimpleQueue[tuple[Any, ...] | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._asked = 0  # and not answered yet; known to the event loop alone
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
        """Finish what was submitted."""
        self._closed = True
        for _ in self._threads:
            self._line.put(None)
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        """Start one more; where it cannot, those that are there do it, and without any nothing was asked."""
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
                except StopIteration as raised:  # which no future takes
                    error = RuntimeError(repr(raised))
                except BaseException as raised:
                    error = raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(self._answer, future, result, error)
            del item, future, work, given, result, error  # not kept until the next

    def _answer(self, future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
        self._asked -= 1
        if future.done():  # whoever asked is gone
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    async def run_large(self, octets: int, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Run work on so much: at once, or in a thread when it is large."""
        return work(*given, **named) if octets <= IN_THREAD else await self.run(work, *given, **named)


# Two each: more would only compete for the interpreter's lock.
LOOKING = Threads("looking", 2)  # answers, pages, previews
ACCEPTING = Threads("accepting", 2)  # drafts of what is sent
BUILDING = Threads("building", 2)  # mails for the wire
