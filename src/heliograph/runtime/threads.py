"""Threads by purpose: what people look at never waits in the line of what is sent, nor the other way round.

All else that takes long is in asyncio's own threads.
"""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from heliograph.rules.limits import IN_THREAD

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    def __init__(self, name: str, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, name)

    async def run(self, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        call = partial(contextvars.copy_context().run, work, *given, **named)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def run_large(self, octets: int, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Run work on so much: at once, or in a thread when it is large."""
        return work(*given, **named) if octets <= IN_THREAD else await self.run(work, *given, **named)


# Two each: more would only compete for the interpreter's lock.
LOOKING = Threads("looking", 2)  # answers, pages, previews
ACCEPTING = Threads("accepting", 2)  # drafts of what is sent
BUILDING = Threads("building", 2)  # mails for the wire
