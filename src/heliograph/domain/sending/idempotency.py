"""`Idempotency-Key` (contract 9): key format, request fingerprint, and the response to a repeated request."""

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
STEP = 64 * 1024  # characters of a string encoded per step
SORTED = 500  # keys sorted per step

_KEY = re.compile(rb"[\x20-\x7e]+")
_canonical = msgspec.json.Encoder(order="sorted")


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """Stored state of an idempotency key; without a status, the request has not finished."""

    fingerprint: str
    status: int | None
    response: bytes | None
    made: str = ""  # id of the created object, once the request has finished
    abandoned: bool = False  # the request will never finish
    expires_at: int


class Retry(msgspec.Struct, frozen=True):
    """An idempotency key and the request that it identifies."""

    key: str
    path: str
    body: Any
    size: int  # size of the body in bytes


def read_key(values: list[bytes], most: int = IDEMPOTENCY_KEY_MAX) -> str | None:
    """Return the key from all values of the header; `most` is the maximum length."""
    if not values:
        return None
    if len(values) > 1 or len(values[0]) > most or not _KEY.fullmatch(values[0]):
        told = f"Send one Idempotency-Key of 1 to {most} printable ASCII characters, for example a UUID."
        raise InvalidIdempotencyKey(told, param=HEADER)
    return values[0].decode("ascii")


def key_hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def fingerprint(path: str, body: Any) -> str:
    """Return the hash of a request. Equal JSON on the same path gives an equal hash; key order and whitespace are
    ignored.
    """
    return hashlib.sha256(path.encode() + b"\0" + _canonical.encode(body)).hexdigest()


def fingerprint_in_steps(path: str, body: Any) -> str:
    """Return the same hash as `fingerprint` for a large body, in steps: one `encode` call would hold the GIL
    throughout.
    """
    digest = hashlib.sha256(path.encode() + b"\0")
    for part in _parts(body):
        digest.update(part)
    return digest.hexdigest()


def _parts(value: Any) -> Iterator[bytes]:
    """Yield the encoder's output in parts."""
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
    """Return the stored row to replay; None if the request must run."""
    if row is None or (row.abandoned if row.status is None else now >= row.expires_at):
        return None
    if row.fingerprint != fingerprint:
        raise IdempotencyKeyReused(param=HEADER)
    if row.status is None:
        raise IdempotencyRequestInProgress(param=HEADER, retry_after=1)
    return row
