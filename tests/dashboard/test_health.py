"""Start page of operators: five status tiles, and the teams, those with problems first."""

import re
from typing import Any
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace

from heliograph.dashboard.views.health import find_problems
from heliograph.domain.delivery.circuit import Circuit
from heliograph.domain.delivery.outcome import Accepted, Deferred, Outcome, Refused
from heliograph.domain.mail.reputation import Reputation
from heliograph.domain.sending.pricing import Account
from heliograph.domain.setup.records import CarrierRecord, Domain, Team, TeamRecord
from heliograph.storage.carrier_stats import CarrierCounts, RecentCarrierCounts
from heliograph.storage.stats import TeamTotals
from heliograph.storage.store import Store
from tests.dashboard.inside import OBSERVER, OPERATOR, PageResult, Pages, write_records
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
    await write_records(store, *(("team", record.id, record, record.id) for record in records))
    return Pages(make_context(store, clock))


def tile_html(shown: PageResult, name: str) -> str:
    (result,) = re.findall(rf'<li class="card tile[^>]*data-key="{name}">(.*?)</li>', shown.html, re.S)
    return " ".join(re.sub("<[^>]*>", " ", result).split())


async def test_healthy_instance_shows_no_bad_tiles(pages: Pages, store: Store) -> None:
    await write_records(store, ("carrier", "relay", RELAY, None))
    response = await pages.get(HERE, OPERATOR)
    assert tile_html(response, "Delivery") == "Delivery On 0 sent in 24 hours"
    assert tile_html(response, "Oldest in queue") == "Oldest in queue None Queue is empty."
    assert "tile bad" not in response.html


@pytest.mark.parametrize(
    ("carriers", "delivery", "reachable"),
    [
        ([], "Simulated", "None set up All messages are simulated."),
        ([replace(RELAY, kind="simulator")], "Simulated", "None set up All messages are simulated."),
        ([replace(RELAY, enabled=False)], "Blocked", "None enabled Emails are queued."),
        ([replace(RELAY, channel="sms", kind="smpp", enabled=False)], "Blocked", "None enabled SMS is refused."),
        ([RELAY, replace(RELAY, id="sim", kind="simulator")], "On", "1 of 1 All carriers are reachable."),
    ],
)
async def test_simulated_channel_is_named_on_health_page(
    pages: Pages, store: Store, carriers: list[CarrierRecord], delivery: str, reachable: str
) -> None:
    await write_records(store, *(("carrier", item.id, item, None) for item in carriers))
    response = await pages.get(HERE, OPERATOR)
    assert tile_html(response, "Delivery").startswith(f"Delivery {delivery} ")
    assert tile_html(response, "Carriers reachable") == f"Carriers reachable {reachable}"
    waits = await pages.get(f"{HERE}/queues", OPERATOR)
    assert ("Delivering, simulated" in waits.text) is (delivery == "Simulated")
    listed = await pages.get(f"{HERE}/carriers", OPERATOR)
    assert "WhatsApp: without a carrier" in listed.text


async def test_health_problems_are_shown_in_tiles(pages: Pages, store: Store, clock: Any) -> None:
    carriers = [CarrierRecord(id=f"relay-{n}", channel="email", kind="smtp", options={"host": "x"}) for n in (1, 2, 3)]
    domain = Domain(id="dom_1", team="team_1", name="acme.test", brand="Acme", verified=True)
    await write_records(
        store, *(("carrier", item.id, item, None) for item in carriers), ("domain", domain.id, domain, "team_1")
    )
    assert "3 of 3 All carriers are reachable." in tile_html(await pages.get(HERE, OPERATOR), "Carriers reachable")
    await store.circuits.replace("relay-2", None, Circuit(id="relay-2", since=clock.now(), until=clock.now() + 9))
    await store.messages.accept(message(clock, "ada@example.com"))
    clock.forward(7 * 60_000)
    response = await pages.get(HERE, OPERATOR)
    assert "2 of 3 relay-2 became unreachable" in tile_html(response, "Carriers reachable")
    assert f"{HERE}/carriers/relay-2" in response.html
    assert tile_html(response, "Oldest in queue").startswith("Oldest in queue 7 min 7 min at normal priority")
    assert tile_html(response, "Approvals").startswith("Approvals 1")
    await write_records(store, ("platform", "platform", replace(store.setup.current.platform, paused=True), None))
    assert "Delivery Paused" in tile_html(await pages.get(HERE, OBSERVER), "Delivery")


async def test_mail_behind_unreachable_carrier_is_not_called_on_time(pages: Pages, store: Store, clock: Any) -> None:
    await write_records(store, ("carrier", "relay", RELAY, None))
    await store.messages.accept(message(clock, "ada@example.com"))
    overview = "/dashboard/teams/team_1"
    assert "No message is overdue." in (await pages.get(overview)).text
    await store.circuits.replace("relay", None, Circuit(id="relay", since=clock.now(), until=clock.now() + 9))
    assert tile_html(await pages.get(HERE, OPERATOR), "Delivery").startswith("Delivery Blocked Email: no carrier can")
    text = (await pages.get(overview)).text
    assert "Email: not delivered at the moment. We keep trying." in text and "overdue" not in text
    second = replace(RELAY, id="sms", channel="sms", kind="smpp")
    await write_records(store, ("carrier", "sms", second, None))
    assert tile_html(await pages.get(HERE, OPERATOR), "Delivery").startswith(
        "Delivery Partly blocked Email: no carrier"
    )


async def test_teams_with_problems_are_listed_first(pages: Pages, store: Store, clock: Any) -> None:
    await store.messages.accept(message(clock, *(f"a{n}@example.com" for n in range(4)), team=3))
    await deliver(store, clock, "bounced", "delivered", "delivered", "delivered")
    broke = replace(store.setup.current.teams["team_2"].record, credit_low=10**12)
    await write_records(store, ("team", broke.id, broke, broke.id))
    response = await pages.get(HERE, OPERATOR)
    assert re.findall(r'class="rowlink"[^>]*>(\w+)<', response.html) == ["Broke", "Calm", "Acme"]
    assert "Credit low" in response.text and "25%" in response.text and response.html.count('class="spark"') == 1
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
def test_team_problems_lists_each_problem(record: Any, seen: Any, credit: int, state: Any, found: list[str]) -> None:
    team = Team(record=TeamRecord(**{"ref": 1, "id": "team_a", "name": "A", "mode": "live", "credit_low": 0} | record))
    account = Account(team=1, available=credit, held=0, used=0, month="2026-11")
    result = find_problems(team, TeamTotals(*seen), account, Reputation(team="team_a", state=state, since=0))
    assert [label for _, label in result] == found


@pytest.mark.parametrize(
    ("address", "said"),
    [("ada@example.com", "Not judged below 200 emails (1 so far)."), ("bounced@simulator.test", "No emails yet.")],
)
async def test_team_rates_exclude_test_messages(
    pages: Pages, store: Store, clock: Any, address: str, said: str
) -> None:
    await store.messages.accept(message(clock, address, team=1))
    await deliver(store, clock, "bounced")
    response = await pages.get(f"{HERE}/teams/team_1", OPERATOR)
    assert "<title>Summary · Acme" in response.html and "Bounced, 30 days 100%" in response.text
    assert said in response.text and "Test recipients and captured mail are not counted" in response.text


@pytest.mark.parametrize("outcome", [Accepted(detail={}), Deferred(detail={}), Refused(detail={})])
async def test_new_carrier_is_saved_when_test_is_accepted(
    pages: Pages, monkeypatch: pytest.MonkeyPatch, outcome: Outcome
) -> None:
    """Without an address for the test the carrier is not added."""
    monkeypatch.setattr("heliograph.carrier_failover.CarrierFailover.send", AsyncMock(return_value=outcome))
    monkeypatch.setattr("heliograph.manage.carriers._check_usable", lambda *_: None)  # no carrier object is created
    form = {"kind": "email-smtp", "id": "relay", "host": "127.0.0.1", "port": "1", "then": "test", "address": "no"}
    response = await pages.post(f"{HERE}/carriers", form, OPERATOR)
    assert (response.status, "Enter an email address." in response.text) == (400, True)
    assert not pages.setup.carriers
    response = await pages.post(f"{HERE}/carriers", form | {"address": "ada@example.com"}, OPERATOR)
    is_kept = isinstance(outcome, Accepted)
    assert (response.status, "The carrier was not added" in response.text) == (200 if is_kept else 400, not is_kept)
    assert [(item.id, item.enabled) for item in pages.setup.carriers] == ([("relay", True)] if is_kept else [])
    assert is_kept or 'value="127.0.0.1"' in response.html


async def test_refused_share_of_a_carrier_is_of_its_final_answers(
    pages: Pages, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write_records(store, ("carrier", "relay", RELAY, None))
    counts = CarrierCounts(accepted=9, refused=1, put_off=2)
    recent = {"relay": RecentCarrierCounts(minutes=(CarrierCounts(),) * 59 + (counts,), day=counts)}
    monkeypatch.setattr(store.carrier_stats, "read_recent", AsyncMock(return_value=recent))
    for path in ("", "/relay"):
        assert "9 2 (16.7%) 1 (10%)" in (await pages.get(f"{HERE}/carriers{path}", OPERATOR)).text
