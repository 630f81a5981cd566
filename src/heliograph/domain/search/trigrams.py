"""Trigram search: a message's searchable texts and index terms; lists of messages per term (ADR 0029).

An index term (in the database: `mark`) is a trigram of a searched text, or a longer word for a property that never
changes: the message's team, channel, key, template, sender domain, and the end of its id.
"""

import unicodedata
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec

BLOCK_BITS = 12
BLOCK_SIZE = 1 << BLOCK_BITS  # messages that share one posting list per term
TRIGRAM_LENGTH = 3
QUERY_MAX = 200  # maximum characters of a query
ID_TAIL_MIN = 4  # minimum characters to match the end of an id
_BITMAP_BYTES = BLOCK_SIZE // 8  # size of a posting list as a bitmap; shorter lists store two bytes per position
# From this code point on, scripts write a word in one or two characters, so pairs are index terms too
_IDEOGRAPHS_START = 0x2E80


def normalize(text: str) -> str:
    """Return the text in lower case and in a single Unicode form, so that equal texts compare equal."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).casefold()
    return text.lower().replace("\0", "")


class SearchQuery(msgspec.Struct, frozen=True):
    """A parsed search query: normalised text, and its digits without separators if it looks like a phone number."""

    text: str  # normalised; its words may occur in any order
    digits: str  # phone number as stored, if the query may be part of one; otherwise ""

    def matches(self, id_: str, record: "SearchedRecord") -> bool:
        if len(self.text) >= ID_TAIL_MIN and id_.lower().endswith(self.text):
            return True
        texts = [*searchable_texts(record)]
        if self.digits and any(self.digits in text for text in texts):
            return True
        return all(any(word in text for text in texts) for word in self.text.split(" "))

    def term_sets(self) -> list[list[str]]:
        """Return a list of index terms for each alternative way in which a message can match."""
        alternatives = [sorted(set().union(*map(trigrams, self.text.split(" "))))]
        if self.digits:
            alternatives.append(sorted(trigrams(self.digits)))
        if is_id_tail(self.text):
            alternatives.append(id_tail_terms(self.text))
        return alternatives


def parse_query(query: str) -> SearchQuery | None:
    text = normalize(" ".join(query.split()))[:QUERY_MAX]
    if not text:
        return None
    compact = "".join(character for character in text if character not in " -().")
    is_phone = (
        len(compact) >= TRIGRAM_LENGTH and compact != text and compact.isascii() and compact.removeprefix("+").isdigit()
    )
    return SearchQuery(text, compact if is_phone else "")


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


decode_searched: Callable[[str], SearchedRecord] = msgspec.json.Decoder(SearchedRecord).decode


def searchable_texts(record: SearchedRecord) -> list[str]:
    """Return the normalised searched texts of a message: its subject and recipients."""
    texts = record.to_addresses or ([record.to] if record.to else [])
    if record.cc or record.bcc:
        texts = [*texts, *record.cc, *record.bcc]
    if record.subject:
        texts = [*texts, " ".join(record.subject.split())]
    return [normalize(text) for text in texts]


def trigrams(text: str) -> set[str]:
    terms = {text[i : i + TRIGRAM_LENGTH] for i in range(len(text) - TRIGRAM_LENGTH + 1)}
    if not text.isascii():
        terms |= {a + b for a, b in pairwise(text) if ord(a) >= _IDEOGRAPHS_START and ord(b) >= _IDEOGRAPHS_START}
    return terms


def text_terms(record: str) -> set[str]:
    return set().union(*map(trigrams, searchable_texts(decode_searched(record))))


def property_terms(
    *, team: int, channel: str | None = None, key: str | None = None, template: str | None = None, domain: str = ""
) -> list[str]:
    attributes = {"channel": channel, "key": key, "template": template, "from": domain}
    return [f"team:{team}", *(f"{name}:{value}" for name, value in attributes.items() if value)]


def is_id_tail(text: str) -> bool:
    return len(text) >= ID_TAIL_MIN and text.isascii() and text.isalnum()


def id_tail_terms(id_: str) -> list[str]:
    """Return two index terms for the end of an id, which together match about one message in a million."""
    tail = id_[-ID_TAIL_MIN:].lower()
    return [f"end1:{tail[2:]}", f"end2:{tail[:2]}"]


# -- posting lists -----------------------------------------------------------------------------------------


def pack(positions: Sequence[int]) -> bytes:
    """Pack positions, which are in ascending order, as little-endian integers."""
    if 2 * len(positions) < _BITMAP_BYTES:
        return _to_array(array("H", positions).tobytes()).tobytes()
    bits = bytearray(b"0" * BLOCK_SIZE)
    for position in positions:
        bits[-1 - position] = 49  # ord("1")
    return int(bits, 2).to_bytes(_BITMAP_BYTES, "little")


def unpack(packed: bytes) -> list[int]:
    if len(packed) == _BITMAP_BYTES:
        return _bit_positions(int.from_bytes(packed, "little"))
    return _to_array(packed).tolist()


def intersect(lists: Iterable[bytes]) -> list[int]:
    """Return the positions contained in all lists, in ascending order."""
    bits, positions = -1, None
    for packed in sorted(lists, key=len):
        if len(packed) == _BITMAP_BYTES:
            bits &= int.from_bytes(packed, "little")
        else:
            listed = _to_array(packed)
            positions = set(listed) if positions is None else positions.intersection(listed)
            if not positions:
                return []
    if positions is None:
        return _bit_positions(bits)
    return sorted(position for position in positions if bits >> position & 1)


def _to_array(packed: bytes) -> "array[int]":
    values = array("H", packed)
    if _IS_BIG_ENDIAN:
        values.byteswap()
    return values


def _bit_positions(bits: int) -> list[int]:
    return [position for position, bit in enumerate(bin(bits)[:1:-1]) if bit == "1"]


_IS_BIG_ENDIAN = array("H", b"\1\0")[0] != 1
