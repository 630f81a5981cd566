"""SMS segment counting: the GSM 03.38 alphabet, its extension, and UCS-2 for all other text."""

import re
import unicodedata
from typing import Literal

import msgspec

from heliograph.domain.setup.records import Segmenting

ALPHABET = (
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
EXTENSION = "\f^{}\\[~]|€"  # characters that take two units: an escape and a code

Encoding = Literal["gsm7", "ucs2"]
SINGLE_PART_UNITS: dict[Encoding, int] = {"gsm7": 160, "ucs2": 70}  # units in a message of one part (spec 8)
MULTIPART_UNITS: dict[Encoding, int] = {"gsm7": 153, "ucs2": 67}  # units in one of several parts, after the header

# Characters of two units: escape pairs, surrogate pairs.
_TWO_UNIT_CHARACTER: dict[Encoding, re.Pattern[str]] = {
    "gsm7": re.compile(f"[{re.escape(EXTENSION)}]"),
    "ucs2": re.compile("[\U00010000-\U0010ffff]"),
}
_NON_GSM_CHARACTER = re.compile(f"[^{re.escape(ALPHABET + EXTENSION)}]")
# Matches whole runs, because combined letters and emoji consist of several characters
_NON_GSM_RUN = re.compile(f"({_NON_GSM_CHARACTER.pattern}+)")
# Typographic characters with a plain equivalent.
_PLAIN_EQUIVALENTS = str.maketrans(
    {
        **dict.fromkeys("“”„«»″", '"'),
        **dict.fromkeys("‘’‚`´′", "'"),
        **dict.fromkeys("‐‑‒–—−", "-"),
        **dict.fromkeys("\u00a0\u2007\u2009\u202f\t", " "),
        **dict.fromkeys("\u200b\u2060\ufeff", ""),
        "…": "...",
        "•": "*",
        "×": "x",
    }
)


class Segments(msgspec.Struct, frozen=True, kw_only=True):
    encoding: Encoding
    units: int
    spec: int  # number of segments by the spec: 160 or 70 units each
    udh: int  # number of segments that are transmitted: 153 or 67 units each if there are several

    def billed(self, segmenting: Segmenting) -> int:
        return self.udh if segmenting == "udh" else self.spec


def count_segments(text: str) -> Segments:
    encoding: Encoding = "ucs2" if _NON_GSM_CHARACTER.search(text) else "gsm7"
    units = len(text) + len(_TWO_UNIT_CHARACTER[encoding].findall(text))
    single = SINGLE_PART_UNITS[encoding]
    return Segments(
        encoding=encoding,
        units=units,
        spec=max(1, -(-units // single)),
        udh=1 if units <= single else _count_parts(text, _TWO_UNIT_CHARACTER[encoding], MULTIPART_UNITS[encoding]),
    )


def split_by_alphabet(text: str) -> list[tuple[str, bool]]:
    """Split the text into pieces, each marked True if its characters are outside the GSM alphabet and require UCS-2."""
    return [(piece, index % 2 == 1) for index, piece in enumerate(_NON_GSM_RUN.split(text)) if piece]


def non_gsm_characters(text: str) -> list[tuple[str, str]]:
    """Return the distinct characters outside the GSM alphabet, which require UCS-2, with their Unicode names."""
    characters = dict.fromkeys(_NON_GSM_CHARACTER.findall(text))
    return [(char, unicodedata.name(char, f"U+{ord(char):04X}").lower()) for char in characters]


def replace_typography(text: str) -> str:
    """Replace typographic characters by plain equivalents."""
    return text.translate(_PLAIN_EQUIVALENTS)


def _count_parts(text: str, two_unit_character: re.Pattern[str], part_units: int) -> int:
    """Return the number of parts of a long text; a character of two units is never split between parts."""
    units = two_unit_character.sub("\0.", text)  # NUL never occurs in a sent text, so it marks a first unit
    parts, position = 0, 0
    while position < len(units):
        position += part_units - (units[position + part_units - 1 : position + part_units] == "\0")
        parts += 1
    return parts
