"""Alerts on the overview, without a browser."""

from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.dashboard.alerts import SEVERITIES, Alert, channel_alerts, instance_alerts, page_alerts, team_alerts
from heliograph.domain.accounts.idp_groups import OPERATOR, READ_ONLY
from heliograph.domain.delivery.circuit import Circuit
from heliograph.domain.mail.reputation import Reputation
from heliograph.domain.sending.pricing import Account
from heliograph.domain.setup.records import Domain, Platform, Team, TeamRecord, Webhook
from heliograph.domain.setup.snapshot import Setup

NOW = 1_800_000_000_000  # January 2027
DOMAIN = Domain(id="dom_1", team="team_1", name="a.test", brand="A", verified=True, approved=True)
HOOK = Webhook(id="wh_1", team="team_1", url="https://a.test/hook", secret="")


def team_alerts_for(role: str = "", account: dict[str, Any] | None = None, **changed: Any) -> list[Alert]:
    """Return the alerts of a healthy team with these changes; deliveries to its webhook wh_2 fail."""
    record = {name: changed.pop(name) for name in list(changed) if name in TeamRecord.__struct_fields__}
    fields: dict[str, Any] = {"ref": 1, "id": "team_1", "name": "T", "mode": "live"} | record
    is_healthy: dict[str, Any] = {"record": TeamRecord(**fields), "domains": {"a.test": DOMAIN}}
    reputation = changed.pop("reputation", None)
    team = Team(**is_healthy | changed)
    money: dict[str, Any] = {"team": 1, "available": 5_000_000, "held": 0, "month": "2027-01", "used": 9_999}
    return list(team_alerts(team, reputation, Account(**money | (account or {})), {"wh_2": 5}, NOW, role))


def test_healthy_instance_has_no_alerts() -> None:
    assert team_alerts_for(webhooks=(HOOK, replace(HOOK, id="wh_3", enabled=False))) == []  # disabled by a user
    assert team_alerts_for(account={"used": 10_000, "month": "2026-12"}) == []  # last month's
    assert list(instance_alerts(Setup(), [], OPERATOR)) == []


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
def test_team_problem_gives_one_alert_with_link(given: dict[str, Any], word: str, to: str) -> None:
    (alert,) = team_alerts_for(**given)
    assert (alert.status, alert.link) == (word, to)


def test_instance_alerts_link_operators_to_the_fix() -> None:
    circuit = Circuit(id="sim-sms", since=0, until=5, reason="no answer in time")
    setup = Setup(platform=Platform(paused=True, paused_reason="restored"))
    paused, open_ = instance_alerts(setup, [circuit], OPERATOR)
    assert paused.link == "/dashboard/operator/queues"
    assert open_.link == "/dashboard/operator/carriers"
    assert "no answer in time" in open_.text
    assert "restored" in paused.text
    (alert,) = instance_alerts(setup, [circuit], "")
    assert (alert.status, alert.link) == ("paused", "/messages?status=queued")
    assert "restored" not in alert.text


def test_simulated_channel_alert_links_by_role() -> None:
    (alert,) = channel_alerts(Setup(), OPERATOR)
    assert alert.text.startswith("Email, SMS and WhatsApp are simulated:")
    assert alert.link == "/dashboard/operator/carriers/new"
    assert [item.link for item in channel_alerts(Setup(), READ_ONLY)] == ["/dashboard/operator/carriers"]
    assert [item.link for item in channel_alerts(Setup(), "")] == ["/inbox"]


@pytest.mark.parametrize(
    ("record", "domain", "available", "words"),
    [
        ({}, {}, 5_000_000, ["simulated"]),
        ({}, {"verified": False}, 5_000_000, ["unverified", "simulated"]),
        ({}, {"approved": False}, 5_000_000, ["simulated"]),  # only on the overview: the team cannot fix it
        ({}, {}, 1, ["low", "simulated"]),
        ({"suspended": True}, {}, 5_000_000, ["suspended", "simulated"]),
    ],
)
def test_page_alerts_are_shown_worst_first(
    record: dict[str, Any], domain: dict[str, Any], available: int, words: list[str]
) -> None:
    record_of_team = TeamRecord(ref=1, id="team_1", name="T", mode="live", **record)
    team = Team(record=record_of_team, domains={"a.test": replace(DOMAIN, **domain)})
    account = Account(team=1, available=available, held=0, month="2027-01", used=0)
    assert [item.status for item in page_alerts(Setup(), team, account, NOW, "")] == words
    paused = Setup(platform=Platform(paused=True))
    assert [item.status for item in page_alerts(paused, team, account, NOW, OPERATOR)] == sorted(
        ["paused", *words], key=SEVERITIES.index
    )
    assert [item.status for item in page_alerts(paused, None, None, NOW, OPERATOR)] == ["paused"]  # on an operator page
