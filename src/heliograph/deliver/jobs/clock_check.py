"""Compares this machine's clock with the database's; nothing is claimed while they differ."""

import asyncio

import structlog

from heliograph.runtime.clock import Clock
from heliograph.storage.store import Store

EVERY_S = 1.0

log = structlog.get_logger()


async def watch_clock(store: Store, clock: Clock) -> None:
    wrong = False
    while True:
        try:
            await store.upkeep.check_clock()
        except Exception:
            pass  # other jobs log database failures
        off = clock.off()
        if off and not wrong:
            by = f"{abs(off) / 1000:.1f} s {'ahead of' if off > 0 else 'behind'} the database's clock"
            log.error("this machine's clock is wrong: nothing is claimed", clock=by, mend="set it, keep it with NTP")
        elif wrong and not off:
            log.warning("this machine's clock is right again: claiming goes on")
        wrong = bool(off)
        await asyncio.sleep(EVERY_S)
