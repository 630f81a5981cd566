"""Imports of suppressions: a file is stored in batches; each batch is applied with its report in one transaction.

Any process can apply the next batch of any import. If a process crashes, its batch is rolled back and another process
applies the batch.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.ids import ulid
from heliograph.domain.limits import DAY_MS
from heliograph.domain.mail.address import parse_address
from heliograph.domain.mail.suppression_file import SuppressionFileRow
from heliograph.runtime.clock import Clock
from heliograph.storage import audit, setup
from heliograph.storage.engine.database import Database, Tx, write_serialized
from heliograph.storage.events import Publisher
from heliograph.storage.setup import NewSuppression

BATCH_LINES = 500  # lines of a batch, applied in one transaction
BATCHES_PER_WRITE = 20  # batches of a new file stored in one transaction
IN_PROGRESS_MAX = 16  # maximum imports in progress, which take turns batch by batch
SHOWN_MAX = 100  # maximum skipped lines shown on the import's page
RETENTION_MS = 30 * DAY_MS
ADDED, ALREADY_LISTED = "added", "already on the list"


class StoredLine(msgspec.Struct, frozen=True, array_like=True):
    """A stored line of the import file."""

    number: int
    text: str
    reason: str
    problem: str  # why the line is skipped; empty if valid


class Import(msgspec.Struct, frozen=True):
    id: str
    lines: int
    skipped: int
    processed: int
    added: int
    already_listed: int
    created_at: int
    ended_at: int | None
    was_stopped: int  # 1 if the import was stopped before the end

    @property
    def state(self) -> str:
        return "stopped" if self.was_stopped else "importing" if self.ended_at is None else "done"


class ReportedLine(msgspec.Struct, frozen=True):
    line: StoredLine
    outcome: str  # ADDED, ALREADY_LISTED or the reason for skipping the line


class ImportReport(msgspec.Struct, frozen=True):
    lines: list[ReportedLine]
    after: int | None  # number of the last batch on this page; None if this is the last page


class Imports:
    def __init__(self, database: Database, clock: Clock, publisher: Publisher) -> None:
        self._database = database
        self._clock = clock
        self._publisher = publisher
        self.started = asyncio.Event()  # wakeup: set when this process has stored a new import

    async def begin(self, id_: str, team: int, lines: Sequence[SuppressionFileRow], entry: AuditEntry) -> None:
        """Store the file: first its batches, several per transaction, then the import itself."""
        for start in range(0, len(lines), BATCH_LINES * BATCHES_PER_WRITE):
            await self._insert_batches(id_, start, lines[start : start + BATCH_LINES * BATCHES_PER_WRITE])
        invalid = [line for line in lines if line.error]

        async def insert_import(tx: Tx) -> None:
            await tx.run(
                "insert_import",
                id=id_,
                team=team,
                lines=len(lines),
                left_out=len(invalid),
                first_left=_lines_json(invalid[:SHOWN_MAX]),
                portions=-(-len(lines) // BATCH_LINES),
                now=self._clock.team_now(team),
            )
            await audit.write(tx, entry)

        await write_serialized(self._database, insert_import, entry.team)
        self.started.set()

    async def _insert_batches(self, id_: str, start: int, chunk: Sequence[SuppressionFileRow]) -> None:
        batches = [
            (id_, (start + offset) // BATCH_LINES, _lines_json(chunk[offset : offset + BATCH_LINES]))
            for offset in range(0, len(chunk), BATCH_LINES)
        ]
        await self._database.write(lambda tx: tx.run("insert_import_batches", portions=batches))

    # -- applying batches ---------------------------------------------------------------------------------------

    async def list_open(self) -> list[str]:
        """Return the ids of imports in progress, those with the fewest processed lines first."""
        rows = await self._database.read(lambda tx: tx.run("open_imports", limit=IN_PROGRESS_MAX))
        return [row[0] for row in rows]

    async def apply_batch(self, id_: str) -> bool:
        """Apply the next batch of an import; return False if it has ended or another process is working on it."""
        return await self._database.write(lambda tx: _apply_batch(tx, id_, self._clock, self._publisher))

    async def stop(self, id_: str) -> None:
        now = self._clock.now()
        await self._database.write(lambda tx: tx.run("stop_import", id=id_, now=now))

    # -- reading imports ----------------------------------------------------------------------------------------

    async def newest(self, team: int, limit: int = 5) -> list[Import]:
        rows = await self._database.read(lambda tx: tx.run("newest_imports", team=team, limit=limit))
        return [Import(*row) for row in rows]

    async def find(self, team: int, id_: str) -> Import | None:
        rows = await self._database.read(lambda tx: tx.run("find_import", team=team, id=id_))
        return Import(*rows[0]) if rows else None

    async def first_skipped(self, id_: str) -> list[StoredLine]:
        """Return the first skipped lines of the import, up to the number that the page shows."""
        rows = await self._database.read(lambda tx: tx.run("first_skipped_lines", id=id_))
        return msgspec.json.decode(rows[0][0], type=list[StoredLine]) if rows else []

    async def report(self, id_: str, after: int, limit: int = BATCHES_PER_WRITE) -> ImportReport:
        """Return the processed lines of up to `limit` batches with their outcomes."""
        rows = await self._database.read(lambda tx: tx.run("finished_import_batches", id=id_, after=after, limit=limit))
        reported = []
        for _, text, added_text in rows:
            added = set(msgspec.json.decode(added_text, type=list[int]))
            for line in msgspec.json.decode(text, type=list[StoredLine]):
                reported.append(ReportedLine(line, line.problem or (ADDED if line.number in added else ALREADY_LISTED)))
        return ImportReport(reported, rows[-1][0] if len(rows) == limit else None)


def _lines_json(lines: Sequence[SuppressionFileRow]) -> str:
    return msgspec.json.encode([StoredLine(line.number, line.text, line.reason, line.error) for line in lines]).decode()


async def _apply_batch(tx: Tx, id_: str, clock: Clock, publisher: Publisher) -> bool:
    rows = await tx.run("lock_import", id=id_)
    if not rows:
        return False
    team, number = rows[0]
    now = clock.team_now(team)
    ((text,),) = await tx.run("find_import_batch", id=id_, number=number)
    lines = msgspec.json.decode(text, type=list[StoredLine])
    line_by_address = {
        address.normal: line for line in lines if not line.problem and (address := parse_address(line.text))
    }
    # Sorted, so that two imports with the same addresses cannot deadlock.
    suppressions = [
        NewSuppression(team, normal, line.text, line.reason) for normal, line in sorted(line_by_address.items())
    ]
    added_keys = await setup.add_suppressions(tx, suppressions, now, publisher)
    added = [line.number for normal, line in line_by_address.items() if (team, normal) in added_keys]
    await tx.run("finish_import_batch", id=id_, number=number, added=msgspec.json.encode(added).decode())
    await tx.run(
        "advance_import", id=id_, lines=len(lines), added=len(added), known=len(line_by_address) - len(added), now=now
    )
    return True


async def purge(tx: Tx, now: int) -> bool:
    """Delete a batch of expired imports, and of files whose import was never stored; return whether more may exist."""
    oldest_id = f"imp_{ulid(now - RETENTION_MS, 0)}"
    await tx.run("purge_imports", before=oldest_id)
    return len(await tx.run("purge_import_batches", before=oldest_id, limit=BATCHES_PER_WRITE)) == BATCHES_PER_WRITE
