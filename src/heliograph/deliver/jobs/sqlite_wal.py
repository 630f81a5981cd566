"""Warns if the SQLite WAL keeps growing where an external program should checkpoint it."""

from collections.abc import Callable

import structlog

log = structlog.get_logger()


async def warn_if_wal_grows(find_fault: Callable[[], str | None], fix: str) -> None:
    if fault := find_fault():
        log.warning("SQLite WAL is not being checkpointed", wal=fault, fix=fix)
