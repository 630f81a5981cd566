"""The operator's first page: five tiles say whether mail leaves, and teams in trouble stand first."""

import re
from typing import Any
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace

from heliograph.dashboard.views.health import troubles
from heliograph.domain.delivery.circuit import Circuit
from heliograph.domain.delivery.outcome import Accepted, Deferred, Outcome, Refused
from heliograph.domain.mail.reputation import Reputation
from heliograph.domain.sending.pricing import Account
from heliograph.domain.setup.records import CarrierRecord, Domain, Team, TeamRecord
from heliograph.storage.stats import TeamFigures
from heliograph.storage.store import Store
from tests.dashboard.inside import OBSERVER, OPERATOR, Pages, Shown, set_up
from tests.storage.samples import message
from tests.storage.test_idempotency import make_context
from tests.storage.test_reputation import deliver

HERE = "/dashboard/operator"
RELAY = CarrierRecord(id="relay", channel="email", kind="smtp", options={"host": "x"})
pytestmark = pytest.mark.anyio


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    names = {1: "Acme", 2: "Broke", 3: "Calm"}
    records = [TeamRecord(ref=ref, id=f"team_{ref}", name=name, mode="live") for ref, name in names.items()]
    await set_up(store, *(("team", record.id, record, record.id) for record in records))
    return Pages(make_context(store, clock))


def tile(shown: Shown, name: str) -> str:
    (found,) = re.findall(rf'<li class="card tile[^>]*data-key="{name}">(.*?)</li>', shown.html, re.S)
    return " ".join(re.sub("<[^>]*>", " ", found).split())


async def test_all_is_well(pages: Pages, store: Store) -> None:
    await set_up(store, ("carrier", "relay", RELAY, None))
    shown = await pages.get(HERE, OPERATOR)
    assert tile(shown, "Delivery") == "Delivery On 0 sent in 24 hours"
    assert tile(shown, "Oldest waiting") == "Oldest waiting None Nothing waits."
    assert "tile bad" not in shown.html


@pytest.mark.parametrize(
    ("carriers", "delivery", "reachable"),
    [
        ([], "Simulated", "None set up Simulators take all messages."),
        ([replace(RELAY, kind="simulator")], "Simulated", "None set up Simulators take all messages."),
        ([replace(RELAY, enabled=False)], "On", "None enabled Emails wait."),
        ([replace(RELAY, channel="sms", kind="smpp", enabled=False)], "On", "None enabled SMS is refused."),
        ([RELAY, replace(RELAY, id="sim", kind="simulator")], "On", "1 of 1 None is out of reach."),
    ],
)
async def test_a_simulator_reaches_nobody(
    pages: Pages, store: Store, carriers: list[CarrierRecord], delivery: str, reachable: str
) -> None:
    await set_up(store, *(("carrier", one.id, one, None) for one in carriers))
    shown = await pages.get(HERE, OPERATOR)
    assert tile(shown, "Delivery").startswith(f"Delivery {delivery} ")
    assert tile(shown, "Carriers reachable") == f"Carriers reachable {reachable}"
    waits = await pages.get(f"{HERE}/queues", OPERATOR)
    assert ("go to simulators" in waits.text) is (delivery == "Simulated")
    listed = await pages.get(f"{HERE}/carriers", OPERATOR)
    assert "nothing leaves this instance" not in listed.text and "WhatsApp: no carrier, so these" in listed.text


async def test_what_is_wrong_is_seen_first(pages: Pages, store: Store, clock: Any) -> None:
    carriers = [CarrierRecord(id=f"relay-{n}", channel="email", kind="smtp", options={"host": "x"}) for n in (1, 2, 3)]
    domain = Domain(id="dom_1", team="team_1", name="acme.test", brand="Acme", verified=True)
    await set_up(store, *(("carrier", one.id, one, None) for one in carriers), ("domain", domain.id, domain, "team_1"))
    assert "3 of 3 None is out of reach." in tile(await pages.get(HERE, OPERATOR), "Carriers reachable")
    await store.circuits.change("relay-2", None, Circuit(id="relay-2", since=clock.now(), until=clock.now() + 9))
    await store.messages.accept(message(clock, "ada@example.com"))
    clock.forward(7 * 60_000)
    shown = await pages.get(HERE, OPERATOR)
    assert "2 of 3 relay-2 went out of reach" in tile(shown, "Carriers reachable")
    assert f"{HERE}/carriers/relay-2" in shown.html
    assert tile(shown, "Oldest waiting").startswith("Oldest waiting 7 min normal 7 min")
    assert tile(shown, "Approvals").startswith("Approvals 1")
    await set_up(store, ("platform", "platform", replace(store.setup.current.platform, paused=True), None))
    assert "Delivery Paused" in tile(await pages.get(HERE, OBSERVER), "Delivery")


async def test_teams_in_trouble_come_first(pages: Pages, store: Store, clock: Any) -> None:
    await store.messages.accept(message(clock, *(f"a{n}@example.com" for n in range(4)), team=3))
    await deliver(store, clock, "bounced", "delivered", "delivered", "delivered")
    broke = replace(store.setup.current.teams["team_2"].record, credit_low=10**12)
    await set_up(store, ("team", broke.id, broke, broke.id))
    shown = await pages.get(HERE, OPERATOR)
    assert re.findall(r'class="rowlink"[^>]*>(\w+)<', shown.html) == ["Broke", "Calm", "Acme"]
    assert "Credit low" in shown.text and "25 %" in shown.text and shown.html.count('class="spark"') == 1
    assert "Calm" in (await pages.get(f"{HERE}?q=calm", OPERATOR)).text


@pytest.mark.parametrize(
    ("record", "seen", "credit", "state", "found"),
    [
        ({}, (0, 0, 0, 0), 100, "ok", []),
        ({}, (10, 10, 5, 5), 100, "ok", []),  # too few to judge
        ({}, (400, 400, 40, 1), 100, "paused", ["Direct emails paused", "Many complaints", "Many bounces"]),
        ({"credit_low": 50}, (0, 0, 0, 0), 0, "ok", ["No credit"]),
        ({"credit_low": 50, "suspended": True}, (0, 0, 0, 0), 20, "ok", ["Credit low", "Suspended"]),
        ({"credit_low": 50, "mode": "sandbox"}, (0, 0, 0, 0), 0, "ok", []),
    ],
)
def test_troubles_of_a_team(record: Any, seen: Any, credit: int, state: Any, found: list[str]) -> None:
    team = Team(record=TeamRecord(**{"ref": 1, "id": "team_a", "name": "A", "mode": "live", "credit_low": 0} | record))
    account = Account(team=1, available=credit, held=0, used=0, month="2026-11")
    told = troubles(team, TeamFigures(*seen), account, Reputation(team="team_a", state=state, since=0))
    assert [label for _, label in told] == found


@pytest.mark.parametrize(
    ("address", "said"),
    [("ada@example.com", "Too few to judge (1 of 200)."), ("bounced@simulator.test", "Nothing to judge yet.")],
)
async def test_a_team_is_not_judged_by_its_tests(
    pages: Pages, store: Store, clock: Any, address: str, said: str
) -> None:
    await store.messages.accept(message(clock, address, team=1))
    await deliver(store, clock, "bounced")
    shown = await pages.get(f"{HERE}/teams/team_1", OPERATOR)
    assert "<title>Summary · Acme" in shown.html and "Bounced, 30 days 100 %" in shown.text
    assert said in shown.text and "test recipients and caught mail is left out" in shown.text


@pytest.mark.parametrize("outcome", [Accepted(detail={}), Deferred(detail={}), Refused(detail={})])
async def test_a_carrier_is_kept_when_its_test_was_accepted(
    pages: Pages, monkeypatch: pytest.MonkeyPatch, outcome: Outcome
) -> None:
    """Without an address for its test it is not even added."""
    monkeypatch.setattr("heliograph.carrier_failover.Handover.ask", AsyncMock(return_value=outcome))
    monkeypatch.setattr("heliograph.manage.carriers._check_usable", lambda *_: None)  # no carrier is made here
    form = {"kind": "email-smtp", "id": "relay", "host": "127.0.0.1", "port": "1", "then": "test", "address": "no"}
    shown = await pages.post(f"{HERE}/carriers", form, OPERATOR)
    assert (shown.status, "Type an email address." in shown.text) == (400, True)
    assert not pages.setup.carriers
    shown = await pages.post(f"{HERE}/carriers", form | {"address": "ada@example.com"}, OPERATOR)
    is_kept = isinstance(outcome, Accepted)
    assert (shown.status, "It was not added" in shown.text) == (200 if is_kept else 400, not is_kept)
    assert [(one.id, one.enabled) for one in pages.setup.carriers] == ([("relay", True)] if is_kept else [])
    assert is_kept or 'value="127.0.0.1"' in shown.html
