"""PostgreSQL through asyncpg: a pool, one transaction a story."""

import asyncio
from typing import Any

import asyncpg

from heliograph.storage.database import Conflict, StoreUnavailable, Story, T
from heliograph.storage.query import Query, bound, load_queries

POOL_MAX = 8
CONNECT_S = 5.0
IDLE_IN_TRANSACTION_MS = "30000"  # a stuck process must not hold an account row for ever
RETRIES = (Conflict, asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
OUTAGES = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.PostgresIOError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.DiskFullError,
    asyncpg.ReadOnlySQLTransactionError,
)


class PostgresTx:
    def __init__(self, connection: Any, queries: dict[str, Query]) -> None:
        self._fetch = connection.fetch
        self._queries = queries

    async def run(self, query: str, **params: Any) -> list[Any]:
        found = self._queries[query]
        given = bound(found, params)
        rows: list[Any] = await self._fetch(found.sql, *[given[name] for name in found.params])
        return rows


class PostgresDatabase:
    def __init__(self, url: str) -> None:
        self._url = url
        self._queries = load_queries("postgres")
        self._pool: asyncpg.Pool[Any] | None = None

    async def write(self, story: Story[T]) -> T:
        try:
            return await self._transact(story)
        except RETRIES:
            return await self._transact(story)

    async def read(self, story: Story[T]) -> T:
        return await self._transact(story, keep=False)

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()

    async def _transact(self, story: Story[T], *, keep: bool = True) -> T:
        try:
            pool = self._pool or await self._connect()
            async with pool.acquire() as connection:
                transaction = connection.transaction()
                await transaction.start()
                try:
                    result = await story(PostgresTx(connection, self._queries))
                except BaseException:
                    await transaction.rollback()
                    raise
                await (transaction.commit() if keep else transaction.rollback())
                return result
        except OUTAGES as error:
            raise StoreUnavailable(f"PostgreSQL: {error or type(error).__name__}") from error

    async def _connect(self) -> "asyncpg.Pool[Any]":
        self._pool = await asyncpg.create_pool(
            self._url,
            min_size=1,
            max_size=POOL_MAX,
            timeout=CONNECT_S,
            server_settings={
                "application_name": "heliograph",
                "idle_in_transaction_session_timeout": IDLE_IN_TRANSACTION_MS,
                "synchronous_commit": "on",
                "jit": "off",  # short statements: compiling them costs more than running them
            },
        )
        return self._pool
