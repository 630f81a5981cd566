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
from heliograph.runtime.threads import Threads
from heliograph.storage.engine import fifo_notify
from heliograph.storage.engine.database import (
    SERIALIZED_MAX,
    Rows,
    StoreUnavailable,
    Story,
    T,
    reason_of,
    subject_of,
)
from heliograph.storage.engine.query import Statement, bound, load_queries, of_rows
from heliograph.storage.engine.wakeups import Hints

log = structlog.get_logger()

# Must run before the first connection. Memory statistics are off: they cost a lock per allocation. Each connection gets
# 1,000 lookaside slots of 512 bytes, because cached statements occupy the default number of slots.
apsw.shutdown()
apsw.config(apsw.SQLITE_CONFIG_MEMSTATUS, False)
apsw.config(apsw.SQLITE_CONFIG_LOOKASIDE, 512, 1000)
apsw.initialize()

BUSY_MS = 10_000  # maximum wait for another process's write, for example `heliograph apply`
RETRY_MS = 1  # SQLite's own busy handler sleeps up to 100 ms at a time, during which others may take the lock
BOUNDS = {"read": ("BEGIN", "ROLLBACK"), "write": ("BEGIN IMMEDIATE", "COMMIT")}
# The maximum statement cache of apsw, which keeps the last executions. A query bound row by row executes once per row,
# so accepting messages would evict the worker's statements; small rows are therefore inserted many per execution.
STATEMENTS = 512
TOGETHER = (32, 4)
# No mutex per SQLite call: only one thread uses a connection at a time.
FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_NOMUTEX
READERS = 8  # threads start on demand: a lookup must not wait for a few slow searches
# Errors that the statement did not cause (ADR 0018): the database is locked or resources are exhausted.
BUSY = (apsw.BusyError, apsw.LockedError, apsw.FullError, apsw.InterruptError, apsw.NoMemError, apsw.ProtocolError)
# The file cannot be used in its current state; reopening the file may help.
BROKEN = (
    *(apsw.IOError, apsw.CantOpenError, apsw.ReadOnlyError, apsw.CorruptError, apsw.NotADBError),
    *(apsw.PermissionsError, apsw.InternalError, apsw.SchemaChangeError),
)


class SqliteTx:
    def __init__(self, connection: apsw.Connection, queries: Mapping[str, Statement]) -> None:
        self.hints: dict[str, int] = {}
        self.afterwards: list[Callable[[], None]] = []
        self.took_s = 0.0
        self._execute = connection.execute
        self._executemany = connection.executemany
        self._queries = queries

    async def run(self, query: str, **params: Any) -> list[Any]:
        found = self._queries[query]
        if found.each:
            self._write_rows(found, params[found.tables[0]])
            return []
        return self._execute(found.sql, bound(found, params) if found.tables else params).fetchall()

    def _write_rows(self, query: Statement, rows: Rows) -> None:
        done = 0
        for size in TOGETHER if query.many else ():
            while len(rows) - done >= size:
                self._execute(of_rows(query, size), [*chain.from_iterable(rows[done : done + size])])
                done += size
        if done < len(rows):
            self._executemany(query.sql, rows[done:])

    async def ask(self, **queries: dict[str, Any]) -> list[list[Any]]:
        return [
            await self.run(query, **params) if self._queries[query].has_rows(params) else []
            for query, params in queries.items()
        ]

    async def write(self, tables: Mapping[str, Rows]) -> None:
        for query, rows in tables.items():
            if rows:
                await self.run(query, **{self._queries[query].tables[0]: rows})


class SqliteDatabase:
    def __init__(self, path: Path, *, checkpoint: bool = True) -> None:
        """Open connections lazily. Without `checkpoint`, another program must checkpoint the WAL."""
        self._path = path
        self._checkpoint = checkpoint
        self._queries = load_queries("sqlite")
        self._writer = Threads("sqlite-writer", 1)
        self._readers = Threads("sqlite-reader", READERS)
        self._local = threading.local()
        self._opened: list[apsw.Connection] = []
        self._pipes = path.with_name(f"{path.name}-hints")
        self._own_pipe = ""
        self.hints = Hints(self._tell)
        self.serialized = FairLimiter(SERIALIZED_MAX)

    def write(self, story: Story[T]) -> Coroutine[Any, Any, T]:
        return self._inside("write", story)

    def read(self, story: Story[T]) -> Coroutine[Any, Any, T]:
        return self._inside("read", story)

    async def probe(self) -> None:
        await self.write(lambda tx: tx.run("probe"))

    async def listen(self) -> None:
        try:
            with fifo_notify.listening(self._pipes, self.hints.hear) as self._own_pipe:
                self.hints.hears = True
                await asyncio.Event().wait()
        except OSError as error:
            log.warning("cannot hear of other processes' work: looking for it", error=str(error))
            await asyncio.Event().wait()
        finally:
            self.hints.hears, self._own_pipe = False, ""

    async def close(self) -> None:
        self.hints.close()
        for pool in (self._readers, self._writer):
            await asyncio.to_thread(pool.close)
        for connection in self._opened:
            connection.close()

    async def _tell(self, text: str) -> None:
        fifo_notify.tell(self._pipes, text, self._own_pipe)

    async def _inside(self, kind: Literal["read", "write"], story: Story[T]) -> T:
        pool = self._writer if kind == "write" else self._readers
        name, waits = subject_of(getattr(story, "__qualname__", "other")), list[int]()
        metrics.under_way[kind] += 1
        try:
            result: T
            result, tx = await pool.submit(self._transact, story, *BOUNDS[kind], asyncio.get_running_loop().time, waits)
        finally:
            metrics.under_way[kind] -= 1
            if waits:
                metrics.found_busy[name].inc()
        metrics.transacted[name].observe(tx.took_s)
        if kind == "write":
            self.hints.tell(tx.hints)
            for act in tx.afterwards:
                act()
        return result

    def _transact(
        self, story: Story[T], begin: str, end: str, time: Callable[[], float], waits: list[int]
    ) -> tuple[T, SqliteTx]:
        """Return the function's result and its transaction; `waits` gets an entry per wait for a lock."""
        began = time()
        try:
            connection: apsw.Connection = getattr(self._local, "connection", None) or self._open()
            self._local.waits = waits
            tx = SqliteTx(connection, self._queries)
            connection.execute(begin)
            try:
                result = drive(story, tx)
                connection.execute(end)
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            tx.took_s = time() - began
            return result, tx
        except (*BUSY, *BROKEN) as error:
            if isinstance(error, BROKEN):
                self._forget()
            raise StoreUnavailable(f"SQLite database {self._path}: {reason_of(error)}") from error

    def _open(self) -> apsw.Connection:
        """Open this thread's connection."""
        self._local.connection = connection = open_sqlite(self._path, checkpoint=self._checkpoint)
        connection.set_busy_handler(self._wait)
        self._opened.append(connection)
        return connection

    def _wait(self, tries: int) -> bool:
        self._local.waits.append(tries)
        return wait(tries)

    def _forget(self) -> None:
        """Close and discard this thread's connection."""
        if hasattr(self._local, "connection"):
            connection: apsw.Connection = self._local.connection
            del self._local.connection
            self._opened.remove(connection)
            connection.close(True)


def open_sqlite(path: Path, *, checkpoint: bool = True) -> apsw.Connection:
    """Open a connection in WAL mode with synced commits."""
    connection = apsw.Connection(str(path), flags=FLAGS, statementcachesize=STATEMENTS)
    connection.set_busy_handler(wait)
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
    """Make one consistent copy of a database in use; in WAL mode this blocks no other connection."""
    reading, writing = open_sqlite(source), apsw.Connection(str(target))
    try:
        with writing.backup("main", reading, "main") as copying:
            copying.step(-1)  # all pages in one step: otherwise every write of another process restarts the copy
    finally:
        writing.close()
        reading.close()


def _enter_wal(connection: apsw.Connection) -> None:
    """Switch to WAL mode with retries.

    If two processes switch a new file at once, one gets SQLITE_BUSY without waiting.
    """
    for tries in count():
        try:
            connection.execute("PRAGMA journal_mode=WAL").fetchall()
            return
        except apsw.BusyError:
            if not wait(tries):
                raise


def wait(tries: int) -> bool:
    """Busy handler: sleep briefly, then return whether to retry after `tries` attempts to get the lock."""
    threading.Event().wait(RETRY_MS / 1000)
    return tries < BUSY_MS // RETRY_MS


def drive(story: Story[T], tx: SqliteTx) -> T:
    """Run an async transaction function to completion in this thread: nothing it awaits ever suspends."""
    running: Coroutine[Any, Any, T] = story(tx)
    try:
        running.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    running.close()
    raise RuntimeError("a story awaited something other than its transaction")


def vacuum(path: Path) -> None:
    """Rewrite the file and truncate its WAL, so that deleted data remains in neither."""
    connection = open_sqlite(path)
    try:
        for command in ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
            connection.execute(command).fetchall()
    finally:
        connection.close()
