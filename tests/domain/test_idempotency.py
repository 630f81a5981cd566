"""The Idempotency-Key: its form, the fingerprint, and what a second request gets."""

import hashlib
from typing import Any

import pytest

from heliograph.domain.refusals import (
    IdempotencyKeyReused,
    IdempotencyRequestInProgress,
    InvalidIdempotencyKey,
    Refusal,
)
from heliograph.domain.sending.idempotency import Remembered, decide, fingerprint, key_hash, read_key

NOW = 1_793_491_200_000


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ([], None),
        ([b"order-42"], "order-42"),
        ([b" ~"], " ~"),
        ([b"k" * 255], "k" * 255),
    ],
)
def test_key(values: list[bytes], key: str | None) -> None:
    assert read_key(values) == key


@pytest.mark.parametrize(
    "values",
    [[b""], [b"k" * 256], [b"a\tb"], [b"a\n"], [b"\x7f"], ["é".encode()], [b"a", b"a"], [b"a", b"b"]],
)
def test_invalid_key(values: list[bytes]) -> None:
    with pytest.raises(InvalidIdempotencyKey) as refused:
        read_key(values)
    assert refused.value.param == "Idempotency-Key"


def test_key_hash() -> None:
    assert key_hash("order-42") == hashlib.sha256(b"order-42").hexdigest()


BODY = {"to": "a@b.test", "variables": {"x": 1, "y": [1, 2]}}


def test_key_order_does_not_matter() -> None:
    turned = {"variables": {"y": [1, 2], "x": 1}, "to": "a@b.test"}
    assert fingerprint("/v1/emails", BODY) == fingerprint("/v1/emails", turned)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/sms", BODY),
        ("/v1/emails", BODY | {"to": "b@b.test"}),
        ("/v1/emails", BODY | {"cc": None}),
        ("/v1/emails", BODY | {"variables": {"x": 1, "y": [2, 1]}}),
        ("/v1/emails", BODY | {"variables": {"x": "1", "y": [1, 2]}}),
    ],
)
def test_a_different_request(path: str, body: Any) -> None:
    assert fingerprint(path, body) != fingerprint("/v1/emails", BODY)


def row(status: int | None, lease: int = 60_000, expires: int = 86_400_000) -> Remembered:
    return Remembered(
        fingerprint="same",
        status=status,
        response=None if status is None else b"{}",
        abandoned=lease <= 0,
        expires_at=NOW + expires,
    )


@pytest.mark.parametrize("given", ["same", "other"])
@pytest.mark.parametrize(
    "found",
    [None, row(202, expires=0), row(202, expires=-1), row(None, lease=0), row(None, lease=-1)],
)
def test_it_runs(found: Remembered | None, given: str) -> None:
    assert decide(found, given, NOW) is None


@pytest.mark.parametrize("lease", [60_000, -1])
def test_it_is_replayed(lease: int) -> None:
    assert decide(row(202, lease=lease, expires=1), "same", NOW) == row(202, lease=lease, expires=1)


@pytest.mark.parametrize(
    ("found", "given", "refusal"),
    [
        (row(202), "other", IdempotencyKeyReused),
        (row(None), "other", IdempotencyKeyReused),
        (row(None, lease=1), "same", IdempotencyRequestInProgress),
    ],
)
def test_it_is_refused(found: Remembered, given: str, refusal: type[Refusal]) -> None:
    with pytest.raises(refusal):
        decide(found, given, NOW)


def test_in_progress_says_when_to_come_back() -> None:
    with pytest.raises(IdempotencyRequestInProgress) as refused:
        decide(row(None), "same", NOW)
    assert refused.value.retry_after == 1
