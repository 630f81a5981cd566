"""Finding parts of texts: what of a message is searched, the marks that it has, and packed lists of places (ADR 0029).

A mark is a gram, three characters in a row of a searched text, or a longer word for a fact that never changes: whose
the message is, its channel, key, template, sender domain, and the end of its id.
"""

import unicodedata
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec

SPAN_BITS = 12
SPAN = 1 << SPAN_BITS  # messages that share one list for each mark
GRAM = 3
NEEDLE_MAX = 200  # characters of what is looked for
TAIL = 4  # so much of an id's end has to be given
_DENSE = SPAN // 8  # bytes of a list with a bit for each place; shorter ones are places of two bytes each
_SIGNS = 0x2E80  # from here on scripts write a word in one or two signs: pairs of them are grams too


def fold(text: str) -> str:
    """Fold a text for comparison: case does not matter, nor how accents are put together."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).casefold()
    return text.lower().replace("\0", "")


class SearchText(msgspec.Struct, frozen=True):
    """What is looked for, in the ways that texts may write it."""

    text: str  # folded; its words may stand apart, in any order
    digits: str  # a phone number as it is stored, when it may be a part of one; else ""

    def is_in(self, id_: str, said: "SearchedRecord") -> bool:
        if len(self.text) >= TAIL and id_.lower().endswith(self.text):
            return True
        texts = [*searched(said)]
        if self.digits and any(self.digits in text for text in texts):
            return True
        return all(any(word in text for text in texts) for word in self.text.split(" "))

    def marks(self) -> list[list[str]]:
        """Return, for each way to find a message, the marks that the message has."""
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
    """What is searched of the answer to a message's sender."""

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
    """Return the texts of a message that are searched, folded: its subject and recipients."""
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
    """Return two pairs of letters: together they leave one message in a million."""
    end = id_[-TAIL:].lower()
    return [f"end1:{end[2:]}", f"end2:{end[:2]}"]


# -- lists of places ---------------------------------------------------------------------------------------------------


def pack(places: Sequence[int]) -> bytes:
    """Pack places, which are in rising order, little-endian."""
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
    """Return the places that all of them have, in rising order."""
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
