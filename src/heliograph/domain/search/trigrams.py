"""Trigram search: the searched texts of a message, its index terms, and packed posting lists (ADR 0029).

An index term ("mark") is a trigram of a searched text, or a longer word for an immutable fact: the message's team,
channel, key, template, sender domain, and the end of its id.
"""

import unicodedata
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec

SPAN_BITS = 12
SPAN = 1 << SPAN_BITS  # messages that share one posting list per term
GRAM = 3
NEEDLE_MAX = 200  # maximum characters of a query
TAIL = 4  # minimum characters to match the end of an id
_DENSE = SPAN // 8  # bytes of a bitmap posting list; shorter lists store two bytes per position
_SIGNS = 0x2E80  # from this code point on, scripts write a word in one or two characters, so pairs are index terms too


def fold(text: str) -> str:
    """Normalise a text for comparison: ignores case and the composition of accents."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).casefold()
    return text.lower().replace("\0", "")


class SearchText(msgspec.Struct, frozen=True):
    """A search query, in the forms in which texts may contain it."""

    text: str  # normalised; its words may occur in any order
    digits: str  # phone number as stored, if the query may be part of one; otherwise ""

    def is_in(self, id_: str, said: "SearchedRecord") -> bool:
        if len(self.text) >= TAIL and id_.lower().endswith(self.text):
            return True
        texts = [*searched(said)]
        if self.digits and any(self.digits in text for text in texts):
            return True
        return all(any(word in text for text in texts) for word in self.text.split(" "))

    def marks(self) -> list[list[str]]:
        """Return the index terms required by each alternative way to match a message."""
        ways = [sorted(set().union(*map(grams, self.text.split(" "))))]
        if self.digits:
            ways.append(sorted(grams(self.digits)))
        if is_tail(self.text):
            ways.append(tail_marks(self.text))
        return ways


def read_search_text(typed: str) -> SearchText | None:
    text = fold(" ".join(typed.split()))[:NEEDLE_MAX]
    if not text:
        return None
    bare = "".join(letter for letter in text if letter not in " -().")
    is_phone = len(bare) >= GRAM and bare != text and bare.isascii() and bare.removeprefix("+").isdigit()
    return SearchText(text, bare if is_phone else "")


class SearchedRecord(msgspec.Struct, frozen=True, gc=False):
    """Searched fields of a message's response record."""

    subject: str | None = None
    to: str | None = None
    to_addresses: list[str] = []
    cc: list[str] = []
    bcc: list[str] = []
    sender: str | None = msgspec.field(name="from", default=None)

    @property
    def domain(self) -> str:
        return (self.sender or "").rpartition("@")[2].rstrip(">").lower()


read_searched: Callable[[str], SearchedRecord] = msgspec.json.Decoder(SearchedRecord).decode


def searched(said: SearchedRecord) -> list[str]:
    """Return the normalised searched texts of a message: its subject and recipients."""
    texts = said.to_addresses or ([said.to] if said.to else [])
    if said.cc or said.bcc:
        texts = [*texts, *said.cc, *said.bcc]
    if said.subject:
        texts = [*texts, " ".join(said.subject.split())]
    return [fold(text) for text in texts]


def grams(text: str) -> set[str]:
    found = {text[i : i + GRAM] for i in range(len(text) - GRAM + 1)}
    if not text.isascii():
        found |= {a + b for a, b in pairwise(text) if ord(a) >= _SIGNS and ord(b) >= _SIGNS}
    return found


def text_marks(record: str) -> set[str]:
    return set().union(*map(grams, searched(read_searched(record))))


def fact_marks(
    *, team: int, channel: str | None = None, key: str | None = None, template: str | None = None, domain: str = ""
) -> list[str]:
    facts = {"channel": channel, "key": key, "template": template, "from": domain}
    return [f"team:{team}", *(f"{name}:{value}" for name, value in facts.items() if value)]


def is_tail(text: str) -> bool:
    return len(text) >= TAIL and text.isascii() and text.isalnum()


def tail_marks(id_: str) -> list[str]:
    """Return two terms of two characters each; together they match one message in a million."""
    end = id_[-TAIL:].lower()
    return [f"end1:{end[2:]}", f"end2:{end[:2]}"]


# -- posting lists -----------------------------------------------------------------------------------------


def pack(places: Sequence[int]) -> bytes:
    """Pack positions, in ascending order, as little-endian."""
    if 2 * len(places) < _DENSE:
        return _array(array("H", places).tobytes()).tobytes()
    bits = bytearray(b"0" * SPAN)
    for place in places:
        bits[-1 - place] = 49  # "1"
    return int(bits, 2).to_bytes(_DENSE, "little")


def unpack(packed: bytes) -> list[int]:
    if len(packed) == _DENSE:
        return _places(int.from_bytes(packed, "little"))
    return _array(packed).tolist()


def common(lists: Iterable[bytes]) -> list[int]:
    """Return the positions contained in all lists, in ascending order."""
    bits, few = -1, None
    for packed in sorted(lists, key=len):
        if len(packed) == _DENSE:
            bits &= int.from_bytes(packed, "little")
        else:
            more = _array(packed)
            few = set(more) if few is None else few.intersection(more)
            if not few:
                return []
    if few is None:
        return _places(bits)
    return sorted(place for place in few if bits >> place & 1)


def _array(packed: bytes) -> "array[int]":
    found = array("H", packed)
    if _IS_BIG:
        found.byteswap()
    return found


def _places(bits: int) -> list[int]:
    return [place for place, bit in enumerate(bin(bits)[:1:-1]) if bit == "1"]


_IS_BIG = array("H", b"\1\0")[0] != 1
