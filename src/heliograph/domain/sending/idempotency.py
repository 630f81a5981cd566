"""The `Idempotency-Key`: its form, what is the same request, and what a second one gets (contract 9)."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from heapq import merge
from typing import Any

import msgspec

from heliograph.domain.limits import IDEMPOTENCY_KEY_MAX
from heliograph.domain.refusals import (
    IdempotencyKeyReused,
    IdempotencyRequestInProgress,
    InvalidIdempotencyKey,
)

HEADER = "Idempotency-Key"
STEP = 64 * 1024  # characters of a text that are written at once
SORTED = 500  # keys that are sorted at once

_KEY = re.compile(rb"[\x20-\x7e]+")
_canonical = msgspec.json.Encoder(order="sorted")


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a key; without a status its request has not finished."""

    fingerprint: str
    status: int | None
    response: bytes | None
    made: str = ""  # the id of what it made, once it has finished
    abandoned: bool = False  # it never will
    expires_at: int


class Retry(msgspec.Struct, frozen=True):
    """A key, and the request that it stands for."""

    key: str
    path: str
    body: Any
    size: int  # of the body, in bytes


def read_key(values: list[bytes], most: int = IDEMPOTENCY_KEY_MAX) -> str | None:
    """Read the key from all values of the header; `most` is the most characters of one."""
    if not values:
        return None
    if len(values) > 1 or len(values[0]) > most or not _KEY.fullmatch(values[0]):
        told = f"Send one Idempotency-Key of 1 to {most} printable ASCII characters, for example a UUID."
        raise InvalidIdempotencyKey(told, param=HEADER)
    return values[0].decode("ascii")


def key_hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def fingerprint(path: str, body: Any) -> str:
    """Hash a request: equal JSON on the same path has an equal hash; key order and white space do not matter."""
    return hashlib.sha256(path.encode() + b"\0" + _canonical.encode(body)).hexdigest()


def fingerprint_in_steps(path: str, body: Any) -> str:
    """Return the same for a large body: the encoder lets nobody else run until it has written all."""
    digest = hashlib.sha256(path.encode() + b"\0")
    for part in _parts(body):
        digest.update(part)
    return digest.hexdigest()


def _parts(value: Any) -> Iterator[bytes]:
    """Yield the parts of what the encoder would write."""
    if isinstance(value, dict) and value:
        for number, key in enumerate(_sorted(list(value))):
            yield b"," if number else b"{"
            yield from _parts(key)
            yield b":"
            yield from _parts(value[key])
        yield b"}"
    elif isinstance(value, list) and value:
        for number, one in enumerate(value):
            yield b"," if number else b"["
            yield from _parts(one)
        yield b"]"
    elif isinstance(value, str) and len(value) > STEP:
        yield b'"'
        for at in range(0, len(value), STEP):
            yield _canonical.encode(value[at : at + STEP])[1:-1]
        yield b'"'
    else:
        yield _canonical.encode(value)


def _sorted(keys: list[str]) -> Iterable[str]:
    return merge(*(sorted(keys[at : at + SORTED]) for at in range(0, len(keys), SORTED)))


def decide(row: Remembered | None, fingerprint: str, now: int) -> Remembered | None:
    """Return the row to replay, or None when the request is to run."""
    if row is None or (row.abandoned if row.status is None else now >= row.expires_at):
        return None
    if row.fingerprint != fingerprint:
        raise IdempotencyKeyReused(param=HEADER)
    if row.status is None:
        raise IdempotencyRequestInProgress(param=HEADER, retry_after=1)
    return row
