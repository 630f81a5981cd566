"""Encodes texts as GSM-7 (one septet per byte) or UCS-2, and splits them into parts between characters."""

import codecs

from heliograph.domain.phones.gsm import MULTIPART_UNITS, SINGLE_PART_UNITS
from heliograph.domain.phones.sms_octets import CODE_BY_CHARACTER, ESCAPE, GSM7, UCS2

# Bytes in a single-part message, bytes in one of several parts, bytes in a code unit, and the first bytes of pairs of
# code units that must not be split.
_LIMITS_BY_CODING = {
    GSM7: (SINGLE_PART_UNITS["gsm7"], MULTIPART_UNITS["gsm7"], 1, frozenset((ESCAPE,))),
    UCS2: (SINGLE_PART_UNITS["ucs2"] * 2, MULTIPART_UNITS["ucs2"] * 2, 2, frozenset(range(0xD8, 0xDC))),
}


def encode_text(text: str) -> tuple[int, bytes]:
    """Return the data_coding and the encoded text: GSM-7 if possible, else UCS-2."""
    try:
        return GSM7, codecs.charmap_encode(text, "strict", CODE_BY_CHARACTER)[0]
    except UnicodeEncodeError:
        return UCS2, text.encode("utf-16-be", "replace")


def fits_single_part(coding: int, octets: bytes) -> bool:
    """Return whether the encoded text fits in a single part."""
    return len(octets) <= _LIMITS_BY_CODING[coding][0]


def split_into_parts(coding: int, octets: bytes) -> list[bytes]:
    """Split an encoded text into the parts of a long message."""
    _, size, unit, pair_starts = _LIMITS_BY_CODING[coding]
    parts, start = [], 0
    while start < len(octets):
        end = start + size
        if end < len(octets) and octets[end - unit] in pair_starts:
            end -= unit
        parts.append(octets[start:end])
        start = end
    return parts
