"""Imports of suppressions: a file is kept in portions, and each comes onto the list in one transaction with its report.

Any process does the next portion of any import. One that dies leaves its portion undone, and the next one does it.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

import msgspec

from heliograph.clock import Clock
from heliograph.rules.address import parse_address
from heliograph.rules.audit import AuditEntry
from heliograph.rules.ids import ulid
from heliograph.rules.limits import DAY_MS
from heliograph.rules.suppression_file import Line
from heliograph.storage import setup
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.events import Publisher
from heliograph.storage.setup import NewSuppression

PORTION = 500  # lines in one transaction
WRITTEN = 20  # portions of a new file in one transaction
OPEN_MAX = 16  # imports that go on in turns
SHOWN = 100  # lines left out that the page shows
KEPT_MS = 30 * DAY_MS
ADDED, KNOWN = "added", "already on the list"


class KeptLine(msgspec.Struct, frozen=True, array_like=True):
    """A line of the file."""

    number: int
    text: str
    reason: str
    wrong: str  # why it is left out


class Import(msgspec.Struct, frozen=True):
    id: str
    lines: int
    left_out: int
    lines_done: int
    added: int
    known: int
    created_at: int
    ended_at: int | None
    broken: int  # 1: it ended before its end

    @property
    def state(self) -> str:
        return "stopped" if self.broken else "importing" if self.ended_at is None else "done"


# -- a new one --------------------------------------------------------------------------------------------------


async def begin(database: Database, id_: str, team: int, lines: Sequence[Line], note: AuditEntry) -> None:
    """Keep the file: first its portions, some at a time, then the import itself."""
    for start in range(0, len(lines), PORTION * WRITTEN):
        some = lines[start : start + PORTION * WRITTEN]
        portions = [
            (id_, (start + at) // PORTION, _json(some[at : at + PORTION])) for at in range(0, len(some), PORTION)
        ]
        await database.write(partial(_keep, portions=portions))
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
            now=note.at,
        )
        await tx.run("insert_audit", entries=[note])

    await database.write(story)


async def _keep(tx: Tx, portions: Sequence[tuple[str, int, str]]) -> None:
    await tx.run("insert_portions", portions=portions)


def _json(lines: Sequence[Line]) -> str:
    return msgspec.json.encode([KeptLine(line.number, line.text, line.reason, line.wrong) for line in lines]).decode()


# -- onto the list ----------------------------------------------------------------------------------------------


async def open_imports(tx: Tx) -> list[str]:
    return [row[0] for row in await tx.run("open_imports", limit=OPEN_MAX)]


async def do_portion(tx: Tx, id_: str, now: int, publisher: Publisher) -> bool:
    """Put the next portion on the list; False: there is none, or another process has it in hand."""
    found = await tx.run("lock_import", id=id_)
    if not found:
        return False
    team, number = found[0]
    ((text,),) = await tx.run("find_portion", id=id_, number=number)
    lines = msgspec.json.decode(text, type=list[KeptLine])
    wanted = {address.normal: line for line in lines if not line.wrong and (address := parse_address(line.text))}
    # In order, so that two imports with the same addresses do not lock each other out.
    given = [NewSuppression(team, normal, line.text, line.reason) for normal, line in sorted(wanted.items())]
    made = await setup.suppress(tx, given, now, publisher)
    added = [line.number for normal, line in wanted.items() if (team, normal) in made]
    await tx.run("note_portion", id=id_, number=number, added=msgspec.json.encode(added).decode())
    await tx.run("move_import", id=id_, lines=len(lines), added=len(added), known=len(wanted) - len(added), now=now)
    return True


# -- looking at them --------------------------------------------------------------------------------------------


async def newest(tx: Tx, team: int, limit: int = 5) -> list[Import]:
    return [Import(*row) for row in await tx.run("newest_imports", team=team, limit=limit)]


async def find(tx: Tx, team: int, id_: str) -> Import | None:
    rows = await tx.run("find_import", team=team, id=id_)
    return Import(*rows[0]) if rows else None


async def first_left(tx: Tx, id_: str) -> list[KeptLine]:
    """The first lines that are left out."""
    rows = await tx.run("first_left", id=id_)
    return msgspec.json.decode(rows[0][0], type=list[KeptLine]) if rows else []


async def report(tx: Tx, id_: str, after: int, limit: int = WRITTEN) -> tuple[list[tuple[KeptLine, str]], int | None]:
    """Lines that are done with what became of each, and the portion to go on after; None: there are no more."""
    rows = await tx.run("done_portions", id=id_, after=after, limit=limit)
    told = []
    for _, text, added_text in rows:
        added = set(msgspec.json.decode(added_text, type=list[int]))
        for line in msgspec.json.decode(text, type=list[KeptLine]):
            told.append((line, line.wrong or (ADDED if line.number in added else KNOWN)))
    return told, rows[-1][0] if len(rows) == limit else None


async def purge(tx: Tx, now: int) -> bool:
    """Put away one portion; answers whether there may be more. Also files whose import never came."""
    before = f"imp_{ulid(now - KEPT_MS, 0)}"
    await tx.run("purge_imports", before=before)
    return len(await tx.run("purge_portions", before=before, limit=WRITTEN)) == WRITTEN


class Imports:
    def __init__(self, database: Database, clock: Clock, publisher: Publisher) -> None:
        self._database = database
        self._clock = clock
        self._publisher = publisher
        self.begun = asyncio.Event()  # a hint: an import was begun in this process

    async def do_portion(self, id_: str) -> bool:
        """Put an import's next portion on the list; False: there is none, or another process has it in hand."""
        now, publisher = self._clock.now(), self._publisher
        return await self._database.write(lambda tx: do_portion(tx, id_, now, publisher))

    async def stop(self, id_: str) -> None:
        now = self._clock.now()
        await self._database.write(lambda tx: tx.run("stop_import", id=id_, now=now))
