"""The only source of time and random numbers; all other modules receive a `Clock`.

The time of day is derived from the monotonic clock, so a change of the wall clock has no effect until the clock shared
by all processes agrees with it.
"""

import os
import secrets
import struct
import threading
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from heliograph.domain.ids import PAIRS, ulid_start
from heliograph.domain.limits import SECOND_MS

POOL = 1024  # random numbers fetched per system call: one call per id would cost more than making the id

STEPS_BITS = 40  # of the 80 random bits of an id, the low bits that differ between ids of one millisecond

OFF_MS = 5 * SECOND_MS  # a wall clock that differs from the shared clock by more than this is wrong
FOLLOW_MS = SECOND_MS  # smaller differences are ignored: they come from the delay between two readings
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock:
    def __init__(self) -> None:
        self._making = threading.Lock()  # guards new_id: called on the event loop and on the database writer thread
        self._pool: list[int] = []  # unused random numbers of 32 bits
        # The last id: its time, its text without the last 40 bits, and its last 40 bits.
        self._last_ms, self._start, self._end = 0, "", 0
        self._ahead = self.wall() - self.count()
        self._compared = False  # whether the wall clock has ever agreed with the shared clock
        self._off = 0
        self.moved: Mapping[int, int] = {}  # team → ms that its test clock is ahead (ADR 0041)
        self.apart = 0  # ms that the wall clock was ahead of the shared clock at the last comparison

    def now(self) -> int:
        """Return milliseconds since 1970, UTC."""
        return time.monotonic_ns() // 1_000_000 + self._ahead

    def of(self, team: int) -> int:
        """Return the current time of a team: `now()` plus the lead of its test clock."""
        return time.monotonic_ns() // 1_000_000 + self._ahead + self.moved.get(team, 0)

    def wall(self) -> int:
        """Return the machine's wall clock in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def count(self) -> int:
        """Return monotonic milliseconds since boot, comparable between processes of this machine."""
        return time.monotonic_ns() // 1_000_000

    @cached_property
    def boot(self) -> str:
        return BOOT_ID.read_text().strip() if BOOT_ID.exists() else ""

    def compare(self, shared: int, waited: int) -> None:
        """Compare the wall clock with the shared clock, which read `shared` at most `waited` ms ago."""
        wall = self.wall()
        self.apart = wall - shared
        self._off = 0 if -OFF_MS <= wall - shared <= OFF_MS + waited else wall - shared
        if not self._off:
            self._compared = True
            if abs(wall - self.now()) > FOLLOW_MS:
                self._ahead = wall - self.count()
        elif not self._compared:
            self._ahead = shared - self.count()

    def off(self) -> int:
        """Return the ms that a wrong or just changed wall clock is ahead; 0 if the wall clock is right."""
        jumped = self.wall() - self.now()
        return self._off or (jumped if abs(jumped) > OFF_MS else 0)

    def new_id(self, prefix: str) -> str:
        """Return a new public id. The ids of one process increase, even within a millisecond."""
        with self._making:
            if len(self._pool) < 5:
                self._pool = list(struct.unpack(f"{POOL}I", os.urandom(4 * POOL)))
            ms, pool, p = self.now(), self._pool, PAIRS
            end = self._end + 1 + pool.pop()  # a random step keeps ids ordered but unguessable
            if ms > self._last_ms or end >> STEPS_BITS:
                self._last_ms = max(ms, self._last_ms + 1)
                self._start = ulid_start(self._last_ms, pool.pop() << 8 ^ pool.pop())
                end = pool.pop() << 8 ^ pool.pop()
            self._end, start = end, self._start
        return f"{prefix}{start}{p[end >> 30]}{p[end >> 20 & 1023]}{p[end >> 10 & 1023]}{p[end & 1023]}"

    def entropy(self, size: int) -> bytes:
        return secrets.token_bytes(size)

    def below(self, limit: int) -> int:
        return secrets.randbelow(limit)
