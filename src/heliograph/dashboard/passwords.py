"""Password hashing with argon2id in dedicated threads, and limits for wrong passwords."""

from collections.abc import Callable
from functools import cache
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from heliograph.runtime.threads import Threads

SHORTEST = 10
LONGEST = 200
TRIES_MAX = 10  # wrong passwords or codes per account in 15 minutes, from unknown clients
WAITING_MAX = 16  # pending checks for unknown clients; one or two seconds of work

T = TypeVar("T")

_hasher = PasswordHasher()


class Busy(Exception):
    """Too many passwords are waiting to be checked."""


class PasswordQueue:
    """Checks passwords one at a time in one thread, so that password hashing uses at most one core."""

    def __init__(self, longest: int) -> None:
        self._thread = Threads("passwords", 1)
        self._longest = longest
        self._waiting = 0

    async def run(self, work: Callable[..., T], *given: str | None) -> T:
        if self._waiting >= self._longest:
            raise Busy
        self._waiting += 1
        try:
            return await self._thread.submit(work, *given)
        finally:
            self._waiting -= 1


_strangers = PasswordQueue(WAITING_MAX)
# users with a session, a link or a known browser or network: never delayed by unknown clients
_people = PasswordQueue(1000)


@cache
def _any() -> str:
    """Return the hash of a password that no account has; cached, and computed on first use to keep startup fast."""
    return _hasher.hash("nobody has this password")


async def hash_password(password: str) -> str:
    return await _people.run(_hasher.hash, password)


async def is_right(hashed: str | None, password: str, *, is_familiar: bool = True) -> bool:
    """Return whether the password is correct; takes equally long without an account.

    Raises Busy if too many checks for unknown clients are pending.
    """
    return await (_people if is_familiar else _strangers).run(_verify, hashed, password)


def _verify(hashed: str | None, password: str) -> bool:
    try:
        return _hasher.verify(hashed or _any(), password) and hashed is not None
    except (VerificationError, InvalidHashError):
        return False


def complaint(password: str) -> str | None:
    """Return why the password is not acceptable; None if it is."""
    if not SHORTEST <= len(password) <= LONGEST:
        return f"A password has {SHORTEST} to {LONGEST} characters."
    return None if len(set(password)) > 3 else "Choose a password with more different characters."
