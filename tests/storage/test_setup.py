"""The setup: changed in one transaction, seen by every process within a second."""

import asyncio
from typing import Any

import pytest

from heliograph.domain.setup.records import Platform, TeamRecord, Template
from heliograph.domain.setup.snapshot import PLATFORM_ID, Row, Setup, to_row
from heliograph.storage.setup import NewSuppression, NewTeam, SetupChange
from heliograph.storage.store import Store
from tests.setup_helpers import SET_UP
from tests.storage.conftest import Sql

pytestmark = pytest.mark.anyio


def brand(name: str) -> SetupChange:
    return SetupChange(rows=[to_row("platform", PLATFORM_ID, Platform(brand=name), None)], audit=SET_UP)


def team_row(id_: str, ref: int) -> Row:
    return to_row("team", id_, TeamRecord(ref=ref, id=id_, name=id_), id_)


async def test_setup_without_changes_is_the_same_object(store: Store) -> None:
    seen = store.setup.current
    assert await store.setup.refresh() is seen


async def test_slow_setup_read_does_not_restore_an_older_setup(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    read, changed = store.setup._database.read, asyncio.Event()

    async def slow(function: Any) -> Any:
        result = await read(function)
        await changed.wait()
        return result

    monkeypatch.setattr(store.setup._database, "read", slow)
    look = asyncio.create_task(store.setup.refresh())
    await asyncio.sleep(0.1)
    monkeypatch.setattr(store.setup._database, "read", read)
    await store.setup.change(lambda _, __: brand("New"))
    changed.set()
    await look
    assert store.setup.current.platform.brand == "New"


async def test_setup_change_keeps_the_objects_of_unchanged_teams(store: Store, other: Store) -> None:
    await store.setup.change(
        lambda _, __: SetupChange(rows=[team_row("team_a", 11), team_row("team_b", 12)], audit=SET_UP)
    )
    await other.setup.refresh()
    retained = other.setup.current.teams["team_a"]
    template = Template(id="tpl_x", team="team_b", channel="sms", name="x", body="x")
    await store.setup.change(
        lambda _, __: SetupChange(rows=[to_row("template", "tpl_x", template, "team_b")], audit=SET_UP)
    )
    await other.setup.refresh()
    assert other.setup.current.teams["team_a"] is retained
    assert other.setup.current.teams["team_b"].templates == {"tpl_x": template}


async def test_deleted_setup_record_is_removed_in_all_processes(store: Store, other: Store) -> None:
    await store.setup.change(lambda _, __: SetupChange(rows=[team_row("team_a", 11)], audit=SET_UP))
    await other.setup.refresh()
    await store.setup.change(lambda _, __: SetupChange(rows=[to_row("team", "team_a", None, "team_a")], audit=SET_UP))
    await other.setup.refresh()
    assert "team_a" not in store.setup.current.teams
    assert "team_a" not in other.setup.current.teams


async def test_setup_change_that_raises_changes_nothing(store: Store, sql: Sql) -> None:
    before = store.setup.current.version

    def decide(_: Setup, __: int) -> SetupChange:
        raise ValueError("a mistake in the file")

    with pytest.raises(ValueError, match="a mistake"):
        await store.setup.change(decide)
    assert (await store.setup.refresh()).version == before
    assert await sql("SELECT count(*) FROM setting") == [(0,)]


async def test_concurrent_setup_changes_run_one_after_the_other(store: Store, other: Store, sql: Sql) -> None:
    """Each decides on the newest setup and gets its own team number."""

    def add(name: str) -> object:
        def decide(current: Setup, ref: int) -> SetupChange:
            brands = f"{current.platform.brand} {name}"
            return SetupChange(
                rows=[*brand(brands).rows, team_row(name, ref)], new_teams=[NewTeam(ref, 5)], audit=SET_UP
            )

        return decide

    await asyncio.gather(*((store, other)[i % 2].setup.change(add(f"team_{i}")) for i in range(10)))  # type: ignore[arg-type]
    setup = await store.setup.refresh()
    assert sorted(setup.platform.brand.split()[1:]) == [f"team_{i}" for i in range(10)]
    assert sorted(team.record.ref for team in setup.teams.values()) == list(range(3, 13))
    assert await sql("SELECT count(*) FROM account") == [(12,)]


async def test_opening_balance_of_a_new_team_is_in_the_ledger(store: Store, sql: Sql) -> None:
    await store.setup.change(
        lambda _, ref: SetupChange(new_teams=[NewTeam(ref, 77), NewTeam(ref + 1, 0)], audit=SET_UP)
    )
    assert (await store.ledger.get_account(3)).available == 77
    assert await sql("SELECT kind, amount FROM ledger WHERE team IN (3, 4)") == [("topup", 77)]


async def test_setup_change_adds_its_suppressions(store: Store) -> None:
    values = [NewSuppression(1, "a@example.com", "A@example.com", "bounce")] * 2  # twice in one file
    await store.setup.change(lambda _, __: SetupChange(suppressions=values, audit=SET_UP))
    result = await store.suppressions.get(1, "a@example.com")
    assert result
    assert (result.email, result.reason) == ("A@example.com", "bounce")
