"""Batches of messages: their progress by message status, and one event when the last message is final."""

from collections import defaultdict
from collections.abc import Collection

from heliograph.domain.event_data import encode_data
from heliograph.domain.sending.batch import BATCH_DONE, BatchRecord
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.events import Event, Publisher


class Batches:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, team: int, id_: str) -> BatchRecord | None:
        async def read_batch(tx: Tx) -> BatchRecord | None:
            rows = await tx.run("find_batch", team=team, id=id_)
            return (
                BatchRecord(id=id_, total=rows[0][0], counts=(await _count_by_status(tx, [id_]))[id_]) if rows else None
            )

        return await self._database.read(read_batch)


async def finish_batches(tx: Tx, ids: Collection[str], publisher: Publisher, at: int) -> list[Event]:
    """Mark batches whose messages are all final as done; return their events, which the caller must publish."""
    open_ids = [(id_,) for (id_,) in await tx.run("lock_batches", ids=[(id_,) for id_ in ids])] if ids else []
    finished_rows = await tx.run("finish_batches", ids=open_ids, at=at) if open_ids else []
    counts = await _count_by_status(tx, [id_ for id_, *_ in finished_rows]) if finished_rows else {}
    return [
        Event(
            id=publisher.new_id("evt_"),
            team=team,
            subject=id_,
            type=BATCH_DONE,
            detail=encode_data(BatchRecord(id=id_, total=total, counts=counts[id_])),
            created_at=at,
        )
        for id_, team, total in finished_rows
    ]


async def _count_by_status(tx: Tx, ids: Collection[str]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for batch, status, count in await tx.run("batch_counts", ids=[(id_,) for id_ in ids]):
        counts[batch][status] = count
    return counts
