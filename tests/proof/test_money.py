"""P4: money balances. The machine of tests/storage/test_money.py, in full, with an operator who books beside it."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from heliograph.rules.audit import COMMAND_LINE
from tests.proof.size import report, size
from tests.storage.test_money import Money

EXAMPLES, STEPS = size("P4 examples"), size("P4 steps")


class BookedMoney(Money):
    @rule(team=st.integers(1, 3), amount=st.integers(-300, 300))
    def book(self, team: int, amount: int) -> None:
        """A top-up or a correction; one that would take more than there is changes nothing."""
        team = min(team, self.teams)
        before = self.run(self.store.ledger.account(team)).available
        audit = COMMAND_LINE.did(at=self.clock.now(), action="credit.book", subject="")
        try:
            self.run(self.store.ledger.book(team, amount, None, audit))
        except ValueError:
            assert amount == 0 or before + amount < 0
            amount = 0
        self.topped_up += max(0, amount)
        assert self.run(self.store.ledger.account(team)).available == before + amount

    @invariant()
    def what_was_held_is_what_is_settled(self) -> None:
        """Whatever a send costs by now: the hold, its one capture or release, and the message agree."""
        odd = self.books.execute(
            """SELECT h.subject FROM ledger h JOIN ledger s USING (team, subject, turn)
               WHERE h.kind = 'hold' AND s.kind IN ('capture', 'release') AND s.amount <> h.amount
               UNION ALL SELECT m.id FROM message m JOIN ledger h ON h.subject = m.id
               WHERE h.kind = 'hold' AND h.amount <> m.price
               UNION ALL SELECT s.subject FROM ledger s LEFT JOIN ledger h
               ON h.team = s.team AND h.subject = s.subject AND h.turn = s.turn AND h.kind = 'hold'
               WHERE s.kind IN ('capture', 'release') AND h.key IS NULL"""
        )
        assert odd.fetchall() == []

    @invariant()
    def what_is_held_is_open(self) -> None:
        """Nothing stays held when its message or code has been settled."""
        held = self.books.execute("SELECT coalesce(sum(held), 0) FROM account").get
        open_ = self.books.execute(
            """SELECT coalesce(sum(h.amount), 0) FROM ledger h WHERE h.kind = 'hold' AND NOT EXISTS
               (SELECT 1 FROM ledger s WHERE s.team = h.team AND s.subject = h.subject AND s.turn = h.turn
                AND s.kind IN ('capture', 'release'))"""
        ).get
        assert held == open_


class TestBookedMoney(BookedMoney.TestCase):  # type: ignore[valid-type, misc]
    settings = settings(
        max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, suppress_health_check=list(HealthCheck)
    )

    def runTest(self) -> None:
        super().runTest()
        report("P4", f"{EXAMPLES} histories of up to {STEPS} steps: entries sum to zero, nothing below zero or twice")
