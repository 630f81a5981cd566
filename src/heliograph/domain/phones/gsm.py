"""How many SMS segments a text takes: the GSM 03.38 alphabet, its extension, and UCS-2 for all else."""

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
PART: dict[Encoding, int] = {"gsm7": 153, "ucs2": 67}  # units in one of several parts, after their header

_GSM = re.compile(f"[{re.escape(ALPHABET + EXTENSION)}]*")
# What takes two units: an escape pair, a surrogate pair.
_WIDE: dict[Encoding, re.Pattern[str]] = {
    "gsm7": re.compile(f"[{re.escape(EXTENSION)}]"),
    "ucs2": re.compile("[\U00010000-\U0010ffff]"),
}


_OUTSIDE = re.compile(f"[^{re.escape(ALPHABET + EXTENSION)}]")
_RUN = re.compile(
    f"({_OUTSIDE.pattern}+)"
)  # whole: letters are joined to the next, and emoji are of several characters
# What word processors write where a key says something plainer.
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
    udh: int  # segments as the air interface counts them, 153/67 when there are several

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
    """Return the text in pieces, and of each whether it is outside the GSM alphabet, which makes it UCS-2."""
    return [(piece, at % 2 == 1) for at, piece in enumerate(_RUN.split(text)) if piece]


def outside(text: str) -> list[tuple[str, str]]:
    """Return the characters that make it UCS-2, each once and with its name."""
    found = dict.fromkeys(_OUTSIDE.findall(text))
    return [(char, unicodedata.name(char, f"U+{ord(char):04X}").lower()) for char in found]


def plain(text: str) -> str:
    """Replace characters by plainer ones that say the same."""
    return text.translate(_PLAIN)


def _parts(text: str, wide: re.Pattern[str], size: int) -> int:
    """Count the parts needed when an escape or surrogate pair stays whole."""
    units = wide.sub("\0.", text)  # NUL is in no text that is sent: it stands for the first half
    parts, at = 0, 0
    while at < len(units):
        at += size - (units[at + size - 1 : at + size] == "\0")
        parts += 1
    return parts
