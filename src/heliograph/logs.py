"""How the process logs: one line an event, times in UTC, never the values of variables."""

import sys
from collections.abc import Callable
from typing import Any

import structlog

FOLD_S = 10.0
KINDS_MAX = 1000  # remembered at once
SAME = ("event", "error", "work", "loop")


class Fold:
    """The same error again and again: the first line, and then one every ten seconds that says how many more it was."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._seen: dict[tuple[str, ...], tuple[float, int]] = {}  # since when, how many more

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


def configure(now: Callable[[], float]) -> None:
    """`now`: seconds that never jump."""
    structlog.configure(
        processors=[
            Fold(now),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # A traceback with local variables would print tokens, bodies and codes.
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        logger_factory=lambda: structlog.PrintLogger(sys.stderr),  # looked up for each line: it may be replaced
        cache_logger_on_first_use=False,
    )
