"""A text as octets: GSM-7 with one septet per octet, or UCS-2, split into parts between characters."""

import codecs

from heliograph.rules.phones.gsm import ALPHABET, EXTENSION, PART, SINGLE

GSM7, UCS2 = 0, 8  # data_coding

_ESCAPE = 0x1B  # its position in the alphabet, which ALPHABET leaves out
_EXTENSION_CODES = b"\x0a\x14\x28\x29\x2f\x3c\x3d\x3e\x40\x65"
_CODES: dict[int, bytes] = {
    **{ord(char): bytes((place + (place >= _ESCAPE),)) for place, char in enumerate(ALPHABET)},
    **{ord(char): bytes((_ESCAPE, code)) for char, code in zip(EXTENSION, _EXTENSION_CODES, strict=True)},
}

_LETTERS = {(len(octets) > 1, octets[-1]): chr(letter) for letter, octets in _CODES.items()}

# Octets in a single part, in one of several parts, in a unit; and what starts a pair of units.
_MEASURES = {
    GSM7: (SINGLE["gsm7"], PART["gsm7"], 1, frozenset((_ESCAPE,))),
    UCS2: (SINGLE["ucs2"] * 2, PART["ucs2"] * 2, 2, frozenset(range(0xD8, 0xDC))),
}


def to_octets(text: str) -> tuple[int, bytes]:
    """Return the data_coding, and the text in it."""
    try:
        return GSM7, codecs.charmap_encode(text, "strict", _CODES)[0]
    except UnicodeEncodeError:
        return UCS2, text.encode("utf-16-be", "replace")


def from_octets(coding: int, octets: bytes) -> str:
    """Read a text that came in; what its data_coding cannot say is left out."""
    if coding == UCS2:
        return octets.decode("utf-16-be", "replace")
    if coding != GSM7:
        return octets.decode("latin-1")
    text, escaped = "", False
    for octet in octets:
        if octet == _ESCAPE:
            escaped = True
            continue
        text += _LETTERS.get((escaped, octet), "")
        escaped = False
    return text


def fits(coding: int, octets: bytes) -> bool:
    return len(octets) <= _MEASURES[coding][0]


def cut(coding: int, octets: bytes) -> list[bytes]:
    _, size, unit, leads = _MEASURES[coding]
    parts, start = [], 0
    while start < len(octets):
        end = start + size
        if end < len(octets) and octets[end - unit] in leads:
            end -= unit
        parts.append(octets[start:end])
        start = end
    return parts
