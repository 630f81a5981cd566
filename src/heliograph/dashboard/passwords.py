"""Passwords: argon2id, checked in a thread; and how many wrong ones an address may try."""

import asyncio
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from heliograph.rules.limits import MINUTE_MS

SHORTEST = 10
LONGEST = 200
TRIES_MAX = 10  # wrong passwords or codes for an account …
TRIES_MS = 15 * MINUTE_MS  # … in this time

_hasher = PasswordHasher()


@cache
def _any() -> str:
    """Nobody has this password. Made when it is first needed, not at every start of a command."""
    return _hasher.hash("nobody has this password")


async def hash_password(password: str) -> str:
    return await asyncio.to_thread(_hasher.hash, password)


async def is_right(hashed: str | None, password: str) -> bool:
    """Takes the same time for an account that does not exist."""
    return await asyncio.to_thread(_verify, hashed, password)


def _verify(hashed: str | None, password: str) -> bool:
    try:
        return _hasher.verify(hashed or _any(), password) and hashed is not None
    except (VerificationError, InvalidHashError):
        return False


def complaint(password: str) -> str | None:
    """Why this cannot be a password."""
    if not SHORTEST <= len(password) <= LONGEST:
        return f"A password has {SHORTEST} to {LONGEST} characters."
    return None if len(set(password)) > 3 else "Choose a password with more different characters."
