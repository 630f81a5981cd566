"""The only place that reads the time or draws random numbers; everything else gets a `Clock`.

The time of day is counted from the start of the process, so a change of the wall clock has no effect until the clock
that all processes share agrees with it.
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

POOL = 1024  # random numbers fetched together: a system call for each id would cost more than the id

STEPS_BITS = 40  # of an id's 80 random bits: those that ids of one millisecond differ by

OFF_MS = 5 * SECOND_MS  # a wall clock that differs from the shared one by more than this is wrong
FOLLOW_MS = SECOND_MS  # a smaller difference is a pause between two readings
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock:
    def __init__(self) -> None:
        self._making = threading.Lock()  # of an id: the event loop makes some, and the thread that writes others
        self._pool: list[int] = []  # of 32 random bits each
        # Of the last id: its time, all but its last 40 bits, and those.
        self._last_ms, self._start, self._end = 0, "", 0
        self._ahead = self.wall() - self.count()
        self._compared = False  # the wall clock has agreed with the shared one before
        self._off = 0
        self.moved: Mapping[int, int] = {}  # team → ms by which its test clock is ahead (ADR 0041)
        self.apart = 0  # by how many ms the wall clock was ahead of the shared one, when they were last compared

    def now(self) -> int:
        """Return milliseconds since 1970, UTC: the count and what it is behind by, in one step."""
        return time.monotonic_ns() // 1_000_000 + self._ahead

    def of(self, team: int) -> int:
        """Return a team's time: everybody's, and what its test clock is ahead by."""
        return time.monotonic_ns() // 1_000_000 + self._ahead + self.moved.get(team, 0)

    def wall(self) -> int:
        """Return the machine's time of day."""
        return time.time_ns() // 1_000_000

    def count(self) -> int:
        """Return milliseconds since boot: the same in all processes of the machine, whatever its clock is set to."""
        return time.monotonic_ns() // 1_000_000

    @cached_property
    def boot(self) -> str:
        return BOOT_ID.read_text().strip() if BOOT_ID.exists() else ""

    def compare(self, shared: int, waited: int) -> None:
        """Compare the wall clock with the one that all processes share, which read `shared` up to `waited` ms ago."""
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
        """Return by how many ms the wall clock is ahead when it is wrong or was just set; 0 when it is right."""
        jumped = self.wall() - self.now()
        return self._off or (jumped if abs(jumped) > OFF_MS else 0)

    def new_id(self, prefix: str) -> str:
        """Make a public id. Ids of one process increase, also within a millisecond."""
        with self._making:
            if len(self._pool) < 5:
                self._pool = list(struct.unpack(f"{POOL}I", os.urandom(4 * POOL)))
            ms, pool, p = self.now(), self._pool, PAIRS
            end = self._end + 1 + pool.pop()  # a random step: ordered, yet not guessable
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
