"""Money balances: the ledger explains every balance, whatever happens in whatever order (P4, short form)."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from heliograph.rules.audit import COMMAND_LINE
from heliograph.rules.limits import ALONE_AGAIN_MS, CLAIMS_MAX, DEATHS_MAX
from heliograph.rules.outcome import CarrierReport, Report
from heliograph.rules.pricing import ENTRY_KINDS
from heliograph.rules.refusals import InsufficientCredit
from heliograph.storage.engine.blobs import Blobs
from heliograph.storage.engine.migrate import migrate_sqlite
from heliograph.storage.engine.sqlite import SqliteDatabase
from heliograph.storage.outbox import Claim
from heliograph.storage.outcomes import Change, Later
from heliograph.storage.setup import NewTeam, SetupChange
from heliograph.storage.store import Store, make_store
from heliograph.storage.verifications import Start
from tests.clocks import TestClock
from tests.entries import SET_UP
from tests.storage.conftest import Sql
from tests.storage.samples import finish, message, start

LEDGER = "SELECT team, kind, amount, subject || '/' || turn FROM ledger ORDER BY key"
ACCOUNTS = "SELECT team, available, held FROM account"
WHICH = st.integers(0, 100)
OUTCOMES = st.sampled_from(["sent", "sent", "failed", None])


def check_books(ledger: list[tuple[Any, ...]], accounts: list[tuple[Any, ...]]) -> None:
    """Everything sums to zero, each account is what its entries say, and nothing is settled twice."""
    books: dict[tuple[int, str], int] = {}
    for team, kind, amount, _ in ledger:
        source, target = ENTRY_KINDS[kind]
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


def outcome(claim: Claim, at: int, wanted: str | None) -> Change:
    return Change(
        at=at,
        message=claim.message,
        position=claim.position,
        claim=claim.held,
        wanted=wanted,
        accepted=wanted == "sent",
        carrier="sim",
        carrier_id=f"{claim.message_id}/{claim.position}" if wanted == "sent" else None,
        again=None if wanted else Later(due_at=at, attempt=claim.attempt + 1),
    )


@pytest.mark.anyio
async def test_the_books_after_a_busy_day(store: Store, other: Store, clock: TestClock, sql: Sql) -> None:
    items = [message(clock, team=1 + i % 2, channel="sms", price=1000 + i) for i in range(60)]
    await asyncio.gather(*((store, other)[i % 2].messages.accept(item) for i, item in enumerate(items)))
    claims = [(process, claim) for process in (store, other) for claim in await process.outbox.claim("phone", 30)]
    wishes: list[str | None] = ["sent", "failed", None]
    changes = [(process, outcome(claim, clock.now(), wishes[i % 3])) for i, (process, claim) in enumerate(claims)]
    for new in (True, False):  # the second time, no claim is ours any more
        assert set(await asyncio.gather(*(process.outbox.record(change) for process, change in changes))) == {new}
    receipts = [
        CarrierReport(f"{item.id}/0", Report(status=status)) for item in items for status in ("delivered", "failed")
    ]
    await asyncio.gather(store.reports.by_carrier("sim", receipts), other.reports.by_carrier("sim", receipts))
    check_books(await sql(LEDGER), await sql(ACCOUNTS))
    settled = await sql("SELECT charge, count(*) FROM message GROUP BY charge ORDER BY charge")
    assert settled == [("captured", 20), ("held", 20), ("released", 20)]


@pytest.mark.anyio
@pytest.mark.parametrize(("kind", "first"), [("hold", "hold"), ("capture", "release"), ("capture", "capture")])
async def test_the_ledger_takes_nothing_twice(store: Store, sql: Sql, kind: str, first: str) -> None:
    """The database itself refuses, whatever the code says."""

    def insert(what: str) -> str:
        columns = "(team, kind, amount, subject, created_at)"
        return f"INSERT INTO ledger {columns} VALUES (1, '{what}', 5, 'sms_x', 0)"

    await sql(insert(first))
    with pytest.raises(Exception, match="(?i)unique"):
        await sql(insert(kind))


@pytest.mark.anyio
async def test_a_balance_below_zero_is_refused_by_the_database(store: Store, sql: Sql) -> None:
    with pytest.raises(Exception, match="(?i)check"):
        await sql("UPDATE account SET available = -1 WHERE team = 1")


class Money(RuleBasedStateMachine):
    """Holds, captures and releases in any order, with the dead, duplicates and late receipts among them."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "money.db"
        migrate_sqlite(path)
        self.clock = TestClock()
        self.store = make_store(SqliteDatabase(path), Blobs(path.parent / "blobs"), self.clock, "seat/0")
        self.runner = asyncio.Runner()
        self.books = apsw.Connection(str(path))
        self.teams = 0
        self.topped_up = 0
        self.claims: list[Claim] = []  # all that were ever ours
        self.at_carrier: list[str] = []
        self.starts: list[Start] = []
        self.open_team(300)

    def run(self, story: Any) -> Any:
        return self.runner.run(story)

    def teardown(self) -> None:
        self.books.close()
        self.run(self.store.close())
        self.runner.close()
        self.folder.cleanup()

    @rule(credit=st.integers(0, 500))
    def open_team(self, credit: int) -> None:
        self.run(self.store.setup.change(lambda _, ref: SetupChange(new_teams=[NewTeam(ref, credit)], audit=SET_UP)))
        self.teams += 1
        self.topped_up += credit

    @rule(team=st.integers(1, 3), price=st.integers(0, 100), count=st.integers(1, 4), recipients=st.integers(1, 3))
    def send(self, team: int, price: int, count: int, recipients: int) -> None:
        team = min(team, self.teams)
        before = self.run(self.store.ledger.account(team)).available
        to = [f"+1415555010{number}" for number in range(recipients)]
        items = [message(self.clock, *to, team=team, channel="sms", price=price) for _ in range(count)]

        async def all_at_once() -> list[Any]:
            return await asyncio.gather(*(self.store.messages.accept(item) for item in items), return_exceptions=True)

        results = self.run(all_at_once())
        refused = [r for r in results if isinstance(r, InsufficientCredit)]
        assert len(refused) == max(0, count - before // price) if price else not refused

    @rule(most=st.integers(1, 4))
    def claim(self, most: int) -> None:
        self.clock.forward(1)
        self.claims += self.run(self.store.outbox.claim("phone", most))

    @precondition(lambda self: self.claims)
    @rule(which=WHICH, wanted=OUTCOMES)
    def record(self, which: int, wanted: str | None) -> None:
        """The same claim may come again, also after it was taken back: only the first counts."""
        claim = self.claims[which % len(self.claims)]
        if self.run(self.store.outbox.record(outcome(claim, self.clock.now(), wanted))) and wanted == "sent":
            self.at_carrier.append(f"{claim.message_id}/{claim.position}")

    @rule(wishes=st.lists(OUTCOMES, min_size=1, max_size=4))
    def claim_and_record(self, wishes: list[str | None]) -> None:
        self.claim(len(wishes))
        for number, wanted in enumerate(wishes, 1):
            if number <= len(self.claims):
                self.record(-number, wanted)

    @precondition(lambda self: self.at_carrier)
    @rule(which=WHICH, status=st.sampled_from(["delivered", "failed", "sent", "read"]), twice=st.booleans())
    def report(self, which: int, status: str, twice: bool) -> None:
        reports = [CarrierReport(self.at_carrier[which % len(self.at_carrier)], Report(status=status))] * (1 + twice)
        assert self.run(self.store.reports.by_carrier("sim", reports)) == [True] * len(reports)

    @rule()
    def die_and_start_again(self) -> None:
        self.run(self.store.outbox.take_back())
        self.run(self.store.outbox.reclaim())

    @rule(most=st.integers(1, 4))
    def poison(self, most: int) -> None:
        """Workers die with the same messages, at last with one after the other alone."""
        for _ in range(CLAIMS_MAX + DEATHS_MAX):
            self.claim(most)
            while claims := self.run(self.store.outbox.claim_suspect()):
                self.claims += claims
            self.run(self.store.outbox.take_back())
            self.clock.forward(DEATHS_MAX * ALONE_AGAIN_MS)
        self.run(self.store.outbox.reclaim())

    @rule()
    def try_the_dead_again(self) -> None:
        letters = self.run(self.store.dead_letters.page())
        audit = COMMAND_LINE.did(at=self.clock.now(), action="retry", subject="")
        self.run(self.store.dead_letters.retry([one.key for one in letters], audit))

    @rule(price=st.integers(0, 200))
    def start_verification(self, price: int) -> None:
        begun = start(self.clock, price=price)
        try:
            self.run(self.store.verifications.start(begun))
            self.starts.append(begun)
        except InsufficientCredit:
            pass

    @precondition(lambda self: self.starts)
    @rule(which=WHICH, status=st.sampled_from(["pending", "failed"]))
    def finish_verification(self, which: int, status: str) -> None:
        begun = self.starts[which % len(self.starts)]
        self.run(self.store.verifications.finish(finish(begun, self.clock, status)))

    @invariant()
    def books_balance(self) -> None:
        ledger = [tuple(row) for row in self.books.execute(LEDGER)]
        check_books(ledger, [tuple(row) for row in self.books.execute(ACCOUNTS)])
        assert sum(amount for _, kind, amount, _ in ledger if kind == "topup") == self.topped_up

    @invariant()
    def every_message_is_charged_as_its_state_says(self) -> None:
        rows = self.books.execute("SELECT charge, status, price FROM message").fetchall()
        for charge, status, price in rows:
            assert (charge == "none") == (price == 0)
            if charge == "held":
                assert status in (
                    "sending",
                    "failed",
                )  # nobody took it, and not all have refused, or one is tried again
            if charge == "released":
                assert status == "failed"


TestMoney = Money.TestCase
TestMoney.settings = settings(
    max_examples=50, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
