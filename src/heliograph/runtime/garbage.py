"""Collects garbage by the clock, when the event loop is idle (ADR 0026).

Without it, what refers to itself stays in memory: every connection that asyncio has closed, most of all.
"""

import asyncio
import ctypes
import gc

TICK_S = 0.25
LATE_S = 0.005  # a loop that comes later than this is busy
WORTH = 5000  # new objects; fewer may wait
BUSY_TICKS = 240  # then a collection is due, busy or not
NEW_MAX = 30_000  # then Python collects them by itself; 500 requests at work at once have as many
NEVER = 1_000_000
M_MMAP_THRESHOLD, LARGE = -3, 1 << 20  # of mallopt(3)


def give_back_large() -> None:
    """Give what is large back to the system when it is freed; glibc would keep up to 32 MiB of it for each thread."""
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):  # another C library has none
        mallopt(M_MMAP_THRESHOLD, LARGE)


def freeze_loaded() -> None:
    """Exclude what is loaded by now from every later collection.

    It takes long, so it is done before anything is served.
    """
    give_back_large()
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_MAX, NEVER, NEVER)


async def collect_when_idle() -> None:
    """Run until cancelled."""
    loop, ticks = asyncio.get_running_loop(), 0
    while True:
        due = loop.time() + TICK_S
        await asyncio.sleep(TICK_S)
        is_idle = loop.time() - due < LATE_S
        ticks += 1
        if (is_idle and gc.get_count()[0] >= WORTH) or ticks == BUSY_TICKS:
            gc.collect()
            ticks = 0
