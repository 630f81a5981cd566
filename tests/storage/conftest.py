"""A store with two teams that have credit on both databases, a second process, and independent SQL access."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import apsw
import asyncpg
import pytest

from heliograph.bootstrap import open_store, sqlite_path
from heliograph.settings import Settings
from heliograph.storage.setup import NewTeam
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.service import PATIENCE_S
from tests.setup_helpers import set_up

CREDIT = 1_000_000
Sql = Callable[[str], Awaitable[list[tuple[Any, ...]]]]


@pytest.fixture
async def store(settings: Settings, clock: TestClock) -> AsyncIterator[Store]:
    """Return a store on each database; teams 1 and 2 have credit."""
    async with open_store(settings, clock, "seat/0") as store:
        await set_up(store, new_teams=[NewTeam(1, CREDIT), NewTeam(2, CREDIT)])
        yield store


@pytest.fixture
async def sql(store: Store, settings: Settings) -> AsyncIterator[Sql]:
    """Return a function that queries the database without the code under test."""
    async with asking(settings) as ask:
        yield ask


@asynccontextmanager
async def asking(settings: Settings) -> AsyncIterator[Sql]:
    path = sqlite_path(settings)
    if path:
        file = apsw.Connection(str(path))
        file.set_busy_timeout(int(PATIENCE_S * 1000))

        async def ask_file(query: str) -> list[tuple[Any, ...]]:
            return [tuple(row) for row in file.execute(query)]

        yield ask_file
        file.close()
    else:
        server: Any = await asyncpg.connect(settings.database)

        async def ask_server(query: str) -> list[tuple[Any, ...]]:
            return [tuple(row) for row in await server.fetch(query)]

        yield ask_server
        await server.close()
