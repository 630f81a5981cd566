"""PgBouncer in transaction mode: the next transaction may have another session, so nothing is kept in sessions."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from heliograph.storage.engine.database import Tx
from heliograph.storage.engine.migrate import migrate_postgres
from heliograph.storage.engine.postgres import SESSION_SETTINGS, Hosts, ListenError, PostgresDatabase, connect
from heliograph.storage.engine.query import Statement
from tests.conftest import fresh_database
from tests.storage.pooler import SESSIONS, pgbouncer
from tests.storage.test_outage import bump

pytestmark = pytest.mark.anyio


@pytest.fixture
def url(postgres: str) -> str:
    return fresh_database(postgres, "template1")


@pytest.fixture
def pooled(url: str) -> Iterator[str]:
    with pgbouncer(url) as behind:
        yield behind


@pytest.fixture
async def databases(pooled: str) -> AsyncIterator[list[PostgresDatabase]]:
    """Return one database per process; together they have more connections than the server has sessions."""
    assert await migrate_postgres(pooled)
    assert await migrate_postgres(pooled) == []
    created = [PostgresDatabase(pooled) for _ in range(3)]
    yield created
    for database in created:
        await database.close()


async def test_transactions_share_the_connections_of_pgbouncer(databases: list[PostgresDatabase]) -> None:
    numbers = await asyncio.gather(*(database.write(bump) for database in databases for _ in range(5 * SESSIONS)))
    assert sorted(numbers) == list(range(1, 15 * SESSIONS + 1))
    await asyncio.gather(*(database.read(bump) for database in databases for _ in range(5 * SESSIONS)))


async def test_transaction_applies_our_settings_and_resets_them(databases: list[PostgresDatabase], url: str) -> None:
    database = databases[0]
    database._queries = {name: Statement(sql=f"SHOW {name}", params=(), row_tables=()) for name in SESSION_SETTINGS}

    async def ask(tx: Tx) -> dict[str, str]:
        return {name: (await tx.run(name))[0][0] for name in SESSION_SETTINGS}

    def plain(result: dict[str, str]) -> dict[str, str]:
        return {name: value.replace("30s", "30000") for name, value in result.items()}

    assert plain(await database.read(ask)) == SESSION_SETTINGS
    admin: Any = await asyncpg.connect(url)
    others = "SELECT application_name FROM pg_stat_activity WHERE datname = current_database()"
    assert "heliograph" not in {row[0] for row in await admin.fetch(others)}
    await admin.close()


async def test_listen_is_not_used_through_pgbouncer(databases: list[PostgresDatabase], pooled: str) -> None:
    """Notifications would not arrive, and the session's next user would receive them."""
    database, connection = databases[0], await connect(Hosts(pooled))
    with pytest.raises(ListenError):
        await database._receive_wakeups(connection)
    await database._send_wakeup("webhooks")
    listens = "SELECT count(*) FROM pg_listening_channels(), pg_sleep(0.1)"
    database._queries = {"listens": Statement(sql=listens, params=(), row_tables=())}

    async def ask(tx: Tx) -> int:
        return int((await tx.run("listens"))[0][0])

    assert await asyncio.gather(*(database.read(ask) for _ in range(SESSIONS))) == [0] * SESSIONS
    connection.terminate()
