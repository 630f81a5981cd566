"""Exports of other services are read in batches: memory does not grow with the file."""

import io
import tracemalloc
from collections.abc import Iterator
from itertools import chain, count, repeat
from typing import Any

import pytest

from heliograph.domain.exports import records
from heliograph.domain.exports.records import parse_export
from heliograph.domain.mail.suppression_file import ROWS_MAX, UnreadableFile, parse_suppression_file

WIDE = "x" * 2000  # a column that no reader looks at


class Stream(io.RawIOBase):
    """A file that is generated while it is read."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines, self._left, self.octets = lines, b"", 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left and (line := next(self._lines, "")):
            self._left = line.encode()
        part, self._left = self._left[: len(buffer)], self._left[len(buffer) :]
        buffer[: len(part)] = part
        self.octets += len(part)
        return len(part)


def open_stream(lines: Iterator[str]) -> tuple[Stream, Any]:
    stream = Stream(lines)
    return stream, io.TextIOWrapper(io.BufferedReader(stream), "utf-8-sig", newline="")


def rows(text: str) -> list[tuple[int, Any]]:
    return [*parse_export(io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8-sig", newline=""), dict)]


FORMS = {
    "csv": (["email,more\n"], f"a@b.test,{WIDE}\n"),
    "json lines": ([], f'{{"email": "a@b.test", "more": "{WIDE}"}}\n'),
}


@pytest.mark.parametrize("form", FORMS)
def test_export_of_many_lines_is_read_with_flat_memory(form: str) -> None:
    head, line = FORMS[form]
    stream, file = open_stream(chain(head, repeat(line, 5000)))
    tracemalloc.start()
    try:
        result = sum(1 for _ in parse_export(file, lambda row: row["email"]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result == 5000 and stream.octets > 10_000_000
    assert peak < stream.octets / 10


@pytest.mark.parametrize("form", FORMS)
def test_export_without_end_is_refused_at_the_most_records(form: str) -> None:
    head, line = FORMS[form]
    stream, file = open_stream(chain(head, repeat(line.replace(WIDE, "x"))))
    with pytest.raises(UnreadableFile, match="more than 100,000 records"):
        for _ in parse_export(file, dict):
            pass
    assert stream.octets < (ROWS_MAX + 10_000) * len(line.replace(WIDE, "x"))


@pytest.mark.parametrize("start", ["[", '{"data": [', "{\n", '{"email": "', "email,more\na,"])
def test_export_with_a_document_or_line_too_long_is_refused(start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "DOCUMENT_MAX", 100_000)
    stream, file = open_stream(chain([start], repeat("x" * 1000)))
    with pytest.raises(UnreadableFile, match="100,000 characters"):
        [*parse_export(file, dict)]
    assert stream.octets < 500_000


def test_export_in_every_form_is_read_alike() -> None:
    expected = [(1, {"email": "a@b.test"}), (2, {"email": "c@d.test"})]
    item, two = '{"Email": "a@b.test"}', '{"email": "c@d.test"}'
    assert rows(f"{item}\n{two}\n") == rows(f"\ufeff{item}\r\n\n{two}") == expected
    assert rows(f"[{item}, {two}]") == rows(f"[\n  {item},\n  {two}\n]\n") == expected
    assert rows(f'{{"object": "list", "data": [{item}, {two}]}}\n') == expected
    assert rows(f'{{"object": "list",\n"data": [{item},\n {two}]}}') == expected
    assert rows(item) == rows(f"{item}\n\n") == expected[:1]
    assert rows("Email\na@b.test\nc@d.test\n") == [(2, expected[0][1]), (3, expected[1][1])]
    assert rows("\n\nEmail\na@b.test\n") == [(4, expected[0][1])]
    for text, why in [
        (f"\n{item}\n\n{{\n", "Line 4 is not JSON"),
        (f"{item}\n{{\n", "Line 2 is not JSON"),
        ("{\n", "Line 1 is not JSON"),
        ("", "no records"),
    ]:
        with pytest.raises(UnreadableFile, match=why):
            rows(text)
    with pytest.raises(UnreadableFile, match="not UTF-8"):
        [*parse_export(io.TextIOWrapper(io.BytesIO(b"email\n\xff\xfe\n"), "utf-8-sig"), dict)]


def test_suppression_file_without_end_is_refused_at_the_most_lines() -> None:
    stream, file = open_stream(f"user{number}@b.test\n" for number in count())
    with pytest.raises(UnreadableFile, match="more than 100,000 lines"):
        parse_suppression_file(file)
    assert stream.octets < (ROWS_MAX + 10_000) * 20


def test_suppression_file_with_a_line_without_end_is_refused() -> None:
    stream, file = open_stream(repeat("a,"))
    with pytest.raises(UnreadableFile, match="more than 1,000,000 characters"):
        parse_suppression_file(file)
    assert stream.octets < 2_000_000
