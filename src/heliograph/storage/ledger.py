"""The ledger: pages of entries with the credit after each, and what an operator books."""

from collections.abc import Iterable

import msgspec

from heliograph.rules.audit import AuditEntry
from heliograph.rules.pricing import Account, book, credit_moved, moved
from heliograph.storage import audit
from heliograph.storage.accepts import lock_accounts, save_accounts, to_account
from heliograph.storage.audit import NEWEST
from heliograph.storage.engine.database import Database, Tx


class Entry(msgspec.Struct, frozen=True):
    moved: int  # by how much it changed the credit: a capture does not, its hold did
    balance: int  # the credit that could be spent after it
    key: int
    kind: str
    amount: int
    subject: str | None
    created_at: int


class Cursor(msgspec.Struct, frozen=True):
    """Entries before `key`. The ledger only grows, so the credit there stays true and need not be summed again."""

    key: int
    balance: int


class LedgerPage(msgspec.Struct, frozen=True, kw_only=True):
    entries: list[Entry]  # newest first
    following: Cursor | None  # where the next page begins; None: this is the last


SUMMED_MOST = 20_000  # entries at a time: some 10 ms


class _Sums(msgspec.Struct):
    """What a team's entries up to a key come to."""

    key: int = 0
    credit: int = 0
    held: int = 0


class Ledger:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._sums: dict[int, _Sums] = {}

    async def account(self, team: int) -> Account:
        return await self._database.read(lambda tx: account(tx, team))

    async def accounts(self, teams: Iterable[int]) -> dict[int, Account]:
        """Return accounts by team; one that is not there is missing."""
        rows = await self._database.read(lambda tx: tx.run("find_accounts", teams=[(team,) for team in teams]))
        return {row[0]: to_account(row) for row in rows}

    async def page(self, team: int, cursor: Cursor | None, limit: int) -> LedgerPage:
        return await self._database.read(lambda tx: _page(tx, team, cursor, limit))

    async def difference(self, team: int) -> int:
        """Return how far the account is off the sum of its entries; each is added up once in a process's life."""
        sums = self._sums.setdefault(team, _Sums())
        while True:
            rows = await self._database.read(
                lambda tx: tx.run("ledger_sums", team=team, after=sums.key, most=SUMMED_MOST)
            )
            for _, _, kind, amount, key, count in rows:
                if count:
                    sums.credit += moved(kind, amount, "credit")
                    sums.held += moved(kind, amount, "held")
                    sums.key = max(sums.key, key)
            if sum(row[5] for row in rows) < SUMMED_MOST:
                return sum(abs(row[0] - sums.credit) + abs(row[1] - sums.held) for row in rows[:1])

    async def book(self, team: int, amount: int, note: str | None, entry: AuditEntry) -> Account:
        """Top up, or take by a negative amount; ValueError when that is more than there is."""
        return await self._database.write(lambda tx: _book(tx, team, amount, note, entry))


async def account(tx: Tx, team: int) -> Account:
    (row,) = await tx.run("find_account", team=team)
    return to_account(row)


async def _page(tx: Tx, team: int, cursor: Cursor | None, limit: int) -> LedgerPage:
    if cursor is None:
        cursor = Cursor(NEWEST, (await account(tx, team)).available)
    balance, entries = cursor.balance, []
    for row in await tx.run("ledger_page", team=team, before=cursor.key, limit=limit + 1):
        change = credit_moved(row[1], row[2])
        entries.append(Entry(change, balance, *row))
        balance -= change
    more = len(entries) > limit
    following = Cursor(entries[limit - 1].key, entries[limit].balance) if more else None
    return LedgerPage(entries=entries[:limit], following=following)


async def _book(tx: Tx, team: int, amount: int, note: str | None, entry: AuditEntry) -> Account:
    found = await lock_accounts(tx, [team])
    kind = book(found[team], amount)
    await save_accounts(tx, found.values())
    await tx.run("insert_ledger", entries=[(team, kind, amount, note, entry.at, 0)])
    await audit.write(tx, entry)
    return found[team]
