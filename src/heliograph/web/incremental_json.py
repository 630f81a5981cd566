"""Strict JSON parser for large bodies, which parses in steps.

Even in a thread, a JSON decoder holds the GIL until it has decoded its whole input, and blocks all other requests.
Between steps, other threads can run.
"""

import re
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from heliograph.domain.limits import JSON_DEPTH_MAX, JSON_VALUES_MAX
from heliograph.domain.refusals import InvalidJson

STEP_BYTES = 64 * 1024  # bytes decoded in one step

_SPACE = re.compile(rb"[ \t\n\r]*+")
_SCALAR = re.compile(rb'[^ \t\n\r"\[\]{},:]{1,65536}+')  # a number or a literal
# The content of a string, which does not end inside an escape sequence
_STRING_CONTENT = re.compile(rb'[^"\\]*+(?:\\(?:u[0-9a-fA-F]{4}|[^u])[^"\\]*+)*+', re.DOTALL)
_LOW_SURROGATE = re.compile(rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}")  # the second half of a surrogate pair
_decode: Callable[[bytes], str] = msgspec.json.Decoder(str).decode
_CONTINUATION_BYTES = range(0x80, 0xC0)  # UTF-8 continuation bytes


def parse_in_steps(raw: bytes, decode: Callable[[bytes], Any]) -> Any:
    """Parse a large JSON body in steps so that other threads can run; `decode` parses each fragment."""
    return _Parser(raw, decode).parse()


def string_end(raw: bytes, start: int) -> int:
    """Return the offset after the closing quote of the string whose opening quote is at `start`."""
    position = start + 1
    while (end := _split_point(raw, position)) > position:
        position = end
    return position + 1


def _split_point(raw: bytes, position: int) -> int:
    """Return where the string content at `position` can be split: at its closing quote, or about STEP_BYTES later.

    Never splits a character or an escape sequence. Returns `position` if the content ends there or is invalid.
    """
    limit = min(position + STEP_BYTES, len(raw))
    while limit < len(raw) and raw[limit] in _CONTINUATION_BYTES and limit > position + STEP_BYTES - 3:
        limit -= 1
    quote = raw.find(b'"', position, limit)
    # Without an escape sequence this is much faster than the regular expression.
    if raw.find(b"\\", position, limit if quote < 0 else quote) < 0:
        return limit if quote < 0 else quote
    match = _STRING_CONTENT.match(raw, position, limit)
    end = match.end() if match else position
    low_surrogate = _LOW_SURROGATE.match(raw, end) if end > position else None
    return low_surrogate.end() if low_surrogate else end


class _Parser:
    def __init__(self, raw: bytes, decode: Callable[[bytes], Any]) -> None:
        self._raw, self._decode_fragment, self._position, self._values_left = raw, decode, 0, JSON_VALUES_MAX

    def parse(self) -> Any:
        value = self._parse_value(0)
        if self._next_byte():
            self._refuse("there is text after its end")
        return value

    def _parse_value(self, depth: int) -> Any:
        self._values_left -= 1
        if self._values_left < 0:
            raise InvalidJson(f"The body has more than {JSON_VALUES_MAX} values. {InvalidJson.fix}")
        byte = self._next_byte()
        if byte == b'"':
            return self._parse_string()
        if byte in (b"{", b"["):
            if depth == JSON_DEPTH_MAX:
                raise InvalidJson(f"The body is nested deeper than {JSON_DEPTH_MAX}. {InvalidJson.fix}")
            self._position += 1
            return self._parse_object(depth + 1) if byte == b"{" else self._parse_list(depth + 1)
        match = _SCALAR.match(self._raw, self._position)
        if match is None:
            self._refuse("a value is missing")
        self._position = match.end()
        return self._decode_fragment(match[0])

    def _parse_object(self, depth: int) -> dict[str, Any]:
        value: dict[str, Any] = {}
        while not self._is_at_end(b"}", is_first=not value):
            if self._next_byte() != b'"':
                self._refuse("a key is missing")
            key = self._parse_string()
            if key in value:
                self._refuse(f"the key {key[:80]!r} is repeated")
            if self._next_byte() != b":":
                self._refuse("a colon is missing")
            self._position += 1
            value[key] = self._parse_value(depth)
        return value

    def _parse_list(self, depth: int) -> list[Any]:
        value: list[Any] = []
        while not self._is_at_end(b"]", is_first=not value):
            value.append(self._parse_value(depth))
        return value

    def _is_at_end(self, bracket: bytes, *, is_first: bool) -> bool:
        """Return whether the object or list ends here. Skip the closing bracket, or the comma before the next value."""
        byte = self._next_byte()
        if byte == bracket or not is_first:
            self._position += 1
        if byte not in (bracket, b",") and not is_first:
            self._refuse(f"a comma or {bracket.decode()} is missing")
        return byte == bracket

    def _parse_string(self) -> str:
        raw, position, parts = self._raw, self._position + 1, []
        while raw[position : position + 1] != b'"':
            end = _split_point(raw, position)
            if end == position:
                self._refuse("a string is not closed or has an invalid escape")
            parts.append(self._decode_part(b'"%b"' % raw[position:end]))
            position = end
        self._position = position + 1
        return "".join(parts)

    def _decode_part(self, text: bytes) -> str:
        """Decode part of a string with msgspec. If it is invalid, the strict parser raises the specific error."""
        try:
            return _decode(text)
        except ValueError:
            part: str = self._decode_fragment(text)
            return part

    def _next_byte(self) -> bytes:
        """Skip whitespace and return the next byte; empty at the end."""
        while (byte := self._raw[self._position : self._position + 1]) and byte in b" \t\n\r":
            self._position = _SPACE.match(self._raw, self._position, self._position + STEP_BYTES).end()  # type: ignore[union-attr]
        return byte

    def _refuse(self, reason: str) -> NoReturn:
        raise InvalidJson(f"The body is not JSON: {reason}, at byte {self._position}. {InvalidJson.fix}")
