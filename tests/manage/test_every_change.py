"""Every changing page, route and command writes one audit entry with its actor, in its transaction (P23)."""

import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from heliograph.api.routes import ROUTES
from heliograph.cli.main import COMMANDS, load_command
from heliograph.compat.adapters import ADAPTERS
from heliograph.dashboard.pages import PAGES
from heliograph.domain.audit.audit_chain import ERASE_ACTION
from heliograph.manage.people import make_first_link
from heliograph.settings import Settings
from heliograph.storage.setup import NewTeam, SetupChange
from tests.conftest import DATABASES, lent_database
from tests.manage.changes import CHANGES, EXCEPTIONS, Change
from tests.manage.edges import (
    CLIENT_ADDRESS,
    FAULTS,
    UNWATCHED_TABLES,
    EdgeResponse,
    Entry,
    Environment,
    Values,
    open_environment,
)
from tests.people import PASSWORD
from tests.storage.conftest import asking

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "postgres":
        with lent_database(request.getfixturevalue("postgres")) as url:
            yield url
    else:
        path = tmp_path_factory.mktemp("changes") / "heliograph.db"
        shutil.copy(request.getfixturevalue("migrated_file"), path)
        yield f"sqlite:///{path}"


@pytest.fixture(scope="module")
async def world(url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Environment]:
    async with open_environment(url, tmp_path_factory.mktemp("world")) as world:
        yield world


def _row(change: Change) -> Any:
    """Return a test case, which runs on both databases if the change takes several transactions.

    Tests of storage run the other queries on PostgreSQL.
    """
    parts = change.has_two_entries or change.written_before or change.written_after or change.also_watched
    return pytest.param(change, id=change.name, marks=pytest.mark.both_databases if parts else [])


@pytest.mark.parametrize("change", [_row(change) for change in CHANGES])
async def test_every_change_writes_one_audit_entry_in_its_transaction(world: Environment, change: Change) -> None:
    """The change is killed before the entry, then before the commit, then completed; if idempotent, it is repeated."""
    values: Values = {"team": "team_acme", "n": world.next_number()} | await change.make(world)
    entry = change.entry(world, values)
    unwatched = (UNWATCHED_TABLES | change.written_before) - change.also_watched
    await _check_rollback(world, lambda: change.run(world, values), unwatched)
    last = await world.last_entry()
    with world.watcher.recording():
        response = await change.run(world, values)
    await world.house.store.setup.refresh()
    assert response.ok, response.body[:300]
    written = [
        item for item in await world.entries(last) if not (change.has_two_entries and item.action == ERASE_ACTION)
    ]
    assert written == [entry] * (1 + change.has_two_entries)
    transactions = [
        remaining for tables in world.watcher.changed_tables if (remaining := tables - unwatched - change.written_after)
    ]
    if change.has_two_entries:
        assert "audit" in transactions[0] and "audit" in transactions[-1]
    else:
        assert len(transactions) == 1, transactions

    if change.is_idempotent:
        await change.run(world, values)
        await world.house.store.setup.refresh()
        assert len(await world.entries(last)) == 1, "nothing was changed, and an entry says it was"


async def _check_rollback(world: Environment, run: Callable[[], Awaitable[EdgeResponse]], unwatched: set[str]) -> None:
    before = await world.dump()
    for fault in FAULTS:
        with world.watcher.recording(fault):
            response = await run()
        after = await world.dump()
        changed = {table for table in before if before[table] != after[table]} - unwatched
        assert (response.ok, changed) == (False, set()), f"killed at the {fault}: {response.body[:300]}"
        await world.house.store.setup.refresh()


@pytest.mark.both_databases
async def test_the_first_operator_is_one_entry(database_url: str, tmp_path: Path) -> None:
    """Uses an instance of its own, without any user."""
    async with open_environment(database_url, tmp_path, has_people=False) as world:
        link = f"/dashboard/link/{await make_first_link(world.house.store)}"
        form = {"email": "first@example.com", "password": PASSWORD}
        await _check_rollback(world, lambda: world.post_form(link, form), UNWATCHED_TABLES)
        last = await world.last_entry()
        assert (await world.post_form(link, form)).ok
        id_ = await world.house.id_of("first@example.com")
        assert await world.entries(last) == [Entry(id_, "account.password", None, CLIENT_ADDRESS)]


@pytest.mark.both_databases
async def test_a_backup_is_paused_by_the_command_line(world: Environment, url: str, tmp_path: Path) -> None:
    """The pause is in the copy; the original does not change."""
    if not url.startswith("sqlite"):
        assert not world.command("backup", str(tmp_path / "copy")).ok  # PostgreSQL is backed up by its own tools
        return
    await world.run_command("resume")
    last = await world.last_entry()
    await world.run_command("backup", str(tmp_path / "copy"))
    assert await world.entries(last) == []
    async with asking(Settings(database=f"sqlite:///{tmp_path / 'copy' / 'heliograph.db'}")) as sql:
        assert await sql(f"SELECT person, action FROM audit WHERE key > {last}") == [("command line", "delivery.pause")]


# -- the setup ---------------------------------------------------------------------------------------------------------


def test_a_change_of_the_setup_needs_an_actor() -> None:
    with pytest.raises(TypeError, match="without an actor"):
        SetupChange(new_teams=[NewTeam(1, 0)])
    assert not SetupChange().is_change


# -- the table has them all -------------------------------------------------------------------------------------------


def test_every_changing_page_is_in_the_table() -> None:
    _check_table("page", {f"POST {page.path}" for page in PAGES if page.method != "GET"})


def test_every_changing_route_is_in_the_table() -> None:
    routes = [*ROUTES, *(route for adapter in ADAPTERS for route in adapter.routes)]
    _check_table("route", {f"{route.method} {route.path}" for route in routes if route.method != "GET"})


def test_every_command_is_in_the_table() -> None:
    result = set[str]()
    for name in COMMANDS:
        command = load_command(name)
        result |= {f"{name} {own}" for own in command.commands} if isinstance(command, click.Group) else {name}
    _check_table("command", result)


def _check_table(edge: str, result: set[str]) -> None:
    """Check both directions: the table must not name routes that no longer exist either."""
    result = {_without_parameter_names(name) for name in result}
    listed = {
        _without_parameter_names(f"POST {item.target}" if edge == "page" else item.target)
        for item in CHANGES
        if item.edge == edge
    }
    excepted = {_without_parameter_names(name) for name in EXCEPTIONS if _edge_of(name) == edge}
    assert result - listed - excepted == set(), "a change without a row"
    assert (listed | excepted) - result == set(), "a row without a change"
    assert listed & excepted == set()


def _edge_of(name: str) -> str:
    return "page" if "/dashboard" in name else "route" if "/" in name else "command"


def _without_parameter_names(name: str) -> str:
    """Return the path with anonymous parameters."""
    return re.sub(r"\{\w+\}", "{}", name)
