"""Index of messages and verifications by a hash of each tag, in id order (contract 16)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from heliograph.domain.sending.send_options import ExtraFields, tag_hash
from heliograph.storage.engine.database import Tx

_options_decoder = msgspec.json.Decoder(ExtraFields)


def tag_rows(team: int, id_: str, tags: Mapping[str, str]) -> list[tuple[int, int, str]]:
    return [(team, tag_hash(name, value), id_) for name, value in tags.items()]


def tag_rows_of_records(records: Iterable[Sequence[Any]]) -> list[tuple[int, int, str]]:
    """Return index rows for `records` of (team, id, stored JSON)."""
    return [row for team, id_, record in records for row in tag_rows(team, id_, _options_decoder.decode(record).tags)]


async def delete_for_messages(tx: Tx, messages: Sequence[tuple[int]]) -> None:
    """Delete the tags of messages from the index, before the messages are deleted or rewritten."""
    await delete_for_records(tx, await tx.run("records_of", messages=messages))


async def delete_for_records(tx: Tx, records: Iterable[Sequence[Any]]) -> None:
    if rows := tag_rows_of_records(records):
        await tx.run("delete_tags", tags=rows)
