"""The ledger as people read it: the credit after every entry, page by page, and bookings by operators."""

import asyncio
import itertools

import pytest

from heliograph.domain.audit.actor import COMMAND_LINE, AuditEntry
from heliograph.domain.sending.pricing import Charge, month_of
from heliograph.storage import ledger
from heliograph.storage.ledger import LedgerEntry
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import CREDIT, Sql
from tests.storage.samples import message
from tests.storage.test_money import ACCOUNTS, LEDGER, check_books, outcome

pytestmark = pytest.mark.anyio


def _audit(clock: TestClock) -> AuditEntry:
    return COMMAND_LINE.audit_entry(at=clock.now(), team="team_a", action="credit.book", subject="x")


async def _book(store: Store, clock: TestClock, amount: int, team: int = 1) -> int:
    return (await store.ledger.adjust_credit(team, amount, "note", _audit(clock))).available


async def _all(store: Store, limit: int) -> list[LedgerEntry]:
    page = await store.ledger.list_page(1, None, limit)
    result = page.entries
    while page.next_cursor:
        page = await store.ledger.list_page(1, page.next_cursor, limit)
        assert len(result) % limit == 0
        result += page.entries
    return result


async def test_ledger_entries_show_the_credit_after_each(store: Store, clock: TestClock) -> None:
    await asyncio.gather(*(store.messages.accept(message(clock, channel="sms", price=1000 + i)) for i in range(3)))
    claims = await store.outbox.claim("phone", 2)
    for claim, expected in zip(claims, ("sent", "failed"), strict=True):
        await store.outbox.record(outcome(claim, clock.now(), expected))
    await _book(store, clock, 500)
    await _book(store, clock, -300)
    await _book(store, clock, 9_999, team=2)

    entries = await _all(store, 100)
    assert [e.kind for e in entries[:2]] == ["adjustment", "topup"]
    assert sorted(e.kind for e in entries) == sorted(
        ["topup", "hold", "hold", "hold", "capture", "release", "topup", "adjustment"]
    )
    assert entries[0].balance == (await store.ledger.get_account(1)).available
    for newer, older in itertools.pairwise(entries):
        assert newer.balance - newer.change == older.balance
    assert entries[-1].balance == entries[-1].amount == CREDIT
    for limit in (1, 2, 3, 8):
        assert await _all(store, limit) == entries


async def test_credit_adjustment_is_in_the_ledger_and_the_audit_log(store: Store, clock: TestClock, sql: Sql) -> None:
    assert await _book(store, clock, 250) == CREDIT + 250
    assert await _book(store, clock, -CREDIT) == 250
    check_books(await sql(LEDGER), await sql(ACCOUNTS))
    assert await sql("SELECT kind, amount, subject FROM ledger WHERE team = 1 ORDER BY key DESC LIMIT 2") == [
        ("adjustment", -CREDIT, "note"),
        ("topup", 250, "note"),
    ]
    assert await sql("SELECT action FROM audit") == [("credit.book",)] * 2


@pytest.mark.parametrize(
    ("amount", "why"), [(0, "must not be 0"), (-CREDIT - 1, "the credit is only 1.0000"), (10**18, "cannot exceed")]
)
async def test_invalid_credit_adjustment_changes_nothing(
    store: Store, clock: TestClock, sql: Sql, amount: int, why: str
) -> None:
    before = await sql(LEDGER), await sql(ACCOUNTS)
    with pytest.raises(ValueError, match=why):
        await _book(store, clock, amount)
    assert (await sql(LEDGER), await sql(ACCOUNTS)) == before
    assert await sql("SELECT action FROM audit") == []


async def test_credit_adjustments_during_sends_lose_nothing(
    store: Store, other: Store, clock: TestClock, sql: Sql
) -> None:
    sends = [(store, other)[i % 2].messages.accept(message(clock, channel="sms", price=10)) for i in range(20)]
    await asyncio.gather(*sends, *(_book((store, other)[i % 2], clock, 7) for i in range(20)))
    assert (await store.ledger.get_account(1)).available == CREDIT - 200 + 140
    check_books(await sql(LEDGER), await sql(ACCOUNTS))
    entries = await _all(store, 7)
    assert (len(entries), entries[-1].balance) == (41, CREDIT)


async def test_accounts_of_several_teams_are_listed(store: Store) -> None:
    result = await store.ledger.find_accounts([1, 2, 77])
    assert {team: account.available for team, account in result.items()} == {1: CREDIT, 2: CREDIT}


async def test_account_that_differs_from_its_entries_is_reported(
    store: Store, clock: TestClock, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "SUM_BATCH", 3)
    await asyncio.gather(*(store.messages.accept(message(clock, channel="sms", price=1000 + i)) for i in range(5)))
    (claim, *_) = await store.outbox.claim("phone", 2)
    await store.outbox.record(outcome(claim, clock.now(), "failed"))
    assert await store.ledger.difference(1) == 0
    await _book(store, clock, 500)
    assert await store.ledger.difference(1) == 0  # only new entries are added
    await sql("UPDATE account SET available = available + 7, held = held - 2 WHERE team = 1")
    assert await store.ledger.difference(1) == 9
    assert await store.ledger.difference(2) == await store.ledger.difference(99) == 0


async def test_charges_are_summed_by_month_and_channel(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is the same if the entries are in the stored sums, partly in them, or read one by one."""
    monkeypatch.setattr(ledger, "SPEND_BATCH", 2)
    now = clock.now()
    rows = [
        *((1, "capture", 100 + at, f"sms_{at}", now, 0) for at in range(3)),
        (1, "capture", 7, "vrf_1", now, 0),
        (1, "hold", 7, "eml_1", now, 0),
        (2, "capture", 9, "eml_2", now, 0),
    ]
    await store.database.write(lambda tx: tx.run("insert_ledger", entries=rows))
    month = month_of(now)
    seen = await store.ledger.get_spend(1, month)
    assert seen.counted_until is not None and (month, "sms") in seen.charges
    while await store.ledger.update_spend(1):
        pass
    whole = {(month, "sms"): Charge(303, 3), (month, "verification"): Charge(7, 1)}
    assert await store.ledger.get_spend(1, month) == ledger.Spend(charges=whole, counted_until=None)
    assert not await store.ledger.update_spend(1)
    assert (await store.ledger.get_spend(1, month)).charges == whole
    assert (await store.ledger.get_spend(1, "9999-01")).charges == {}


async def test_concurrent_bookings_of_one_reference_book_once(
    store: Store, other: Store, clock: TestClock, sql: Sql
) -> None:
    stores, amounts = (store, other), range(1, 11)
    calls = (stores[amount % 2].ledger.book_once(1, amount, "invoice 1", _audit(clock)) for amount in amounts)
    booking, *others = await asyncio.gather(*calls)
    assert others == [booking] * 9
    assert booking.available == CREDIT + booking.amount
    assert (await store.ledger.get_account(1)).available == CREDIT + booking.amount
    assert await sql("SELECT count(*) FROM ledger WHERE subject = 'invoice 1'") == [(1,)]
    assert await sql("SELECT count(*) FROM audit WHERE action = 'credit.book'") == [(1,)]
    of_another_team = await store.ledger.book_once(2, 7, "invoice 1", _audit(clock))
    assert of_another_team.available == CREDIT + 7
