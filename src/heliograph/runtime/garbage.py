"""Runs the garbage collector periodically while the event loop is idle (ADR 0026).

Automatic collections are rare, so reference cycles would stay in memory for long, above all closed asyncio connections.
"""

import asyncio
import ctypes
import gc

TICK_S = 0.25
IDLE_LAG_S = 0.005  # the loop counts as busy if it wakes up later than this
NEW_OBJECTS_MIN = 5000  # minimum number of new objects for a collection while idle
BUSY_TICKS = 240  # after this many ticks, collect even if the loop is busy
NEW_OBJECTS_MAX = 30_000  # threshold for young objects, which 500 concurrent requests do not reach
NEVER_COLLECTED = 1_000_000  # threshold for older objects, which is not reached
M_MMAP_THRESHOLD, LARGE_BYTES = -3, 1 << 20  # option of mallopt(3) and its value


def return_large_blocks() -> None:
    """Make glibc return large freed blocks to the system; by default it keeps up to 32 MiB per thread."""
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):  # missing in other C libraries
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)


def freeze_existing() -> None:
    """Exclude all existing objects from later collections. Slow: call it before serving requests."""
    return_large_blocks()
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS_MAX, NEVER_COLLECTED, NEVER_COLLECTED)


async def collect_when_idle() -> None:
    """Run the garbage collector while the loop is idle, until cancelled."""
    loop, ticks = asyncio.get_running_loop(), 0
    while True:
        due_at = loop.time() + TICK_S
        await asyncio.sleep(TICK_S)
        is_idle = loop.time() - due_at < IDLE_LAG_S
        ticks += 1
        if (is_idle and gc.get_count()[0] >= NEW_OBJECTS_MIN) or ticks == BUSY_TICKS:
            gc.collect()
            ticks = 0
