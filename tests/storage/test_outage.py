"""A database that is unavailable, hangs or disconnects: StoreUnavailable within a deadline, then recovery."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from heliograph.bootstrap import make_database
from heliograph.settings import Settings
from heliograph.storage.engine import postgres, sqlite
from heliograph.storage.engine.database import Conflict, Database, StoreUnavailable, Tx, error_text
from heliograph.storage.engine.migrate import migrate_postgres, migrate_sqlite
from heliograph.storage.engine.postgres import PostgresDatabase, is_outage
from heliograph.storage.engine.sqlite import SqliteDatabase, open_sqlite
from tests.conftest import fresh_database
from tests.service import PATIENCE_S
from tests.storage.hanging import Network

pytestmark = pytest.mark.anyio

DEADLINES = ("CONNECT_S", "CLOSE_S")


@pytest.fixture
def url(postgres: str) -> str:
    return fresh_database(postgres)


@pytest.fixture
async def network(url: str) -> Network:
    await migrate_postgres(url)
    return Network(url)


@pytest.fixture
async def database(network: Network, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PostgresDatabase]:
    async with network.open() as through:
        database = PostgresDatabase(through)
        await database.write(bump)
        yield database
        network.flow()
        await database.close()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Use short timeouts from now on."""

    def shorten() -> None:
        for name in DEADLINES:
            monkeypatch.setattr(postgres, name, 0.3)

    return shorten


async def bump(tx: Tx) -> int:
    ((number,),) = await tx.run("increase_restore_counter")
    return int(number)


async def until_written(database: Database) -> int:
    """Retry like a background loop until the write succeeds."""
    while True:
        try:
            return await database.write(bump)
        except StoreUnavailable:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("broken", ["in use", "idle"])
async def test_broken_connections_are_an_outage_and_are_replaced(
    database: PostgresDatabase, network: Network, broken: str
) -> None:
    async def function(tx: Tx) -> None:
        await bump(tx)
        network.drop()
        await bump(tx)

    if broken == "in use":
        with pytest.raises(StoreUnavailable, match="PostgreSQL: .+"):
            await database.write(function)
    else:
        network.drop()
    assert await until_written(database) == 2


async def test_pool_size_and_deadline_follow_the_settings(url: str) -> None:
    database = make_database(Settings(database=url, database_pool=2, database_timeout_s=1))
    started, over = asyncio.Semaphore(0), asyncio.Event()

    async def hold(_: Tx) -> None:
        started.release()
        await over.wait()

    holding = [asyncio.create_task(database.write(hold)) for _ in range(2)]
    for _ in holding:
        await started.acquire()
    with pytest.raises(StoreUnavailable):
        await database.write(hold)
    over.set()
    await asyncio.gather(*holding)
    await database.close()


async def test_hanging_server_is_an_outage(url: str, network: Network, short: Callable[[], None]) -> None:
    """Statements, new connections and closing the pool have deadlines; afterwards all connections are new."""
    short()
    async with network.open() as through:
        database = PostgresDatabase(through, command_s=1.0)
        await asyncio.gather(*(database.read(bump) for _ in range(4)))
        network.hang()
        results = await asyncio.gather(*(database.write(bump) for _ in range(12)), return_exceptions=True)
        assert {type(result) for result in results} == {StoreUnavailable}
        assert all(len(str(result)) > len("PostgreSQL: ") for result in results)
        with pytest.raises(StoreUnavailable):
            await migrate_postgres(through)
        before = network.connections
        network.drop()  # a failover: connections to the old primary never respond again
        network.flow()
        assert await until_written(database) >= 1
        assert network.connections > before
        network.hang()
        await database.close()


async def test_cancelled_query_does_not_wait_for_a_hanging_server(
    database: PostgresDatabase, network: Network, short: Callable[[], None]
) -> None:
    """At shutdown: the cancelled task ends soon, with its cancellation, and its transaction is rolled back."""
    short()
    hangs = asyncio.Event()

    async def function(tx: Tx) -> None:
        await bump(tx)
        network.hang()
        hangs.set()
        await bump(tx)

    task = asyncio.create_task(database.write(function))
    await hangs.wait()
    await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait([task])
    assert task.cancelled()
    network.flow()
    assert await until_written(database) == 2


async def test_read_only_server_is_disconnected(database: PostgresDatabase, url: str, network: Network) -> None:
    """The old primary after a failover: the next transaction uses a new connection."""
    admin: Any = await asyncpg.connect(url)
    name = await admin.fetchval("SELECT current_database()")
    await admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    network.drop()
    with pytest.raises(StoreUnavailable):
        await database.write(bump)  # uses the broken connection
    with pytest.raises(StoreUnavailable, match="read-only"):
        await database.write(bump)
    await admin.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    await admin.close()
    assert await until_written(database) == 2


async def test_conflicting_transaction_is_rolled_back_and_retried(database: PostgresDatabase) -> None:
    tries = []

    async def function(tx: Tx) -> int:
        tries.append(await bump(tx))
        if len(tries) < 3:
            raise Conflict("another was faster")
        return tries[-1]

    assert await database.write(function) == 2
    assert tries == [2, 2, 2]


async def test_exception_of_a_transaction_function_is_not_an_outage(database: PostgresDatabase) -> None:
    class Refused(Exception):
        pass

    async def refuse(tx: Tx) -> None:
        await bump(tx)
        raise Refused

    with pytest.raises(Refused):
        await database.write(refuse)
    assert await database.write(bump) == 2


AWAY = (
    *(asyncpg.InterfaceError("x"), asyncpg.InternalClientError("x"), asyncpg.ConnectionDoesNotExistError("x")),
    *(asyncpg.AdminShutdownError("x"), asyncpg.CannotConnectNowError("x"), asyncpg.ReadOnlySQLTransactionError("x")),
    *(asyncpg.QueryCanceledError("x"), asyncpg.DiskFullError("x"), asyncpg.InvalidPasswordError("x")),
    *(OSError(), TimeoutError(), EOFError(), RuntimeError("event loop"), AttributeError("_con")),
)
OURS = (asyncpg.UniqueViolationError("x"), asyncpg.UndefinedTableError("x"), asyncpg.DataError("x"), ValueError("x"))


@pytest.mark.parametrize("error", AWAY, ids=lambda error: type(error).__name__)
def test_error_not_caused_by_the_statement_is_an_outage(error: Exception) -> None:
    assert is_outage(error)


@pytest.mark.parametrize("error", OURS, ids=lambda error: type(error).__name__)
def test_error_caused_by_the_statement_is_no_outage(error: Exception) -> None:
    assert not is_outage(error)


@pytest.mark.parametrize(
    ("kind", "opened"),
    [(apsw.BusyError, 1), (apsw.FullError, 1), (apsw.IOError, 2), (apsw.CorruptError, 2), (apsw.ReadOnlyError, 2)],
)
async def test_broken_sqlite_file_is_reopened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception], opened: int
) -> None:
    opens: list[Path] = []

    def counted(path: Path, **_: bool) -> apsw.Connection:
        opens.append(path)
        return open_sqlite(path)

    monkeypatch.setattr(sqlite, "open_sqlite", counted)
    migrate_sqlite(tmp_path / "a.db")
    database = SqliteDatabase(tmp_path / "a.db")

    async def breaks(tx: Tx) -> None:
        await bump(tx)
        raise kind("disk I/O error")

    with pytest.raises(StoreUnavailable, match="a.db: disk I/O error"):
        await database.write(breaks)
    assert (await database.write(bump), len(opens)) == (1, opened)
    await database.close()


@pytest.mark.parametrize(("error", "said"), [(TimeoutError(), "TimeoutError"), (OSError("a \n b"), "a b")])
def test_error_without_a_message_shows_its_class(error: Exception, said: str) -> None:
    assert error_text(error) == said
