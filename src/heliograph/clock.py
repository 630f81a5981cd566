"""The only caller of now(), and the only source of randomness: both are handed to whoever needs them."""

import os
import secrets
import struct
import time

from heliograph.rules.ids import ulid

POOL = 1024  # random numbers fetched at once: a system call for each id costs more than the id

RANDOM_BITS = 80  # of an id


class Clock:
    def __init__(self) -> None:
        self._pool: list[int] = []  # of 32 random bits each
        self._last_ms = 0
        self._last_random = 0

    def now(self) -> int:
        """Milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000

    def new_id(self, prefix: str) -> str:
        """A public id; ids of one process grow with time, also inside a millisecond."""
        if len(self._pool) < 4:
            self._pool = list(struct.unpack(f"{POOL}I", os.urandom(4 * POOL)))
        ms, pool = self.now(), self._pool
        random = self._last_random + 1 + pool.pop()  # a random step: ordered, and still not to be guessed
        if ms > self._last_ms or random >> RANDOM_BITS:
            self._last_ms = max(ms, self._last_ms + 1)
            random = (pool.pop() << 48) ^ (pool.pop() << 24) ^ pool.pop()
        self._last_random = random
        return prefix + ulid(self._last_ms, random)

    def entropy(self, size: int) -> bytes:
        return secrets.token_bytes(size)

    def below(self, limit: int) -> int:
        return secrets.randbelow(limit)
