"""Enqueues notices to users in the transaction that causes them."""

import msgspec

from heliograph.domain.operations.notices import NoticeRow
from heliograph.storage.engine.database import Tx


async def note(tx: Tx, *happenings: NoticeRow) -> None:
    """Enqueue notices; a notice whose name exists already is not added again."""
    if happenings:
        rows = [(h.name, h.at, h.team, h.kind, msgspec.json.encode(h.facts).decode(), h.actor) for h in happenings]
        await tx.run("note_happenings", happenings=rows)
