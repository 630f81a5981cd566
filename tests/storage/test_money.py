"""Money: the ledger explains every balance, for any order of operations (P4)."""

import asyncio
from typing import Any

import pytest

from heliograph.domain.delivery.outcome import CarrierReport, Report
from heliograph.domain.sending.pricing import ACCOUNTS_BY_ENTRY_KIND
from heliograph.storage.outbox import Claim
from heliograph.storage.outcomes import RecipientUpdate, RetryPlan
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql
from tests.storage.samples import message

LEDGER = "SELECT team, kind, amount, subject || '/' || turn FROM ledger ORDER BY key"
ACCOUNTS = "SELECT team, available, held FROM account"


def check_books(ledger: list[tuple[Any, ...]], accounts: list[tuple[Any, ...]]) -> None:
    """Check that everything sums to zero, each account equals its entries, and nothing is settled twice."""
    books: dict[tuple[int, str], int] = {}
    for team, kind, amount, _ in ledger:
        source, target = ACCOUNTS_BY_ENTRY_KIND[kind]
        books[team, source] = books.get((team, source), 0) - amount
        books[team, target] = books.get((team, target), 0) + amount
    assert sum(books.values()) == 0
    for team, available, held in accounts:
        assert (available, held) == (books.get((team, "credit"), 0), books.get((team, "held"), 0))
        assert available >= 0
        assert held >= 0
    for kinds in (("hold",), ("capture", "release")):
        subjects = [subject for _, kind, _, subject in ledger if kind in kinds]
        assert len(subjects) == len(set(subjects))


def outcome(claim: Claim, at: int, target_status: str | None) -> RecipientUpdate:
    return RecipientUpdate(
        at=at,
        message=claim.message,
        position=claim.position,
        claim=claim.token,
        target_status=target_status,
        accepted=target_status == "sent",
        carrier="sim",
        carrier_id=f"{claim.message_id}/{claim.position}" if target_status == "sent" else None,
        retry=None if target_status else RetryPlan(due_at=at, attempt=claim.attempt + 1),
    )


@pytest.mark.anyio
async def test_ledger_after_many_sends_balances(store: Store, other: Store, clock: TestClock, sql: Sql) -> None:
    items = [message(clock, team=1 + i % 2, channel="sms", price=1000 + i) for i in range(60)]
    await asyncio.gather(*((store, other)[i % 2].messages.accept(item) for i, item in enumerate(items)))
    claims = [(process, claim) for process in (store, other) for claim in await process.outbox.claim("phone", 30)]
    wishes: list[str | None] = ["sent", "failed", None]
    changes = [(process, outcome(claim, clock.now(), wishes[i % 3])) for i, (process, claim) in enumerate(claims)]
    for new in (True, False):  # the second time, all claims are lost
        assert set(await asyncio.gather(*(process.outbox.record(change) for process, change in changes))) == {new}
    receipts = [
        CarrierReport(f"{item.id}/0", Report(status=status)) for item in items for status in ("delivered", "failed")
    ]
    await asyncio.gather(
        store.reports.store_by_carrier("sim", receipts), other.reports.store_by_carrier("sim", receipts)
    )
    check_books(await sql(LEDGER), await sql(ACCOUNTS))
    settled = await sql("SELECT charge, count(*) FROM message GROUP BY charge ORDER BY charge")
    assert settled == [("captured", 20), ("held", 20), ("released", 20)]


@pytest.mark.anyio
@pytest.mark.parametrize(("kind", "first"), [("hold", "hold"), ("capture", "release"), ("capture", "capture")])
async def test_ledger_rejects_a_second_entry_of_the_same_kind(store: Store, sql: Sql, kind: str, first: str) -> None:
    """The database itself rejects it, independent of our code."""

    def insert(what: str) -> str:
        columns = "(team, kind, amount, subject, created_at)"
        return f"INSERT INTO ledger {columns} VALUES (1, '{what}', 5, 'sms_x', 0)"

    await sql(insert(first))
    with pytest.raises(Exception, match="(?i)unique"):
        await sql(insert(kind))


@pytest.mark.anyio
async def test_negative_balance_is_refused_by_the_database(store: Store, sql: Sql) -> None:
    with pytest.raises(Exception, match="(?i)check"):
        await sql("UPDATE account SET available = -1 WHERE team = 1")
