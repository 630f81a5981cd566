"""Requests that wait for an operator's approval, and the effect of the decision."""

import pytest

from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import DisplayName, Domain, SenderId, SetupRecord, TeamRecord
from heliograph.domain.setup.sender_approvals import (
    decide_request,
    decision_rows,
    pending_senders,
    resubmit_rows,
    state_of,
)
from heliograph.domain.setup.snapshot import RecordId, Row, Setup, apply_rows, to_row

TEAM = "team_acme"
DOMAIN = Domain(id="dom_1", team=TEAM, name="acme.test", brand="Acme", verified=True)
NAME = DisplayName(id="dn_1", team=TEAM, domain="dom_1", name="Acme Support")
SENDER = SenderId(team=TEAM, country="GB", value="ACME")
RECORDS: dict[RecordId, SetupRecord] = {
    ("team", TEAM): TeamRecord(ref=1, id=TEAM, name="Acme"),
    ("domain", "dom_1"): DOMAIN,
    ("domain", "dom_2"): Domain(id="dom_2", team=TEAM, name="unproven.test", brand="Acme"),
    ("display_name", "dn_1"): NAME,
    ("display_name", "dn_2"): DisplayName(id="dn_2", team=TEAM, domain="dom_1", name="Done", approved=True),
    ("display_name", "dn_3"): DisplayName(id="dn_3", team=TEAM, domain="dom_1", name="No", refused_reason="no"),
    ("sender_id", f"{TEAM}/GB"): SENDER,
}


def apply(setup: Setup, rows: list[Row]) -> Setup:
    return apply_rows(setup, rows, setup.version + 1)


@pytest.fixture
def setup() -> Setup:
    return apply(Setup(), [to_row(*id_, record, TEAM) for id_, record in RECORDS.items()])


def test_pending_sender_requests_are_listed(setup: Setup) -> None:
    assert [(item.kind, item.id, item.text) for item in pending_senders(setup)] == [
        ("display_name", "dn_1", "Send as Acme Support from acme.test"),
        ("domain", "dom_1", "Send as Acme from acme.test"),
        ("sender_id", f"{TEAM}/GB", "Send SMS as ACME to GB"),
    ]


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize(("approve", "reason", "state"), [(True, "", "approved"), (False, "Not yours.", "refused")])
def test_pending_sender_decision_is_applied_once(
    setup: Setup, place: int, approve: bool, reason: str, state: str
) -> None:
    item = pending_senders(setup)[place]
    decided_setup = apply(setup, decide_request(setup, item, approve, reason))
    assert item not in pending_senders(decided_setup)
    record = decided_setup.records[item.kind, item.id]
    assert isinstance(record, Domain | DisplayName | SenderId)
    assert (state_of(record), record.refused_reason) == (state, reason)
    assert decide_request(decided_setup, item, approve, reason) == []


@pytest.mark.parametrize("reason", ["", "  ", "two\nlines", "x" * 201])
def test_a_refusal_needs_a_reason_of_one_line(setup: Setup, reason: str) -> None:
    with pytest.raises(InvalidRequest):
        decide_request(setup, pending_senders(setup)[0], False, reason)


def test_removed_sender_request_cannot_be_decided(setup: Setup) -> None:
    item = pending_senders(setup)[0]
    assert decide_request(apply(setup, [to_row(item.kind, item.id, None, TEAM)]), item, True) == []
    assert decision_rows(setup, ("team", TEAM), True) == []


def test_revoked_approval_is_requested_again(setup: Setup) -> None:
    selected = apply(setup, decision_rows(setup, ("display_name", "dn_2"), False, "Complaints."))
    assert not selected.teams[TEAM].display_names["dn_2"].approved
    again = apply(selected, resubmit_rows(selected, ("display_name", "dn_2")))
    assert "dn_2" in [item.id for item in pending_senders(again)]
