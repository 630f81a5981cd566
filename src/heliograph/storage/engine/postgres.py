"""PostgreSQL through asyncpg: a connection pool, and one transaction per transaction function.

A driver error counts as an outage unless the statement caused it. Every wait for the server has a deadline (ADR 0018).
"""

import asyncio
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from operator import ne
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

import asyncpg
import msgspec
import structlog

from heliograph.runtime import metrics
from heliograph.runtime.fair_limiter import FairLimiter
from heliograph.storage.engine.database import (
    SERIALIZED_MAX,
    Conflict,
    Rows,
    StoreUnavailable,
    Story,
    T,
    reason_of,
    subject_of,
)
from heliograph.storage.engine.query import Statement, as_json, bound, load_queries, side_by_side, together
from heliograph.storage.engine.wakeups import Hints

log = structlog.get_logger()

POOL_MAX = 8
CONNECT_S = 3.0
COMMAND_S = 10.0  # timeout of one statement, and of waiting for a free connection
CLOSE_S = 3.0
PROBE_S = 1.0  # timeout of committing one row
STAGGER_S = 0.25  # delay before connecting to the next host in parallel
TRIES = 3
LISTEN_AGAIN_S = 1.0  # delay before reconnecting a lost LISTEN connection
ECHO_S = 5.0  # our own notification must echo within this time
ECHO_EVERY_S = 30.0
DEAF_FIX = "name PostgreSQL itself as the database rather than a pooler, if 0.2 s are too long"
SESSION = {
    "application_name": "heliograph",
    "idle_in_transaction_session_timeout": "30000",  # a stuck process must not lock an account row forever
    "synchronous_commit": "on",
    "jit": "off",  # short statements: compiling costs more than running
    # Cached plans live until the next ANALYZE: a plan made for an empty table must not scan a table that has grown.
    **dict.fromkeys(("enable_seqscan", "enable_hashjoin", "enable_mergejoin"), "off"),
    "random_page_cost": "1.1",  # otherwise a scan over all teams is preferred to an index lookup
}
RETRIES = (
    Conflict,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.InvalidCachedStatementError,  # another process has migrated the schema
)
# SQLSTATE classes of outages, not caused by the statement: connection, transaction (read-only after a failover),
# prepared statements, authorisation, no such database, rollback, resources, prerequisites, operators, system, internal.
AWAY = ("08", "25", "26", "28", "3D", "40", "53", "55", "57", "58", "F0", "XX")
# Lets the kernel detect a vanished peer, even on an idle connection.
KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 10_000}


def is_outage(error: Exception) -> bool:
    """Return whether an error means that the server is unavailable, and not that the statement is wrong."""
    if isinstance(error, asyncpg.InFailedSQLTransactionError):  # a statement was run after an error
        return False
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "XX")[:2] in AWAY
    return not isinstance(error, ValueError)  # a parameter of the wrong type


@contextmanager
def outages() -> Iterator[None]:
    """Raise a driver error as StoreUnavailable if it is an outage.

    Never wrap a transaction function in this context: it raises its own errors.
    """
    try:
        yield
    except (*RETRIES, StoreUnavailable):
        raise
    except Exception as error:
        if not is_outage(error):
            raise
        raise StoreUnavailable(f"PostgreSQL: {reason_of(error)}") from error


def host_urls(url: str) -> list[str]:
    """Return one URL for each host that the URL names."""
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    if "," not in hosts:
        return [url]
    return [urlunsplit(parts._replace(netloc=user + at + host)) for host in hosts.split(",")]


class Hosts:
    """The hosts of a database URL; the host that last accepted a connection is tried first.

    With several hosts, only a writable host is used unless the URL sets `target_session_attrs`.
    """

    def __init__(self, url: str, connect_s: float | None = None) -> None:
        self.connect_s = connect_s or CONNECT_S
        self._urls = host_urls(url)
        is_said = len(self._urls) == 1 or "target_session_attrs" in parse_qs(urlsplit(url).query)
        self._wanted = {} if is_said else {"target_session_attrs": "read-write"}

    async def connect(self, **options: Any) -> Any:
        """Connect to the first host that accepts; a silent host delays the next host by STAGGER_S."""
        options |= self._wanted | {"timeout": self.connect_s}
        if len(self._urls) == 1:
            connection: Any = await asyncpg.connect(self._urls[0], **options)
        else:
            connection = await self._race(options)
        keep_alive(connection)
        return connection

    async def _race(self, options: dict[str, Any]) -> Any:
        waiting, refusals = list(self._urls), dict.fromkeys(self._urls, "")
        asking: dict[asyncio.Task[Any], str] = {}
        try:
            while waiting or asking:
                if waiting:
                    url = waiting.pop(0)
                    asking[asyncio.create_task(asyncpg.connect(url, **options))] = url
                done, _ = await asyncio.wait(
                    asking, timeout=STAGGER_S if waiting else None, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    url, error = asking.pop(task), task.exception()
                    if error is None:
                        self._urls.sort(key=partial(ne, url))
                        return task.result()
                    if not (isinstance(error, Exception) and is_outage(error)):
                        raise error
                    refusals[url] = f"{urlsplit(url).netloc.rpartition('@')[2]}: {reason_of(error)}"
        finally:
            for task in asking:
                task.add_done_callback(_end_unused)
                task.cancel()
        raise ConnectionError("; ".join(refusals.values()))


def _end_unused(connecting: "asyncio.Task[Any]") -> None:
    if not connecting.cancelled() and not connecting.exception():
        connecting.result().terminate()


async def connect(hosts: Hosts) -> Any:
    """Open a connection without prepared statements, which poolers mix up between sessions.

    Raises StoreUnavailable.
    """
    with outages():
        return await hosts.connect(statement_cache_size=0)


async def is_pooled(connection: Any, within_s: float) -> bool:
    """Return whether a pooler may run each transaction in another session.

    Session settings must then not be changed (ADR 0031).
    """
    asked = f"SELECT 1 WHERE pg_backend_pid() = {connection.get_server_pid()}"
    return bool(await connection.execute(asked, timeout=within_s) == "SELECT 0")


class Deaf(Exception):
    """Notifications do not arrive on this connection."""


def keep_alive(connection: Any) -> None:
    found: socket.socket | None = connection._transport.get_extra_info("socket")  # asyncpg has no public accessor
    if found is None or found.family == socket.AF_UNIX:
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class PostgresTx:
    def __init__(self, connection: Any, queries: Mapping[str, Statement]) -> None:
        self.hints: dict[str, int] = {}
        self.afterwards: list[Callable[[], None]] = []
        self._fetch = connection.fetch
        self._queries = queries

    async def run(self, query: str, **params: Any) -> list[Any]:
        found = self._queries[query]
        given = bound(found, params)
        with outages():
            rows: list[Any] = await self._fetch(found.sql, *[given[name] for name in found.params])
        return rows

    async def ask(self, **queries: dict[str, Any]) -> list[list[Any]]:
        asked = {name: self._queries[name] for name, given in queries.items() if self._queries[name].has_rows(given)}
        values = list[Any]()
        for name, found in asked.items():
            given = bound(found, queries[name])
            values += [given[param] for param in found.params]
        with outages():
            rows = await self._fetch(side_by_side(tuple(asked.values())), *values)
        answers = dict(zip(asked, rows[0], strict=True))
        return [_rows(answers.get(name)) for name in queries]

    async def write(self, tables: Mapping[str, Rows]) -> None:
        if given := {query: rows for query, rows in tables.items() if rows}:
            sql = together(tuple(self._queries[query] for query in given))
            with outages():
                await self._fetch(sql, *[as_json(rows) for rows in given.values()])


def _rows(found: str | None) -> list[Any]:
    return [tuple(row.values()) for row in msgspec.json.decode(found)] if found else []


class PostgresDatabase:
    def __init__(
        self, url: str, pool_max: int = POOL_MAX, command_s: float = COMMAND_S, connect_s: float | None = None
    ) -> None:
        self._hosts = Hosts(url, connect_s)
        self._pool_max, self._command_s = pool_max, command_s
        self._queries = load_queries("postgres")
        self._pool: asyncpg.Pool[Any] | None = None
        # Slightly shorter than our own timeout: a server that is only slow cancels the statement first.
        self._session = SESSION | {"statement_timeout": str(int(command_s * 900))}
        self._pooled: bool | None = None  # None until detected
        self._reads = asyncio.Semaphore(reads_max(pool_max))
        self._probe_failed = False
        self._ear = 0  # backend PID of the LISTEN connection; marks our own notifications
        self.hints = Hints(self._tell)
        self.serialized = FairLimiter(SERIALIZED_MAX)

    async def write(self, story: Story[T]) -> T:
        metrics.under_way["write"] += 1
        try:
            return await self._retry(story, keep=True)
        finally:
            metrics.under_way["write"] -= 1

    async def read(self, story: Story[T]) -> T:
        metrics.under_way["read"] += 1
        try:
            with outages():
                async with asyncio.timeout(self._command_s):
                    await self._reads.acquire()
            try:
                return await self._retry(story, keep=False)
            finally:
                self._reads.release()
        finally:
            metrics.under_way["read"] -= 1

    async def probe(self) -> None:
        """Commit a row; after a failed probe, on a new connection.

        Pool connections may all be in use, or still wait for a server that is gone.
        """
        try:
            with outages():
                async with asyncio.timeout(PROBE_S):
                    await (self._probe_alone() if self._probe_failed else self.write(lambda tx: tx.run("probe")))
            self._probe_failed = False
        except StoreUnavailable:
            self._probe_failed = True
            raise

    async def _probe_alone(self) -> None:
        connection = await self._connect()
        try:
            await connection.fetch(self._queries["probe"].sql)
            await connection.close()
        finally:
            connection.terminate()

    async def listen(self) -> None:
        said = False
        while True:
            again_s = LISTEN_AGAIN_S
            with suppress(StoreUnavailable):  # other tasks log database outages
                connection = await connect(self._hosts)
                try:
                    await self._hear(connection)
                except Deaf:
                    if not said:
                        log.warning("cannot hear of other processes' work: looking for it", fix=DEAF_FIX)
                    again_s, said = ECHO_EVERY_S, True
                finally:
                    self.hints.hears, self._ear = False, 0
                    connection.terminate()
            await asyncio.sleep(again_s)

    async def close(self) -> None:
        self.hints.close()
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                await asyncio.wait_for(pool.close(), CLOSE_S)
            except Exception:
                pool.terminate()

    async def _hear(self, connection: Any) -> None:
        """Listen for notifications until the connection ends.

        Raises Deaf if our own notifications, sent through the pool, do not arrive.
        """
        with outages():
            pooled = await is_pooled(connection, self._hosts.connect_s)
        if pooled:
            raise Deaf
        echo, ended = asyncio.Event(), asyncio.Event()
        self._ear = connection.get_server_pid()

        def hear(_: Any, __: int, ___: str, text: str) -> None:
            ear, *kinds = text.split()
            if ear == str(self._ear):
                echo.set()
            else:
                self.hints.hear(kinds)

        connection.add_termination_listener(lambda _: ended.set())
        with outages():
            channel = await connection.fetchval(self._queries["channel"].sql)
            await connection.add_listener(channel, hear)
        while not ended.is_set():
            echo.clear()
            await self._notify("")
            try:
                await asyncio.wait_for(echo.wait(), ECHO_S)
            except TimeoutError:
                raise Deaf from None
            self.hints.hears = True
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), ECHO_EVERY_S)

    async def _tell(self, text: str) -> None:
        with suppress(StoreUnavailable, *RETRIES):
            await self._notify(text)

    async def _notify(self, text: str) -> None:
        """Send a notification outside of writing transactions.

        NOTIFY in a writing transaction would hold a database-wide lock until the commit is synced.
        """
        with outages():
            pool = self._pool or await self._make_pool()
            async with pool.acquire(timeout=self._command_s) as connection:
                await connection.fetch(self._queries["notify"].sql, f"{self._ear} {text}")

    async def _retry(self, story: Story[T], keep: bool) -> T:
        name = subject_of(getattr(story, "__qualname__", "other"))
        for left in reversed(range(TRIES)):
            try:
                return await self._transact(story, keep, name)
            except RETRIES as error:
                metrics.found_busy[name].inc()
                if not left:
                    raise Conflict(f"PostgreSQL: {reason_of(error)}") from error
        raise AssertionError("it was tried")

    async def _transact(self, story: Story[T], keep: bool, name: str) -> T:
        time = asyncio.get_running_loop().time
        with outages():
            pool = self._pool or await self._make_pool()
            connection: Any = await pool.acquire(timeout=self._command_s)
        began = time()
        try:
            transaction = connection.transaction()
            with outages():
                await transaction.start()
                if self._pooled:
                    await connection.execute("".join(f"SET LOCAL {n} = '{v}';" for n, v in self._session.items()))
            try:
                tx = PostgresTx(connection, self._queries)
                result = await story(tx)
            except Exception as error:
                if not _is_away(error):
                    with outages():
                        await transaction.rollback()
                raise
            with outages():
                await (transaction.commit() if keep else transaction.rollback())
            metrics.transacted[name].observe(time() - began)
            if keep:
                self.hints.tell(tx.hints)
                for act in tx.afterwards:
                    act()
            return result
        except StoreUnavailable as error:
            if _is_away(error):
                await self._drop(pool, connection, hangs=isinstance(error.__cause__, TimeoutError))
            raise
        except asyncio.CancelledError:
            connection.terminate()  # the server rolls back; do not wait for that in a cancelled task
            raise
        finally:
            with suppress(Exception):  # whatever happened to the connection, the transaction has ended
                await pool.release(connection, timeout=CLOSE_S)

    async def _make_pool(self) -> "asyncpg.Pool[Any]":
        self._pool = asyncpg.create_pool(
            connect=self._connect,
            min_size=0,
            max_size=self._pool_max,
            command_timeout=self._command_s,
            reset=_leave,
        )
        return await self._pool

    async def _connect(self, *_: Any, **options: Any) -> Any:
        """Open a connection for the pool; the first call detects whether a pooler is in between."""
        if self._pooled is None:
            connection = await connect(self._hosts)
            try:
                self._pooled = await is_pooled(connection, self._hosts.connect_s)
            finally:
                connection.terminate()
        if self._pooled:
            return await self._hosts.connect(statement_cache_size=0, **options)
        return await self._hosts.connect(server_settings=self._session, **options)

    async def _drop(self, pool: "asyncpg.Pool[Any]", connection: Any, hangs: bool) -> None:
        """Close a failed connection and expire the pool, so that later transactions reconnect.

        If the server does not answer (`hangs`), terminate the whole pool, so that nothing waits on its other
        connections.
        """
        with suppress(asyncpg.InterfaceError):  # the connection broke, and is already back in the pool
            connection.terminate()
        if not hangs:
            await pool.expire_connections()
        else:
            if self._pool is pool:
                self._pool = None
            pool.terminate()


def reads_max(pool_max: int) -> int:
    """Return the maximum of concurrent reads: slow reads must leave connections for writes."""
    return max(1, pool_max * 5 // 8)


def _is_away(error: BaseException) -> bool:
    return isinstance(error, StoreUnavailable) and not isinstance(error, Conflict)


async def _leave(connection: Any) -> None:
    """Reset nothing: session settings are never changed."""
