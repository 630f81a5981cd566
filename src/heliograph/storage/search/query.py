"""Searches all messages of a team by parts of their texts, and by properties such as channel and API key (ADR 0029).

Blocks of the index are read in growing steps, newest or oldest first. Each candidate from the index is checked against
its message; a block that is not indexed yet is scanned. One search reads at most about READ_MAX messages and returns
where the next search continues.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from heliograph.domain.search.trigrams import (
    BLOCK_BITS,
    BLOCK_SIZE,
    TRIGRAM_LENGTH,
    SearchQuery,
    decode_searched,
    intersect,
    property_terms,
)
from heliograph.domain.sending.send_options import decode_record
from heliograph.domain.setup.records import Channel
from heliograph.storage.engine.database import Tx
from heliograph.storage.search.index import existing_blocks

READ_MAX = 10_000  # approximate maximum number of messages that one search reads
STEP_MAX = 512  # maximum blocks that are read at once
COUNT_BLOCKS_MAX = 1000  # four million messages, newest first
SAMPLED_BLOCKS = 8  # blocks in which index terms are counted
TERMS_MAX = 4  # maximum index terms per text: the rarest ones already exclude nearly all other messages
FIRST_BATCH = 200  # candidates in the first batches


class SearchFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions of a search; a condition that is None matches every message."""

    team: int
    needle: SearchQuery | None
    channel: Channel | None
    template_id: str | None
    key_id: str | None
    domain: str | None
    tag: tuple[str, str] | None
    sql_params: dict[str, Any]  # parameters that the message queries compare in SQL

    def matches(self, row: Sequence[Any]) -> bool:
        """Return whether a message row meets all conditions that SQL did not check."""
        _, id_, channel, _, template_id, _, record, key_id = row
        if self.channel not in (None, channel) or self.template_id not in (None, template_id):
            return False
        if self.key_id not in (None, key_id):
            return False
        if self.tag and self.tag not in decode_record(record).tags.items():
            return False
        if self.needle is None and self.domain is None:
            return True
        searchable = decode_searched(record)
        if self.domain not in (None, searchable.domain):
            return False
        return self.needle is None or self.needle.matches(id_, searchable)

    def alternative_terms(self) -> list[list[str]]:
        """Return alternative lists of index terms; a matching message has all terms of at least one list."""
        property_list = property_terms(
            team=self.team, channel=self.channel, key=self.key_id, template=self.template_id, domain=self.domain or ""
        )
        term_sets = self.needle.term_sets() if self.needle else [[]]
        return [property_list + terms for terms in term_sets]

    def prefilter_word(self) -> str | None:
        """Return a JSON-escaped word that every matching ASCII record contains, as a prefilter in SQL.

        Empty if any record may match; None if no ASCII record can match.
        """
        if self.needle is None or self.needle.digits:
            return ""
        words = self.needle.text.split(" ")
        word = max(words, key=len)
        return msgspec.json.encode(word).decode()[1:-1] if word.isascii() else None


class SearchResult(msgspec.Struct, frozen=True):
    """Messages found by one search, and where the next search continues."""

    rows: list[Sequence[Any]]  # in order; may be more than the limit
    continue_at: str | None = None  # id of the last message checked, if the search stopped before the end


async def find_messages(
    tx: Tx, search_filter: SearchFilter, lowest: int, highest: int, limit: int, oldest_first: bool
) -> SearchResult:
    """Search the messages with keys from `lowest` to `highest`, both included."""
    block_range = lowest >> BLOCK_BITS, highest >> BLOCK_BITS
    built = await _built_blocks(tx, *block_range)
    alternatives = [await _most_selective(tx, terms, built) for terms in search_filter.alternative_terms()]
    blocks = existing_blocks(tx, built, *block_range, oldest_first=oldest_first)
    rows: list[Sequence[Any]] = []
    checked, step, last_key = 0, 1, 0
    while len(rows) < limit and (batch_blocks := await _take_blocks(blocks, step)):
        step = min(2 * step, STEP_MAX)
        positions = await _candidate_positions(tx, alternatives, [block for block in batch_blocks if block in built])
        for batch in _key_batches(batch_blocks, positions, oldest_first, lowest, highest, max(FIRST_BATCH, limit)):
            if checked >= READ_MAX and (
                continue_at := await _continue_id(tx, search_filter.team, last_key, (lowest, highest), oldest_first)
            ):
                return SearchResult(rows, continue_at)
            messages = await _read_messages(tx, search_filter, batch, lowest, highest)
            rows += [row for row in (messages if oldest_first else messages[::-1]) if search_filter.matches(row)]
            checked, last_key = checked + len(batch), batch[-1]
            if len(rows) >= limit:
                break
    return SearchResult(rows)


class CountResult(NamedTuple):
    number: int
    is_lower_bound: bool = False  # counting stopped early: there may be more


async def count_messages(tx: Tx, search_filter: SearchFilter, lowest: int, highest: int, limit: int) -> CountResult:
    """Count possible matches by the index, up to `limit` and within COUNT_BLOCKS_MAX blocks."""
    block_range = lowest >> BLOCK_BITS, highest >> BLOCK_BITS
    built = await _built_blocks(tx, *block_range)
    alternatives = [await _most_selective(tx, terms, built) for terms in search_filter.alternative_terms()]
    blocks = existing_blocks(tx, built, *block_range, oldest_first=False)
    total, checked, taken_blocks, step = 0, 0, 0, 1
    batch_blocks = await _take_blocks(blocks, step)
    while batch_blocks and total < limit and checked < READ_MAX:
        taken_blocks, step = taken_blocks + len(batch_blocks), min(2 * step, STEP_MAX)
        positions = await _candidate_positions(tx, alternatives, [block for block in batch_blocks if block in built])
        for batch in _key_batches(batch_blocks, positions, False, lowest, highest, BLOCK_SIZE):
            if isinstance(batch, range):
                total += sum(
                    map(search_filter.matches, await _read_messages(tx, search_filter, batch, lowest, highest))
                )
                checked += BLOCK_SIZE
            else:
                total += len(batch)
        if taken_blocks >= COUNT_BLOCKS_MAX:
            return CountResult(min(limit, total), is_lower_bound=True)
        batch_blocks = await _take_blocks(blocks, step)
    return CountResult(min(limit, total), bool(batch_blocks) or total >= limit)


async def _take_blocks(blocks: AsyncIterator[int], count: int) -> list[int]:
    taken = list[int]()
    while len(taken) < count and (block := await anext(blocks, None)) is not None:
        taken.append(block)
    return taken


async def _built_blocks(tx: Tx, lowest: int, highest: int) -> set[int]:
    """Return the indexed blocks from `lowest` to `highest`, without the newest block, which still grows."""
    ((_, newest_key),) = await tx.run("key_ends")
    rows = await tx.run("indexed_blocks", low=lowest, high=highest)
    return {row[0] for row in rows} - {(newest_key or 0) >> BLOCK_BITS}


async def _most_selective(tx: Tx, terms: list[str], built: set[int]) -> list[str]:
    """Return the most selective index terms, rarest first, by their frequency in a sample of blocks.

    The sample spans all blocks, because the newest blocks may differ from the others.
    """
    sample = sorted(built, reverse=True)[:: -(-len(built) // SAMPLED_BLOCKS) or 1]
    size_by_term: Counter[str] = Counter()
    for _, term, packed in await tx.run("find_grams", keys=[(block, term) for block in sample for term in terms]):
        size_by_term[term] += len(packed)
    trigrams = sorted((term for term in terms if len(term) <= TRIGRAM_LENGTH), key=size_by_term.__getitem__)
    property_list = [term for term in terms if len(term) > TRIGRAM_LENGTH]
    return sorted(trigrams[:TERMS_MAX] + property_list, key=size_by_term.__getitem__)


async def _candidate_positions(
    tx: Tx, alternatives: Iterable[list[str]], blocks: Sequence[int]
) -> dict[int, list[int]]:
    """Return the positions in each block at which a message may match, in ascending order.

    A block that lacks a term is not read for the following terms.
    """
    positions_by_block: dict[int, set[int]] = {block: set() for block in blocks}
    for terms in alternatives:
        packed_by_block: dict[int, list[bytes]] = {block: [] for block in blocks}
        for term in terms:
            if not packed_by_block:
                break
            rows = await tx.run("find_grams", keys=[(block, term) for block in packed_by_block])
            packed_by_block = {block: [*packed_by_block[block], positions] for block, _, positions in rows}
        for block, packed_lists in packed_by_block.items():
            positions_by_block[block].update(intersect(packed_lists))
    return {block: sorted(positions) for block, positions in positions_by_block.items()}


def _key_batches(
    blocks: Iterable[int],
    positions_by_block: dict[int, list[int]],
    oldest_first: bool,
    lowest: int,
    highest: int,
    size: int,
) -> Iterator[Sequence[int]]:
    """Yield keys to check, in order: index candidates in batches, or all keys of a block not indexed."""
    keys: list[int] = []
    for block in blocks:
        first_key = block << BLOCK_BITS
        if block not in positions_by_block:
            yield from _chunks(keys, size)
            keys = []
            all_keys = range(first_key, first_key + BLOCK_SIZE)
            yield all_keys if oldest_first else all_keys[::-1]
            continue
        candidates = [
            first_key + position for position in positions_by_block[block] if lowest <= first_key + position <= highest
        ]
        keys += candidates if oldest_first else candidates[::-1]
    yield from _chunks(keys, size)


def _chunks(keys: list[int], size: int) -> Iterator[list[int]]:
    return (keys[start : start + size] for start in range(0, len(keys), size))


async def _read_messages(
    tx: Tx, search_filter: SearchFilter, keys: Sequence[int], lowest: int, highest: int
) -> list[Any]:
    """Return the messages with these keys that match the filter's SQL conditions, in ascending key order."""
    if isinstance(keys, range):
        key_range = {"low": max(lowest, min(keys)), "high": min(highest, max(keys)) + 1}
        params = {"team": search_filter.team, "needle": search_filter.prefilter_word()} | search_filter.sql_params
        return await tx.run("messages_between", **key_range, **params)
    key_rows = [(key,) for key in keys]
    rows = await tx.run("messages_at", keys=key_rows, team=search_filter.team, **search_filter.sql_params)
    return sorted(rows, key=lambda row: int(row[0]))


async def _continue_id(tx: Tx, team: int, key: int, key_range: tuple[int, int], oldest_first: bool) -> str | None:
    """Return the id after which the next search continues: that of the team's last checked message.

    The search stopped at `key`, whose message may belong to another team. None if the checked part of the block has no
    message of the team.
    """
    block = key >> BLOCK_BITS
    lowest, highest = (block << BLOCK_BITS, key) if oldest_first else (key, (block + 1) << BLOCK_BITS)
    rows = await tx.run("ids_between", team=team, low=max(lowest, key_range[0]), high=min(highest, key_range[1]) + 1)
    return rows[-1 if oldest_first else 0][0] if rows else None
