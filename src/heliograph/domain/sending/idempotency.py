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
STRING_CHUNK = 64 * 1024  # characters of a string encoded per step
SORT_CHUNK = 500  # keys sorted per step

_VALID_KEY = re.compile(rb"[\x20-\x7e]+")
_encoder = msgspec.json.Encoder(order="sorted")


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Stored state of an idempotency key. Without a status, its request has not finished."""

    fingerprint: str
    status: int | None
    response: bytes | None
    object_id: str = ""  # id of the created object, once the request has finished
    abandoned: bool = False  # the request will never finish
    expires_at: int


class KeyedRequest(msgspec.Struct, frozen=True):
    """An idempotency key and the request that it identifies."""

    key: str
    path: str
    body: Any
    size: int  # size of the body in bytes


def parse_key(values: list[bytes], max_length: int = IDEMPOTENCY_KEY_MAX) -> str | None:
    """Return the idempotency key; None if absent. `values`: all Idempotency-Key header values of the request."""
    if not values:
        return None
    if len(values) > 1 or len(values[0]) > max_length or not _VALID_KEY.fullmatch(values[0]):
        message = f"Send one Idempotency-Key of 1 to {max_length} printable ASCII characters, for example a UUID."
        raise InvalidIdempotencyKey(message, param=HEADER)
    return values[0].decode("ascii")


def key_hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def fingerprint(path: str, body: Any) -> str:
    """Return the hash of a request: equal for equal JSON on the same path, regardless of key order and whitespace."""
    return hashlib.sha256(path.encode() + b"\0" + _encoder.encode(body)).hexdigest()


def fingerprint_in_steps(path: str, body: Any) -> str:
    """Return the same hash as `fingerprint`, in steps: one call of the encoder would hold the GIL throughout."""
    digest = hashlib.sha256(path.encode() + b"\0")
    for chunk in _encode_parts(body):
        digest.update(chunk)
    return digest.hexdigest()


def _encode_parts(value: Any) -> Iterator[bytes]:
    """Yield the encoded JSON of a value in parts."""
    if isinstance(value, dict) and value:
        for number, key in enumerate(_sort_keys(list(value))):
            yield b"," if number else b"{"
            yield from _encode_parts(key)
            yield b":"
            yield from _encode_parts(value[key])
        yield b"}"
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            yield b"," if number else b"["
            yield from _encode_parts(item)
        yield b"]"
    elif isinstance(value, str) and len(value) > STRING_CHUNK:
        yield b'"'
        for start in range(0, len(value), STRING_CHUNK):
            yield _encoder.encode(value[start : start + STRING_CHUNK])[1:-1]
        yield b'"'
    else:
        yield _encoder.encode(value)


def _sort_keys(keys: list[str]) -> Iterable[str]:
    return merge(*(sorted(keys[start : start + SORT_CHUNK]) for start in range(0, len(keys), SORT_CHUNK)))


def select_replay(row: StoredResponse | None, request_fingerprint: str, now: int) -> StoredResponse | None:
    """Return the stored response to replay; None if the request must be executed."""
    if row is None or (row.abandoned if row.status is None else now >= row.expires_at):
        return None
    if row.fingerprint != request_fingerprint:
        raise IdempotencyKeyReused(param=HEADER)
    if row.status is None:
        raise IdempotencyRequestInProgress(param=HEADER, retry_after=1)
    return row
