"""Runs background jobs periodically; a failed run does not end the loop."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

Job = Callable[[], Awaitable[object]]
Loop = Callable[[], Awaitable[None]]

log = structlog.get_logger()


def every(seconds: float, job: Job, *, run_at_exit: bool = False) -> Loop:
    """Return a loop that runs `job` periodically.

    With `run_at_exit`, the loop waits before the first run, and runs the job once more when it is cancelled.
    """
    return partial(_run_periodically_and_at_exit if run_at_exit else run_periodically, seconds, job)


async def run_periodically(interval_s: float, job: Job) -> None:
    """Run `job` every `interval_s` seconds until cancelled."""
    while True:
        await run_and_log_failure(job)
        await asyncio.sleep(interval_s)


async def _run_periodically_and_at_exit(interval_s: float, job: Job) -> None:
    try:
        while True:
            await asyncio.sleep(interval_s)
            await run_and_log_failure(job)
    finally:
        await run_and_log_failure(job)


async def run_and_log_failure(job: Job) -> None:
    """Run `job` once and log any failure, so that the job's loop continues."""
    try:
        await job()
    except Exception as error:
        task = asyncio.current_task()
        log.warning("background job failed", job=task and task.get_name(), error=type(error).__name__)
