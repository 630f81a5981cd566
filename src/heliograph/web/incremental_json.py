"""Incremental strict JSON parser for large bodies.

A decoder holds the GIL until it has decoded its whole input, even in a thread, and blocks all other requests.
Parsing in steps lets other threads run in between.
"""

import re
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from heliograph.domain.limits import JSON_DEPTH_MAX, JSON_VALUES_MAX
from heliograph.domain.refusals import InvalidJson

STEP = 64 * 1024  # bytes decoded at once

_SPACE = re.compile(rb"[ \t\n\r]*+")
_PLAIN = re.compile(rb'[^ \t\n\r"\[\]{},:]{1,65536}+')  # a number or a literal
_TEXT = re.compile(rb'[^"\\]*+(?:\\(?:u[0-9a-fA-F]{4}|[^u])[^"\\]*+)*+', re.DOTALL)  # with complete escapes
_LOW = re.compile(rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}")  # the second half of a surrogate pair
_decode: Callable[[bytes], str] = msgspec.json.Decoder(str).decode
_OF_A_CHARACTER = range(0x80, 0xC0)  # UTF-8 continuation bytes


def read_in_steps(raw: bytes, read: Callable[[bytes], Any]) -> Any:
    """Parse a large JSON body in steps so that other threads can run; `read` decodes each fragment."""
    return _Reader(raw, read).document()


def text_end(raw: bytes, start: int) -> int:
    """Return the offset after the closing quote of the string whose opening quote is at `start`."""
    at = start + 1
    while (end := _part_end(raw, at)) > at:
        at = end
    return at + 1


def _part_end(raw: bytes, at: int) -> int:
    """Return where the string content at `at` can be split: at its closing quote, or between two characters
    at most about STEP bytes later. Returns `at` if the content ends there or is invalid.
    """
    step = min(at + STEP, len(raw))
    while step < len(raw) and raw[step] in _OF_A_CHARACTER and step > at + STEP - 3:
        step -= 1
    quote = raw.find(b'"', at, step)
    if raw.find(b"\\", at, step if quote < 0 else quote) < 0:  # much faster than the regular expression
        return step if quote < 0 else quote
    found = _TEXT.match(raw, at, step)
    end = found.end() if found else at
    low = _LOW.match(raw, end) if end > at else None
    return low.end() if low else end


class _Reader:
    def __init__(self, raw: bytes, read: Callable[[bytes], Any]) -> None:
        self._raw, self._read, self._at, self._left = raw, read, 0, JSON_VALUES_MAX

    def document(self) -> Any:
        value = self._value(0)
        if self._next():
            self._refuse("something follows its end")
        return value

    def _value(self, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise InvalidJson(f"The body has more than {JSON_VALUES_MAX} values. {InvalidJson.fix}")
        mark = self._next()
        if mark == b'"':
            return self._text()
        if mark in (b"{", b"["):
            if depth == JSON_DEPTH_MAX:
                raise InvalidJson(f"The body is nested deeper than {JSON_DEPTH_MAX}. {InvalidJson.fix}")
            self._at += 1
            return self._object(depth + 1) if mark == b"{" else self._list(depth + 1)
        plain = _PLAIN.match(self._raw, self._at)
        if plain is None:
            self._refuse("a value is missing")
        self._at = plain.end()
        return self._read(plain[0])

    def _object(self, depth: int) -> dict[str, Any]:
        value: dict[str, Any] = {}
        while not self._ends(b"}", is_first=not value):
            if self._next() != b'"':
                self._refuse("a key is missing")
            key = self._text()
            if key in value:
                self._refuse(f"the key {key[:80]!r} is repeated")
            if self._next() != b":":
                self._refuse("a colon is missing")
            self._at += 1
            value[key] = self._value(depth)
        return value

    def _list(self, depth: int) -> list[Any]:
        value: list[Any] = []
        while not self._ends(b"]", is_first=not value):
            value.append(self._value(depth))
        return value

    def _ends(self, mark: bytes, *, is_first: bool) -> bool:
        """Return whether the object or list ends here; if not, move to its next value."""
        found = self._next()
        if found == mark or not is_first:
            self._at += 1
        if found not in (mark, b",") and not is_first:
            self._refuse(f"a comma or {mark.decode()} is missing")
        return found == mark

    def _text(self) -> str:
        raw, at, parts = self._raw, self._at + 1, []
        while raw[at : at + 1] != b'"':
            end = _part_end(raw, at)
            if end == at:
                self._refuse("a text does not end, or has a wrong escape")
            parts.append(self._part(b'"%b"' % raw[at:end]))
            at = end
        self._at = at + 1
        return "".join(parts)

    def _part(self, text: bytes) -> str:
        """Decode part of a string with msgspec; on an error, the strict parser raises the specific message."""
        try:
            return _decode(text)
        except ValueError:
            part: str = self._read(text)
            return part

    def _next(self) -> bytes:
        """Skip whitespace and return the next byte; empty at the end."""
        while (mark := self._raw[self._at : self._at + 1]) and mark in b" \t\n\r":
            self._at = _SPACE.match(self._raw, self._at, self._at + STEP).end()  # type: ignore[union-attr]
        return mark

    def _refuse(self, why: str) -> NoReturn:
        raise InvalidJson(f"The body is not JSON: {why}, at byte {self._at}. {InvalidJson.fix}")
