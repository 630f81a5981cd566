"""The suppression list as the dashboard reads it: newest first, searched by a part of the address."""

import msgspec

from heliograph.rules.erasure import SHOWN, is_erased
from heliograph.storage.audit import NEWEST
from heliograph.storage.engine.database import Tx

SCAN = 20_000  # entries that one page searches

Place = tuple[int, str]  # made at, address: where a page ends
START: Place = (NEWEST, "")


class SuppressionLine(msgspec.Struct, frozen=True):
    address: str
    email: str
    reason: str
    source_message_id: str | None
    created_at: int

    @property
    def shown(self) -> str:
        return SHOWN if is_erased(self.address) else self.email


async def search(
    tx: Tx, team: int, text: str, before: Place = START, limit: int = 50
) -> tuple[list[SuppressionLine], Place | None]:
    """A page, and the place to go on before; None: there is no more. `text` is lower-case; empty: all."""
    given = {"team": team, "at": before[0], "before": before[1], "scan": SCAN if text else limit + 1}
    rows = await tx.run("search_suppressions", text=text, limit=limit + 1, **given)
    lines = [SuppressionLine(*row) for row in rows]
    if len(lines) > limit:
        return lines[:limit], (lines[limit - 1].created_at, lines[limit - 1].address)
    ends = await tx.run("searched_suppressions_end", **given) if text else []
    more = bool(ends) and ends[0][2] == SCAN
    return lines, (ends[0][0], ends[0][1]) if more else None
