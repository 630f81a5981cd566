"""A text as octets: GSM-7 with one septet per octet, or UCS-2, split into parts between characters."""

import codecs

from heliograph.domain.phones.gsm import PART, SINGLE
from heliograph.domain.phones.sms_octets import CODES, ESCAPE, GSM7, UCS2

# Octets in a single part, in one of several parts, in a unit; and what starts a pair of units.
_MEASURES = {
    GSM7: (SINGLE["gsm7"], PART["gsm7"], 1, frozenset((ESCAPE,))),
    UCS2: (SINGLE["ucs2"] * 2, PART["ucs2"] * 2, 2, frozenset(range(0xD8, 0xDC))),
}


def to_octets(text: str) -> tuple[int, bytes]:
    """Return the data_coding, and the text in it."""
    try:
        return GSM7, codecs.charmap_encode(text, "strict", CODES)[0]
    except UnicodeEncodeError:
        return UCS2, text.encode("utf-16-be", "replace")


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
