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
from heliograph.runtime.async_wait import wait_event
from heliograph.runtime.fair_limiter import FairLimiter
from heliograph.storage.engine.citus import is_citus
from heliograph.storage.engine.database import (
    CONCURRENT_SERIALIZED_MAX,
    Conflict,
    Rows,
    StoreUnavailable,
    T,
    TxFunction,
    error_text,
    metrics_label,
)
from heliograph.storage.engine.query import (
    Statement,
    as_json,
    combine_queries,
    combine_writes,
    encode_row_tables,
    load_queries,
    with_literals,
)
from heliograph.storage.engine.wakeups import Wakeups

log = structlog.get_logger()

POOL_MAX = 8
CONNECT_S = 3.0
COMMAND_S = 10.0  # timeout of one statement, and of waiting for a free connection
CLOSE_S = 3.0
PROBE_S = 1.0  # timeout of committing one row on an open connection
PROBE_RETRY_S = 0.5  # delay before committing on one more new connection in parallel
NEXT_HOST_S = 0.25  # delay before connecting to the next host in parallel
ATTEMPTS = 3
LISTEN_RETRY_S = 1.0  # delay before reconnecting a lost LISTEN connection
ECHO_S = 5.0  # our own notification must echo within this time
ECHO_INTERVAL_S = 30.0
LISTEN_FIX = "connect to PostgreSQL directly instead of through a pooler, if a delay of 0.2 s is too long"
PLANNER_SETTINGS = {
    "jit": "off",  # short statements: compiling costs more than running
    # Cached plans live until the next ANALYZE: a plan made for an empty table must not scan a table that has grown.
    **dict.fromkeys(("enable_seqscan", "enable_hashjoin", "enable_mergejoin"), "off"),
    "random_page_cost": "1.1",  # otherwise a scan over all teams is preferred to an index lookup
}
SESSION_SETTINGS = PLANNER_SETTINGS | {
    "application_name": "heliograph",
    "idle_in_transaction_session_timeout": "30000",  # a stuck process must not lock an account row forever
    "synchronous_commit": "on",
}
# The first setting sends the planner settings to the worker; `with_literals` relies on the second one.
CITUS_SETTINGS = {"citus.propagate_set_commands": "local", "standard_conforming_strings": "on"}
RETRIED_ERRORS = (
    Conflict,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.InvalidCachedStatementError,  # another process has migrated the schema
)
# SQLSTATE classes of outages, not caused by the statement: connection, transaction (read-only after a failover),
# prepared statements, authorisation, no such database, rollback, resources, prerequisites, operators, system, internal.
OUTAGE_CLASSES = ("08", "25", "26", "28", "3D", "40", "53", "55", "57", "58", "F0", "XX")
# Lets the kernel detect a vanished peer, even on an idle connection.
KEEPALIVE_OPTIONS = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 10_000}


def is_outage(error: Exception) -> bool:
    """Return whether an error means that the server is unavailable, and not that the statement is wrong."""
    if isinstance(error, asyncpg.InFailedSQLTransactionError):  # a statement was run after an error
        return False
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "XX")[:2] in OUTAGE_CLASSES
    return not isinstance(error, ValueError)  # ValueError: a parameter has the wrong type


@contextmanager
def raise_outages() -> Iterator[None]:
    """Raise StoreUnavailable for a driver error that is an outage.

    Do not call a transaction function in this context: its own errors would be taken for outages.
    """
    try:
        yield
    except (*RETRIED_ERRORS, StoreUnavailable):
        raise
    except Exception as error:
        if not is_outage(error):
            raise
        raise StoreUnavailable(f"PostgreSQL: {error_text(error)}") from error


def host_urls(url: str) -> list[str]:
    """Return a URL with a single host for each host in the URL."""
    parts = urlsplit(url)
    user, separator, hosts = parts.netloc.rpartition("@")
    if "," not in hosts:
        return [url]
    return [urlunsplit(parts._replace(netloc=user + separator + host)) for host in hosts.split(",")]


class Hosts:
    """The hosts of a database URL; the host that last accepted a connection is tried first.

    If the URL names several hosts, only those with `session_attrs` are used, by default a writable one, unless the URL
    sets `target_session_attrs`.
    """

    def __init__(self, url: str, connect_s: float | None = None, session_attrs: str = "read-write") -> None:
        self.connect_s = connect_s or CONNECT_S
        self._urls = host_urls(url)
        is_explicit = len(self._urls) == 1 or "target_session_attrs" in parse_qs(urlsplit(url).query)
        self._session_attrs = {} if is_explicit else {"target_session_attrs": session_attrs}

    async def connect(self, **options: Any) -> Any:
        """Connect to the first host that accepts; if a host does not respond within NEXT_HOST_S, also try the next."""
        options |= self._session_attrs | {"timeout": self.connect_s}
        if len(self._urls) == 1:
            connection: Any = await asyncpg.connect(self._urls[0], **options)
        else:
            connection = await self._connect_to_any(options)
        keep_alive(connection)
        return connection

    async def _connect_to_any(self, options: dict[str, Any]) -> Any:
        untried_urls, error_by_url = list(self._urls), dict.fromkeys(self._urls, "")
        url_by_task: dict[asyncio.Task[Any], str] = {}
        try:
            while untried_urls or url_by_task:
                if untried_urls:
                    url = untried_urls.pop(0)
                    url_by_task[asyncio.create_task(asyncpg.connect(url, **options))] = url
                done, _ = await asyncio.wait(
                    url_by_task, timeout=NEXT_HOST_S if untried_urls else None, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    url, error = url_by_task.pop(task), task.exception()
                    if error is None:
                        self._urls.sort(key=partial(ne, url))
                        return task.result()
                    if not (isinstance(error, Exception) and is_outage(error)):
                        raise error
                    error_by_url[url] = f"{urlsplit(url).netloc.rpartition('@')[2]}: {error_text(error)}"
        finally:
            for task in url_by_task:
                task.add_done_callback(_close_unused)
                task.cancel()
        raise ConnectionError("; ".join(error_by_url.values()))


def _close_unused(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled() and not task.exception():
        task.result().terminate()


async def connect(hosts: Hosts) -> Any:
    """Open a connection without prepared statements, which poolers mix up between sessions.

    Raises StoreUnavailable if no host accepts the connection.
    """
    with raise_outages():
        return await hosts.connect(statement_cache_size=0)


async def is_pooled(connection: Any, within_s: float) -> bool:
    """Return whether a pooler may run each transaction in another session; if so, keep all settings (ADR 0031)."""
    query = f"SELECT 1 WHERE pg_backend_pid() = {connection.get_server_pid()}"
    return bool(await connection.execute(query, timeout=within_s) == "SELECT 0")


class ListenError(Exception):
    """Notifications do not arrive on this connection."""


def keep_alive(connection: Any) -> None:
    sock: socket.socket | None = connection._transport.get_extra_info("socket")  # asyncpg has no public accessor
    if sock is None or sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE_OPTIONS.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class PostgresTx:
    def __init__(self, connection: Any, queries: Mapping[str, Statement]) -> None:
        self.wakeups: dict[str, int] = {}
        self.after_commit: list[Callable[[], None]] = []
        self._fetch = connection.fetch
        self._queries = queries

    async def run(self, query: str, **params: Any) -> list[Any]:
        statement = self._queries[query]
        encoded_params = encode_row_tables(statement, params)
        with raise_outages():
            rows: list[Any] = await self._fetch(statement.sql, *[encoded_params[name] for name in statement.params])
        return rows

    async def run_many(self, **queries: dict[str, Any]) -> list[list[Any]]:
        statements = {
            name: self._queries[name] for name, encoded in queries.items() if self._queries[name].has_rows(encoded)
        }
        values = list[Any]()
        for name, statement in statements.items():
            encoded = encode_row_tables(statement, queries[name])
            values += [encoded[param] for param in statement.params]
        with raise_outages():
            rows = await self._fetch(combine_queries(tuple(statements.values())), *values)
        json_by_query = dict(zip(statements, rows[0], strict=True))
        return [_decode_rows(json_by_query.get(name)) for name in queries]

    async def write_many(self, tables: Mapping[str, Rows]) -> None:
        if nonempty_tables := {query: rows for query, rows in tables.items() if rows}:
            sql = combine_writes(tuple(self._queries[query] for query in nonempty_tables))
            with raise_outages():
                await self._fetch(sql, *[as_json(rows) for rows in nonempty_tables.values()])


class CitusTx(PostgresTx):
    """A transaction through the coordinator of Citus, in a schema whose tables are on a worker (ADR 0046)."""

    async def run(self, query: str, **params: Any) -> list[Any]:
        statement = self._queries[query]
        sql, values = with_literals(statement, encode_row_tables(statement, params))
        with raise_outages():
            rows: list[Any] = await self._fetch(sql, *values)
        return rows

    async def run_many(self, **queries: dict[str, Any]) -> list[list[Any]]:
        """Run the queries that read a sequence one by one, then all others in one round trip.

        In a query that also reads tables, Citus would use the sequence on the worker, which has other numbers.
        """
        sequence_rows = {
            name: await self.run(name, **params) for name, params in queries.items() if self._queries[name].is_sequence
        }
        others = {name: params for name, params in queries.items() if name not in sequence_rows}
        rows_by_query = dict(zip(others, await super().run_many(**others), strict=True)) | sequence_rows
        return [rows_by_query[name] for name in queries]


def _decode_rows(json_rows: str | None) -> list[Any]:
    return [tuple(row.values()) for row in msgspec.json.decode(json_rows)] if json_rows else []


class PostgresDatabase:
    def __init__(
        self,
        url: str,
        pool_max: int = POOL_MAX,
        command_s: float = COMMAND_S,
        connect_s: float | None = None,
        *,
        session_attrs: str = "read-write",
    ) -> None:
        self._hosts = Hosts(url, connect_s, session_attrs)
        self._pool_max, self._command_s = pool_max, command_s
        self._queries = load_queries("postgres")
        self._pool: asyncpg.Pool[Any] | None = None
        # Slightly shorter than our own timeout: a server that is only slow cancels the statement first.
        self._session = SESSION_SETTINGS | {"statement_timeout": str(int(command_s * 900))}
        self._is_pooled: bool | None = None  # None until detected
        self._make_tx = PostgresTx
        self._local_settings = ""  # SQL that begins each transaction, where session settings do not apply
        self._reads = asyncio.Semaphore(reads_max(pool_max))
        self._probe_failed = False
        self._listener_pid = 0  # backend PID of the LISTEN connection; marks our own notifications
        self.wakeups = Wakeups(self._send_wakeup)
        self.serialized = FairLimiter(CONCURRENT_SERIALIZED_MAX)

    async def write(self, function: TxFunction[T]) -> T:
        metrics.open_transactions["write"] += 1
        try:
            return await self._retry(function, commit=True)
        finally:
            metrics.open_transactions["write"] -= 1

    async def read(self, function: TxFunction[T]) -> T:
        metrics.open_transactions["read"] += 1
        try:
            with raise_outages():
                async with asyncio.timeout(self._command_s):
                    await self._reads.acquire()
            try:
                return await self._retry(function, commit=False)
            finally:
                self._reads.release()
        finally:
            metrics.open_transactions["read"] -= 1

    async def read_standby(self, function: TxFunction[T]) -> T:
        return await self.read(function)

    async def probe(self) -> None:
        """Commit a row, on a new connection if the previous probe failed.

        The pool's connections may then all be in use, or still wait for a server that is gone.
        """
        try:
            with raise_outages():
                if self._probe_failed:
                    async with asyncio.timeout(self._hosts.connect_s + PROBE_S):
                        await self._probe_on_new_connections()
                else:
                    async with asyncio.timeout(PROBE_S):
                        await self.write(lambda tx: tx.run("probe"))
            self._probe_failed = False
        except StoreUnavailable:
            self._probe_failed = True
            raise

    async def _probe_on_new_connections(self) -> None:
        """Commit a row on a new connection, and on one more every PROBE_RETRY_S until one attempt ends.

        So an attempt that is slow on a busy machine is not aborted, and an attempt that waits for a hanging host does
        not delay the next one.
        """
        attempts = set[asyncio.Task[None]]()
        try:
            ended = set[asyncio.Task[None]]()
            while not ended:
                attempts.add(asyncio.create_task(self._probe_on_new_connection()))
                ended, _ = await asyncio.wait(attempts, timeout=PROBE_RETRY_S, return_when=asyncio.FIRST_COMPLETED)
            if all(attempt.exception() for attempt in ended):
                ended.pop().result()
        finally:
            for attempt in attempts:
                attempt.cancel()

    async def _probe_on_new_connection(self) -> None:
        connection = await self._connect()
        try:
            await connection.fetch(self._queries["probe"].sql)
            await connection.close()
        finally:
            connection.terminate()

    async def listen(self) -> None:
        was_logged = False
        while True:
            retry_s = LISTEN_RETRY_S
            with suppress(StoreUnavailable):  # other tasks log database outages
                connection = await connect(self._hosts)
                try:
                    await self._receive_wakeups(connection)
                except ListenError:
                    if not was_logged:
                        log.warning("no wakeups from other processes: polling instead", fix=LISTEN_FIX)
                    retry_s, was_logged = ECHO_INTERVAL_S, True
                finally:
                    self.wakeups.subscribed, self._listener_pid = False, 0
                    connection.terminate()
            await asyncio.sleep(retry_s)

    async def close(self) -> None:
        self.wakeups.close()
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                async with asyncio.timeout(CLOSE_S):
                    await pool.close()
            except Exception:
                pool.terminate()

    async def _receive_wakeups(self, connection: Any) -> None:
        """Listen for notifications until the connection ends.

        Raises ListenError if our own notifications, sent through the pool, do not arrive.
        """
        with raise_outages():
            is_behind_pooler = await is_pooled(connection, self._hosts.connect_s)
        if is_behind_pooler:
            raise ListenError
        echo, ended = asyncio.Event(), asyncio.Event()
        self._listener_pid = connection.get_server_pid()

        def on_notification(_: Any, __: int, ___: str, text: str) -> None:
            sender_pid, *kinds = text.split()
            if sender_pid == str(self._listener_pid):
                echo.set()
            else:
                self.wakeups.receive(kinds)

        connection.add_termination_listener(lambda _: ended.set())
        with raise_outages():
            channel = await connection.fetchval(self._queries["channel"].sql)
            await connection.add_listener(channel, on_notification)
        while not ended.is_set():
            echo.clear()
            await self._notify("")
            if not await wait_event(echo, ECHO_S):
                raise ListenError
            self.wakeups.subscribed = True
            await wait_event(ended, ECHO_INTERVAL_S)

    async def _send_wakeup(self, text: str) -> None:
        with suppress(StoreUnavailable, *RETRIED_ERRORS):
            await self._notify(text)

    async def _notify(self, text: str) -> None:
        """Send a notification, not in a writing transaction, where NOTIFY would hold a global lock until the commit."""
        with raise_outages():
            pool = self._pool or await self._make_pool()
            async with pool.acquire(timeout=self._command_s) as connection:
                await connection.fetch(self._queries["notify"].sql, f"{self._listener_pid} {text}")

    async def _retry(self, function: TxFunction[T], commit: bool) -> T:
        label = metrics_label(getattr(function, "__qualname__", "other"))
        for retries_left in reversed(range(ATTEMPTS)):
            try:
                return await self._transact(function, commit, label)
            except RETRIED_ERRORS as error:
                metrics.db_busy[label].inc()
                if not retries_left:
                    raise Conflict(f"PostgreSQL: {error_text(error)}") from error
        raise AssertionError("unreachable")

    async def _transact(self, function: TxFunction[T], commit: bool, label: str) -> T:
        loop_time = asyncio.get_running_loop().time
        with raise_outages():
            pool = self._pool or await self._make_pool()
            connection: Any = await pool.acquire(timeout=self._command_s)
        started_at = loop_time()
        try:
            transaction = connection.transaction()
            with raise_outages():
                await transaction.start()
                if self._local_settings:
                    await connection.execute(self._local_settings)
            try:
                tx = self._make_tx(connection, self._queries)
                result = await function(tx)
            except Exception as error:
                if not _is_outage(error):
                    with raise_outages():
                        await transaction.rollback()
                raise
            with raise_outages():
                await (transaction.commit() if commit else transaction.rollback())
            metrics.db_transaction_s[label].observe(loop_time() - started_at)
            if commit:
                self.wakeups.notify(tx.wakeups)
                for callback in tx.after_commit:
                    callback()
            return result
        except StoreUnavailable as error:
            if _is_outage(error):
                await self._discard(pool, connection, hangs=isinstance(error.__cause__, TimeoutError))
            raise
        except asyncio.CancelledError:
            connection.terminate()  # the server rolls back; do not wait for that in a cancelled task
            raise
        finally:
            with suppress(Exception):  # the transaction has ended: errors of the connection no longer matter
                await pool.release(connection, timeout=CLOSE_S)

    async def _make_pool(self) -> "asyncpg.Pool[Any]":
        self._pool = asyncpg.create_pool(
            connect=self._connect,
            min_size=0,
            max_size=self._pool_max,
            command_timeout=self._command_s,
            reset=_reset_nothing,
        )
        return await self._pool

    async def _connect(self, *_: Any, **options: Any) -> Any:
        """Open a connection for the pool. The first call detects whether a pooler or Citus is in use."""
        if self._is_pooled is None:
            connection = await connect(self._hosts)
            try:
                settings = self._session if (pooled := await is_pooled(connection, self._hosts.connect_s)) else {}
                if await is_citus(connection):
                    self._make_tx = CitusTx
                    settings = CITUS_SETTINGS | (settings or PLANNER_SETTINGS)
                self._local_settings = "".join(f"SET LOCAL {name} = '{value}';" for name, value in settings.items())
                self._is_pooled = pooled
            finally:
                connection.terminate()
        if self._is_pooled:
            return await self._hosts.connect(statement_cache_size=0, **options)
        return await self._hosts.connect(server_settings=self._session, **options)

    async def _discard(self, pool: "asyncpg.Pool[Any]", connection: Any, hangs: bool) -> None:
        """Close a failed connection and expire the pool, so that later transactions reconnect.

        If the server does not respond (`hangs`), the whole pool is terminated, so that nothing waits on its other
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
    """Return the maximum number of concurrent reads, so that slow reads leave connections for writes."""
    return max(1, pool_max * 5 // 8)


def _is_outage(error: BaseException) -> bool:
    return isinstance(error, StoreUnavailable) and not isinstance(error, Conflict)


async def _reset_nothing(connection: Any) -> None:
    """Do nothing: session settings are never changed, so a connection needs no reset."""
