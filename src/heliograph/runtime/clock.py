"""The only source of time and random numbers; all other modules receive a `Clock`.

The time of day is derived from the monotonic clock. It follows a change of the wall clock only when the wall clock
agrees with the clock shared by all processes.
"""

import os
import secrets
import struct
import threading
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from heliograph.domain.ids import BASE32_PAIRS, ulid_start
from heliograph.domain.limits import SECOND_MS

# Random numbers read by one system call; a call for each id would take longer than all other work for the id
POOL_SIZE = 1024
STEP_BITS = 40  # ids of the same millisecond differ only in the lowest 40 of their 80 random bits

CLOCK_ERROR_MAX_MS = 5 * SECOND_MS  # a wall clock that differs from the shared clock by more than this is wrong
ADJUST_MIN_MS = SECOND_MS  # smaller differences are ignored: the two clocks are not read at the same moment
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock:
    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards new_id: called on the event loop and on the database writer thread
        self._pool: list[int] = []  # unused random numbers of 32 bits
        # The last id: its time, its text without the last 40 bits, and its last 40 bits.
        self._last_ms, self._last_prefix, self._last_suffix = 0, "", 0
        self._offset = self.wall_ms() - self.monotonic_ms()
        self._was_right = False  # True once the wall clock has agreed with the clock that all processes share
        self._clock_error = 0
        self.offsets: Mapping[int, int] = {}  # team → ms by which its test clock is ahead (ADR 0041)
        self.wall_ahead_ms = 0  # ms by which the wall clock was ahead of the shared clock at the last comparison

    def now(self) -> int:
        """Return milliseconds since 1970, UTC."""
        return time.monotonic_ns() // 1_000_000 + self._offset

    def team_now(self, team: int) -> int:
        """Return the current time of a team, by its test clock if it has one."""
        return time.monotonic_ns() // 1_000_000 + self._offset + self.offsets.get(team, 0)

    def wall_ms(self) -> int:
        """Return the machine's wall clock in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return monotonic milliseconds since boot, comparable between processes of this machine."""
        return time.monotonic_ns() // 1_000_000

    @cached_property
    def boot(self) -> str:
        return BOOT_ID.read_text().strip() if BOOT_ID.exists() else ""

    def compare(self, shared_ms: int, read_ms: int) -> None:
        """Compare the wall clock with the shared clock, which was read as `shared_ms` at most `read_ms` ago."""
        wall = self.wall_ms()
        self.wall_ahead_ms = wall - shared_ms
        self._clock_error = (
            0 if -CLOCK_ERROR_MAX_MS <= wall - shared_ms <= CLOCK_ERROR_MAX_MS + read_ms else wall - shared_ms
        )
        if not self._clock_error:
            self._was_right = True
            if abs(wall - self.now()) > ADJUST_MIN_MS:
                self._offset = wall - self.monotonic_ms()
        elif not self._was_right:
            self._offset = shared_ms - self.monotonic_ms()

    def clock_error(self) -> int:
        """Return by how many ms a wrong or recently changed wall clock is ahead; 0 if the wall clock is right."""
        jump = self.wall_ms() - self.now()
        return self._clock_error or (jump if abs(jump) > CLOCK_ERROR_MAX_MS else 0)

    def new_id(self, prefix: str) -> str:
        """Return a new public id. The ids of one process increase, even within a millisecond."""
        with self._lock:
            if len(self._pool) < 5:
                self._pool = list(struct.unpack(f"{POOL_SIZE}I", os.urandom(4 * POOL_SIZE)))
            now_ms, pool, pairs = self.now(), self._pool, BASE32_PAIRS
            suffix = self._last_suffix + 1 + pool.pop()  # a random step keeps ids ordered but hard to guess
            if now_ms > self._last_ms or suffix >> STEP_BITS:
                self._last_ms = max(now_ms, self._last_ms + 1)
                self._last_prefix = ulid_start(self._last_ms, pool.pop() << 8 ^ pool.pop())
                suffix = pool.pop() << 8 ^ pool.pop()
            self._last_suffix, start = suffix, self._last_prefix
        last_six_digits = f"{pairs[suffix >> 20 & 1023]}{pairs[suffix >> 10 & 1023]}{pairs[suffix & 1023]}"
        return f"{prefix}{start}{pairs[suffix >> 30]}{last_six_digits}"

    def random_bytes(self, size: int) -> bytes:
        return secrets.token_bytes(size)

    def randbelow(self, limit: int) -> int:
        return secrets.randbelow(limit)
