"""The MIME parser: its result for malformed mail, and what its limits exclude."""

import pytest

from heliograph.domain.mail.mime_tree import (
    LENIENT_LIMITS,
    STRICT_LIMITS,
    MimeLimits,
    first_values,
    normalize_line_ends,
    parse_header,
    parse_leaves,
)
from heliograph.domain.refusals import InvalidRequest
from heliograph.inbound.policy.inbound_mail import parse_mail

MIXED = "Content-Type: multipart/mixed; boundary=b\n\n"


def texts(mail: str, limits: MimeLimits) -> list[str]:
    raw = normalize_line_ends(mail.encode())
    fields, body = parse_header(raw, 1, len(raw), limits)
    return [raw[leaf.start : leaf.end].decode() for leaf in parse_leaves(raw, first_values(fields), body, limits)]


@pytest.mark.parametrize(
    ("mail", "ours", "foreign"),
    [
        (MIXED + "--b\n\none\n--b\n\ntwo\n--b--\n", ["one", "two"], ["one", "two"]),
        (MIXED + "no boundary", [], ["no boundary"]),
        (MIXED + "--b\nno header\n--b--", [""], ["no header"]),
        (MIXED + "--b\n\nnever closed", ["never closed"], ["never closed"]),
        ("no header at all", [""], ["no header at all"]),
    ],
)
def test_malformed_mime_is_read_as_text_only_when_lenient(mail: str, ours: list[str], foreign: list[str]) -> None:
    assert texts(mail, STRICT_LIMITS) == ours
    assert texts(mail, LENIENT_LIMITS) == foreign


def test_lenient_mime_keeps_text_with_an_undeclared_boundary() -> None:
    mail = parse_mail(b"From: a@example.com\n" + MIXED.encode() + b"Hello", sender="a@example.com", recipients=[])
    assert mail.text == "Hello"


@pytest.mark.parametrize(
    ("limits", "mail", "left"),
    [
        (MimeLimits(parts=2), MIXED + "--b\n\nx\n" * 9, ["x", "x"]),
        (MimeLimits(depth=1), MIXED + "--b\n" + MIXED.replace("=b", "=c") + "--c\n\nx", ["--c\n\nx"]),
        (MimeLimits(header=3), "A: b\nContent-Type: multipart/mixed\n\nx", ["x"]),
    ],
)
def test_mime_beyond_the_limits_is_dropped_or_refused_when_strict(
    limits: MimeLimits, mail: str, left: list[str]
) -> None:
    strict = MimeLimits(parts=limits.parts, depth=limits.depth, header=limits.header, is_strict=True)
    assert texts(mail, limits) == left
    with pytest.raises(InvalidRequest):
        texts(mail, strict)


def test_mime_header_fields_and_values_are_limited() -> None:
    raw = normalize_line_ends(b"A: 1\nB: a long value\n with a fold\nC: 3\n\nx")
    fields, _ = parse_header(raw, 1, len(raw), MimeLimits(fields=2, value=9))
    assert fields == [("A", "1"), ("B", "a long")]
    assert parse_header(raw, 1, len(raw), LENIENT_LIMITS)[0][1] == ("B", "a long value with a fold")
