"""A CSV file of addresses to suppress, parsed line by line."""

import pytest

from heliograph.domain.mail import suppression_file
from heliograph.domain.mail.suppression_file import UnreadableFile, parse_suppression_file


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (b"a@example.com", [(1, "a@example.com", "manual", "")]),
        (b"\xef\xbb\xbfEmail,Reason\r\nA@Example.com , Bounce\r\n", [(2, "a@example.com", "bounce", "")]),
        (b'"a@example.com","complaint",eml_1,2026-01-01\n\n', [(1, "a@example.com", "complaint", "")]),
        (b"name\n", [(1, None, "manual", "not an email address")]),
        (b"Bounced+x@simulator.test\n", [(1, None, "manual", suppression_file.MAGIC_ADDRESS_ERROR)]),
        (b"a@example.com,spite", [(1, "a@example.com", "manual", "")]),
        (
            b"a@example.com\nA@example.com\n",
            [(1, "a@example.com", "manual", ""), (2, None, "manual", "the same as line 1")],
        ),
    ],
)
def test_suppression_file_lines_are_parsed(file: bytes, expected: list[tuple[int, str | None, str, str]]) -> None:
    result = parse_suppression_file(file)
    assert [(x.number, x.address and x.address.normal, x.reason, x.error) for x in result] == expected


@pytest.mark.parametrize("file", [b"", b"\n \n", b"email\n", b"\xff", b"a" * 200_000, b"a@example.com\n" * 3])
def test_suppression_file_unreadable_is_refused(file: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suppression_file, "ROWS_MAX", 2)
    with pytest.raises(UnreadableFile):
        parse_suppression_file(file)
