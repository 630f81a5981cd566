"""Why a database cannot be used: cause and fix in one line."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import asyncpg
import click
import pytest

from heliograph.bootstrap import migrate
from heliograph.cli.options import readable_errors
from heliograph.data_folder import ProcessSlot
from heliograph.settings import Settings
from heliograph.storage.engine import migrate as migrations
from heliograph.storage.engine.database import StoreUnavailable
from heliograph.storage.engine.faults import FIX_BY_SQLSTATE, postgres_fault
from heliograph.storage.engine.sqlite import open_sqlite

pytestmark = pytest.mark.anyio

NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder that other users can enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="heliograph-faults-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Run as an unprivileged user, because root can write everywhere."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


async def start(settings: Settings, *, has_data: bool) -> None:
    with readable_errors(settings):
        if has_data:
            ProcessSlot(settings.data)
        await migrate(settings)


async def fault(path: Path, data: Path | None = None) -> str:
    settings = Settings(database=f"sqlite:///{path}", data=data or path.parent)
    with pytest.raises(click.ClickException) as raised:
        await start(settings, has_data=data is not None)
    output = str(raised.value)
    assert "\n" not in output
    return output


async def test_disk_full_while_migrating_is_reported_with_its_fix(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small(path: Path, **options: bool) -> apsw.Connection:
        connection = open_sqlite(path, **options)
        connection.execute("PRAGMA max_page_count = 20").fetchall()
        return connection

    monkeypatch.setattr(migrations, "open_sqlite", small)
    assert f"the disk of {folder} is full. Free some space there." in await fault(folder / "heliograph.db")
    monkeypatch.undo()
    await migrate(Settings(database=f"sqlite:///{folder / 'heliograph.db'}", data=folder))  # after freeing space


async def test_folder_that_is_not_writable_is_named_with_its_owner(folder: Path) -> None:
    (own := folder / "own").mkdir()
    own.chmod(0o555)
    with as_nobody():
        output = await fault(own / "heliograph.db")
    assert f"{own} belongs to user " in output and "is not writable for user " in output
    assert "Run as its owner" in output and "--database" in output


@pytest.mark.parametrize("mode", [0o400, 0o444])
async def test_file_that_is_not_writable_is_named_with_its_owner(folder: Path, mode: int) -> None:
    """SQLite opens a file that it can read but not write, and fails at the first write."""
    file = folder / "heliograph.db"
    await migrate(Settings(database=f"sqlite:///{file}", data=folder))
    file.chmod(mode)
    folder.chmod(0o777)
    with as_nobody():
        output = await fault(file)
    assert f"{file} belongs to user " in output and "is not writable for user " in output


async def test_data_folder_not_writable_is_named_with_its_owner(folder: Path) -> None:
    (own := folder / "own").mkdir()
    own.chmod(0o555)
    with as_nobody():
        output = await fault(folder / "heliograph.db", own / "data")
    assert f"{own} belongs to user " in output and "--data" in output


async def test_database_path_that_is_a_folder_is_reported_as_one(folder: Path) -> None:
    assert f"{folder} is a folder. Name a file in it." in await fault(folder)


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        (asyncpg.InvalidPasswordError, "user and password"),
        (asyncpg.InvalidAuthorizationSpecificationError, "pg_hba.conf"),
        (asyncpg.InvalidCatalogNameError, "createdb"),
        (asyncpg.TooManyConnectionsError, "max_connections"),
        (asyncpg.DiskFullError, "space on the server"),
        (asyncpg.InsufficientPrivilegeError, "GRANT CREATE"),
        (asyncpg.CannotConnectNowError, "Wait until"),
    ],
)
def test_postgres_refusal_has_its_own_fix(error: type[asyncpg.PostgresError], fix: str) -> None:
    assert error.sqlstate in FIX_BY_SQLSTATE
    outage = StoreUnavailable("PostgreSQL: it said no")
    outage.__cause__ = error("it said no")
    reason, output = postgres_fault(outage)
    assert reason == "PostgreSQL: it said no"
    assert fix in output


async def test_missing_postgres_database_is_reported_with_its_fix(postgres: str) -> None:
    settings = Settings(database=re.sub(r"/\w+\?", "/nowhere?", postgres))
    with pytest.raises(click.ClickException, match='database "nowhere" does not exist. Create it with createdb'):
        await start(settings, has_data=False)
