"""Decodes SMS bytes: GSM 03.38 with one septet per octet, UCS-2, and Latin-1 for any other data_coding."""

from heliograph.domain.phones.gsm import ALPHABET, EXTENSION

GSM7, UCS2 = 0, 8  # values of SMPP's data_coding

ESCAPE = 0x1B  # code of the escape character, which ALPHABET does not contain
_EXTENSION_CODES = b"\x0a\x14\x28\x29\x2f\x3c\x3d\x3e\x40\x65"
CODE_BY_CHARACTER: dict[int, bytes] = {
    **{ord(char): bytes((position + (position >= ESCAPE),)) for position, char in enumerate(ALPHABET)},
    **{ord(char): bytes((ESCAPE, code)) for char, code in zip(EXTENSION, _EXTENSION_CODES, strict=True)},
}

_CHARACTER_BY_CODE = {(len(octets) > 1, octets[-1]): chr(letter) for letter, octets in CODE_BY_CHARACTER.items()}


def from_octets(coding: int, octets: bytes) -> str:
    """Decode the text of an inbound SMS; invalid GSM 03.38 codes are skipped."""
    if coding == UCS2:
        return octets.decode("utf-16-be", "replace")
    if coding != GSM7:
        return octets.decode("latin-1")
    text, escaped = "", False
    for octet in octets:
        if octet == ESCAPE:
            escaped = True
            continue
        text += _CHARACTER_BY_CODE.get((escaped, octet), "")
        escaped = False
    return text
