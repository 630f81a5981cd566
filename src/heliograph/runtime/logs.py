"""Logging configuration: one line per event, UTC times, no values of local variables, no email or phone addresses.

Values bound to a task (structlog.contextvars), such as a request, message or event id, are in all lines of the task.
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
KINDS_MAX = 1000  # maximum number of different errors remembered
SAME = ("event", "error", "work", "loop")


class Fold:
    """Log processor that folds repeated errors: logs the first, then one per ten seconds with the number of omitted
    lines as `more`.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._seen: dict[
            tuple[str, ...], tuple[float, int]
        ] = {}  # time of the last logged line, number of lines omitted since

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
    """Renderer that hides email addresses and phone numbers in the rendered line, because logs cannot be erased."""

    def __init__(self, render: Any) -> None:
        self._render = render

    def __call__(self, logger: Any, name: str, line: Any) -> str:
        return hide_addresses(self._render(logger, name, line))

    @staticmethod
    def values(_: Any, __: str, line: Any) -> Any:
        """Hide addresses in the values before they are rendered as JSON, so that no JSON escape is damaged."""
        return _hidden(line)


class Retold(logging.Handler):
    """Handler that logs records of libraries through structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        told = structlog.get_logger().error if record.levelno >= logging.ERROR else structlog.get_logger().warning
        try:
            text = record.getMessage()
        except Exception:  # the arguments do not match the format; logging must not raise in the library
            text = str(record.msg)
        told("a library says", logger=record.name, text=text, exc_info=record.exc_info)


def configure(now: Callable[[], float], process: int | None = None, form: Format = "text") -> None:
    """Configure logging. `now` returns monotonic seconds; `process` is the number of this process among several."""
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
        # stderr is looked up per line because it may be replaced. Each line is one write: processes share stderr.
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
