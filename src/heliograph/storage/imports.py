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
from heliograph.domain.mail.suppression_file import ReadLine
from heliograph.runtime.clock import Clock
from heliograph.storage import audit, setup
from heliograph.storage.engine.database import Database, Tx, write_serialized
from heliograph.storage.events import Publisher
from heliograph.storage.setup import NewSuppression

PORTION = 500  # lines of a batch, applied in one transaction
WRITTEN = 20  # batches of a new file stored in one transaction
OPEN_MAX = 16  # maximum imports processed in turn
SHOWN = 100  # skipped lines shown on the page
KEPT_MS = 30 * DAY_MS
ADDED, KNOWN = "added", "already on the list"


class KeptLine(msgspec.Struct, frozen=True, array_like=True):
    """A stored line of the import file."""

    number: int
    text: str
    reason: str
    wrong: str  # why the line is skipped; empty if valid


class Import(msgspec.Struct, frozen=True):
    id: str
    lines: int
    left_out: int
    lines_done: int
    added: int
    known: int
    created_at: int
    ended_at: int | None
    broken: int  # 1 if the import was stopped before the end

    @property
    def state(self) -> str:
        return "stopped" if self.broken else "importing" if self.ended_at is None else "done"


class ReportedLine(msgspec.Struct, frozen=True):
    line: KeptLine
    outcome: str  # ADDED, KNOWN or the reason for skipping the line


class ImportReport(msgspec.Struct, frozen=True):
    lines: list[ReportedLine]
    after: int | None  # number of the last batch on this page; None if this is the last page


class Imports:
    def __init__(self, database: Database, clock: Clock, publisher: Publisher) -> None:
        self._database = database
        self._clock = clock
        self._publisher = publisher
        self.begun = asyncio.Event()  # wakeup: set when this process has stored a new import

    async def begin(self, id_: str, team: int, lines: Sequence[ReadLine], entry: AuditEntry) -> None:
        """Store the file: first its batches, WRITTEN per transaction, then the import itself."""
        for start in range(0, len(lines), PORTION * WRITTEN):
            await self._keep(id_, start, lines[start : start + PORTION * WRITTEN])
        wrong = [line for line in lines if line.wrong]

        async def story(tx: Tx) -> None:
            await tx.run(
                "insert_import",
                id=id_,
                team=team,
                lines=len(lines),
                left_out=len(wrong),
                first_left=_json(wrong[:SHOWN]),
                portions=-(-len(lines) // PORTION),
                now=self._clock.of(team),
            )
            await audit.write(tx, entry)

        await write_serialized(self._database, story, entry.team)
        self.begun.set()

    async def _keep(self, id_: str, start: int, some: Sequence[ReadLine]) -> None:
        portions = [
            (id_, (start + at) // PORTION, _json(some[at : at + PORTION])) for at in range(0, len(some), PORTION)
        ]
        await self._database.write(lambda tx: tx.run("insert_portions", portions=portions))

    # -- applying batches ---------------------------------------------------------------------------------------

    async def open(self) -> list[str]:
        """Return the ids of imports in progress, those with the fewest processed lines first."""
        rows = await self._database.read(lambda tx: tx.run("open_imports", limit=OPEN_MAX))
        return [row[0] for row in rows]

    async def do_portion(self, id_: str) -> bool:
        """Apply the next batch of an import; False if the import has ended or another process is working on it."""
        return await self._database.write(lambda tx: _do_portion(tx, id_, self._clock, self._publisher))

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

    async def first_left(self, id_: str) -> list[KeptLine]:
        """Return the first SHOWN skipped lines of the import."""
        rows = await self._database.read(lambda tx: tx.run("first_left", id=id_))
        return msgspec.json.decode(rows[0][0], type=list[KeptLine]) if rows else []

    async def report(self, id_: str, after: int, limit: int = WRITTEN) -> ImportReport:
        """Return the processed lines of up to `limit` batches with their outcomes."""
        rows = await self._database.read(lambda tx: tx.run("done_portions", id=id_, after=after, limit=limit))
        reported = []
        for _, text, added_text in rows:
            added = set(msgspec.json.decode(added_text, type=list[int]))
            for line in msgspec.json.decode(text, type=list[KeptLine]):
                reported.append(ReportedLine(line, line.wrong or (ADDED if line.number in added else KNOWN)))
        return ImportReport(reported, rows[-1][0] if len(rows) == limit else None)


def _json(lines: Sequence[ReadLine]) -> str:
    return msgspec.json.encode([KeptLine(line.number, line.text, line.reason, line.wrong) for line in lines]).decode()


async def _do_portion(tx: Tx, id_: str, clock: Clock, publisher: Publisher) -> bool:
    found = await tx.run("lock_import", id=id_)
    if not found:
        return False
    team, number = found[0]
    now = clock.of(team)
    ((text,),) = await tx.run("find_portion", id=id_, number=number)
    lines = msgspec.json.decode(text, type=list[KeptLine])
    wanted = {address.normal: line for line in lines if not line.wrong and (address := parse_address(line.text))}
    # Sorted, so that two imports with the same addresses cannot deadlock.
    given = [NewSuppression(team, normal, line.text, line.reason) for normal, line in sorted(wanted.items())]
    made = await setup.suppress(tx, given, now, publisher)
    added = [line.number for normal, line in wanted.items() if (team, normal) in made]
    await tx.run("note_portion", id=id_, number=number, added=msgspec.json.encode(added).decode())
    await tx.run("move_import", id=id_, lines=len(lines), added=len(added), known=len(wanted) - len(added), now=now)
    return True


async def purge(tx: Tx, now: int) -> bool:
    """Delete a batch of expired imports, and of files whose import was never stored; return whether more may exist."""
    before = f"imp_{ulid(now - KEPT_MS, 0)}"
    await tx.run("purge_imports", before=before)
    return len(await tx.run("purge_portions", before=before, limit=WRITTEN)) == WRITTEN
