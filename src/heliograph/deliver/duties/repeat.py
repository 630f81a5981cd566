"""Runs a duty round after round, even when a round fails."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

Round = Callable[[], Awaitable[object]]

log = structlog.get_logger()


async def repeat(every_s: float, work: Round) -> None:
    """Until cancelled."""
    while True:
        await attempt(work)
        await asyncio.sleep(every_s)


async def repeat_and_finish(every_s: float, work: Round) -> None:
    """Until cancelled, and then once more."""
    try:
        while True:
            await asyncio.sleep(every_s)
            await attempt(work)
    finally:
        await attempt(work)


async def attempt(work: Round) -> None:
    """Whatever breaks it, the next round tries again: without these duties dead claims would stay forever."""
    try:
        await work()
    except Exception as error:
        task = asyncio.current_task()
        log.warning("duty failed", duty=task and task.get_name(), error=type(error).__name__)
