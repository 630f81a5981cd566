"""Two installations in two schemas of one PostgreSQL database do not disturb each other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from heliograph.bootstrap import open_store
from heliograph.settings import Settings
from heliograph.storage.engine.database import Tx
from heliograph.storage.engine.migrate import LOCK_CALL, migrate_postgres
from heliograph.storage.setup import NewTeam
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.conftest import fresh_database
from tests.deliver.test_worker import wait_until
from tests.setup_helpers import set_up
from tests.storage.samples import message
from tests.storage.test_feed import event, publish
from tests.storage.test_wakeups import listening, rings, waiter

pytestmark = pytest.mark.anyio

SCHEMAS = ("cell_01", "cell_02")


@pytest.fixture
def database(postgres: str) -> str:
    return fresh_database(postgres, "template1")


@pytest.fixture
async def urls(database: str) -> list[str]:
    connection: Any = await asyncpg.connect(database)
    await connection.execute("".join(f"CREATE SCHEMA {schema};" for schema in SCHEMAS))
    await connection.close()
    return [f"{database}&search_path={schema}" for schema in SCHEMAS]


@pytest.fixture
async def stores(urls: list[str], tmp_path: Path, clock: TestClock) -> AsyncIterator[list[Store]]:
    """Return two processes of the first installation and one of the second; all of them listen."""
    places = [(urls[0], "seat/0"), (urls[0], "seat/1"), (urls[1], "seat/0")]
    async with AsyncExitStack() as stack:
        stores = list[Store]()
        for number, (url, seat) in enumerate(places):
            settings = Settings(database=url, data=tmp_path / str(number))
            store = await stack.enter_async_context(open_store(settings, clock, seat))
            await stack.enter_async_context(listening(store.listen))
            await wait_until(lambda: store.wakeups.subscribed)  # noqa: B023
            stores.append(store)
        for store in (stores[0], stores[2]):
            await set_up(store, new_teams=[NewTeam(1, 1_000_000)])
        for store in stores:
            for bell in store.wakeups.by_kind.values():
                await bell.wait(0)
        yield stores


async def test_notifications_of_one_schema_are_not_received_in_another(stores: list[Store], clock: TestClock) -> None:
    same, foreign = waiter(stores[1].wakeups.by_kind["email"]), waiter(stores[2].wakeups.by_kind["email"])
    await stores[0].messages.accept(message(clock))
    await rings(same)
    await stores[2].database.read(_nothing)  # its connections have been used since
    assert not foreign.done()
    await stores[2].messages.accept(message(clock))
    await rings(foreign)


async def test_locks_of_one_schema_do_not_block_another(stores: list[Store], urls: list[str]) -> None:
    taken, end = asyncio.Event(), asyncio.Event()

    async def hold(tx: Tx) -> None:
        await tx.run("lock_usage_exchange")
        await stores[0].setup.publisher.publish(tx, [event(stores[0], "open")])
        taken.set()
        await end.wait()

    holding = asyncio.ensure_future(stores[0].database.write(hold))
    await taken.wait()
    await stores[2].database.write(lambda tx: tx.run("lock_usage_exchange"))
    await publish(stores[2], [event(stores[2], "another")])
    assert len(await stores[2].events.feed(1, "", 10)) == 1
    end.set()
    await holding


async def test_migration_of_one_schema_does_not_block_another(urls: list[str]) -> None:
    guard: Any = await asyncpg.connect(urls[0])
    await guard.execute(f"BEGIN; SELECT {LOCK_CALL}")
    same = asyncio.ensure_future(migrate_postgres(urls[0]))
    assert await migrate_postgres(urls[1])
    assert not same.done()
    await guard.execute("ROLLBACK")
    assert await same
    await guard.close()


async def _nothing(tx: Tx) -> None: ...
