"""The accept transaction: one for many messages, exact under concurrency, with independent failures."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from itertools import permutations
from typing import Any, cast

import pytest

from heliograph.domain.limits import DAY_MS
from heliograph.domain.refusals import RecipientSuppressed
from heliograph.domain.sending import pricing
from heliograph.domain.sending.acceptance import Acceptance, AcceptedRecipient, AcceptState, Decision, SharedText
from heliograph.domain.sending.pricing import Account
from heliograph.domain.sending.send_options import ExtraFields
from heliograph.storage.accept import write_accepted
from heliograph.storage.engine.database import Rows, T, Tx, TxFunction
from heliograph.storage.setup import NewSuppression
from heliograph.storage.store import Store, StoreUnavailable
from tests.clocks import TestClock
from tests.storage.conftest import CREDIT, Sql
from tests.storage.samples import ENTRY, message, refusals

ADA = AcceptedRecipient("a@example.com", "a@example.com", "to")

pytestmark = pytest.mark.anyio


async def accept_all(store: Store, items: list[Acceptance]) -> list[Any]:
    answers: list[Any] = await asyncio.gather(*map(store.messages.accept, items), return_exceptions=True)
    return answers


class Counted:
    """Counts the transactions of a store, and the statements in each."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: list[int] = []
        write = store.database.write

        async def counting(function: TxFunction[T]) -> T:
            self.statements.append(0)
            return await write(lambda tx: function(self._wrap(tx)))

        monkeypatch.setattr(store.database, "write", counting)

    def _wrap(self, tx: Tx) -> Tx:
        counted = self

        class CountingTx:
            wakeups = tx.wakeups
            after_commit = tx.after_commit

            async def run(self, query: str, **params: Any) -> list[Any]:
                counted.statements[-1] += 1
                return await tx.run(query, **params)

            async def run_many(self, **queries: dict[str, Any]) -> list[list[Any]]:
                counted.statements[-1] += 1
                return await tx.run_many(**queries)

            async def write_many(self, tables: Mapping[str, Rows]) -> None:
                counted.statements[-1] += 1
                await tx.write_many(tables)

        return CountingTx()


async def test_accept_many_messages_uses_one_transaction_and_as_many_statements_as_one(
    store: Store, clock: TestClock, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(store, monkeypatch)
    await accept_all(store, [message(clock, price=1)])
    await accept_all(store, [message(clock, "a@example.com", "b@example.com", price=1) for _ in range(100)])
    alone, together = counted.statements
    assert alone == together == 2  # one for all reads, and one for all writes
    assert await sql("SELECT count(*) FROM message") == [(101,)]
    assert await sql("SELECT count(*) FROM recipient") == await sql("SELECT count(*) FROM outbox") == [(201,)]


async def test_accepted_message_is_stored_as_decided(store: Store, clock: TestClock) -> None:
    item = message(clock, "a@example.com", "b@example.com", price=7)
    answer = await store.messages.accept(item)
    assert (answer.id, answer.body, answer.replayed) == (item.id, f'{{"id":"{item.id}"}}'.encode(), False)
    stored = await store.messages.get(1, item.id)
    assert stored
    assert (stored.status, stored.record.encode()) == ("sending", answer.body)
    assert [(element.given, element.kind, element.status) for element in stored.recipients] == [
        ("a@example.com", "to", "sending"),
        ("b@example.com", "to", "sending"),
    ]
    claims = await store.outbox.claim("email", 10)
    assert [(c.address, c.content) for c in claims] == [(a, item.content) for a in ("a@example.com", "b@example.com")]


async def test_refused_message_leaves_other_messages_and_credit_unchanged(store: Store, clock: TestClock) -> None:
    def refuse(state: AcceptState) -> Decision:
        pricing.hold(state.account, 500)  # held before the last rule refuses
        raise RecipientSuppressed

    items = [message(clock, price=1), message(clock, decide=refuse), message(clock, price=1)]
    results = await accept_all(store, items)
    assert refusals(results) == ["recipient_suppressed"]
    assert [await store.messages.get(1, item.id) is not None for item in items] == [True, False, True]
    account = await store.ledger.get_account(1)
    assert (account.available, account.held) == (CREDIT - 2, 2)


@pytest.mark.parametrize("trouble", ["a bug in its rule", "a team that is not there", "text no database takes"])
async def test_message_that_breaks_the_transaction_fails_alone(store: Store, clock: TestClock, trouble: str) -> None:
    def bug(state: AcceptState) -> Decision:
        raise ZeroDivisionError

    poison = {
        "a bug in its rule": lambda: message(clock, decide=bug),
        "a team that is not there": lambda: message(clock, team=99),
        "text no database takes": lambda: message(clock, content=b"\xff"),
    }[trouble]()
    results = await accept_all(store, [message(clock, price=1), poison, message(clock, price=1)])
    assert [isinstance(r, Exception) for r in results] == [False, True, False]
    assert not isinstance(results[1], StoreUnavailable)
    assert (await store.ledger.get_account(1)).held == 2


@pytest.mark.parametrize("teams", [(1,), (1, 2)])
async def test_64_concurrent_messages_with_credit_for_ten_accept_ten(
    store: Store, other: Store, clock: TestClock, sql: Sql, teams: tuple[int, ...]
) -> None:
    price = CREDIT // 10
    racers = [
        (process, message(clock, team=team, channel="sms", price=price))
        for team in teams
        for process in (store, other)
        for _ in range(32)
    ]
    results = await asyncio.gather(*(process.messages.accept(item) for process, item in racers), return_exceptions=True)
    assert Counter(refusals(results)) == {"insufficient_credit": 54 * len(teams)}
    for team in teams:
        account = await store.ledger.get_account(team)
        assert (account.available, account.held) == (0, CREDIT)
    assert await sql("SELECT team, count(*), sum(price) FROM message GROUP BY team ORDER BY team") == [
        (team, 10, CREDIT) for team in teams
    ]


async def test_concurrent_messages_never_exceed_the_quota(store: Store, other: Store, clock: TestClock) -> None:
    """A send that begins within the quota is free, and all its recipients count."""

    def decide(state: AcceptState) -> Decision:
        free = pricing.use_quota(state.account, 1, 10, pricing.month_of(clock.now()))
        price = 0 if free else 5
        pricing.hold(state.account, price)
        return Decision(response=b"{}", recipients=[ADA], price=price)

    items = [message(clock, decide=decide) for _ in range(64)]
    await asyncio.gather(*((store, other)[i % 2].messages.accept(item) for i, item in enumerate(items)))
    account = await store.ledger.get_account(1)
    assert (account.used, account.held) == (64, 54 * 5)


async def test_decision_sees_only_suppressions_of_its_own_team(store: Store, clock: TestClock) -> None:
    await store.suppressions.add(NewSuppression(1, "gone@example.com", "Gone@example.com", "manual"), ENTRY)
    await store.suppressions.add(NewSuppression(2, "else@example.com", "else@example.com", "manual"), ENTRY)
    seen: dict[str, set[str]] = {}

    def note(name: str) -> Any:
        def decide(state: AcceptState) -> Decision:
            seen[name] = set(state.suppressed)
            return Decision(response=b"{}", recipients=[ADA])

        return decide

    watch = ["gone@example.com", "else@example.com", "here@example.com"]
    items = [message(clock, team=team, decide=note(f"team {team}"), suppression_addresses=watch) for team in (1, 2)]
    await accept_all(store, items)
    assert seen == {"team 1": {"gone@example.com"}, "team 2": {"else@example.com"}}


async def test_marketing_limit_counts_all_processes_for_a_day(store: Store, other: Store, clock: TestClock) -> None:
    seen: list[int] = []

    def decide(state: AcceptState) -> Decision:
        seen.append(len(state.marketing_times))
        return Decision(response=b"{}", recipients=[AcceptedRecipient("+14155550100", "+14155550100", "to")])

    def offer() -> Acceptance:
        return message(clock, channel="whatsapp", decide=decide, marketing_to="+14155550100")

    await accept_all(store, [offer(), offer()])  # in one batch
    await other.messages.accept(offer())
    clock.forward(DAY_MS)
    await store.messages.accept(offer())
    assert seen == [0, 1, 2, 0]


async def test_dry_run_decides_and_writes_nothing(store: Store, clock: TestClock, sql: Sql) -> None:
    accepted = await store.messages.dry_run(message(clock, price=7))
    assert accepted.price == 7
    assert await sql("SELECT count(*) FROM message") == [(0,)]
    assert (await store.ledger.get_account(1)).available == CREDIT


async def test_group_in_any_order_is_written_in_one_order(clock: TestClock) -> None:
    """PostgreSQL plans each order of the tables as a separate statement, and every process caches it."""
    orders: list[list[str]] = []

    class Written:
        def __init__(self) -> None:
            self.wakeups: dict[str, int] = {}

        async def write_many(self, tables: Mapping[str, Rows]) -> None:
            orders.append([query for query, rows in tables.items() if rows])

    shared = SharedText(b"digest", b'"html":"large"')
    some: list[dict[str, Any]] = [
        {"extra_fields": ExtraFields(tags={"kind": "receipt"})},
        {"blobs": ["hash"]},
        {"shared": shared, "marketing_to": "+447700900123"},
        {"callback": "https://example.com/hook"},
    ]
    paid = Decision(b"{}", [ADA], price=1)
    items = [(message(clock, **more), paid if "blobs" in more else Decision(b"{}", [ADA])) for more in some]
    empty: dict[str, Any] = dict.fromkeys(Account.__struct_fields__, 0)
    for accepted in permutations(items):
        await write_accepted(cast(Tx, Written()), list(accepted), {1: Account(**empty)}, [(key,) for key in range(4)])
    assert orders == [orders[0]] * len(orders) and len(orders[0]) == 12
