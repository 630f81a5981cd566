import pytest

from heliograph.domain.setup.going_live import checklist, may_go_live
from heliograph.domain.setup.records import CarrierRecord, Domain, Team, TeamRecord, Template

RECORD = TeamRecord(ref=1, id="team_a", name="A")
DOMAIN = Domain(id="dom_a", team="team_a", name="a.test", brand="A", verified=True, approved=True)
TEMPLATE = Template(id="tpl_a", team="team_a", channel="sms", name="Code")
CARRIERS = [
    CarrierRecord(id=f"own-{channel}", channel=channel, kind="http") for channel in ("email", "sms", "whatsapp")
]


@pytest.mark.parametrize(("verified", "approved"), [(True, True), (True, False), (False, True), (False, False)])
def test_going_live_needs_only_a_usable_domain(verified: bool, approved: bool) -> None:
    domain = Domain(id="dom_a", team="team_a", name="a.test", brand="A", verified=verified, approved=approved)
    checks = checklist(Team(record=RECORD, domains={"a.test": domain}), [], 0)
    assert may_go_live(checks) is (verified and approved)


def test_going_live_with_everything_done_has_no_open_step() -> None:
    team = Team(record=RECORD, domains={"a.test": DOMAIN}, templates={"tpl_a": TEMPLATE})
    assert [check.done for check in checklist(team, CARRIERS, 1)] == [True] * 4
    assert not may_go_live(checklist(Team(record=RECORD), CARRIERS, 1))


def test_a_team_that_catches_stays_in_the_sandbox() -> None:
    record = TeamRecord(ref=1, id="team_a", name="A", catch=True)
    checks = checklist(Team(record=record, domains={"a.test": DOMAIN}), CARRIERS, 1)
    assert [check.title for check in checks if check.needed and not check.done] == ["Turn off inbox capture"]
    assert not may_go_live(checks)


def test_going_live_names_simulated_channels() -> None:
    carriers = [
        CARRIERS[0],
        CarrierRecord(id="sim", channel="sms", kind="simulator"),
        CarrierRecord(id="off", channel="whatsapp", kind="cloud_api", enabled=False),
    ]
    (text,) = (check for check in checklist(Team(record=RECORD), carriers, 0) if check.title == "Carriers")
    assert (text.done, text.text) == (
        False,
        "SMS: simulated, no real messages are sent. WhatsApp: all carriers are disabled. "
        "Needed only if you send by SMS, WhatsApp.",
    )


def test_steps_that_email_does_not_need_say_so() -> None:
    team = Team(record=RECORD, domains={"a.test": DOMAIN})
    open_steps = [check for check in checklist(team, CARRIERS[:1], 0) if not check.done]
    assert [check.title for check in open_steps] == ["Carriers", "Credit", "Approved template"]
    assert [check.title for check in open_steps if "nly if you send" not in check.text] == []
    (text,) = (check.text for check in checklist(team, [], 0) if check.title == "Carriers")
    assert "Needed only if" not in text  # without a carrier for email, no email is sent
