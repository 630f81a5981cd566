"""Messages by parts of their texts and by what never changes about them, among all of a team's (ADR 0029).

Spans are asked for in growing strides from the newest on, or from the oldest. What the index gives is looked at
itself, and so is a span that the index does not have yet. One search looks at no more than WALK messages and says where
the next one goes on.
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

WALK = 10_000  # messages that one search looks at
STRIDE_MAX = 512
COUNT_SPANS = 1000  # four million messages, newest first
SAMPLES = 8  # spans in which marks are counted
MARKS_MAX = 4  # of a text: the rarest say nearly all
FEW = 200  # candidates that are read at a time at first


class SearchFilter(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for; None: anything."""

    team: int
    needle: SearchText | None
    channel: Channel | None
    template_id: str | None
    key_id: str | None
    domain: str | None
    tag: tuple[str, str] | None
    given: dict[str, Any]  # what the queries that read messages compare themselves

    def fits(self, row: Sequence[Any]) -> bool:
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
        """Return a part of what is looked for that a record of ASCII must have, as JSON writes it."""
        if self.needle is None or self.needle.digits:
            return ""
        words = self.needle.text.split(" ")
        word = max(words, key=len)
        return msgspec.json.encode(word).decode()[1:-1] if word.isascii() else None


class FoundRows(msgspec.Struct, frozen=True):
    rows: list[Sequence[Any]]  # in order; more than were asked for, maybe
    reached: str | None = None  # the id of the last message that was looked at, when it stopped before the end


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
    more: bool = False  # there may be: it was counted no further


async def count(tx: Tx, aim: SearchFilter, low: int, high: int, most: int) -> Counted:
    """Count how many may fit as far as the index says, no further than `most`, nor than COUNT_SPANS."""
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
    """Return the spans from `low` to `high` that the index has, but never the one that grows."""
    ((_, newest),) = await tx.run("key_ends")
    rows = await tx.run("gram_spans", low=low, high=high)
    return {row[0] for row in rows} - {(newest or 0) >> SPAN_BITS}


async def _rarest(tx: Tx, marks: list[str], made: set[int]) -> list[str]:
    """Choose the marks that leave most out, rarest first, as some spans have them: the newest may be unlike others."""
    some = sorted(made, reverse=True)[:: -(-len(made) // SAMPLES) or 1]
    sizes: Counter[str] = Counter()
    for _, mark, places in await tx.run("grams_at", wanted=[(span, mark) for span in some for mark in marks]):
        sizes[mark] += len(places)
    grams = sorted((mark for mark in marks if len(mark) <= GRAM), key=sizes.__getitem__)
    facts = [mark for mark in marks if len(mark) > GRAM]
    return sorted(grams[:MARKS_MAX] + facts, key=sizes.__getitem__)


async def _places(tx: Tx, ways: Iterable[list[str]], spans: Sequence[int]) -> dict[int, list[int]]:
    """Find where in each of these spans a message may fit, in rising order.

    Each mark leaves fewer spans for the next.
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
    """Yield keys to look at, in order: those that the index gives, in portions, or all of a span that it lacks."""
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
    """Read messages in the order of their keys."""
    if isinstance(keys, range):
        ends = {"low": max(low, min(keys)), "high": min(high, max(keys)) + 1}
        return await tx.run("messages_between", team=aim.team, needle=aim.first_look(), **ends, **aim.given)
    rows = await tx.run("messages_at", keys=[(key,) for key in keys], team=aim.team, **aim.given)
    return sorted(rows, key=lambda row: int(row[0]))


async def _id_at(tx: Tx, team: int, key: int, ends: tuple[int, int], oldest_first: bool) -> str | None:
    """Return the id of the team's message with this key, or of the nearest one in its span that was looked at."""
    span = key >> SPAN_BITS
    low, high = (span << SPAN_BITS, key) if oldest_first else (key, (span + 1) << SPAN_BITS)
    rows = await tx.run("ids_between", team=team, low=max(low, ends[0]), high=min(high, ends[1]) + 1)
    return rows[-1 if oldest_first else 0][0] if rows else None
