"""Hashes passwords with argon2id in two threads of its own, and defines limits for wrong passwords."""

from collections.abc import Callable
from functools import cache
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from heliograph.runtime.threads import ThreadPool

LENGTH_MIN = 10
LENGTH_MAX = 200
ATTEMPTS_MAX = 10  # wrong passwords or codes per account and 15 minutes, from unknown clients
QUEUE_MAX = 16  # maximum waiting checks of unknown clients; 16 checks take one or two seconds

T = TypeVar("T")

_hasher = PasswordHasher()


class Busy(Exception):
    """Too many password checks are waiting."""


class PasswordQueue:
    """Checks passwords one after the other in one thread, so that hashing uses at most one core."""

    def __init__(self, max_waiting: int) -> None:
        self._thread = ThreadPool("passwords", 1)
        self._max_waiting = max_waiting
        self._waiting = 0

    async def run(self, function: Callable[..., T], *args: str | None) -> T:
        if self._waiting >= self._max_waiting:
            raise Busy
        self._waiting += 1
        try:
            return await self._thread.submit(function, *args)
        finally:
            self._waiting -= 1


_unknown_clients = PasswordQueue(QUEUE_MAX)
# A second queue, so that unknown clients never delay users with a session, a link, or a known browser or network.
_known_clients = PasswordQueue(1000)


@cache
def _dummy_hash() -> str:
    """Return the hash of a password that no account has; computed at the first use, because hashing is slow."""
    return _hasher.hash("nobody has this password")


async def hash_password(password: str) -> str:
    return await _known_clients.run(_hasher.hash, password)


async def verify_password(hashed: str | None, password: str, *, is_known_client: bool = True) -> bool:
    """Return whether the password is correct. Without an account (`hashed` is None), the check takes equally long.

    Raises Busy if too many checks of unknown clients are waiting.
    """
    return await (_known_clients if is_known_client else _unknown_clients).run(_verify, hashed, password)


def _verify(hashed: str | None, password: str) -> bool:
    try:
        return _hasher.verify(hashed or _dummy_hash(), password) and hashed is not None
    except (VerificationError, InvalidHashError):
        return False


def find_password_problem(password: str) -> str | None:
    """Return why the password is not acceptable; None if it is."""
    if not LENGTH_MIN <= len(password) <= LENGTH_MAX:
        return f"Passwords must have {LENGTH_MIN} to {LENGTH_MAX} characters."
    return None if len(set(password)) > 3 else "Choose a password with more different characters."
