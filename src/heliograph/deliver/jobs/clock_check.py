"""Compares this machine's clock with the database's clock; while they differ, no work is claimed."""

import asyncio

import structlog

from heliograph.runtime.clock import Clock
from heliograph.storage.store import Store

INTERVAL_S = 1.0

log = structlog.get_logger()


async def watch_clock(store: Store, clock: Clock) -> None:
    was_wrong = False
    while True:
        try:
            await store.maintenance.check_clock()
        except Exception:
            pass  # other jobs log database failures
        error_ms = clock.clock_error()
        if error_ms and not was_wrong:
            difference = f"{abs(error_ms) / 1000:.1f} s {'ahead of' if error_ms > 0 else 'behind'} the database's clock"
            log.error(
                "this machine's clock is wrong: nothing is claimed",
                clock=difference,
                fix="set the clock, and synchronise it with NTP",
            )
        elif was_wrong and not error_ms:
            log.warning("this machine's clock is right again: claiming resumes")
        was_wrong = bool(error_ms)
        await asyncio.sleep(INTERVAL_S)
