"""Runs the garbage collector periodically while the event loop is idle (ADR 0026).

Without these runs, reference cycles would stay in memory: above all, every connection that asyncio has closed.
"""

import asyncio
import ctypes
import gc

TICK_S = 0.25
LATE_S = 0.005  # the loop is busy if it wakes up later than this
WORTH = 5000  # minimum number of new objects for a collection
BUSY_TICKS = 240  # collect after this many ticks even if the loop is busy
NEW_MAX = 30_000  # Python's own threshold; 500 concurrent requests create about as many objects
NEVER = 1_000_000
M_MMAP_THRESHOLD, LARGE = -3, 1 << 20  # option and value for mallopt(3)


def give_back_large() -> None:
    """Make glibc return large freed blocks to the system; by default it keeps up to 32 MiB per thread."""
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):  # missing in other C libraries
        mallopt(M_MMAP_THRESHOLD, LARGE)


def freeze_loaded() -> None:
    """Exclude all objects that exist now from later collections. Slow: call before serving requests."""
    give_back_large()
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_MAX, NEVER, NEVER)


async def collect_when_idle() -> None:
    """Run the garbage collector while the loop is idle, until cancelled."""
    loop, ticks = asyncio.get_running_loop(), 0
    while True:
        due = loop.time() + TICK_S
        await asyncio.sleep(TICK_S)
        is_idle = loop.time() - due < LATE_S
        ticks += 1
        if (is_idle and gc.get_count()[0] >= WORTH) or ticks == BUSY_TICKS:
            gc.collect()
            ticks = 0
