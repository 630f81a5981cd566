"""The audit log: who changed what, when and from where. It is append-only and forms a hash chain (ADR 0035)."""

from collections.abc import Sequence
from typing import Any

import msgspec

from heliograph.domain.audit.actor import SERVICE, AuditEntry
from heliograph.domain.audit.audit_chain import (
    REWRITTEN,
    TAKEN_IN,
    BrokenLink,
    ChainLink,
    Head,
    Walk,
    linked,
    said,
    salted,
)
from heliograph.domain.operations.notices import of_entry
from heliograph.runtime.clock import OFF_MS
from heliograph.storage import notice_queue
from heliograph.storage.engine.database import Database, Tx, write_serialized

NEWEST = (1 << 62) - 1
FOREVER = 1 << 47  # upper bound of times in ms
WALK = 20_000  # maximum lines scanned for one page that filters by person or action
WALK_PORTION = 5_000  # links verified in one transaction
PORTION = 200  # entries linked in one transaction; small, because it blocks SQLite's writer and the head of the chain


class AuditLine(msgspec.Struct, frozen=True):
    key: int
    at: int
    by: str  # a person's id, or Actor.name
    email: str | None  # email address of the person; None if the account does not exist
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
    """Filter of audit lines; None and empty values match every line."""

    actor: str | None = None
    action: str = ""  # prefix of the action: `key.` matches all actions on API keys
    since: int = 0
    until: int = FOREVER
    decisions: bool = False  # only approvals and refusals


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of audit lines, newest first. `after`: cursor of the next page; None if this is the last page."""

    lines: Sequence[AuditLine]
    after: int | None = None
    is_cut: bool = False  # the scan limit was reached before the page was full


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """The result of verifying the chain.

    Compare `link` with a copy noted elsewhere to detect that the whole chain was recomputed.
    """

    entries: int  # number of entries in the chain
    link: str  # hash of the newest entry
    waiting: bool  # entries older than the chain are not linked yet
    broken: BrokenLink | None


async def write(tx: Tx, *entries: AuditEntry | None) -> None:
    """Write entries in the transaction of the change they record and enqueue their notices; None is skipped.

    The head of the chain is locked until the commit: acquire all other locks before this call.
    """
    if given := [entry for entry in entries if entry]:
        rows = await tx.run("insert_audit", entries=[msgspec.structs.astuple(entry) for entry in given])
        await notice_queue.note(tx, *filter(None, map(of_entry, given)))
        await _link(tx, await _lock(tx), rows)


async def rewrite(tx: Tx, texts: Sequence[tuple[int, str, str]], now: int) -> None:
    """Replace the texts of entries (key, subject, detail), and record each replacement in a new entry."""
    end = await _lock(tx)
    found = {row[0]: row for row in await tx.run("find_audit", keys=[(key,) for key, *_ in texts])}
    rows: list[tuple[Any, ...]] = []
    entries: list[AuditEntry] = []
    for key, subject, detail in texts:
        *entry, place, salt, original = found[key]
        if place is None:  # not linked yet: the new text will be hashed when the entry is linked
            rows.append((key, subject, detail, None, None))
            continue
        fresh = salted(end.seed, -key)
        after = said((*entry[:5], subject, detail, entry[7]), fresh)
        rows.append((key, subject, detail, fresh, original or said(entry, salt)))
        entries.append(SERVICE.did(now, REWRITTEN, str(key), after, team=entry[3]))
    await tx.run("rewrite_audit", rows=rows)
    if entries:
        await _link(tx, end, await tx.run("insert_audit", entries=[msgspec.structs.astuple(one) for one in entries]))


class _End(msgspec.Struct, frozen=True):
    place: int
    link: str
    seed: str


async def _lock(tx: Tx) -> _End:
    """Lock the head of the chain until the commit, so that no other transaction links entries.

    A missing head is not recreated, because that would hide the loss.
    """
    rows = await tx.run("lock_audit_head")
    return _End(*rows[0]) if rows else _End(-1, "", "")


async def _link(tx: Tx, end: _End, rows: Sequence[Sequence[Any]]) -> None:
    """Append rows (columns key to address) to the chain; do nothing if its head is missing."""
    if end.place < 0:
        return
    place, link, links = end.place, end.link, []
    for row in rows:
        place += 1
        salt = salted(end.seed, place)
        link = linked(link, place, said(row, salt))
        links.append((row[0], place, salt, link))
    await tx.run("link_audit", links=links)
    await tx.run("move_audit_head", place=place, link=link)


class Audit:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, entry: AuditEntry) -> None:
        """Record an action that changes no stored record, such as a test message."""
        await write_serialized(self._database, lambda tx: write(tx, entry), entry.team)

    async def lines(self, team: str | None, before: int = NEWEST, limit: int = 50) -> Sequence[AuditLine]:
        """Return up to `limit` + 1 lines, newest first; the extra line shows that there are more.

        `team` None returns the lines of the whole instance.
        """
        return await self._database.read(lambda tx: _lines(tx, team, AuditFilter(), before, 0, limit + 1))

    async def has(self, key: int) -> bool:
        return bool(await self._database.read(lambda tx: tx.run("find_audit", keys=[(key,)])))

    async def link_older(self, now: int) -> int:
        """Link a batch of unlinked entries to the chain and return their number.

        Entries that were written after the chain began, by a process of the previous version or manually, are also
        reported in a new entry.
        """
        return await write_serialized(self._database, lambda tx: _link_older(tx, now), None)

    async def verify(self) -> Chain:
        return await verify(self._database)

    async def end(self) -> Head | None:
        """Return the head of the chain; None if its row was deleted."""
        return await self._database.read(_head)

    async def link_at(self, place: int) -> str | None:
        rows = await self._database.read(lambda tx: tx.run("audit_link", place=place))
        return rows[0][0] if rows else None

    async def page(self, team: str | None, wanted: AuditFilter, before: int = NEWEST, limit: int = 50) -> AuditPage:
        return await self._database.read(lambda tx: _page(tx, team, wanted, before, limit))


async def _lines(tx: Tx, team: str | None, wanted: AuditFilter, before: int, floor: int, limit: int) -> list[AuditLine]:
    given = msgspec.structs.asdict(wanted) | {"decisions": int(wanted.decisions)}
    given |= {"before": before, "floor": floor, "limit": limit}
    rows = await (tx.run("list_whole_audit", **given) if team is None else tx.run("list_audit", team=team, **given))
    return [AuditLine(*row) for row in rows]


async def _page(tx: Tx, team: str | None, wanted: AuditFilter, before: int, limit: int) -> AuditPage:
    """Return one page. Keys follow the order of times only approximately: clocks may differ by OFF_MS."""
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


async def _link_older(tx: Tx, now: int) -> int:
    if not await tx.run("unlinked_audit", limit=1):
        await tx.run("close_audit_start", before=-NEWEST)
        return 0
    end = await _lock(tx)
    rows, head = await tx.run("unlinked_audit", limit=PORTION), await _head(tx)
    if not rows or head is None:
        return 0
    await _link(tx, end, rows)
    if late := [row[0] for row in rows if row[0] > head.before]:
        await write(tx, SERVICE.did(now, TAKEN_IN, f"entries: {len(late)}", f"{late[0]} to {late[-1]}"))
    return len(rows)


async def _head(tx: Tx) -> Head | None:
    rows = await tx.run("audit_head")
    return Head(*rows[0]) if rows else None


async def verify(database: Database) -> Chain:
    """Verify the whole chain in batches, while other transactions may append entries."""
    walk, place, key = Walk(), -NEWEST, -NEWEST

    async def portion(tx: Tx) -> tuple[list[ChainLink], Head | None, list[Any]]:
        rows = await tx.run("walk_audit", place=place, key=key, limit=WALK_PORTION)
        return [ChainLink(*row) for row in rows], await _head(tx), await tx.run("unlinked_audit", limit=1)

    links, head, unlinked = await database.read(portion)
    while links:
        for one in links:
            walk.take(one)
        place, key = links[-1].place, links[-1].key
        links, head, unlinked = await database.read(portion)
    first = unlinked[0][0] if unlinked else None
    is_old = first is not None and head is not None and first <= head.before
    broken = walk.end(head, None if is_old else first)
    return Chain(entries=walk.place, link=walk.link, waiting=is_old, broken=broken)
