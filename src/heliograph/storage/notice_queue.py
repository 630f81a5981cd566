"""Enqueues notices to users in the transaction that causes them."""

import msgspec

from heliograph.domain.operations.notices import NoticeRow
from heliograph.storage.engine.database import Tx


async def enqueue(tx: Tx, *notices: NoticeRow) -> None:
    """Enqueue notices. A notice is skipped if one with the same name exists."""
    if notices:
        rows = [
            (notice.name, notice.at, notice.team, notice.kind, msgspec.json.encode(notice.facts).decode(), notice.actor)
            for notice in notices
        ]
        await tx.run("insert_happenings", happenings=rows)
