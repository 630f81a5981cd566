"""Warns of an SQLite log that only grows, where another program is to bring it into the file."""

from collections.abc import Callable

import structlog

log = structlog.get_logger()


async def watch_log(fault: Callable[[], str | None], mend: str) -> None:
    if found := fault():
        log.warning("nobody brings SQLite's log into the database", log=found, mend=mend)
