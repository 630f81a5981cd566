"""Index of messages and verifications by a hash of each tag, in id order (contract 16)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from heliograph.domain.sending.send_options import Added, tag_hash
from heliograph.storage.engine.database import Tx

_added = msgspec.json.Decoder(Added)


def tag_rows(team: int, id_: str, tags: Mapping[str, str]) -> list[tuple[int, int, str]]:
    return [(team, tag_hash(name, value), id_) for name, value in tags.items()]


def rows_of(records: Iterable[Sequence[Any]]) -> list[tuple[int, int, str]]:
    """Return index rows for `records` of (team, id, stored JSON)."""
    return [row for team, id_, record in records for row in tag_rows(team, id_, _added.decode(record).tags)]


async def forget(tx: Tx, messages: Sequence[tuple[int]]) -> None:
    """Delete the tags of messages from the index, before the messages are deleted or rewritten."""
    await delete(tx, await tx.run("records_of", messages=messages))


async def delete(tx: Tx, records: Iterable[Sequence[Any]]) -> None:
    if rows := rows_of(records):
        await tx.run("delete_tags", tags=rows)
