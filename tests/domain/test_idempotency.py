"""The Idempotency-Key: its format, the fingerprint, and the response to a repeated request."""

import hashlib
from typing import Any

import pytest

from heliograph.domain.refusals import (
    IdempotencyKeyReused,
    IdempotencyRequestInProgress,
    InvalidIdempotencyKey,
    Refusal,
)
from heliograph.domain.sending.idempotency import StoredResponse, fingerprint, key_hash, parse_key, select_replay

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
def test_idempotency_key_is_parsed(values: list[bytes], key: str | None) -> None:
    assert parse_key(values) == key


@pytest.mark.parametrize(
    "values",
    [[b""], [b"k" * 256], [b"a\tb"], [b"a\n"], [b"\x7f"], ["é".encode()], [b"a", b"a"], [b"a", b"b"]],
)
def test_idempotency_key_invalid_is_refused(values: list[bytes]) -> None:
    with pytest.raises(InvalidIdempotencyKey) as refused:
        parse_key(values)
    assert refused.value.param == "Idempotency-Key"


def test_idempotency_key_hash_is_sha256() -> None:
    assert key_hash("order-42") == hashlib.sha256(b"order-42").hexdigest()


BODY = {"to": "a@b.test", "variables": {"x": 1, "y": [1, 2]}}


def test_idempotency_fingerprint_ignores_the_order_of_json_keys() -> None:
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
def test_idempotency_fingerprint_differs_for_another_request(path: str, body: Any) -> None:
    assert fingerprint(path, body) != fingerprint("/v1/emails", BODY)


def row(status: int | None, lease: int = 60_000, expires: int = 86_400_000) -> StoredResponse:
    return StoredResponse(
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
def test_idempotent_request_without_a_stored_response_runs(found: StoredResponse | None, given: str) -> None:
    assert select_replay(found, given, NOW) is None


@pytest.mark.parametrize("lease", [60_000, -1])
def test_idempotent_request_with_a_stored_response_is_replayed(lease: int) -> None:
    assert select_replay(row(202, lease=lease, expires=1), "same", NOW) == row(202, lease=lease, expires=1)


@pytest.mark.parametrize(
    ("found", "given", "refusal"),
    [
        (row(202), "other", IdempotencyKeyReused),
        (row(None), "other", IdempotencyKeyReused),
        (row(None, lease=1), "same", IdempotencyRequestInProgress),
    ],
)
def test_idempotent_request_in_conflict_is_refused(found: StoredResponse, given: str, refusal: type[Refusal]) -> None:
    with pytest.raises(refusal):
        select_replay(found, given, NOW)


def test_request_in_progress_has_a_retry_after() -> None:
    with pytest.raises(IdempotencyRequestInProgress) as refused:
        select_replay(row(None), "same", NOW)
    assert refused.value.retry_after == 1
