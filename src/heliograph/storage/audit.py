"""The audit log: who changed what, when and from where. It is only ever added to."""

from collections.abc import Sequence

import msgspec

from heliograph.storage.engine.database import Tx

NEWEST = (1 << 62) - 1
COMMAND_LINE = "command line"


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    at: int
    person: str = COMMAND_LINE
    team: str | None = None
    action: str
    subject: str
    detail: str = ""
    address: str = ""


class AuditLine(msgspec.Struct, frozen=True):
    key: int
    at: int
    person: str
    team: str | None
    action: str
    subject: str
    detail: str
    address: str


async def write(tx: Tx, *entries: AuditEntry | None) -> None:
    """In the transaction of what they tell; None: there is nothing to tell."""
    await tx.run("insert_audit", entries=[entry for entry in entries if entry])


async def lines(tx: Tx, team: str | None, before: int, limit: int) -> Sequence[AuditLine]:
    """Newest first; one more than the limit, when there are more. No team: the whole instance."""
    if team is None:
        rows = await tx.run("list_whole_audit", before=before, limit=limit + 1)
    else:
        rows = await tx.run("list_audit", team=team, before=before, limit=limit + 1)
    return [AuditLine(*row) for row in rows]
