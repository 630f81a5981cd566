"""Configures logging: one line per event, UTC times, no local variables, no email addresses or phone numbers.

Values bound to a task (structlog.contextvars), such as the id of a message, are in all lines that the task logs.
"""

import logging
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal

import structlog

from heliograph.domain.operations.erasure import hide_addresses

LogFormat = Literal["text", "json"]

FOLD_INTERVAL_S = 10.0  # at most one of several equal errors is logged in this time
KINDS_MAX = 1000  # maximum number of different errors remembered; above it, all are forgotten
FOLDED_BY = ("event", "error", "work", "loop")  # two errors are equal if these fields have equal values


class FoldErrors:
    """Log processor that limits repeated errors.

    It logs the first of equal errors, then at most one per ten seconds, with the number of omitted lines as `more`.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        # (values of FOLDED_BY) → (time of the last logged line, number of lines omitted since)
        self._seen: dict[tuple[str, ...], tuple[float, int]] = {}

    def __call__(self, _: Any, __: str, event_dict: Any) -> Any:
        if "error" not in event_dict:
            return event_dict
        key, now = tuple(str(event_dict.get(name)) for name in FOLDED_BY), self._now()
        logged_at, omitted = self._seen.get(key, (now - FOLD_INTERVAL_S, 0))
        if now - logged_at < FOLD_INTERVAL_S:
            self._seen[key] = logged_at, omitted + 1
            raise structlog.DropEvent
        if len(self._seen) >= KINDS_MAX:
            self._seen.clear()
        self._seen[key] = now, 0
        return {**event_dict, "more": omitted} if omitted else event_dict


class HideAddresses:
    """Renderer that hides email addresses and phone numbers in the line, because logs cannot be erased."""

    def __init__(self, render: Any) -> None:
        self._render = render

    def __call__(self, logger: Any, method: str, event_dict: Any) -> str:
        return hide_addresses(self._render(logger, method, event_dict))

    @staticmethod
    def hide_values(_: Any, __: str, event_dict: Any) -> Any:
        """Hide addresses in the values before they are rendered as JSON: afterwards, JSON escapes could be damaged."""
        return _hide_in(event_dict)


class LibraryHandler(logging.Handler):
    """Handler that logs records of libraries through structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        log_method = structlog.get_logger().error if record.levelno >= logging.ERROR else structlog.get_logger().warning
        try:
            text = record.getMessage()
        except Exception:  # the arguments do not match the format: logging must not raise an error in the library
            text = str(record.msg)
        log_method("library log message", logger=record.name, text=text, exc_info=record.exc_info)


def configure(
    now: Callable[[], float], process: int | None = None, log_format: LogFormat = "text", cell: str = ""
) -> None:
    """Configure logging. `now` returns monotonic seconds.

    `process`: number of this process if there are several. `cell`: name of the cell; empty outside cells.
    """
    labels = {**({"cell": cell} if cell else {}), **({"process": process} if process is not None else {})}
    renderer = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
    )
    output: list[Any] = [HideAddresses(renderer)]
    if log_format == "json":
        output = [structlog.processors.format_exc_info, HideAddresses.hide_values, structlog.processors.JSONRenderer()]
        logging.basicConfig(level=logging.WARNING, handlers=[LibraryHandler()], force=True)
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught
        threading.excepthook = sys.unraisablehook = _log_hook_args

    def add_labels(_: Any, __: str, event_dict: Any) -> Any:
        return {**labels, **event_dict}

    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            FoldErrors(now),
            add_labels,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *output,  # without local variables, which could be tokens, mail bodies or codes
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        # stderr is looked up for each line, because it may be replaced. Each line is one write, as several processes
        # share stderr.
        logger_factory=lambda: structlog.WriteLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )


def log_only_warnings() -> None:
    """Log only warnings and errors from now on."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))


def _hide_in(value: Any) -> Any:
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return hide_addresses(value)
        case dict():
            return {name: _hide_in(item) for name, item in value.items()}
        case list() | tuple():
            return [_hide_in(item) for item in value]
    return hide_addresses(repr(value))


def _log_uncaught(
    error_type: type[BaseException], error: BaseException | None, traceback: TracebackType | None
) -> None:
    if error_type is not SystemExit:
        structlog.get_logger().critical("uncaught exception", exc_info=(error_type, error, traceback))


def _log_hook_args(hook_args: Any) -> None:
    _log_uncaught(hook_args.exc_type, hook_args.exc_value, hook_args.exc_traceback)
