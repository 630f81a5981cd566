"""Searches all messages of a team by text fragments and immutable facts (ADR 0029).

Blocks of the index are read in growing steps, newest or oldest first. Each candidate from the index is checked against
its message; a block that is not indexed yet is scanned. One search reads at most about WALK messages and returns where
the next search continues.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from heliograph.domain.search.trigrams import (
    GRAM,
    SPAN,
    SPAN_BITS,
    SearchText,
    common,
    fact_marks,
    read_searched,
)
from heliograph.domain.sending.send_options import read_record
from heliograph.domain.setup.records import Channel
from heliograph.storage.engine.database import Tx
from heliograph.storage.search.index import existing_spans

WALK = 10_000  # messages that one search reads
STRIDE_MAX = 512
COUNT_SPANS = 1000  # four million messages, newest first
SAMPLES = 8  # blocks in which marks are counted
MARKS_MAX = 4  # maximum marks per text: the rarest ones exclude nearly everything
FEW = 200  # candidates in the first batches


class SearchFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions of a search; None matches anything."""

    team: int
    needle: SearchText | None
    channel: Channel | None
    template_id: str | None
    key_id: str | None
    domain: str | None
    tag: tuple[str, str] | None
    given: dict[str, Any]  # parameters that the message queries compare in SQL

    def fits(self, row: Sequence[Any]) -> bool:
        """Return whether a message row meets all conditions that SQL did not check."""
        _, id_, channel, _, template, _, record, key_id = row
        if self.channel not in (None, channel) or self.template_id not in (None, template):
            return False
        if self.key_id not in (None, key_id):
            return False
        if self.tag and self.tag not in read_record(record).tags.items():
            return False
        if self.needle is None and self.domain is None:
            return True
        said = read_searched(record)
        if self.domain not in (None, said.domain):
            return False
        return self.needle is None or self.needle.is_in(id_, said)

    def ways(self) -> list[list[str]]:
        """Return alternative lists of marks; a matching message has all marks of at least one list."""
        facts = fact_marks(
            team=self.team,
            channel=self.channel,
            key=self.key_id,
            template=self.template_id,
            domain=self.domain or "",
        )
        texts = self.needle.marks() if self.needle else [[]]
        return [facts + text for text in texts]

    def first_look(self) -> str | None:
        """Return a JSON-escaped word that every matching ASCII record contains, as a prefilter in SQL.

        Empty if any record may match; None if no ASCII record can match.
        """
        if self.needle is None or self.needle.digits:
            return ""
        words = self.needle.text.split(" ")
        word = max(words, key=len)
        return msgspec.json.encode(word).decode()[1:-1] if word.isascii() else None


class FoundRows(msgspec.Struct, frozen=True):
    """Result of one search."""

    rows: list[Sequence[Any]]  # in order; may be more than the limit
    reached: str | None = None  # id of the last message checked, if the search stopped before the end


async def find(tx: Tx, aim: SearchFilter, low: int, high: int, limit: int, oldest_first: bool) -> FoundRows:
    """Search the messages with keys from `low` to `high`, both included."""
    ends = low >> SPAN_BITS, high >> SPAN_BITS
    made = await _made(tx, *ends)
    ways = [await _rarest(tx, way, made) for way in aim.ways()]
    spans = existing_spans(tx, made, *ends, oldest_first=oldest_first)
    rows: list[Sequence[Any]] = []
    looked, stride, last = 0, 1, 0
    while len(rows) < limit and (some := await _take(spans, stride)):
        stride = min(2 * stride, STRIDE_MAX)
        places = await _places(tx, ways, [span for span in some if span in made])
        for batch in _batches(some, places, oldest_first, low, high, max(FEW, limit)):
            if looked >= WALK and (reached := await _id_at(tx, aim.team, last, (low, high), oldest_first)):
                return FoundRows(rows, reached)
            seen = await _read(tx, aim, batch, low, high)
            rows += [row for row in (seen if oldest_first else seen[::-1]) if aim.fits(row)]
            looked, last = looked + len(batch), batch[-1]
            if len(rows) >= limit:
                break
    return FoundRows(rows)


class Counted(NamedTuple):
    number: int
    more: bool = False  # counting stopped early: there may be more


async def count(tx: Tx, aim: SearchFilter, low: int, high: int, most: int) -> Counted:
    """Count possible matches by the index, up to `most` and within COUNT_SPANS blocks."""
    ends = low >> SPAN_BITS, high >> SPAN_BITS
    made = await _made(tx, *ends)
    ways = [await _rarest(tx, way, made) for way in aim.ways()]
    spans = existing_spans(tx, made, *ends, oldest_first=False)
    counted, looked, taken, stride = 0, 0, 0, 1
    some = await _take(spans, stride)
    while some and counted < most and looked < WALK:
        taken, stride = taken + len(some), min(2 * stride, STRIDE_MAX)
        places = await _places(tx, ways, [span for span in some if span in made])
        for batch in _batches(some, places, False, low, high, SPAN):
            if isinstance(batch, range):
                counted += sum(map(aim.fits, await _read(tx, aim, batch, low, high)))
                looked += SPAN
            else:
                counted += len(batch)
        if taken >= COUNT_SPANS:
            return Counted(min(most, counted), more=True)
        some = await _take(spans, stride)
    return Counted(min(most, counted), bool(some) or counted >= most)


async def _take(spans: AsyncIterator[int], count: int) -> list[int]:
    taken = list[int]()
    while len(taken) < count and (span := await anext(spans, None)) is not None:
        taken.append(span)
    return taken


async def _made(tx: Tx, low: int, high: int) -> set[int]:
    """Return the indexed blocks from `low` to `high`, without the newest block, which still grows."""
    ((_, newest),) = await tx.run("key_ends")
    rows = await tx.run("gram_spans", low=low, high=high)
    return {row[0] for row in rows} - {(newest or 0) >> SPAN_BITS}


async def _rarest(tx: Tx, marks: list[str], made: set[int]) -> list[str]:
    """Return the most selective marks, rarest first, by their frequency in a sample of blocks.

    The sample spans all blocks, because the newest may differ from the others.
    """
    some = sorted(made, reverse=True)[:: -(-len(made) // SAMPLES) or 1]
    sizes: Counter[str] = Counter()
    for _, mark, places in await tx.run("grams_at", wanted=[(span, mark) for span in some for mark in marks]):
        sizes[mark] += len(places)
    grams = sorted((mark for mark in marks if len(mark) <= GRAM), key=sizes.__getitem__)
    facts = [mark for mark in marks if len(mark) > GRAM]
    return sorted(grams[:MARKS_MAX] + facts, key=sizes.__getitem__)


async def _places(tx: Tx, ways: Iterable[list[str]], spans: Sequence[int]) -> dict[int, list[int]]:
    """Return the positions in each block at which a message may match, in ascending order.

    Each mark leaves fewer blocks to read for the next mark.
    """
    found: dict[int, set[int]] = {span: set() for span in spans}
    for marks in ways:
        lists: dict[int, list[bytes]] = {span: [] for span in spans}
        for mark in marks:
            rows = await tx.run("grams_at", wanted=[(span, mark) for span in lists]) if lists else []
            lists = {span: [*lists[span], places] for span, _, places in rows}
        for span, packed in lists.items():
            found[span].update(common(packed))
    return {span: sorted(places) for span, places in found.items()}


def _batches(
    spans: Iterable[int], places: dict[int, list[int]], oldest_first: bool, low: int, high: int, size: int
) -> Iterator[Sequence[int]]:
    """Yield keys to check, in order: index candidates in batches, or all keys of a block not indexed."""
    keys: list[int] = []
    for span in spans:
        first = span << SPAN_BITS
        if span not in places:
            yield from _portions(keys, size)
            keys = []
            whole = range(first, first + SPAN)
            yield whole if oldest_first else whole[::-1]
            continue
        some = [first + place for place in places[span] if low <= first + place <= high]
        keys += some if oldest_first else some[::-1]
    yield from _portions(keys, size)


def _portions(keys: list[int], size: int) -> Iterator[list[int]]:
    return (keys[start : start + size] for start in range(0, len(keys), size))


async def _read(tx: Tx, aim: SearchFilter, keys: Sequence[int], low: int, high: int) -> list[Any]:
    """Return messages in key order."""
    if isinstance(keys, range):
        ends = {"low": max(low, min(keys)), "high": min(high, max(keys)) + 1}
        return await tx.run("messages_between", team=aim.team, needle=aim.first_look(), **ends, **aim.given)
    rows = await tx.run("messages_at", keys=[(key,) for key in keys], team=aim.team, **aim.given)
    return sorted(rows, key=lambda row: int(row[0]))


async def _id_at(tx: Tx, team: int, key: int, ends: tuple[int, int], oldest_first: bool) -> str | None:
    """Return the id of the team's message with this key, or of the nearest one already checked in its block."""
    span = key >> SPAN_BITS
    low, high = (span << SPAN_BITS, key) if oldest_first else (key, (span + 1) << SPAN_BITS)
    rows = await tx.run("ids_between", team=team, low=max(low, ends[0]), high=min(high, ends[1]) + 1)
    return rows[-1 if oldest_first else 0][0] if rows else None
