"""How the process logs: one line per event, times in UTC, never the values of variables, nobody's address."""

import sys
from collections.abc import Callable
from typing import Any

import structlog

from heliograph.rules.erasure import hide_addresses

FOLD_S = 10.0
KINDS_MAX = 1000  # different errors remembered at a time
SAME = ("event", "error", "work", "loop")


class Fold:
    """Folds repeated errors: the first is logged, then one every ten seconds with the number left out as `more`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._seen: dict[tuple[str, ...], tuple[float, int]] = {}  # last logged at, number left out since

    def __call__(self, _: Any, __: str, line: Any) -> Any:
        if "error" not in line:
            return line
        kind, now = tuple(str(line.get(name)) for name in SAME), self._now()
        since, more = self._seen.get(kind, (now - FOLD_S, 0))
        if now - since < FOLD_S:
            self._seen[kind] = since, more + 1
            raise structlog.DropEvent
        if len(self._seen) >= KINDS_MAX:
            self._seen.clear()
        self._seen[kind] = now, 0
        return {**line, "more": more} if more else line


class Impersonal:
    """What is logged cannot be erased: email addresses and phone numbers are left out of the finished line."""

    def __init__(self, render: Any) -> None:
        self._render = render

    def __call__(self, logger: Any, name: str, line: Any) -> str:
        return hide_addresses(self._render(logger, name, line))


def configure(now: Callable[[], float], process: int | None = None) -> None:
    """`now`: seconds from a monotonic clock. `process`: the number of this one among several."""

    def numbered(_: Any, __: str, line: Any) -> Any:
        return line if process is None else {"process": process, **line}

    structlog.configure(
        processors=[
            Fold(now),
            numbered,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # A traceback with local variables would print tokens, bodies and codes.
            Impersonal(
                structlog.dev.ConsoleRenderer(
                    colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
                )
            ),
        ],
        logger_factory=lambda: structlog.PrintLogger(sys.stderr),  # looked up for each line, since it may be replaced
        cache_logger_on_first_use=False,
    )
