"""Teams: one audit entry per change, in its transaction, none without a change, and what is refused."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.refusals import InvalidRequest, TeamNotFound
from heliograph.domain.setup.records import CarrierRecord, Domain, Template
from heliograph.domain.setup.snapshot import to_row
from heliograph.manage import teams as manage
from heliograph.manage.credit import CreditAdjustment, adjust_credit
from heliograph.storage.store import Store
from tests.manage.conftest import ADA, list_entries
from tests.setup_helpers import set_up

pytestmark = pytest.mark.anyio

UseCase = Callable[[Store], Awaitable[object]]


async def _approve_domain(store: Store) -> None:
    domain = Domain(id="dom_1", team="team_1", name="one.test", brand="One", verified=True, approved=True)
    await set_up(store, rows=[to_row("domain", "dom_1", domain, "team_1")])


async def test_team_is_created_with_its_opening_credit(store: Store) -> None:
    created = await manage.create(store, ADA, {"id": "team_new", "currency": "EUR", "credit": "5.00"})
    assert (created.name, created.currency, created.mode) == ("team_new", "EUR", "sandbox")
    assert (await store.ledger.get_account(created.ref)).available == 5_000_000
    other = await manage.create(store, COMMAND_LINE, {"name": "Other"})
    assert await list_entries(store) == [
        ("command line", "team.create", other.id, ""),
        ("usr_ada", "team.create", "team_new", ""),
    ]
    with pytest.raises(InvalidRequest, match="with this ID already"):
        await manage.create(store, ADA, {"id": "team_new"})
    with pytest.raises(InvalidRequest) as error:
        await manage.create(store, ADA, {"id": "new", "currency": "€", "email_quota": "many"})
    assert error.value.details
    assert set(error.value.details["fields"]) == {"id", "currency", "email_quota"}
    assert len(await list_entries(store)) == 2


@pytest.mark.parametrize(
    ("change", "action", "detail"),
    [
        (lambda store: manage.set_suspended(store, ADA, "team_1", True), "team.suspend", ""),
        (lambda store: manage.go_live(store, ADA, "team_1"), "team.live", ""),
        (
            lambda store: manage.set_plan(
                store, ADA, "team_1", {"email_quota": 5, "features": ["verify"], "verify": {"magic": True}}
            ),
            "team.plan",
            "email_quota=5, features=['verify'], verify={'magic': True}",
        ),
        (
            lambda store: manage.save_settings(
                store, ADA, "team_1", {"name": "One", "credit_low": "2.50"}, by_operator=False
            ),
            "team.change",
            "name=One, credit_low=2.50",
        ),
        (
            lambda store: manage.set_retention(
                store, ADA, "team_1", {"keep_content_days": 3, "keep_messages_days": 30}
            ),
            "team.keep",
            "keep_content_days=3, keep_messages_days=30",
        ),
    ],
)
async def test_team_change_writes_one_audit_entry(
    store: Store, teams: None, change: UseCase, action: str, detail: str
) -> None:
    await _approve_domain(store)
    await change(store)
    await change(store)  # changes nothing
    assert await list_entries(store, "team_1") == [("usr_ada", action, "team_1", detail)]


async def test_team_change_can_be_undone(store: Store, teams: None) -> None:
    await _approve_domain(store)
    await manage.go_live(store, ADA, "team_1")
    assert (await manage.return_to_sandbox(store, ADA, "team_1")).mode == "sandbox"
    await manage.set_suspended(store, ADA, "team_1", True)
    assert not (await manage.set_suspended(store, COMMAND_LINE, "team_1", False)).suspended
    assert [action for _, action, _, _ in await list_entries(store)] == [
        "team.resume",
        "team.suspend",
        "team.sandbox",
        "team.live",
    ]


async def test_team_name_changed_by_an_owner_waits_for_approval(store: Store, teams: None) -> None:
    requested = await manage.save_settings(store, ADA, "team_1", {"name": "One"}, by_operator=False)
    assert (requested.name, requested.wanted) == ("team_1", "One")
    assert (await manage.save_settings(store, ADA, "team_1", {"name": "team_1"}, by_operator=False)).wanted == ""
    assert (await manage.save_settings(store, ADA, "team_1", {"name": "Uno"}, by_operator=True)).name == "Uno"


async def test_team_without_a_domain_cannot_go_live(store: Store, teams: None) -> None:
    with pytest.raises(InvalidRequest, match="You can't go live yet. Add a domain"):
        await manage.go_live(store, ADA, "team_1")
    assert await list_entries(store) == []


async def test_capturing_team_cannot_go_live(store: Store, teams: None) -> None:
    await _approve_domain(store)
    await manage.set_plan(store, ADA, "team_1", {"catch": True})
    with pytest.raises(InvalidRequest, match="test inbox only"):
        await manage.go_live(store, ADA, "team_1")


@pytest.mark.parametrize("days", [{"keep_messages_days": 3}, {"keep_content_days": 91}, {"keep_messages_days": "long"}])
async def test_team_retention_days_invalid_are_refused(store: Store, teams: None, days: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        await manage.set_retention(store, ADA, "team_1", days)
    assert await list_entries(store) == []


async def test_passthrough_needs_a_template_of_the_team(store: Store, teams: None) -> None:
    with pytest.raises(InvalidRequest, match="tpl_x is no template of the team") as error:
        await manage.set_plan(store, ADA, "team_1", {"passthrough": "tpl_x"})
    assert error.value.param == "passthrough"
    assert (await manage.set_plan(store, ADA, "team_1", {"passthrough": ""})).passthrough == ""


async def test_pool_of_a_team_must_exist_at_a_carrier(store: Store, teams: None) -> None:
    with pytest.raises(InvalidRequest, match="No carrier has a pool 'bulk'. Known pools: default") as error:
        await manage.set_plan(store, ADA, "team_1", {"pool": "bulk"})
    assert error.value.param == "pool"
    pool = {"bulk": {"source_ips": ["192.0.2.1"]}}
    carrier = CarrierRecord(id="mx", channel="email", kind="mx", options={"source_ips": ["192.0.2.1"], "pools": pool})
    await set_up(store, rows=[to_row("carrier", "mx", carrier, None)])
    assert (await manage.set_plan(store, ADA, "team_1", {"pool": "bulk"})).pool == "bulk"


async def test_categories_of_approved_templates_must_stay(store: Store, teams: None) -> None:
    await manage.change(store, ADA, "team_1", {"categories": ["news", "offers"]})
    news = Template(id="tpl_news", team="team_1", channel="email", name="news", text="x", category="news")
    await set_up(store, rows=[to_row("template", "tpl_news", news, "team_1")])
    with pytest.raises(InvalidRequest, match="tpl_news has the category news") as error:
        await manage.change(store, ADA, "team_1", {"categories": ["offers"]})
    assert error.value.param == "categories"
    assert (await manage.change(store, ADA, "team_1", {"categories": ["news"]})).categories == ("news",)


async def test_paused_direct_sends_are_resumed_with_one_audit_entry(store: Store, teams: None) -> None:
    await store.database.write(lambda tx: tx.run("count_reputation", counts=[(1, store.clock.now(), 1000, 500, 0)]))
    await store.reputations.update_all()
    assert [await manage.resume_direct_sends(store, ADA, "team_1") for _ in range(2)] == [True, False]
    assert (await list_entries(store, "team_1"))[0] == ("usr_ada", "reputation.resume", "team_1", "")


async def test_unknown_team_cannot_be_changed(store: Store) -> None:
    with pytest.raises(TeamNotFound, match="There is no team team_x"):
        await manage.set_suspended(store, ADA, "team_x", True)


async def test_currency_of_a_team_with_ledger_entries_does_not_change(store: Store) -> None:
    created = await manage.create(store, ADA, {"id": "team_new", "currency": "EUR"})
    await manage.change(store, ADA, "team_new", {"currency": "USD"})  # nothing is booked yet
    await adjust_credit(store, ADA, CreditAdjustment(team="team_new", amount="2.00"))
    await adjust_credit(store, ADA, CreditAdjustment(team="team_new", amount="-2.00"))
    for setter in (manage.change, manage.set_plan):
        with pytest.raises(InvalidRequest, match="booked in USD.*Create another team for EUR") as error:
            await setter(store, ADA, "team_new", {"currency": "EUR", "name": "Renamed"})
        assert error.value.param == "currency"
    unchanged = await manage.change(store, ADA, "team_new", {"currency": "USD"})
    assert unchanged == replace(created, currency="USD")
