"""How the process logs: one line per event, times in UTC, never the values of variables, nobody's address.

What is bound to a task (structlog.contextvars) is in all of its lines: a request's id, a message's, an event's.
"""

import logging
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal

import structlog

from heliograph.domain.operations.erasure import hide_addresses

Format = Literal["text", "json"]

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

    @staticmethod
    def values(_: Any, __: str, line: Any) -> Any:
        """Hide the same in what becomes JSON, before it does: an escape is not to lose its letter."""
        return _hidden(line)


class Retold(logging.Handler):
    """What libraries log, as lines like all others."""

    def emit(self, record: logging.LogRecord) -> None:
        told = structlog.get_logger().error if record.levelno >= logging.ERROR else structlog.get_logger().warning
        try:
            text = record.getMessage()
        except Exception:  # of arguments that do not fit: it must not break who logs it
            text = str(record.msg)
        told("a library says", logger=record.name, text=text, exc_info=record.exc_info)


def configure(now: Callable[[], float], process: int | None = None, form: Format = "text") -> None:
    """Configure logging; `now` gives seconds from a monotonic clock, `process` its number among several."""
    as_json = form == "json"
    if as_json:
        logging.basicConfig(level=logging.WARNING, handlers=[Retold()], force=True)
        logging.captureWarnings(True)
        sys.excepthook = _uncaught
        threading.excepthook = lambda lost: _uncaught(lost.exc_type, lost.exc_value, lost.exc_traceback)
        sys.unraisablehook = lambda lost: _uncaught(lost.exc_type, lost.exc_value, lost.exc_traceback)

    def numbered(_: Any, __: str, line: Any) -> Any:
        return line if process is None else {"process": process, **line}

    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            Fold(now),
            numbered,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # A traceback with local variables would print tokens, bodies and codes.
            *(
                [structlog.processors.format_exc_info, Impersonal.values, structlog.processors.JSONRenderer()]
                if as_json
                else [Impersonal(_for_eyes())]
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        # Looked up for each line, since it may be replaced. Written at once: other processes write there too.
        logger_factory=lambda: structlog.WriteLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )


def _hidden(value: Any) -> Any:
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return hide_addresses(value)
        case dict():
            return {name: _hidden(one) for name, one in value.items()}
        case list() | tuple():
            return [_hidden(one) for one in value]
    return hide_addresses(repr(value))


def _uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    if kind is not SystemExit:
        structlog.get_logger().critical("nobody caught this", exc_info=(kind, error, trace))


def _for_eyes() -> structlog.dev.ConsoleRenderer:
    return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)
