"""The audit log: who changed what, when and from where. It is only ever added to."""

from collections.abc import Sequence

import msgspec

from heliograph.clock import OFF_MS
from heliograph.rules.audit import AuditEntry
from heliograph.rules.notices import of_entry
from heliograph.storage import happenings
from heliograph.storage.engine.database import Database, Tx

NEWEST = (1 << 62) - 1
FOREVER = 1 << 47  # later than any time
WALK = 20_000  # lines that one page looks through for a person or an action


class AuditLine(msgspec.Struct, frozen=True):
    key: int
    at: int
    by: str  # a person's id, or as Actor.name has it
    email: str | None  # of the person, while there is one
    name: str | None
    team: str | None
    action: str
    subject: str
    detail: str
    address: str

    @property
    def actor(self) -> str:
        return self.email or self.by


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines; None and empty: any."""

    actor: str | None = None
    action: str = ""  # how it begins: `key.` for all of API keys
    since: int = 0
    until: int = FOREVER


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first. `after`: where the next page begins; None: there is none."""

    lines: Sequence[AuditLine]
    after: int | None = None
    is_cut: bool = False  # the walk ended before the page was full


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
        return await self._database.read(lambda tx: _lines(tx, team, AuditFilter(), before, 0, limit + 1))

    async def page(self, team: str | None, wanted: AuditFilter, before: int = NEWEST, limit: int = 50) -> AuditPage:
        return await self._database.read(lambda tx: _page(tx, team, wanted, before, limit))


async def _lines(tx: Tx, team: str | None, wanted: AuditFilter, before: int, floor: int, limit: int) -> list[AuditLine]:
    given = msgspec.structs.asdict(wanted) | {"before": before, "floor": floor, "limit": limit}
    rows = await (tx.run("list_whole_audit", **given) if team is None else tx.run("list_audit", team=team, **given))
    return [AuditLine(*row) for row in rows]


async def _page(tx: Tx, team: str | None, wanted: AuditFilter, before: int, limit: int) -> AuditPage:
    """Lines lie nearly in the order of their times: clocks may differ by OFF_MS."""
    low = 0
    if wanted.until < FOREVER:
        before = min(before, _key(await tx.run("audit_before", until=wanted.until + OFF_MS), -1) + 1)
    if wanted.since:
        low = _key(await tx.run("audit_since", since=wanted.since - OFF_MS), NEWEST)
    walk = {"before": before, "walk": WALK}
    found = await (tx.run("whole_audit_floor", **walk) if team is None else tx.run("audit_floor", team=team, **walk))
    floor = max(low, _key(found, 0))
    lines = await _lines(tx, team, wanted, before, floor, limit + 1)
    if len(lines) > limit:
        return AuditPage(lines=lines[:limit], after=lines[limit - 1].key)
    is_cut = floor > low
    return AuditPage(lines=lines, after=floor if is_cut else None, is_cut=is_cut)


def _key(rows: Sequence[Sequence[int]], otherwise: int) -> int:
    return rows[0][0] if rows else otherwise
