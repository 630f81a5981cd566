"""The only caller of now(), and the only source of randomness: both are handed to whoever needs them."""

import os
import secrets
import time

from heliograph.rules.ids import ulid

POOL = 4096  # bytes of randomness fetched at once: a system call for each id costs more than the id
STEP_BITS = 32  # random step between two ids of the same millisecond: ordered, and still not to be guessed


class Clock:
    def __init__(self) -> None:
        self._pool = b""
        self._at = 0
        self._last_ms = 0
        self._last_random = 0

    def now(self) -> int:
        """Milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000

    def new_id(self, prefix: str) -> str:
        """A public id; ids of one process grow with time, also inside a millisecond."""
        ms = self.now()
        if ms <= self._last_ms:
            ms = self._last_ms
            self._last_random += 1 + int.from_bytes(self._take(STEP_BITS // 8))
        else:
            self._last_ms = ms
            # The top bit stays free so that steps within the millisecond cannot overflow.
            self._last_random = int.from_bytes(self._take(10)) >> 1
        return prefix + ulid(ms, self._last_random)

    def entropy(self, size: int) -> bytes:
        return secrets.token_bytes(size)

    def code_number(self, below: int) -> int:
        return secrets.randbelow(below)

    def _take(self, size: int) -> bytes:
        if self._at + size > len(self._pool):
            self._pool, self._at = os.urandom(POOL), 0
        self._at += size
        return self._pool[self._at - size : self._at]
