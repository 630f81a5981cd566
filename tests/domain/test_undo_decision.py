"""Which operator decisions can be undone, and that the decided item is then pending again."""

import pytest

from heliograph.domain.setup.records import (
    DisplayName,
    Domain,
    Layout,
    SenderId,
    SetupRecord,
    TeamRecord,
    Template,
    TemplateDraft,
)
from heliograph.domain.setup.sender_approvals import pending_senders
from heliograph.domain.setup.snapshot import RecordId, Setup, apply_rows, to_row
from heliograph.domain.setup.undo_decision import RecordedDecision, requester_of, undo_rows
from heliograph.templates.policy.layout_drafts import list_pending as layouts_of
from heliograph.templates.policy.template_approvals import list_pending as templates_of

TEAM = "team_acme"
SOLD = Template(id="tpl_sms", team=TEAM, channel="sms", name="Parcel", body="Here.")
DRAFT = Template(
    id="tpl_sms", team=TEAM, channel="sms", name="Parcel", body="There.", status="draft", refused_reason="no"
)
RECORDS: dict[RecordId, SetupRecord] = {
    ("team", TEAM): TeamRecord(ref=1, id=TEAM, name="Acme", wanted="Acme Inc", wanted_refused="no", asked_by="usr_1"),
    ("domain", "dom_1"): Domain(id="dom_1", team=TEAM, name="acme.test", brand="Acme", verified=True, approved=True),
    ("display_name", "dn_1"): DisplayName(id="dn_1", team=TEAM, domain="dom_1", name="No", refused_reason="no"),
    # The same name at another domain, and one that a setup file defines twice.
    ("domain", "dom_2"): Domain(id="dom_2", team=TEAM, name="acme.example", brand="Acme", verified=True, approved=True),
    ("display_name", "dn_2"): DisplayName(id="dn_2", team=TEAM, domain="dom_2", name="No", refused_reason="no"),
    ("display_name", "dn_3"): DisplayName(id="dn_3", team=TEAM, domain="dom_1", name="Twice", approved=True),
    ("display_name", "dn_4"): DisplayName(id="dn_4", team=TEAM, domain="dom_1", name="Twice", approved=True),
    ("sender_id", f"{TEAM}/GB"): SenderId(team=TEAM, country="GB", value="ACME", approved=True, asked_by="usr_2"),
    ("template", "tpl_sms"): SOLD,
    ("template_draft", "tpl_sms"): TemplateDraft(team=TEAM, template=DRAFT, by="usr_3", at=5),
    ("layout", "lay_1"): Layout(id="lay_1", team=TEAM, name="Letter", html="x", status="draft", refused_reason="no"),
}


@pytest.fixture
def setup() -> Setup:
    return apply_rows(Setup(), [to_row(*id_, record, TEAM) for id_, record in RECORDS.items()], 1)


def pending_texts(setup: Setup) -> list[str]:
    texts = [item.text for item in pending_senders(setup)]
    return texts + [draft.template.id for draft in templates_of(setup)] + [draft.id for draft in layouts_of(setup)]


@pytest.mark.parametrize(
    ("kind", "said", "approved", "waits", "asker"),
    [
        ("domain", "Send as Acme from acme.test", True, "Send as Acme from acme.test", ""),
        ("display_name", "Send as No from acme.test", False, "Send as No from acme.test", ""),
        ("sender_id", "Send SMS as ACME to GB", True, "Send SMS as ACME to GB", "usr_2"),
        ("team", "Be called Acme Inc, instead of Acme", False, "Be called Acme Inc, instead of Acme", "usr_1"),
        ("template", "tpl_sms", False, "tpl_sms", "usr_3"),
        ("layout", "lay_1", False, "lay_1", ""),
    ],
)
def test_undone_decision_is_pending_again(
    setup: Setup, kind: str, said: str, approved: bool, waits: str, asker: str
) -> None:
    earlier = RecordedDecision(team=TEAM, kind=kind, text=said, approved=approved)
    assert pending_texts(setup) == [] and requester_of(setup, earlier) == asker
    after = apply_rows(setup, undo_rows(setup, earlier, 7), 2)
    assert pending_texts(after) == [waits]
    assert undo_rows(after, earlier, 7) == [], "it is no longer decided"


@pytest.mark.parametrize(
    ("kind", "said", "approved"),
    [
        ("domain", "Send as Acme from acme.test", False),  # the opposite decision
        ("domain", "Send as Acme from acme.test, instead of Acne", True),  # the previous value is not stored
        ("template", "tpl_sms", True),  # its version may have been sent
        ("display_name", "No", False),  # from an older version's log, which does not name the domain
        ("sender_id", "GB", True),
        ("display_name", "Send as Twice from acme.test", True),  # matches two records
        ("display_name", "Send as Nobody from acme.test", False),
        ("nothing", "", False),
    ],
)
def test_decision_that_changed_since_cannot_be_undone(setup: Setup, kind: str, said: str, approved: bool) -> None:
    earlier = RecordedDecision(team=TEAM, kind=kind, text=said, approved=approved)
    assert undo_rows(setup, earlier, 7) == [] and requester_of(setup, earlier) == ""
