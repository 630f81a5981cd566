"""One reader of MIME for all: what it makes of foreign mail that breaks the rules, and what its limits leave out."""

import pytest

from heliograph.domain.mail.mime_tree import FOREIGN, OURS, MimeLimits, firsts, plain, read_head, read_leaves
from heliograph.domain.refusals import InvalidRequest
from heliograph.inbound.policy.inbound_mail import read_incoming

MIXED = "Content-Type: multipart/mixed; boundary=b\n\n"


def texts(mail: str, limits: MimeLimits) -> list[str]:
    raw = plain(mail.encode())
    fields, body = read_head(raw, 1, len(raw), limits)
    return [raw[leaf.start : leaf.end].decode() for leaf in read_leaves(raw, firsts(fields), body, limits)]


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
def test_what_breaks_the_rules_is_read_as_text_when_it_is_foreign(
    mail: str, ours: list[str], foreign: list[str]
) -> None:
    assert texts(mail, OURS) == ours
    assert texts(mail, FOREIGN) == foreign


def test_mail_for_a_team_keeps_a_text_whose_boundary_is_never_said() -> None:
    mail = read_incoming(b"From: a@example.com\n" + MIXED.encode() + b"Hello", sender="a@example.com", recipients=[])
    assert mail.text == "Hello"


@pytest.mark.parametrize(
    ("limits", "mail", "left"),
    [
        (MimeLimits(parts=2), MIXED + "--b\n\nx\n" * 9, ["x", "x"]),
        (MimeLimits(depth=1), MIXED + "--b\n" + MIXED.replace("=b", "=c") + "--c\n\nx", ["--c\n\nx"]),
        (MimeLimits(header=3), "A: b\nContent-Type: multipart/mixed\n\nx", ["x"]),
    ],
)
def test_what_is_beyond_the_limits_is_left_out_or_refused(limits: MimeLimits, mail: str, left: list[str]) -> None:
    strict = MimeLimits(parts=limits.parts, depth=limits.depth, header=limits.header, is_strict=True)
    assert texts(mail, limits) == left
    with pytest.raises(InvalidRequest):
        texts(mail, strict)


def test_fields_and_values_are_limited() -> None:
    raw = plain(b"A: 1\nB: a long value\n with a fold\nC: 3\n\nx")
    fields, _ = read_head(raw, 1, len(raw), MimeLimits(fields=2, value=9))
    assert fields == [("A", "1"), ("B", "a long")]
    assert read_head(raw, 1, len(raw), FOREIGN)[0][1] == ("B", "a long value with a fold")
