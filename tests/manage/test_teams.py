"""Teams: one entry with each change, in its transaction, none when nothing changed, and what is refused."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.refusals import InvalidRequest, NotFound
from heliograph.domain.setup.records import Domain
from heliograph.domain.setup.snapshot import to_row
from heliograph.manage import teams as manage
from heliograph.storage.store import Store
from tests.manage.conftest import ADA, entries
from tests.setup_helpers import set_up

pytestmark = pytest.mark.anyio

UseCase = Callable[[Store], Awaitable[object]]


async def _approve_domain(store: Store) -> None:
    domain = Domain(id="dom_1", team="team_1", name="one.test", brand="One", verified=True, approved=True)
    await set_up(store, rows=[to_row("domain", "dom_1", domain, "team_1")])


async def test_a_team_is_made_with_its_credit(store: Store) -> None:
    made = await manage.create(store, ADA, {"id": "team_new", "currency": "EUR", "credit": "5.00"})
    assert (made.name, made.currency, made.mode) == ("team_new", "EUR", "sandbox")
    assert (await store.ledger.account(made.ref)).available == 5_000_000
    other = await manage.create(store, COMMAND_LINE, {"name": "Other"})
    assert await entries(store) == [
        ("command line", "team.create", other.id, ""),
        ("usr_ada", "team.create", "team_new", ""),
    ]
    with pytest.raises(InvalidRequest, match="with this id already"):
        await manage.create(store, ADA, {"id": "team_new"})
    with pytest.raises(InvalidRequest) as refused:
        await manage.create(store, ADA, {"id": "new", "currency": "€", "email_quota": "many"})
    assert refused.value.details
    assert set(refused.value.details["fields"]) == {"id", "currency", "email_quota"}
    assert len(await entries(store)) == 2


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
            lambda store: manage.save(store, ADA, "team_1", {"name": "One", "credit_low": "2.50"}, by_operator=False),
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
async def test_each_change_has_one_entry(store: Store, teams: None, change: UseCase, action: str, detail: str) -> None:
    await _approve_domain(store)
    await change(store)
    await change(store)  # changes nothing
    assert await entries(store, "team_1") == [("usr_ada", action, "team_1", detail)]


async def test_back_to_where_it_was(store: Store, teams: None) -> None:
    await _approve_domain(store)
    await manage.go_live(store, ADA, "team_1")
    assert (await manage.leave_live(store, ADA, "team_1")).mode == "sandbox"
    await manage.set_suspended(store, ADA, "team_1", True)
    assert not (await manage.set_suspended(store, COMMAND_LINE, "team_1", False)).suspended
    assert [action for _, action, _, _ in await entries(store)] == [
        "team.resume",
        "team.suspend",
        "team.sandbox",
        "team.live",
    ]


async def test_an_owners_name_waits_for_an_operator(store: Store, teams: None) -> None:
    asked = await manage.save(store, ADA, "team_1", {"name": "One"}, by_operator=False)
    assert (asked.name, asked.wanted) == ("team_1", "One")
    assert (await manage.save(store, ADA, "team_1", {"name": "team_1"}, by_operator=False)).wanted == ""
    assert (await manage.save(store, ADA, "team_1", {"name": "Uno"}, by_operator=True)).name == "Uno"


async def test_no_live_team_without_a_domain(store: Store, teams: None) -> None:
    with pytest.raises(InvalidRequest, match="Not yet: Add a domain"):
        await manage.go_live(store, ADA, "team_1")
    assert await entries(store) == []


@pytest.mark.parametrize("days", [{"keep_messages_days": 3}, {"keep_content_days": 91}, {"keep_messages_days": "long"}])
async def test_days_that_do_not_fit(store: Store, teams: None, days: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        await manage.set_retention(store, ADA, "team_1", days)
    assert await entries(store) == []


async def test_free_text_needs_a_template_of_the_team(store: Store, teams: None) -> None:
    with pytest.raises(InvalidRequest, match="tpl_x is no template of the team") as refused:
        await manage.set_plan(store, ADA, "team_1", {"passthrough": "tpl_x"})
    assert refused.value.param == "passthrough"
    assert (await manage.set_plan(store, ADA, "team_1", {"passthrough": ""})).passthrough == ""


async def test_direct_sends_go_on(store: Store, teams: None) -> None:
    await store.database.write(lambda tx: tx.run("count_reputation", counts=[(1, store.clock.now(), 1000, 500, 0)]))
    await store.reputation.judge()
    assert [await manage.resume_direct(store, ADA, "team_1") for _ in range(2)] == [True, False]
    assert (await entries(store, "team_1"))[0] == ("usr_ada", "reputation.resume", "team_1", "")


async def test_a_team_that_is_not_there(store: Store) -> None:
    with pytest.raises(NotFound, match="There is no team team_x"):
        await manage.set_suspended(store, ADA, "team_x", True)
