"""P4: money balances, whatever happens in whatever order, with an operator who books beside it.

What is drawn depends on nothing that the store did, and the clock stands still: a history can be told again.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from heliograph.bootstrap import open_store
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.delivery.outcome import CarrierReport, Report
from heliograph.domain.limits import CLAIMS_MAX, CRASHES_MAX, ISOLATED_RETRY_MS
from heliograph.domain.refusals import InsufficientCredit
from heliograph.settings import Settings
from heliograph.storage.leases import Leases
from heliograph.storage.outbox import Claim
from heliograph.storage.outcomes import RecipientUpdate
from heliograph.storage.setup import NewTeam, SetupChange
from heliograph.storage.verifications import Start
from tests.clocks import StandingClock
from tests.conftest import migrated_database
from tests.proof.size import DATABASES, report, size
from tests.setup_helpers import SET_UP
from tests.storage.conftest import asking
from tests.storage.samples import finish, message, start
from tests.storage.test_money import ACCOUNTS, LEDGER, check_books, outcome

T = TypeVar("T")
EXAMPLES, STEPS = size("P4 examples"), size("P4 steps")
WHICH = st.integers(0, 100)
OUTCOMES = st.sampled_from(["sent", "sent", "failed", None])


class Money(RuleBasedStateMachine):
    """Holds, captures and releases in any order, with the dead, duplicates and late receipts among them."""

    def __init__(self, lend: Callable[[], AbstractContextManager[Settings]]) -> None:
        super().__init__()
        self.clock = StandingClock()
        self.runner = asyncio.Runner()
        self.opened = ExitStack()
        settings = self.opened.enter_context(lend())
        self.store = self.open(open_store(settings, self.clock, "seat/0"))
        self.books = self.open(asking(settings))
        self.teams = 0
        self.topped_up = 0
        self.claims: list[Claim] = []  # all that were ever ours
        self.at_carrier: list[str] = []
        self.starts: list[Start] = []
        self.open_team(300)

    def run(self, awaitable: Awaitable[T]) -> T:
        async def wait() -> T:
            return await awaitable

        return self.runner.run(wait())

    def open(self, context: AbstractAsyncContextManager[T]) -> T:
        opened = self.run(context.__aenter__())
        self.opened.callback(lambda: self.run(context.__aexit__(None, None, None)))
        return opened

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """Without the code under test."""
        rows: list[tuple[Any, ...]] = self.run(self.books(query))
        return rows

    def teardown(self) -> None:
        self.opened.close()
        self.runner.close()

    @rule(credit=st.integers(0, 500))
    def open_team(self, credit: int) -> None:
        self.run(self.store.setup.change(lambda _, ref: SetupChange(new_teams=[NewTeam(ref, credit)], audit=SET_UP)))
        self.teams += 1
        self.topped_up += credit

    @rule(team=st.integers(1, 3), price=st.integers(0, 100), count=st.integers(1, 4), recipients=st.integers(1, 3))
    def send(self, team: int, price: int, count: int, recipients: int) -> None:
        team = min(team, self.teams)
        before = self.run(self.store.ledger.get_account(team)).available
        to = [f"+1415555010{number}" for number in range(recipients)]
        items = [message(self.clock, *to, team=team, channel="sms", price=price) for _ in range(count)]

        async def all_at_once() -> Sequence[object]:
            accepts = (self.store.messages.accept(item) for item in items)
            return list(await asyncio.gather(*accepts, return_exceptions=True))

        results = self.run(all_at_once())
        refused = [r for r in results if isinstance(r, InsufficientCredit)]
        assert len(refused) == max(0, count - before // price) if price else not refused

    @rule(most=st.integers(1, 4))
    def claim(self, most: int) -> None:
        self.clock.forward(1)
        self.claims += self.run(self.store.outbox.claim("phone", most))

    @rule(which=WHICH, wanted=OUTCOMES)
    def record(self, which: int, wanted: str | None) -> None:
        """The same claim may come again, also after it was taken back: only the first counts."""
        if not self.claims:
            return
        claim = self.claims[which % len(self.claims)]
        if self.run(self._record(outcome(claim, self.clock.now(), wanted))) and wanted == "sent":
            self.at_carrier.append(f"{claim.message_id}/{claim.position}")

    async def _record(self, change: RecipientUpdate) -> Any:
        return await self.store.outbox.record(change)

    @rule(wishes=st.lists(OUTCOMES, min_size=1, max_size=4))
    def claim_and_record(self, wishes: list[str | None]) -> None:
        self.claim(len(wishes))
        for number, wanted in enumerate(wishes, 1):
            if number <= len(self.claims):
                self.record(-number, wanted)

    @rule(which=WHICH, status=st.sampled_from(["delivered", "failed", "sent", "read"]), twice=st.booleans())
    def report(self, which: int, status: str, twice: bool) -> None:
        if not self.at_carrier:
            return
        reports = [CarrierReport(self.at_carrier[which % len(self.at_carrier)], Report(status=status))] * (1 + twice)
        assert self.run(self.store.reports.store_by_carrier("sim", reports)) == [True] * len(reports)

    @rule()
    def die_and_start_again(self) -> None:
        self.run(self.store.outbox.release_own())
        self.run(self.store.outbox.reclaim_abandoned())

    @rule(most=st.integers(1, 4))
    def poison(self, most: int) -> None:
        """Workers die with the same messages, at last with one after the other alone."""
        for _ in range(CLAIMS_MAX + CRASHES_MAX):
            self.claim(most)
            while claims := self.run(self.store.outbox.claim_poison_candidate()):
                self.claims += claims
            self.run(self.store.outbox.release_own())
            self.clock.forward(CRASHES_MAX * ISOLATED_RETRY_MS)
        self.run(self.store.outbox.reclaim_abandoned())

    @rule()
    def try_the_dead_again(self) -> None:
        letters = self.run(self.store.dead_letters.list_page())
        audit = COMMAND_LINE.audit_entry(at=self.clock.now(), action="retry", subject="")
        self.run(self.store.dead_letters.retry([one.key for one in letters], audit))

    @rule(price=st.integers(0, 200))
    def start_verification(self, price: int) -> None:
        begun = start(self.clock, price=price)
        try:
            self.run(self.store.verifications.start(begun))
            self.starts.append(begun)
        except InsufficientCredit:
            pass

    @rule(which=WHICH, status=st.sampled_from(["pending", "failed"]))
    def finish_verification(self, which: int, status: str) -> None:
        if not self.starts:
            return
        begun = self.starts[which % len(self.starts)]
        self.run(self.store.verifications.finish(finish(begun, self.clock, status)))

    @rule(team=st.integers(1, 3), amount=st.integers(-300, 300))
    def book(self, team: int, amount: int) -> None:
        """A top-up or a correction; one that would take more than there is changes nothing."""
        team = min(team, self.teams)
        before = self.run(self.store.ledger.get_account(team)).available
        audit = COMMAND_LINE.audit_entry(at=self.clock.now(), action="credit.book", subject="")
        try:
            self.run(self.store.ledger.adjust_credit(team, amount, None, audit))
        except ValueError:
            assert amount == 0 or before + amount < 0
            amount = 0
        self.topped_up += max(0, amount)
        assert self.run(self.store.ledger.get_account(team)).available == before + amount

    @invariant()
    def books_balance(self) -> None:
        ledger = self.ask(LEDGER)
        check_books(ledger, self.ask(ACCOUNTS))
        assert sum(amount for _, kind, amount, _ in ledger if kind == "topup") == self.topped_up

    @invariant()
    def every_message_is_charged_as_its_state_says(self) -> None:
        for charge, status, price in self.ask("SELECT charge, status, price FROM message"):
            assert (charge == "none") == (price == 0)
            if charge == "held":  # nobody took it, and not all have refused, or one is tried again
                assert status in ("sending", "failed")
            if charge == "released":
                assert status == "failed"

    @invariant()
    def what_was_held_is_what_is_settled(self) -> None:
        """Whatever a send costs by now: the hold, its one capture or release, and the message agree."""
        odd = self.ask(
            """SELECT h.subject FROM ledger h JOIN ledger s USING (team, subject, turn)
               WHERE h.kind = 'hold' AND s.kind IN ('capture', 'release') AND s.amount <> h.amount
               UNION ALL SELECT m.id FROM message m JOIN ledger h ON h.subject = m.id
               WHERE h.kind = 'hold' AND h.amount <> m.price
               UNION ALL SELECT s.subject FROM ledger s LEFT JOIN ledger h
               ON h.team = s.team AND h.subject = s.subject AND h.turn = s.turn AND h.kind = 'hold'
               WHERE s.kind IN ('capture', 'release') AND h.key IS NULL"""
        )
        assert odd == []

    @invariant()
    def what_is_held_is_open(self) -> None:
        """Nothing stays held when its message or code has been settled."""
        held = self.ask("SELECT coalesce(sum(held), 0) FROM account")
        open_ = self.ask(
            """SELECT coalesce(sum(h.amount), 0) FROM ledger h WHERE h.kind = 'hold' AND NOT EXISTS
               (SELECT 1 FROM ledger s WHERE s.team = h.team AND s.subject = h.subject AND s.turn = h.turn
                AND s.kind IN ('capture', 'release'))"""
        )
        assert held == open_


@pytest.mark.parametrize("kind", DATABASES)
def test_ledger_balances_for_any_history(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Leases, "_shared_time", lambda self, row: self._clock.wall_ms())  # of PostgreSQL too

    @contextmanager
    def lend() -> Iterator[Settings]:
        with tempfile.TemporaryDirectory() as folder, migrated_database(kind, request, Path(folder)) as url:
            yield Settings(database=url, data=Path(folder))

    sizes = settings(
        max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(cast(Any, lambda: Money(lend)), settings=sizes)
    report(
        "P4", f"{kind}: {EXAMPLES} histories of up to {STEPS} steps: entries sum to zero, nothing below zero or twice"
    )
