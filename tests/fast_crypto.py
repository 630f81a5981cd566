"""Fast password hashes and DKIM keys for tests, which otherwise take a quarter of a second each."""

from itertools import count
from pathlib import Path

from argon2 import PasswordHasher

from heliograph.dashboard import passwords
from heliograph.domain.mail import dkim

RSA_KEYS = Path(__file__).with_name("rsa_keys.pem").read_bytes().split(b"\n\n")  # a rotated key must differ
HASHER = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
make_real_key, _made = dkim.generate_key, count()


def make_key(algorithm: dkim.Algorithm) -> bytes:
    return RSA_KEYS[next(_made) % len(RSA_KEYS)] if algorithm == "rsa-sha256" else make_real_key(algorithm)


def cheapen() -> None:
    passwords._hasher = HASHER
    dkim.generate_key = make_key
