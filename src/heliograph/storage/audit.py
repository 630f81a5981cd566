"""The audit log: who changed what, when and from where. It is only ever added to."""

from collections.abc import Sequence

import msgspec

from heliograph.rules.audit import AuditEntry
from heliograph.rules.notices import of_entry
from heliograph.storage import happenings
from heliograph.storage.engine.database import Database, Tx

NEWEST = (1 << 62) - 1


class AuditLine(msgspec.Struct, frozen=True):
    key: int
    at: int
    actor: str
    team: str | None
    action: str
    subject: str
    detail: str
    address: str


async def write(tx: Tx, *entries: AuditEntry | None) -> None:
    """In the transaction of the change they record, with what people are told of it; None: nothing to record."""
    given = [entry for entry in entries if entry]
    await tx.run("insert_audit", entries=[msgspec.structs.astuple(entry) for entry in given])
    await happenings.note(tx, *filter(None, map(of_entry, given)))


class Audit:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, entry: AuditEntry) -> None:
        """Of an act that changes nothing here, such as a test message."""
        await self._database.write(lambda tx: write(tx, entry))

    async def lines(self, team: str | None, before: int = NEWEST, limit: int = 50) -> Sequence[AuditLine]:
        """Newest first; one more than the limit, when there are more. No team: the whole instance."""
        if team is None:
            rows = await self._database.read(lambda tx: tx.run("list_whole_audit", before=before, limit=limit + 1))
        else:
            rows = await self._database.read(lambda tx: tx.run("list_audit", team=team, before=before, limit=limit + 1))
        return [AuditLine(*row) for row in rows]
