"""The ledger: pages of entries with the credit after each entry, spend per month, and credit adjustments."""

from collections.abc import Iterable

import msgspec

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.operations.erasure import EntryName
from heliograph.domain.sending.pricing import Account, Charge, adjust_credit, balance_change, credit_change, sum_charges
from heliograph.storage import audit
from heliograph.storage.accept import account_from_row, lock_accounts, save_accounts
from heliograph.storage.audit import NEWEST
from heliograph.storage.engine.database import Database, Tx, write_serialized


class LedgerEntry(msgspec.Struct, frozen=True):
    change: int  # change of the credit; 0 for a capture, because its hold already changed the credit
    balance: int  # available credit after this entry
    key: int
    kind: str
    amount: int
    subject: str | None
    created_at: int


class Cursor(msgspec.Struct, frozen=True):
    """Position in the ledger before the entry `key`, with the credit at that point.

    The ledger is append-only, so the credit stays valid and need not be summed again.
    """

    key: int
    balance: int


class LedgerPage(msgspec.Struct, frozen=True, kw_only=True):
    entries: list[LedgerEntry]  # newest first
    next_cursor: Cursor | None  # cursor of the next page; None if this is the last page


class ReferencedBooking(msgspec.Struct, frozen=True):
    """A credit adjustment with a unique reference, and the account after it."""

    reference: str
    amount: int
    available: int
    held: int
    created_at: int


SUM_BATCH = 20_000  # entries summed per query, about 10 ms
SPEND_BATCH = 5_000  # maximum entries that a transaction or a page adds to the stored sums


class Spend(msgspec.Struct, frozen=True, kw_only=True):
    charges: dict[tuple[str, str], Charge]  # (UTC month, kind of message) → charge
    counted_until: int | None  # timestamp of the last summed entry; None if all entries are summed


class _Sums(msgspec.Struct):
    """Sums of a team's ledger entries up to a key."""

    key: int = 0
    credit: int = 0
    held: int = 0


class Ledger:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._sums: dict[int, _Sums] = {}

    async def get_account(self, team: int) -> Account:
        return await self._database.read(lambda tx: read_account(tx, team))

    async def find_accounts(self, teams: Iterable[int]) -> dict[int, Account]:
        """Return team → account; teams without an account are missing."""
        rows = await self._database.read(lambda tx: tx.run("find_accounts", teams=[(team,) for team in teams]))
        return {row[0]: account_from_row(row) for row in rows}

    async def list_page(self, team: int, cursor: Cursor | None, limit: int) -> LedgerPage:
        return await self._database.read_standby(lambda tx: _list_page(tx, team, cursor, limit))

    async def difference(self, team: int) -> int:
        """Return the absolute difference between a team's account and the sum of its ledger entries.

        The sums are cached, so that a process reads each entry only once.
        """
        sums = self._sums.setdefault(team, _Sums())
        while True:
            rows = await self._database.read(
                lambda tx: tx.run("ledger_sums", team=team, after=sums.key, most=SUM_BATCH)
            )
            for _, _, kind, amount, key, count in rows:
                if count:
                    sums.credit += balance_change(kind, amount, "credit")
                    sums.held += balance_change(kind, amount, "held")
                    sums.key = max(sums.key, key)
            if sum(row[5] for row in rows) < SUM_BATCH:
                return sum(abs(row[0] - sums.credit) + abs(row[1] - sums.held) for row in rows[:1])

    async def update_spend(self, team: int) -> bool:
        """Add a batch of new charges to the stored sums; return whether more charges are left."""
        return await self._database.write(lambda tx: _add_spend(tx, team))

    async def get_spend(self, team: int, since: str) -> Spend:
        """Return a team's charges from the month `since` on: the stored sums plus entries not yet in the sums."""
        return await self._database.read_standby(lambda tx: _spend(tx, team, since))

    async def adjust_credit(self, team: int, amount: int, note: str | None, entry: AuditEntry) -> Account:
        """Add `amount` to the credit, or deduct a negative amount; raise ValueError if the credit is too low."""
        return await write_serialized(
            self._database, lambda tx: _adjust_credit(tx, team, amount, note, entry), entry.team
        )

    async def book_once(self, team: int, amount: int, reference: str, entry: AuditEntry) -> ReferencedBooking:
        """Add `amount` to the credit unless this reference was booked before; return the booking of the reference.

        Raises ValueError if a deducted amount exceeds the credit.
        """
        return await write_serialized(
            self._database, lambda tx: _book_once(tx, team, amount, reference, entry), entry.team
        )


async def read_account(tx: Tx, team: int) -> Account:
    (row,) = await tx.run("find_account", team=team)
    return account_from_row(row)


async def stored_names(tx: Tx, team: int, name: str, erased_name_of: EntryName) -> list[str]:
    """Return the names under which an address or phone may be stored: itself, and its pseudonym if it may be erased."""
    return [name, erased_name_of(team, name)] if (await read_account(tx, team)).erased else [name]


async def _list_page(tx: Tx, team: int, cursor: Cursor | None, limit: int) -> LedgerPage:
    if cursor is None:
        cursor = Cursor(NEWEST, (await read_account(tx, team)).available)
    balance, entries = cursor.balance, []
    for row in await tx.run("ledger_page", team=team, before=cursor.key, limit=limit + 1):
        change = credit_change(row[1], row[2])
        entries.append(LedgerEntry(change, balance, *row))
        balance -= change
    has_more = len(entries) > limit
    next_cursor = Cursor(entries[limit - 1].key, entries[limit].balance) if has_more else None
    return LedgerPage(entries=entries[:limit], next_cursor=next_cursor)


async def _add_spend(tx: Tx, team: int) -> bool:
    ((after,),) = await tx.run("lock_spend", team=team)
    rows = await tx.run("ledger_after", team=team, after=after, most=SPEND_BATCH)
    if rows:
        sums = [
            (team, *month_and_kind, *charge)
            for month_and_kind, charge in sorted(sum_charges(row[1:] for row in rows).items())
        ]
        await tx.run("add_spend", sums=sums)
        await tx.run("set_last_summed_entry", team=team, key=rows[-1][0])
    return len(rows) == SPEND_BATCH


async def _spend(tx: Tx, team: int, since: str) -> Spend:
    after = next((row[0] for row in await tx.run("last_summed_entry", team=team)), 0)
    rows = await tx.run("ledger_after", team=team, after=after, most=SPEND_BATCH)
    charges = {
        (month, kind): Charge(*sums) for month, kind, *sums in await tx.run("team_spend", team=team, since=since)
    }
    for month_and_kind, charge in sum_charges(row[1:] for row in rows).items():
        if month_and_kind[0] >= since:
            charges[month_and_kind] = charges.get(month_and_kind, Charge()).plus(charge)
    return Spend(charges=charges, counted_until=rows[-1][4] if len(rows) == SPEND_BATCH else None)


async def _adjust_credit(tx: Tx, team: int, amount: int, note: str | None, entry: AuditEntry) -> Account:
    accounts = await lock_accounts(tx, [team])
    kind = adjust_credit(accounts[team], amount)
    await save_accounts(tx, accounts.values())
    await tx.run("insert_ledger", entries=[(team, kind, amount, note, entry.at, 0)])
    await audit.write(tx, entry)
    return accounts[team]


async def _book_once(tx: Tx, team: int, amount: int, reference: str, entry: AuditEntry) -> ReferencedBooking:
    await lock_accounts(tx, [team])  # a concurrent booking of the reference waits here
    rows = await tx.run("find_credit_reference", team=team, reference=reference)
    if rows:
        return ReferencedBooking(*rows[0])
    account = await _adjust_credit(tx, team, amount, reference, entry)
    booking = ReferencedBooking(reference, amount, account.available, account.held, entry.at)
    await tx.run("insert_credit_reference", team=team, **msgspec.structs.asdict(booking))
    return booking
