"""Runs background jobs periodically, also after a failed round. The job table is in `app.py`."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

Round = Callable[[], Awaitable[object]]
Loop = Callable[[], Awaitable[None]]

log = structlog.get_logger()


def every(seconds: float, work: Round, *, finish: bool = False) -> Loop:
    """Return a loop that runs `work` periodically.

    With `finish`, the first round is delayed and a last round runs on cancellation.
    """
    return partial(_repeat_and_finish if finish else repeat, seconds, work)


async def repeat(every_s: float, work: Round) -> None:
    """Run `work` every `every_s` seconds until cancelled."""
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
    """Run `work` once and log any failure.

    The next round tries again: a stopped job would leave dead claims forever.
    """
    try:
        await work()
    except Exception as error:
        task = asyncio.current_task()
        log.warning("duty failed", duty=task and task.get_name(), error=type(error).__name__)
