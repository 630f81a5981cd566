"""What the overview calls attention to, without a browser."""

from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.dashboard.alerts import Concern, notices, of_channels, of_instance, of_team
from heliograph.domain.accounts.idp_groups import OPERATOR, READ_ONLY
from heliograph.domain.delivery.circuit import Circuit
from heliograph.domain.mail.reputation import Reputation
from heliograph.domain.sending.pricing import Account
from heliograph.domain.setup.records import Domain, Platform, Team, TeamRecord, Webhook
from heliograph.domain.setup.snapshot import Setup

NOW = 1_800_000_000_000  # January 2027
DOMAIN = Domain(id="dom_1", team="team_1", name="a.test", brand="A", verified=True, approved=True)
HOOK = Webhook(id="wh_1", team="team_1", url="https://a.test/hook", secret="")


def concerns(role: str = "", account: dict[str, Any] | None = None, **changed: Any) -> list[Concern]:
    """Of a team that is well but for these changes; its webhook wh_2 fails."""
    record = {name: changed.pop(name) for name in list(changed) if name in TeamRecord.__struct_fields__}
    own: dict[str, Any] = {"ref": 1, "id": "team_1", "name": "T", "mode": "live"} | record
    well: dict[str, Any] = {"record": TeamRecord(**own), "domains": {"a.test": DOMAIN}}
    reputation = changed.pop("reputation", None)
    team = Team(**well | changed)
    money: dict[str, Any] = {"team": 1, "available": 5_000_000, "held": 0, "month": "2027-01", "used": 9_999}
    return list(of_team(team, reputation, Account(**money | (account or {})), {"wh_2": 5}, NOW, role))


def test_all_is_well() -> None:
    assert concerns(webhooks=(HOOK, replace(HOOK, id="wh_3", enabled=False))) == []  # switched off by somebody
    assert concerns(account={"used": 10_000, "month": "2026-12"}) == []  # last month's
    assert list(of_instance(Setup(), [], OPERATOR)) == []


@pytest.mark.parametrize(
    ("given", "word", "to"),
    [
        ({"suspended": True}, "suspended", "/team"),
        ({"suspended": True, "role": OPERATOR}, "suspended", "/dashboard/operator/teams/team_1"),
        ({"mode": "sandbox", "domains": {}}, "sandbox", "/settings"),
        ({"domains": {}}, "pending", "/senders"),
        ({"domains": {"a.test": replace(DOMAIN, verified=False)}}, "unverified", "/senders/domains/dom_1"),
        ({"domains": {"a.test": replace(DOMAIN, approved=False)}}, "pending", "/senders/domains/dom_1"),
        ({"webhooks": (replace(HOOK, enabled=False, disabled_reason="410"),)}, "failed", "/webhooks/wh_1"),
        ({"webhooks": (replace(HOOK, id="wh_2"),)}, "failed", "/webhooks/wh_2"),
        ({"account": {"available": 4_999_999}}, "low", "/billing"),
        ({"account": {"used": 10_000}}, "low", "/billing"),
        ({"reputation": Reputation(team="team_1", state="warn", since=0)}, "warn", "/messages?status=bounced"),
        ({"reputation": Reputation(team="team_1", state="paused", since=0)}, "paused", "/messages?status=bounced"),
    ],
)
def test_one_concern_and_its_mend(given: dict[str, Any], word: str, to: str) -> None:
    (found,) = concerns(**given)
    assert (found.word, found.to) == (word, to)


def test_what_operators_see() -> None:
    circuit = Circuit(id="sim-sms", since=0, until=5, reason="no answer in time")
    setup = Setup(platform=Platform(paused=True, paused_reason="restored"))
    paused, open_ = of_instance(setup, [circuit], OPERATOR)
    assert paused.to == "/dashboard/operator/queues"
    assert open_.to == "/dashboard/operator/carriers"
    assert "no answer in time" in open_.text
    assert "restored" in paused.text
    (told,) = of_instance(setup, [circuit], "")
    assert (told.word, told.to) == ("paused", "/messages?status=queued")
    assert "restored" not in told.text


def test_simulated_channels_and_their_cure() -> None:
    (told,) = of_channels(Setup(), OPERATOR)
    assert told.text.startswith("Email, SMS and WhatsApp are simulated:")
    assert told.to == "/dashboard/operator/carriers/new"
    assert [one.to for one in of_channels(Setup(), READ_ONLY)] == ["/dashboard/operator/carriers"]
    assert [one.to for one in of_channels(Setup(), "")] == ["/inbox"]


@pytest.mark.parametrize(
    ("record", "domain", "available", "words"),
    [
        ({}, {}, 5_000_000, ["simulated"]),
        ({}, {"verified": False}, 5_000_000, ["simulated", "unverified"]),
        ({}, {"approved": False}, 5_000_000, ["simulated"]),  # said on the overview: nobody here can mend it
        ({}, {}, 1, ["simulated", "low"]),
        ({"suspended": True}, {}, 5_000_000, ["simulated", "suspended"]),
    ],
)
def test_what_every_page_of_the_team_says(
    record: dict[str, Any], domain: dict[str, Any], available: int, words: list[str]
) -> None:
    own = TeamRecord(ref=1, id="team_1", name="T", mode="live", **record)
    team = Team(record=own, domains={"a.test": replace(DOMAIN, **domain)})
    account = Account(team=1, available=available, held=0, month="2027-01", used=0)
    assert [one.word for one in notices(Setup(), team, account, NOW, "")] == words
    paused = Setup(platform=Platform(paused=True))
    assert [one.word for one in notices(paused, team, account, NOW, OPERATOR)] == ["paused", *words]
    assert [one.word for one in notices(paused, None, None, NOW, OPERATOR)] == ["paused"]  # an operator's page
