"""Encodes texts as GSM-7 (one septet per byte) or UCS-2, and splits them into parts between characters."""

import codecs

from heliograph.domain.phones.gsm import PART, SINGLE
from heliograph.domain.phones.sms_octets import CODES, ESCAPE, GSM7, UCS2

# Bytes in a single-part message, bytes in one of several parts, bytes in a code unit, and the first bytes of pairs of
# code units that must not be split.
_MEASURES = {
    GSM7: (SINGLE["gsm7"], PART["gsm7"], 1, frozenset((ESCAPE,))),
    UCS2: (SINGLE["ucs2"] * 2, PART["ucs2"] * 2, 2, frozenset(range(0xD8, 0xDC))),
}


def to_octets(text: str) -> tuple[int, bytes]:
    """Return the data_coding and the encoded text: GSM-7 if possible, else UCS-2."""
    try:
        return GSM7, codecs.charmap_encode(text, "strict", CODES)[0]
    except UnicodeEncodeError:
        return UCS2, text.encode("utf-16-be", "replace")


def fits(coding: int, octets: bytes) -> bool:
    """Return whether the encoded text fits in a single part."""
    return len(octets) <= _MEASURES[coding][0]


def cut(coding: int, octets: bytes) -> list[bytes]:
    """Split an encoded text into parts."""
    _, size, unit, leads = _MEASURES[coding]
    parts, start = [], 0
    while start < len(octets):
        end = start + size
        if end < len(octets) and octets[end - unit] in leads:
            end -= unit
        parts.append(octets[start:end])
        start = end
    return parts
