"""SQLite: one writer thread, separate reader threads, every commit synced (WAL, synchronous=FULL)."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal

import apsw
import structlog

from heliograph.runtime import metrics
from heliograph.runtime.fair_limiter import FairLimiter
from heliograph.runtime.threads import ThreadPool
from heliograph.storage.engine import fifo_notify
from heliograph.storage.engine.database import (
    CONCURRENT_SERIALIZED_MAX,
    Rows,
    StoreUnavailable,
    T,
    TxFunction,
    error_text,
    metrics_label,
)
from heliograph.storage.engine.query import Statement, encode_row_tables, insert_many, load_queries
from heliograph.storage.engine.wakeups import Wakeups

log = structlog.get_logger()

# Must run before the first connection. Memory statistics are off: they cost a lock per allocation. Each connection gets
# 1,000 lookaside slots of 512 bytes, because cached statements occupy the default number of slots.
apsw.shutdown()
apsw.config(apsw.SQLITE_CONFIG_MEMSTATUS, False)
apsw.config(apsw.SQLITE_CONFIG_LOOKASIDE, 512, 1000)
apsw.initialize()

BUSY_MS = 10_000  # maximum wait for another process's write, for example `heliograph apply`
RETRY_MS = 1  # SQLite's own busy handler sleeps up to 100 ms at a time, during which others may take the lock
BEGIN_AND_END_BY_KIND = {"read": ("BEGIN", "ROLLBACK"), "write": ("BEGIN IMMEDIATE", "COMMIT")}
# The maximum that apsw allows. Each execution takes its own entry of the cache, even of the same statement. With one
# execution per accepted row, inserts would evict the worker's statements, so one execution inserts 32 or 4 small rows.
STATEMENT_CACHE_SIZE = 512
ROWS_PER_INSERT = (32, 4)
# No mutex per SQLite call: only one thread uses a connection at a time.
OPEN_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_NOMUTEX
READERS = 8  # threads start on demand: a lookup must not wait for a few slow searches
# Errors of a locked database or exhausted resources: the statement itself is not at fault (ADR 0018).
BUSY_ERRORS = (
    apsw.BusyError,
    apsw.LockedError,
    apsw.FullError,
    apsw.InterruptError,
    apsw.NoMemError,
    apsw.ProtocolError,
)
# The file cannot be used in its current state; reopening the file may help.
FILE_ERRORS = (
    *(apsw.IOError, apsw.CantOpenError, apsw.ReadOnlyError, apsw.CorruptError, apsw.NotADBError),
    *(apsw.PermissionsError, apsw.InternalError, apsw.SchemaChangeError),
)


class SqliteTx:
    def __init__(self, connection: apsw.Connection, queries: Mapping[str, Statement]) -> None:
        self.wakeups: dict[str, int] = {}
        self.after_commit: list[Callable[[], None]] = []
        self.took_s = 0.0
        self._execute = connection.execute
        self._executemany = connection.executemany
        self._queries = queries

    async def run(self, query: str, **params: Any) -> list[Any]:
        statement = self._queries[query]
        if statement.columns_per_row:
            self._write_rows(statement, params[statement.row_tables[0]])
            return []
        bound = encode_row_tables(statement, params) if statement.row_tables else params
        return self._execute(statement.sql, bound).fetchall()

    def _write_rows(self, query: Statement, rows: Rows) -> None:
        done = 0
        for size in ROWS_PER_INSERT if query.is_multi_row else ():
            while len(rows) - done >= size:
                self._execute(insert_many(query, size), [*chain.from_iterable(rows[done : done + size])])
                done += size
        if done < len(rows):
            self._executemany(query.sql, rows[done:])

    async def run_many(self, **queries: dict[str, Any]) -> list[list[Any]]:
        return [
            await self.run(query, **params) if self._queries[query].has_rows(params) else []
            for query, params in queries.items()
        ]

    async def write_many(self, tables: Mapping[str, Rows]) -> None:
        for query, rows in tables.items():
            if rows:
                await self.run(query, **{self._queries[query].row_tables[0]: rows})


class SqliteDatabase:
    def __init__(self, path: Path, *, checkpoint: bool = True) -> None:
        """Prepare the database; connections are opened on first use.

        With `checkpoint=False`, another program must checkpoint the WAL.
        """
        self._path = path
        self._checkpoint = checkpoint
        self._queries = load_queries("sqlite")
        self._writer = ThreadPool("sqlite-writer", 1)
        self._readers = ThreadPool("sqlite-reader", READERS)
        self._local = threading.local()
        self._opened: list[apsw.Connection] = []
        self._listeners_folder = listeners_folder(path)
        self._own_listener = ""
        self.wakeups = Wakeups(self._send_wakeup)
        self.serialized = FairLimiter(CONCURRENT_SERIALIZED_MAX)

    def write(self, function: TxFunction[T]) -> Coroutine[Any, Any, T]:
        return self._run_in_thread("write", function)

    def read(self, function: TxFunction[T]) -> Coroutine[Any, Any, T]:
        return self._run_in_thread("read", function)

    def read_standby(self, function: TxFunction[T]) -> Coroutine[Any, Any, T]:
        return self.read(function)

    async def probe(self) -> None:
        await self.write(lambda tx: tx.run("probe"))

    async def listen(self) -> None:
        try:
            with fifo_notify.listen(self._listeners_folder, self.wakeups.receive) as self._own_listener:
                self.wakeups.subscribed = True
                await asyncio.Event().wait()
        except OSError as error:
            log.warning("no wakeups from other processes: polling instead", error=str(error))
            await asyncio.Event().wait()
        finally:
            self.wakeups.subscribed, self._own_listener = False, ""

    async def close(self) -> None:
        self.wakeups.close()
        for pool in (self._readers, self._writer):
            await asyncio.to_thread(pool.close)
        for connection in self._opened:
            connection.close()

    async def _send_wakeup(self, text: str) -> None:
        fifo_notify.notify(self._listeners_folder, text, self._own_listener)

    async def _run_in_thread(self, kind: Literal["read", "write"], function: TxFunction[T]) -> T:
        pool = self._writer if kind == "write" else self._readers
        label, lock_waits = metrics_label(getattr(function, "__qualname__", "other")), list[int]()
        metrics.open_transactions[kind] += 1
        try:
            result: T
            result, tx = await pool.submit(
                self._transact, function, *BEGIN_AND_END_BY_KIND[kind], asyncio.get_running_loop().time, lock_waits
            )
        finally:
            metrics.open_transactions[kind] -= 1
            if lock_waits:
                metrics.db_busy[label].inc()
        metrics.db_transaction_s[label].observe(tx.took_s)
        if kind == "write":
            self.wakeups.notify(tx.wakeups)
            for callback in tx.after_commit:
                callback()
        return result

    def _transact(
        self, function: TxFunction[T], begin: str, end: str, loop_time: Callable[[], float], lock_waits: list[int]
    ) -> tuple[T, SqliteTx]:
        """Return the function's result and its transaction; `lock_waits` gets an entry for each wait for a lock."""
        started_at = loop_time()
        try:
            connection: apsw.Connection = getattr(self._local, "connection", None) or self._open()
            self._local.waits = lock_waits
            tx = SqliteTx(connection, self._queries)
            connection.execute(begin)
            try:
                result = run_to_completion(function, tx)
                connection.execute(end)
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            tx.took_s = loop_time() - started_at
            return result, tx
        except (*BUSY_ERRORS, *FILE_ERRORS) as error:
            if isinstance(error, FILE_ERRORS):
                self._discard_connection()
            raise StoreUnavailable(f"SQLite database {self._path}: {error_text(error)}") from error

    def _open(self) -> apsw.Connection:
        """Open this thread's connection."""
        self._local.connection = connection = open_sqlite(self._path, checkpoint=self._checkpoint)
        connection.set_busy_handler(self._wait_for_lock)
        self._opened.append(connection)
        return connection

    def _wait_for_lock(self, attempts: int) -> bool:
        self._local.waits.append(attempts)
        return wait_for_lock(attempts)

    def _discard_connection(self) -> None:
        """Close and discard this thread's connection."""
        if hasattr(self._local, "connection"):
            connection: apsw.Connection = self._local.connection
            del self._local.connection
            self._opened.remove(connection)
            connection.close(True)


def listeners_folder(path: Path) -> Path:
    """Return the folder in which the processes of a database listen for wakeups."""
    return path.with_name(f"{path.name}-hints")


def open_sqlite(path: Path, *, checkpoint: bool = True) -> apsw.Connection:
    """Open a connection to an SQLite file in WAL mode with synced commits."""
    connection = apsw.Connection(str(path), flags=OPEN_FLAGS, statementcachesize=STATEMENT_CACHE_SIZE)
    if connection.readonly("main"):  # SQLite also opens a file that it cannot write
        connection.close()
        raise apsw.ReadOnlyError(f"{path} is not writable")
    connection.set_busy_handler(wait_for_lock)
    if connection.execute("PRAGMA auto_vacuum").get == 0:  # setting the same mode again would write
        # Takes effect in a file without pages, or from its next VACUUM on.
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL").fetchall()
    _enter_wal(connection)
    # FULL: NORMAL does not sync commits in WAL mode, so an accepted message could be lost in a power cut.
    for pragma in ("synchronous=FULL", "foreign_keys=ON", "temp_store=MEMORY"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    # Plan by the statement alone; otherwise statements with a LIMIT are planned again for every value.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    if not checkpoint:
        connection.execute("PRAGMA wal_autocheckpoint=0").fetchall()
    return connection


def copy_sqlite(source: Path, target: Path) -> None:
    """Make a consistent copy of a database that is in use; in WAL mode, this blocks no other connection."""
    source_connection, target_connection = open_sqlite(source), apsw.Connection(str(target))
    try:
        with target_connection.backup("main", source_connection, "main") as backup:
            backup.step(-1)  # all pages in one step: otherwise every write of another process restarts the copy
    finally:
        target_connection.close()
        source_connection.close()


def _enter_wal(connection: apsw.Connection) -> None:
    """Switch to WAL mode, with retries: if two processes switch a new file at once, one fails without waiting."""
    for attempts in count():
        try:
            connection.execute("PRAGMA journal_mode=WAL").fetchall()
            return
        except apsw.BusyError:
            if not wait_for_lock(attempts):
                raise


def wait_for_lock(attempts: int) -> bool:
    """Sleep briefly, then return whether SQLite should try again to get a lock after `attempts` attempts."""
    threading.Event().wait(RETRY_MS / 1000)
    return attempts < BUSY_MS // RETRY_MS


def run_to_completion(function: TxFunction[T], tx: SqliteTx) -> T:
    """Run an async transaction function to completion in this thread: nothing it awaits ever suspends."""
    coroutine: Coroutine[Any, Any, T] = function(tx)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise RuntimeError("a transaction function awaited something other than its transaction")


def vacuum(path: Path) -> None:
    """Rewrite the database file and truncate its WAL, so that neither still contains deleted data."""
    connection = open_sqlite(path)
    try:
        for command in ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
            connection.execute(command).fetchall()
    finally:
        connection.close()
