"""Compares the database with what the data folder has seen of it, and pauses delivery when it was turned back."""

from collections.abc import Awaitable, Callable

import structlog

log = structlog.get_logger()


async def look_back(attest: Callable[[], Awaitable[bool]]) -> None:
    """Log when the database was turned back, as `attest` returns."""
    if await attest():
        log.error("the database was turned back: delivery is paused")
