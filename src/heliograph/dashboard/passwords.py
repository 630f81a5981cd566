"""Passwords: argon2id, checked in a thread; and how many wrong ones an address may try."""

import asyncio
from collections import deque

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from heliograph.rules.limits import MINUTE_MS

SHORTEST = 10
LONGEST = 200
TRIES_MAX = 10  # wrong passwords or codes for an account …
TRIES_MS = 15 * MINUTE_MS  # … in this time
NAMES_MAX = 10_000  # remembered before those that are over are put away

_hasher = PasswordHasher()
_ANY = _hasher.hash("nobody has this password")


async def hash_password(password: str) -> str:
    return await asyncio.to_thread(_hasher.hash, password)


async def is_right(hashed: str | None, password: str) -> bool:
    """Takes the same time for an account that does not exist."""
    return await asyncio.to_thread(_verify, hashed or _ANY, password) and hashed is not None


def _verify(hashed: str, password: str) -> bool:
    try:
        return _hasher.verify(hashed, password)
    except (VerificationError, InvalidHashError):
        return False


def complaint(password: str) -> str | None:
    """Why this cannot be a password."""
    if not SHORTEST <= len(password) <= LONGEST:
        return f"A password has {SHORTEST} to {LONGEST} characters."
    return None if len(set(password)) > 3 else "Choose a password with more different characters."


class Throttle:
    """Wrong tries by name, in this process."""

    def __init__(self, most: int = TRIES_MAX) -> None:
        self._most = most
        self._tries: dict[str, deque[int]] = {}

    def wait_ms(self, names: tuple[str, ...], now: int) -> int:
        """How long these names must wait; 0: they may try."""
        return max((self._wait(name, now) for name in names), default=0)

    def _wait(self, name: str, now: int) -> int:
        tries = self._tries.get(name)
        return max(0, tries[0] + TRIES_MS - now) if tries and len(tries) == self._most else 0

    def missed(self, names: tuple[str, ...], now: int) -> None:
        if len(self._tries) > NAMES_MAX:
            self._tries = {name: tries for name, tries in self._tries.items() if tries[-1] > now - TRIES_MS}
        for name in names:
            self._tries.setdefault(name, deque(maxlen=self._most)).append(now)

    def forgive(self, names: tuple[str, ...]) -> None:
        """The last try was none after all."""
        for name in names:
            self._tries[name].pop()
            if not self._tries[name]:
                del self._tries[name]
