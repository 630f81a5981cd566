"""Compares the database with what the data folder has seen of it, and pauses delivery when it was turned back."""

from collections.abc import Awaitable, Callable

import structlog

from heliograph.deliver.duties.repeat import repeat

EVERY_S = 10.0  # a copy that is older than this is recognised when it is restored

log = structlog.get_logger()


async def look_back(attest: Callable[[], Awaitable[bool]]) -> None:
    """`attest` returns whether the database was turned back."""

    async def look() -> None:
        if await attest():
            log.error("the database was turned back: delivery is paused")

    await repeat(EVERY_S, look)
