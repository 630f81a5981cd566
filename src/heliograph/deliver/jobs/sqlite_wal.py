"""Warns if the SQLite WAL keeps growing where an external program should checkpoint it."""

from collections.abc import Callable

import structlog

log = structlog.get_logger()


async def watch_log(fault: Callable[[], str | None], mend: str) -> None:
    if found := fault():
        log.warning("nobody brings SQLite's log into the database", log=found, mend=mend)
