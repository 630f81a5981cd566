"""Warns if an external program should checkpoint the SQLite WAL, but the WAL keeps growing."""

from collections.abc import Callable

import structlog

log = structlog.get_logger()


async def warn_if_wal_grows(find_fault: Callable[[], str | None], fix: str) -> None:
    if fault := find_fault():
        log.warning("SQLite WAL is not being checkpointed", wal=fault, fix=fix)
