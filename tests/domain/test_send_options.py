"""Optional fields of a send: each limit, at the limit and just above."""

from typing import Any

import pytest

from heliograph.domain.refusals import InvalidHeader, InvalidMetadata, InvalidTags
from heliograph.domain.sending.send_options import (
    ALLOWED_HEADERS,
    check_mail_headers,
    check_metadata,
    check_tags,
)


@pytest.mark.parametrize(
    "tags",
    [None, {}, {"A-z_0": "x"}, {"n" * 64: "ü" * 256}, {f"t{i}": "x" for i in range(10)}, {"a": " \n"}],
)
def test_tags_valid_are_accepted(tags: dict[str, str] | None) -> None:
    check_tags(tags)


@pytest.mark.parametrize(
    "tags",
    [{"": "x"}, {"a b": "x"}, {"ä": "x"}, {"a:b": "x"}, {"n" * 65: "x"}, {"a": ""}, {"a": "x" * 257},
     {f"t{i}": "x" for i in range(11)}],
)  # fmt: skip
def test_tags_invalid_are_refused(tags: dict[str, str]) -> None:
    with pytest.raises(InvalidTags) as caught:
        check_tags(tags)
    assert caught.value.param == "tags"


@pytest.mark.parametrize("metadata", [None, {}, {"a": [1, {"b": None}]}, {"a": "x" * 4088}, {"a": "ü" * 2044}])
def test_metadata_valid_is_accepted(metadata: dict[str, Any] | None) -> None:
    check_metadata(metadata)


@pytest.mark.parametrize("metadata", [{"a": "x" * 4089}, {"a": "ü" * 2045}])
def test_metadata_invalid_is_refused(metadata: dict[str, Any]) -> None:
    with pytest.raises(InvalidMetadata) as caught:
        check_metadata(metadata)
    assert caught.value.param == "metadata"


@pytest.mark.parametrize(
    "headers",
    [None, {}, dict.fromkeys(ALLOWED_HEADERS, "x"), {"list-id": "ü"}, {"X-A.b_c": ""}, {"x-large": "x" * 8185},
     {f"X-{i}": "x" for i in range(25)}],
)  # fmt: skip
def test_mail_headers_allowed_are_accepted(headers: dict[str, str] | None) -> None:
    check_mail_headers(headers)


@pytest.mark.parametrize(
    "headers",
    [{"Subject": "x"}, {"Bcc": "a@x.io"}, {"DKIM-Signature": "x"}, {"X-": "x"}, {"X-a:b": "x"}, {"X a": "x"},
     {"X-ä": "x"}, {"X-\u212a": "x"},
     {"": "x"}, {"List-Idx": "x"}, {"X-A": "x", "x-a": "y"}, {"X-A": "x\r\nBcc: a@x.io"}, {"X-A": "\0"},
     {"X-A": "\u2028"}, {"x-large": "x" * 8186}, {f"X-{i}": "x" for i in range(26)}],
)  # fmt: skip
def test_mail_headers_forbidden_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidHeader) as caught:
        check_mail_headers(headers)
    assert caught.value.param == "headers"
