"""Runs a duty round after round, even when a round fails. The table of duties is in `app.py`."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

Round = Callable[[], Awaitable[object]]
Loop = Callable[[], Awaitable[None]]

log = structlog.get_logger()


def every(seconds: float, work: Round, *, finish: bool = False) -> Loop:
    """Return a loop of rounds. With `finish` there is one more when it is cancelled, and none at the start."""
    return partial(_repeat_and_finish if finish else repeat, seconds, work)


async def repeat(every_s: float, work: Round) -> None:
    """Repeat the work until cancelled."""
    while True:
        await attempt(work)
        await asyncio.sleep(every_s)


async def _repeat_and_finish(every_s: float, work: Round) -> None:
    try:
        while True:
            await asyncio.sleep(every_s)
            await attempt(work)
    finally:
        await attempt(work)


async def attempt(work: Round) -> None:
    """Try it. Whatever breaks it, the next round tries again: without these duties dead claims would stay forever."""
    try:
        await work()
    except Exception as error:
        task = asyncio.current_task()
        log.warning("duty failed", duty=task and task.get_name(), error=type(error).__name__)
