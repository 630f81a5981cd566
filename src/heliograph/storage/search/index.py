"""The trigram index of messages (ADR 0029), built in the background, block by block, by any process.

A block covers BLOCK_SIZE consecutive message keys. A block is built once no message can be added to it: when all its
keys exist, or when its newest message is older than any open transaction. A block is rebuilt a day after some of its
messages were deleted. An erased address is removed from the index immediately.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any

from heliograph.domain.limits import DAY_MS
from heliograph.domain.search.trigrams import (
    BLOCK_BITS,
    BLOCK_SIZE,
    decode_searched,
    id_tail_terms,
    pack,
    property_terms,
    searchable_texts,
    text_terms,
    trigrams,
    unpack,
)
from heliograph.runtime.clock import Clock
from heliograph.storage.engine.database import Database, Tx

SETTLED_MS = 300_000  # age of a block's newest message from which no open transaction can add to the block
STALE_MS = DAY_MS  # delay before a block with deleted messages is rebuilt
MISSING_BLOCKS_MAX = 64  # maximum number of unbuilt blocks to choose from
MESSAGES_PER_SLICE = 64  # messages processed before yielding to the event loop
YIELD_S = 0.002


class SearchIndex:
    """Builds the trigram index of messages."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def build_next(self) -> bool:
        """Build one missing or stale block; return False if there is none."""
        now, random_number = self._clock.now(), int.from_bytes(self._clock.random_bytes(4))
        blocks = await self._database.read(partial(_blocks_to_build, now=now))
        if not blocks:
            return False
        # Random, so that processes rarely choose the same block
        block = blocks[0 if random_number & 1 else random_number % len(blocks)]
        erase_counter, rows = await self._database.read(partial(_read_block, block=block))
        if not _is_settled(rows, now):
            return len(blocks) > 1
        index_rows = await _index_rows(block, await _positions_by_term(rows))
        write_block = partial(_write_block, block=block, erase_counter=erase_counter, message_count=len(rows), now=now)
        return await self._database.write(partial(write_block, index_rows=index_rows))


async def _blocks_to_build(tx: Tx, now: int) -> list[int]:
    """Return up to MISSING_BLOCKS_MAX blocks that were never built, otherwise stale blocks; newest first."""
    ((first_key, last_key),) = await tx.run("key_ends")
    if first_key is None:
        return []
    lowest, highest = first_key >> BLOCK_BITS, (last_key >> BLOCK_BITS) - 1  # the last block still grows
    built_blocks = {row[0] for row in await tx.run("indexed_blocks", low=lowest, high=highest)}
    missing_blocks = list[int]()
    async for block in existing_blocks(tx, built_blocks, lowest, highest, oldest_first=False):
        if block not in built_blocks:
            missing_blocks.append(block)
        if len(missing_blocks) == MISSING_BLOCKS_MAX:
            break
    return missing_blocks or [row[0] for row in await tx.run("stale_blocks", before=now - STALE_MS)]


async def existing_blocks(
    tx: Tx, built_blocks: Set[int], lowest: int, highest: int, *, oldest_first: bool
) -> AsyncIterator[int]:
    """Yield the blocks from `lowest` to `highest`, both included, that are indexed or contain messages.

    Each gap in the message keys is skipped with one query.
    """
    step = 1 if oldest_first else -1
    block = lowest if oldest_first else highest
    while lowest <= block <= highest:
        if block not in built_blocks:
            block_range = (block, highest + 1) if oldest_first else (lowest, block + 1)
            key_range = {"low": block_range[0] << BLOCK_BITS, "high": block_range[1] << BLOCK_BITS}
            ((first_key, last_key),) = await tx.run("key_ends_between", **key_range)
            if first_key is None:
                return
            block = (first_key if oldest_first else last_key) >> BLOCK_BITS
        yield block
        block += step


async def _read_block(tx: Tx, block: int) -> tuple[int, list[Any]]:
    """Return the erasure counter and the messages of a block; the counter detects erasures since this read."""
    ((erase_counter,),) = await tx.run("lock_grams")
    return erase_counter, await tx.run("gram_messages", low=block << BLOCK_BITS, high=(block + 1) << BLOCK_BITS)


def _is_settled(rows: Sequence[Any], now: int) -> bool:
    """Return whether no further message can appear in the block."""
    return len(rows) == BLOCK_SIZE or not rows or max(row[6] for row in rows) < now - SETTLED_MS


async def _positions_by_term(rows: Sequence[Any]) -> dict[str, list[int]]:
    """Map each index term to the positions of the messages that have the term, and yield to the event loop meanwhile.

    A text that occurs in several messages is split into trigrams only once.
    """
    positions_by_facts: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    positions_by_text: dict[str, list[int]] = defaultdict(list)
    positions_by_term: dict[str, list[int]] = defaultdict(list)
    for start in range(0, len(rows), MESSAGES_PER_SLICE):
        for key, id_, team, channel, key_id, template_id, _, record in rows[start : start + MESSAGES_PER_SLICE]:
            position, searchable = key & (BLOCK_SIZE - 1), decode_searched(record)
            positions_by_facts[team, channel, key_id, template_id, searchable.domain].append(position)
            for term in id_tail_terms(id_):
                positions_by_term[term].append(position)
            for text in searchable_texts(searchable):
                positions_by_text[text].append(position)
        await asyncio.sleep(YIELD_S)
    for (team, channel, key_id, template_id, domain), positions in positions_by_facts.items():
        for term in property_terms(team=team, channel=channel, key=key_id, template=template_id, domain=domain):
            positions_by_term[term] += positions
    for number, (text, positions) in enumerate(positions_by_text.items(), 1):
        for term in trigrams(text):
            positions_by_term[term] += positions
        if number % MESSAGES_PER_SLICE == 0:
            await asyncio.sleep(YIELD_S)
    return positions_by_term


async def _index_rows(block: int, positions_by_term: Mapping[str, list[int]]) -> list[tuple[int, str, str]]:
    """Return rows of (block, term, packed positions) to insert."""
    rows = []
    for number, (term, positions) in enumerate(sorted(positions_by_term.items()), 1):
        rows.append((block, term, pack(sorted(set(positions))).hex()))
        if number % MESSAGES_PER_SLICE == 0:
            await asyncio.sleep(YIELD_S)
    return rows


async def _write_block(
    tx: Tx, block: int, erase_counter: int, message_count: int, index_rows: Sequence[Any], now: int
) -> bool:
    """Write the index rows of a block, unless messages were erased or deleted since the read.

    In that case, a later call builds the block again.
    """
    ((current_counter,),) = await tx.run("lock_grams")
    ((current_count,),) = await tx.run("count_keys", low=block << BLOCK_BITS, high=(block + 1) << BLOCK_BITS)
    if (current_counter, current_count) == (erase_counter, message_count):
        await tx.run("delete_block_grams", span=block)
        await tx.run("insert_grams", grams=index_rows)
        await tx.run("insert_block", span=block, now=now)
    return True


# -- removal -----------------------------------------------------------------------------------------------------------


async def invalidate_builds(tx: Tx) -> None:
    """Invalidate blocks that are being built; call this first in the erasing transaction."""
    await tx.run("count_erasure")


async def remove_terms(tx: Tx, records: Iterable[tuple[int, str, str]]) -> None:
    """Remove index terms that messages no longer have. `records`: (message key, old record, new record)."""
    removed: dict[tuple[int, str], set[int]] = defaultdict(set)
    for key, old_record, new_record in records:
        for term in text_terms(old_record) - text_terms(new_record):
            removed[key >> BLOCK_BITS, term].add(key & (BLOCK_SIZE - 1))
    positions_left: Mapping[tuple[int, str], list[int]] = {
        (block, term): [position for position in unpack(packed) if position not in removed[block, term]]
        for block, term, packed in await tx.run("find_grams", keys=[*removed])
    }
    new_rows = [(*term, pack(positions).hex()) for term, positions in positions_left.items() if positions]
    await tx.run("update_grams", grams=new_rows)
    await tx.run("delete_grams", marks=[term for term, positions in positions_left.items() if not positions])


async def count_deleted(tx: Tx, keys: Iterable[int]) -> None:
    """Count deleted messages per block, in the transaction that deletes them; drop blocks left empty."""
    deleted_by_block = Counter(key >> BLOCK_BITS for key in keys)
    await tx.run("count_deleted_in_blocks", spans=sorted(deleted_by_block.items()))
    for (block,) in await tx.run("empty_blocks"):
        await tx.run("delete_block_grams", span=block)
        await tx.run("delete_block", span=block)
