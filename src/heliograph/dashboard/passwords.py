"""Passwords: argon2id, checked in threads of their own; and how many wrong ones may be tried."""

from collections.abc import Callable
from functools import cache
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from heliograph.runtime.threads import Threads

SHORTEST = 10
LONGEST = 200
TRIES_MAX = 10  # wrong passwords or codes for an account, by strangers, in 15 minutes
WAITING_MAX = 16  # strangers whose password waits to be checked: a second or two

T = TypeVar("T")

_hasher = PasswordHasher()


class Busy(Exception):
    """Too many passwords wait to be checked."""


class PasswordQueue:
    """Passwords that are checked one after the other: what they cost is one core at most, however many come."""

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
_people = PasswordQueue(1000)  # who is signed in, has a link, or was here before: they never wait for strangers


@cache
def _any() -> str:
    """Hash a password that nobody has, when it is first needed and not at every start of a command."""
    return _hasher.hash("nobody has this password")


async def hash_password(password: str) -> str:
    return await _people.run(_hasher.hash, password)


async def is_right(hashed: str | None, password: str, *, is_familiar: bool = True) -> bool:
    """Tell whether the password is right, in the same time for no account. Busy: too many strangers want to know."""
    return await (_people if is_familiar else _strangers).run(_verify, hashed, password)


def _verify(hashed: str | None, password: str) -> bool:
    try:
        return _hasher.verify(hashed or _any(), password) and hashed is not None
    except (VerificationError, InvalidHashError):
        return False


def complaint(password: str) -> str | None:
    """Say why this cannot be a password."""
    if not SHORTEST <= len(password) <= LONGEST:
        return f"A password has {SHORTEST} to {LONGEST} characters."
    return None if len(set(password)) > 3 else "Choose a password with more different characters."
