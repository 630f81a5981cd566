"""`within(seconds)`: a cheaper `asyncio.timeout` for constant timeouts that many tasks use at once.

Blocks with the same timeout expire in the order in which they began, so one timer for the oldest block is enough; a
timer per block costs 10 µs, and most never fire. Not thread-safe: use on the event loop only.
"""

import asyncio
from types import TracebackType
from typing import Any


class _Line:
    """All running blocks with the same timeout, oldest first."""

    def __init__(self, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.seconds = seconds
        self.held: dict[_Held, float] = {}  # block → deadline
        self.timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        now, self.timer = self.loop.time(), None
        for held in [held for held, until in self.held.items() if until <= now]:
            del self.held[held]
            held.end()
        for until in self.held.values():
            self.timer = self.loop.call_at(until, self.look)
            break


_lines: dict[float, _Line] = {}  # by timeout; there are few different values


class _Held:
    __slots__ = ("_before", "_line", "_over", "_task")

    def __init__(self, line: _Line) -> None:
        self._line = line

    def __enter__(self) -> None:
        line, self._over = self._line, False
        self._task: asyncio.Task[Any] = asyncio.current_task(line.loop)  # type: ignore[assignment]  # never None here
        self._before = self._task.cancelling()
        line.held[self] = until = line.loop.time() + line.seconds
        if line.timer is None:
            line.timer = line.loop.call_at(until, line.look)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._over:
            del self._line.held[self]
        elif self._task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def end(self) -> None:
        self._over = True
        self._task.cancel()


def within(seconds: float) -> _Held:
    """Return a context manager that raises TimeoutError if its block takes longer than `seconds`.

    `seconds` must be a constant: each different value keeps an entry for the life of the process.
    """
    loop, line = asyncio.get_running_loop(), _lines.get(seconds)
    if line is None or line.loop is not loop:
        line = _lines[seconds] = _Line(seconds, loop)
    return _Held(line)
