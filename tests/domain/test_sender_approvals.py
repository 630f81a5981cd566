"""What waits for an operator, and what the operator's word changes."""

import pytest

from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import DisplayName, Domain, SenderId, Setting, TeamRecord
from heliograph.domain.setup.sender_approvals import asked_again, decide, decided, pending, state_of
from heliograph.domain.setup.snapshot import RecordId, Row, Setup, to_row, updated

TEAM = "team_acme"
DOMAIN = Domain(id="dom_1", team=TEAM, name="acme.test", brand="Acme", verified=True)
NAME = DisplayName(id="dn_1", team=TEAM, domain="dom_1", name="Acme Support")
SENDER = SenderId(team=TEAM, country="GB", value="ACME")
RECORDS: dict[RecordId, Setting] = {
    ("team", TEAM): TeamRecord(ref=1, id=TEAM, name="Acme"),
    ("domain", "dom_1"): DOMAIN,
    ("domain", "dom_2"): Domain(id="dom_2", team=TEAM, name="unproven.test", brand="Acme"),
    ("display_name", "dn_1"): NAME,
    ("display_name", "dn_2"): DisplayName(id="dn_2", team=TEAM, domain="dom_1", name="Done", approved=True),
    ("display_name", "dn_3"): DisplayName(id="dn_3", team=TEAM, domain="dom_1", name="No", refused_reason="no"),
    ("sender_id", f"{TEAM}/GB"): SENDER,
}


def after(setup: Setup, rows: list[Row]) -> Setup:
    return updated(setup, rows, setup.version + 1)


@pytest.fixture
def setup() -> Setup:
    return after(Setup(), [to_row(*id_, record, TEAM) for id_, record in RECORDS.items()])


def test_what_waits_is_listed(setup: Setup) -> None:
    assert [(item.kind, item.id, item.text) for item in pending(setup)] == [
        ("display_name", "dn_1", "Send as Acme Support from acme.test"),
        ("domain", "dom_1", "Send as Acme from acme.test"),
        ("sender_id", f"{TEAM}/GB", "Send SMS as ACME to GB"),
    ]


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize(("approve", "reason", "state"), [(True, "", "approved"), (False, "Not yours.", "refused")])
def test_a_word_settles_it(setup: Setup, place: int, approve: bool, reason: str, state: str) -> None:
    item = pending(setup)[place]
    decided_setup = after(setup, decide(setup, item, approve, reason))
    assert item not in pending(decided_setup)
    record = decided_setup.records[item.kind, item.id]
    assert isinstance(record, Domain | DisplayName | SenderId)
    assert (state_of(record), record.refused_reason) == (state, reason)
    assert decide(decided_setup, item, approve, reason) == []


@pytest.mark.parametrize("reason", ["", "  ", "two\nlines", "x" * 201])
def test_a_refusal_needs_a_reason_of_one_line(setup: Setup, reason: str) -> None:
    with pytest.raises(InvalidRequest):
        decide(setup, pending(setup)[0], False, reason)


def test_what_is_gone_is_left_alone(setup: Setup) -> None:
    item = pending(setup)[0]
    assert decide(after(setup, [to_row(item.kind, item.id, None, TEAM)]), item, True) == []
    assert decided(setup, ("team", TEAM), True) == []


def test_an_approval_is_taken_back_and_asked_for_again(setup: Setup) -> None:
    taken = after(setup, decided(setup, ("display_name", "dn_2"), False, "Complaints."))
    assert not taken.teams[TEAM].display_names["dn_2"].approved
    again = after(taken, asked_again(taken, ("display_name", "dn_2")))
    assert "dn_2" in [item.id for item in pending(again)]
