"""The audit log: who changed what, when and from where. It is append-only and forms a hash chain (ADR 0035)."""

from collections.abc import Sequence
from typing import Any

import msgspec

from heliograph.domain.audit.actor import SERVICE, AuditEntry
from heliograph.domain.audit.audit_chain import (
    ADOPT_ACTION,
    ERASE_ACTION,
    BrokenLink,
    ChainLink,
    ChainVerifier,
    Head,
    derive_salt,
    hash_entry,
    hash_link,
)
from heliograph.domain.operations.notices import notice_for_entry
from heliograph.runtime.clock import CLOCK_ERROR_MAX_MS
from heliograph.storage import notice_queue
from heliograph.storage.engine.database import Database, Tx, write_serialized

NEWEST = (1 << 62) - 1
LATEST_TIME = 1 << 47  # upper bound of times in ms
SCAN_MAX = 20_000  # maximum entries scanned for one page that filters by person or action
FILTER_SCAN_MAX = 2_000  # number of newest entries whose actions the page offers as filters
VERIFY_BATCH = 5_000  # links verified in one transaction
# Entries linked in one transaction; small, because it blocks SQLite's writer and the head of the chain
LINK_BATCH = 200


class AuditRow(msgspec.Struct, frozen=True):
    key: int
    at: int
    actor_name: str  # a person's id, or Actor.name
    email: str | None  # email address of the person; None if the account does not exist
    name: str | None
    team: str | None
    action: str
    subject: str
    detail: str
    address: str

    @property
    def actor(self) -> str:
        return self.email or self.actor_name


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of audit entries; None and empty values match every entry."""

    actor: str | None = None
    action: str = ""  # prefix of the action: `key.` matches all actions on API keys
    since: int = 0
    until: int = LATEST_TIME
    decisions: bool = False  # only operators' decisions: approvals and refusals


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of audit entries, newest first. `after`: cursor of the next page; None if this is the last page."""

    rows: Sequence[AuditRow]
    after: int | None = None
    is_incomplete: bool = False  # the scan limit was reached before the page was full


class ChainStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The result of verifying the hash chain.

    Compare `link` with a copy noted elsewhere to detect that the whole chain was recomputed.
    """

    entries: int  # number of entries in the chain
    link: str  # hash of the newest entry
    has_unlinked: bool  # there are entries from before the hash chain that are not linked to it yet
    broken: BrokenLink | None


async def write(tx: Tx, *entries: AuditEntry | None) -> None:
    """Write audit entries in the transaction of the change they record and enqueue their notices; None is skipped.

    The head of the chain is locked until the commit: acquire all other locks before this call.
    """
    if new_entries := [entry for entry in entries if entry]:
        rows = await tx.run("insert_audit", entries=[msgspec.structs.astuple(entry) for entry in new_entries])
        await notice_queue.enqueue(tx, *filter(None, map(notice_for_entry, new_entries)))
        await _append_links(tx, await _lock_head(tx), rows)


async def rewrite_entries(tx: Tx, texts: Sequence[tuple[int, str, str]], now: int) -> None:
    """Replace the texts of entries (key, subject, detail), and record each replacement in a new entry."""
    head = await _lock_head(tx)
    row_by_key = {row[0]: row for row in await tx.run("find_audit", keys=[(key,) for key, *_ in texts])}
    rows: list[tuple[Any, ...]] = []
    entries: list[AuditEntry] = []
    for key, subject, detail in texts:
        *entry, position, salt, original_hash = row_by_key[key]
        if position is None:  # not linked yet: the new text will be hashed when the entry is linked
            rows.append((key, subject, detail, None, None))
            continue
        new_salt = derive_salt(head.seed, -key)
        new_hash = hash_entry((*entry[:5], subject, detail, entry[7]), new_salt)
        rows.append((key, subject, detail, new_salt, original_hash or hash_entry(entry, salt)))
        entries.append(SERVICE.audit_entry(now, ERASE_ACTION, str(key), new_hash, team=entry[3]))
    await tx.run("rewrite_audit", rows=rows)
    if entries:
        new_rows = await tx.run("insert_audit", entries=[msgspec.structs.astuple(entry) for entry in entries])
        await _append_links(tx, head, new_rows)


class _ChainHead(msgspec.Struct, frozen=True):
    position: int
    link: str
    seed: str  # the salts of new entries are derived from it


async def _lock_head(tx: Tx) -> _ChainHead:
    """Lock the head of the chain until the commit, so that no other transaction links entries.

    A missing head is not recreated, because that would hide the loss.
    """
    rows = await tx.run("lock_audit_head")
    return _ChainHead(*rows[0]) if rows else _ChainHead(-1, "", "")


async def _append_links(tx: Tx, head: _ChainHead, rows: Sequence[Sequence[Any]]) -> None:
    """Append a link for each entry to the hash chain; append nothing if the chain's head is missing.

    `rows`: one per entry, with the columns that are hashed: `key` to `address`, in the table's order.
    """
    if head.position < 0:
        return
    position, link, links = head.position, head.link, []
    for row in rows:
        position += 1
        salt = derive_salt(head.seed, position)
        link = hash_link(link, position, hash_entry(row, salt))
        links.append((row[0], position, salt, link))
    await tx.run("link_audit", links=links)
    await tx.run("move_audit_head", place=position, link=link)


class Audit:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, entry: AuditEntry) -> None:
        """Record an action that changes no stored record, such as a test message."""
        await write_serialized(self._database, lambda tx: write(tx, entry), entry.team)

    async def list_rows(self, team: str | None, before: int = NEWEST, limit: int = 50) -> Sequence[AuditRow]:
        """Return up to `limit` + 1 entries, newest first; the extra entry shows that there are more.

        `team`: only this team's entries; None for those of the whole instance.
        """
        return await self._database.read_standby(lambda tx: _list_rows(tx, team, AuditFilter(), before, 0, limit + 1))

    async def exists(self, key: int) -> bool:
        return bool(await self._database.read(lambda tx: tx.run("find_audit", keys=[(key,)])))

    async def link_older(self, now: int) -> int:
        """Link a batch of unlinked entries to the chain and return their number.

        Unlinked entries from after the start of the chain were written by a process of the previous version or
        manually; a new entry reports them.
        """
        return await write_serialized(self._database, lambda tx: _link_older(tx, now), None)

    async def verify(self) -> ChainStatus:
        return await verify(self._database)

    async def head(self) -> Head | None:
        """Return the head of the chain; None if its row was deleted."""
        return await self._database.read(_read_head)

    async def find_link(self, position: int) -> str | None:
        rows = await self._database.read(lambda tx: tx.run("audit_link", place=position))
        return rows[0][0] if rows else None

    async def list_actions(self, team: str | None) -> frozenset[str]:
        """Return the actions of the newest entries of a team, or of the whole instance if `team` is None."""
        name, scope = ("audit_filter_actions", {"team": team}) if team else ("whole_audit_filter_actions", {})
        rows = await self._database.read_standby(lambda tx: tx.run(name, **scope, most=FILTER_SCAN_MAX))
        return frozenset(action for (action,) in rows)

    async def list_page(
        self, team: str | None, audit_filter: AuditFilter, before: int = NEWEST, limit: int = 50
    ) -> AuditPage:
        return await self._database.read_standby(lambda tx: _list_page(tx, team, audit_filter, before, limit))


async def _list_rows(
    tx: Tx, team: str | None, audit_filter: AuditFilter, before: int, min_key: int, limit: int
) -> list[AuditRow]:
    params = msgspec.structs.asdict(audit_filter) | {"decisions": int(audit_filter.decisions)}
    params |= {"before": before, "floor": min_key, "limit": limit}
    rows = await (tx.run("list_whole_audit", **params) if team is None else tx.run("list_audit", team=team, **params))
    return [AuditRow(*row) for row in rows]


async def _list_page(tx: Tx, team: str | None, audit_filter: AuditFilter, before: int, limit: int) -> AuditPage:
    """Return one page of audit entries.

    Keys are only roughly in the order of their times, because the clocks of processes may differ by CLOCK_ERROR_MAX_MS.
    """
    since_key = 0
    if audit_filter.until < LATEST_TIME:
        until_key = _first_key(await tx.run("audit_before", until=audit_filter.until + CLOCK_ERROR_MAX_MS), -1)
        before = min(before, until_key + 1)
    if audit_filter.since:
        since_key = _first_key(await tx.run("audit_since", since=audit_filter.since - CLOCK_ERROR_MAX_MS), NEWEST)
    scan = {"before": before, "walk": SCAN_MAX}
    floor_rows = await (
        tx.run("whole_audit_floor", **scan) if team is None else tx.run("audit_floor", team=team, **scan)
    )
    min_key = max(since_key, _first_key(floor_rows, 0))
    rows = await _list_rows(tx, team, audit_filter, before, min_key, limit + 1)
    if len(rows) > limit:
        return AuditPage(rows=rows[:limit], after=rows[limit - 1].key)
    is_incomplete = min_key > since_key
    return AuditPage(rows=rows, after=min_key if is_incomplete else None, is_incomplete=is_incomplete)


def _first_key(rows: Sequence[Sequence[int]], default: int) -> int:
    return rows[0][0] if rows else default


async def _link_older(tx: Tx, now: int) -> int:
    if not await tx.run("unlinked_audit", limit=1):
        await tx.run("finish_audit_backfill", before=-NEWEST)
        return 0
    locked_head = await _lock_head(tx)
    rows, head = await tx.run("unlinked_audit", limit=LINK_BATCH), await _read_head(tx)
    if not rows or head is None:
        return 0
    await _append_links(tx, locked_head, rows)
    if late_keys := [row[0] for row in rows if row[0] > head.last_unchained_key]:
        subject, detail = f"entries: {len(late_keys)}", f"{late_keys[0]} to {late_keys[-1]}"
        await write(tx, SERVICE.audit_entry(now, ADOPT_ACTION, subject, detail))
    return len(rows)


async def _read_head(tx: Tx) -> Head | None:
    rows = await tx.run("audit_head")
    return Head(*rows[0]) if rows else None


async def verify(database: Database) -> ChainStatus:
    """Verify the whole chain in batches, while other transactions may append entries."""
    verifier, position, key = ChainVerifier(), -NEWEST, -NEWEST

    async def read_batch(tx: Tx) -> tuple[list[ChainLink], Head | None, list[Any]]:
        rows = await tx.run("audit_in_chain_order", place=position, key=key, limit=VERIFY_BATCH)
        return [ChainLink(*row) for row in rows], await _read_head(tx), await tx.run("unlinked_audit", limit=1)

    links, head, unlinked = await database.read(read_batch)
    while links:
        for link in links:
            verifier.verify(link)
        position, key = links[-1].position, links[-1].key
        links, head, unlinked = await database.read(read_batch)
    first_unlinked = unlinked[0][0] if unlinked else None
    is_waiting = first_unlinked is not None and head is not None and first_unlinked <= head.last_unchained_key
    broken = verifier.finish(head, None if is_waiting else first_unlinked)
    return ChainStatus(entries=verifier.position, link=verifier.last_link, has_unlinked=is_waiting, broken=broken)
