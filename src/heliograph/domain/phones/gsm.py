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
EXTENSION = "\f^{}\\[~]|€"  # each is sent as an escape and a character

Encoding = Literal["gsm7", "ucs2"]
SINGLE: dict[Encoding, int] = {"gsm7": 160, "ucs2": 70}  # units in a message of one part (spec 8)
PART: dict[Encoding, int] = {"gsm7": 153, "ucs2": 67}  # units in one of several parts, after the header

_GSM = re.compile(f"[{re.escape(ALPHABET + EXTENSION)}]*")
# Characters of two units: escape pairs, surrogate pairs.
_WIDE: dict[Encoding, re.Pattern[str]] = {
    "gsm7": re.compile(f"[{re.escape(EXTENSION)}]"),
    "ucs2": re.compile("[\U00010000-\U0010ffff]"),
}


_OUTSIDE = re.compile(f"[^{re.escape(ALPHABET + EXTENSION)}]")
_RUN = re.compile(
    f"({_OUTSIDE.pattern}+)"
)  # matches whole runs, because combined letters and emoji consist of several characters
# Typographic characters with a plain equivalent.
_PLAIN = str.maketrans(
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
    spec: int  # segments by the spec's 160/70
    udh: int  # segments as counted on the air interface: 153/67 if there are several

    def billed(self, segmenting: Segmenting) -> int:
        return self.udh if segmenting == "udh" else self.spec


def segment(text: str) -> Segments:
    encoding: Encoding = "gsm7" if _GSM.fullmatch(text) else "ucs2"
    units = len(text) + len(_WIDE[encoding].findall(text))
    single = SINGLE[encoding]
    return Segments(
        encoding=encoding,
        units=units,
        spec=max(1, -(-units // single)),
        udh=1 if units <= single else _parts(text, _WIDE[encoding], PART[encoding]),
    )


def marked(text: str) -> list[tuple[str, bool]]:
    """Split the text into pieces; each is marked True if outside the GSM alphabet, which requires UCS-2."""
    return [(piece, at % 2 == 1) for at, piece in enumerate(_RUN.split(text)) if piece]


def outside(text: str) -> list[tuple[str, str]]:
    """Return the distinct characters that require UCS-2, with their Unicode names."""
    found = dict.fromkeys(_OUTSIDE.findall(text))
    return [(char, unicodedata.name(char, f"U+{ord(char):04X}").lower()) for char in found]


def plain(text: str) -> str:
    """Replace typographic characters by plain equivalents."""
    return text.translate(_PLAIN)


def _parts(text: str, wide: re.Pattern[str], size: int) -> int:
    """Return the number of parts if no escape or surrogate pair may be split."""
    units = wide.sub("\0.", text)  # NUL never occurs in a sent text, so it marks the first half of a pair
    parts, at = 0, 0
    while at < len(units):
        at += size - (units[at + size - 1 : at + size] == "\0")
        parts += 1
    return parts
