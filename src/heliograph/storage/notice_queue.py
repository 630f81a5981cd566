"""Notes what people are to be told of, in the transaction in which it happens."""

import msgspec

from heliograph.domain.operations.notices import NoticeRow
from heliograph.storage.engine.database import Tx


async def note(tx: Tx, *happenings: NoticeRow) -> None:
    """Note what happened; what has its name already is there once."""
    if happenings:
        rows = [(h.name, h.at, h.team, h.kind, msgspec.json.encode(h.facts).decode(), h.actor) for h in happenings]
        await tx.run("note_happenings", happenings=rows)
