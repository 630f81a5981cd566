"""How the process logs: one line an event, times in UTC, never the values of variables."""

import sys

import structlog


def configure() -> None:
    structlog.configure(
        processors=[
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
