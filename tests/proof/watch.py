"""Measures outages from outside: threads that repeat a check, and the gaps between its successes."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, Self

import asyncpg

from tests.service import Service

INTERVAL_S = 0.05
STATEMENT_S = 1.0  # timeout of connecting, and of a statement


class Watch:
    """Repeats `check` in a thread until the block ends, and notes when it succeeded or failed."""

    def __init__(self, check: Callable[[], bool]) -> None:
        self.succeeded_at: list[float] = []
        self.failed_at: list[float] = []
        self._check = check
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            times = self.succeeded_at if self._check() else self.failed_at
            times.append(time.monotonic())


def outage(watches: Sequence[Watch], since: float) -> tuple[float, float]:
    """Return the beginning and the end of the longest time in which none of the checks succeeded."""
    times = sorted(at for watch in watches for at in watch.succeeded_at if at >= since - 1)
    return max(pairwise(times), key=lambda pair: pair[1] - pair[0])


def has_failed(watch: Watch, since: float) -> bool:
    return any(at >= since for at in watch.failed_at)


def commits(url: str) -> Callable[[], bool]:
    """Return a check that commits a row, on one connection that is replaced after an error."""
    loop = asyncio.new_event_loop()
    connections: list[Any] = []

    async def commit() -> None:
        if not connections:
            connections.append(await asyncpg.connect(url, timeout=STATEMENT_S, command_timeout=STATEMENT_S))
        await connections[0].execute("UPDATE watched SET number = number + 1")

    def check() -> bool:
        try:
            loop.run_until_complete(commit())
        except Exception:  # whatever the driver raises when a server goes down
            while connections:
                connections.pop().terminate()
            return False
        return True

    return check


def is_ready(service: Service, port: int) -> Callable[[], bool]:
    def check() -> bool:
        with suppress(OSError):
            return service.get("/readyz", key=None, port=port).status == 200
        return False

    return check
