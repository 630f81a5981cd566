"""Passwords and DKIM keys without the quarter of a second that each takes: in tests they guard nothing."""

from functools import cache
from itertools import count

from argon2 import PasswordHasher

from heliograph.channels.email import dkim
from heliograph.dashboard import passwords

RSA_KEYS = 4  # in turns: a rotated key is another one
HASHER = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
_make_key, _made = dkim.make_key, count()


@cache
def rsa_key(number: int) -> bytes:
    return _make_key("rsa-sha256")


def make_key(algorithm: dkim.Algorithm) -> bytes:
    return rsa_key(next(_made) % RSA_KEYS) if algorithm == "rsa-sha256" else _make_key(algorithm)


def cheapen() -> None:
    passwords._hasher = HASHER
    dkim.make_key = make_key
