"""The trigram index of messages (ADR 0029), built in the background, block by block, by any process.

A block covers SPAN consecutive message keys. A block is built when no message can be added to it any more: when all its
keys exist, or when its newest message is older than any open transaction. A block is rebuilt a day after messages of it
were deleted. An erased address is removed from the index at once.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any

from heliograph.domain.limits import DAY_MS
from heliograph.domain.search.trigrams import (
    SPAN,
    SPAN_BITS,
    fact_marks,
    grams,
    pack,
    read_searched,
    searched,
    tail_marks,
    text_marks,
    unpack,
)
from heliograph.runtime.clock import Clock
from heliograph.storage.engine.database import Database, Tx

SETTLED_MS = 300_000  # longer than any transaction may last
WORN_MS = DAY_MS
MISSING_MAX = 64  # maximum number of unbuilt blocks to choose from
SLICE = 64  # messages processed before yielding to the event loop
REST_S = 0.002


class Grams:
    """Builds the trigram index."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def build_next(self) -> bool:
        """Build one missing or stale block; return False if there is nothing to do."""
        now, chance = self._clock.now(), int.from_bytes(self._clock.entropy(4))
        spans = await self._database.read(partial(_left, now=now))
        if not spans:
            return False
        span = spans[0 if chance & 1 else chance % len(spans)]  # random, so that processes rarely build the same
        turn, rows = await self._database.read(partial(_messages, span=span))
        if not _is_settled(rows, now):
            return len(spans) > 1
        lists = await _packed(span, await _marked(rows))
        return await self._database.write(partial(_write, span=span, turn=turn, count=len(rows), lists=lists, now=now))


async def _left(tx: Tx, now: int) -> list[int]:
    """Return the blocks to build, newest first: up to MISSING_MAX never built, otherwise stale ones."""
    ((first, last),) = await tx.run("key_ends")
    if first is None:
        return []
    low, high = first >> SPAN_BITS, (last >> SPAN_BITS) - 1  # the last block still grows
    made = {row[0] for row in await tx.run("gram_spans", low=low, high=high)}
    missing = list[int]()
    async for span in existing_spans(tx, made, low, high, oldest_first=False):
        if span not in made:
            missing.append(span)
        if len(missing) == MISSING_MAX:
            break
    return missing or [row[0] for row in await tx.run("worn_spans", before=now - WORN_MS)]


async def existing_spans(tx: Tx, made: Set[int], low: int, high: int, *, oldest_first: bool) -> AsyncIterator[int]:
    """Yield the blocks from `low` to `high`, both included, that are in `made` or contain messages.

    A gap between keys takes one query, however wide it is.
    """
    step = 1 if oldest_first else -1
    span = low if oldest_first else high
    while low <= span <= high:
        if span not in made:
            ends = (span, high + 1) if oldest_first else (low, span + 1)
            given = {"low": ends[0] << SPAN_BITS, "high": ends[1] << SPAN_BITS}
            ((first, last),) = await tx.run("key_ends_between", **given)
            if first is None:
                return
            span = (first if oldest_first else last) >> SPAN_BITS
        yield span
        span += step


async def _messages(tx: Tx, span: int) -> tuple[int, list[Any]]:
    """Return the erasure counter and the messages of a block; the counter detects erasures since this read."""
    ((turn,),) = await tx.run("lock_grams")
    return turn, await tx.run("gram_messages", low=span << SPAN_BITS, high=(span + 1) << SPAN_BITS)


def _is_settled(rows: Sequence[Any], now: int) -> bool:
    """Return whether no further message can appear in the block."""
    return len(rows) == SPAN or not rows or max(row[6] for row in rows) < now - SETTLED_MS


async def _marked(rows: Sequence[Any]) -> dict[str, list[int]]:
    """Map each mark (trigram or fact) to the positions of the messages that have it.

    Yields to the event loop after every few messages. A text that recurs is split into trigrams only once.
    """
    facts: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    texts: dict[str, list[int]] = defaultdict(list)
    marks: dict[str, list[int]] = defaultdict(list)
    for start in range(0, len(rows), SLICE):
        for key, id_, team, channel, key_id, template, _, record in rows[start : start + SLICE]:
            place, said = key & (SPAN - 1), read_searched(record)
            facts[team, channel, key_id, template, said.domain].append(place)
            for mark in tail_marks(id_):
                marks[mark].append(place)
            for text in searched(said):
                texts[text].append(place)
        await asyncio.sleep(REST_S)
    for (team, channel, key_id, template, domain), places in facts.items():
        for mark in fact_marks(team=team, channel=channel, key=key_id, template=template, domain=domain):
            marks[mark] += places
    for number, (text, places) in enumerate(texts.items(), 1):
        for mark in grams(text):
            marks[mark] += places
        if number % SLICE == 0:
            await asyncio.sleep(REST_S)
    return marks


async def _packed(span: int, marks: Mapping[str, list[int]]) -> list[tuple[int, str, str]]:
    """Return rows (block, mark, packed positions) to insert."""
    lists = []
    for number, (mark, places) in enumerate(sorted(marks.items()), 1):
        lists.append((span, mark, pack(sorted(set(places))).hex()))
        if number % SLICE == 0:
            await asyncio.sleep(REST_S)
    return lists


async def _write(tx: Tx, span: int, turn: int, count: int, lists: Sequence[Any], now: int) -> bool:
    """Write the block unless messages were erased or deleted since it was read; then a later call reads it again."""
    ((current,),) = await tx.run("lock_grams")
    ((there,),) = await tx.run("count_keys", low=span << SPAN_BITS, high=(span + 1) << SPAN_BITS)
    if (current, there) == (turn, count):
        await tx.run("drop_grams", span=span)
        await tx.run("insert_grams", grams=lists)
        await tx.run("note_span", span=span, now=now)
    return True


# -- removal -----------------------------------------------------------------------------------------------------------


async def begin_to_erase(tx: Tx) -> None:
    """Invalidate blocks that are being built; call this first in the erasing transaction."""
    await tx.run("grams_erased")


async def forget(tx: Tx, texts: Iterable[tuple[int, str, str]]) -> None:
    """Remove marks that only the former records had.

    `texts`: message key, record before and record after.
    """
    places: dict[tuple[int, str], set[int]] = defaultdict(set)
    for key, before, after in texts:
        for mark in text_marks(before) - text_marks(after):
            places[key >> SPAN_BITS, mark].add(key & (SPAN - 1))
    kept: Mapping[tuple[int, str], list[int]] = {
        (span, mark): [place for place in unpack(packed) if place not in places[span, mark]]
        for span, mark, packed in await tx.run("grams_at", wanted=[*places])
    }
    await tx.run("update_grams", grams=[(*at, pack(left).hex()) for at, left in kept.items() if left])
    await tx.run("delete_grams", marks=[at for at, left in kept.items() if not left])


async def note_deleted(tx: Tx, keys: Iterable[int]) -> None:
    """Count deleted messages per block, in the transaction that deletes them; drop blocks left empty."""
    gone = Counter(key >> SPAN_BITS for key in keys)
    await tx.run("count_gone", spans=sorted(gone.items()))
    for (span,) in await tx.run("empty_spans"):
        await tx.run("drop_grams", span=span)
        await tx.run("forget_span", span=span)
