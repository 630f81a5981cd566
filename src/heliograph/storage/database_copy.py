"""Copies all rows of a database to an empty one, between SQLite and PostgreSQL in either direction.

A pass reads every table of the source in key order, in ranges of about a thousand rows, and writes the ranges whose
digest differs from the one recorded in the target. The target records the last key and the digest of each range in the
transaction that writes its rows. So the first pass writes all ranges, a pass after an interruption the remaining ones,
and a later pass only what has changed since, including deletions.

The last pass runs while the source is locked against writes. Then the rows of the target are read and compared with the
digests. Until the copy is complete, the target has a schema number that every version of Heliograph refuses.
"""

import hashlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import asyncpg
import msgspec

from heliograph.storage.attachments import split_chunks
from heliograph.storage.engine.fifo_notify import has_listener
from heliograph.storage.engine.local_files import LocalFiles
from heliograph.storage.engine.migrate import UNFINISHED_COPY, schema_files
from heliograph.storage.engine.postgres import Hosts, connect
from heliograph.storage.engine.query import Dialect, for_dialect
from heliograph.storage.engine.sqlite import listeners_folder, open_sqlite

BATCH_ROWS = 1000
BATCH_BYTES = 8 << 20
FETCH_ROWS = (16, 1000)  # rows per fetch from PostgreSQL: few at first, because a row may have several MB
FETCH_BYTES = 1 << 20
LOCK_S = 10  # maximum wait for running write transactions

# `schema_version` describes the schema, and `machine_clock` the machine; `copy_range` records the progress of the copy.
NOT_COPIED = ("schema_version", "machine_clock", "copy_range")
CREATE_RANGE_TABLE = (
    "CREATE TABLE IF NOT EXISTS copy_range "
    "(name TEXT NOT NULL, last_key TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (name, last_key))"
)
NO_DIGEST = ""  # recorded for a range that must be written again

Row = tuple[Any, ...]
Key = tuple[Any, ...]
ProgressCallback = Callable[[str, int], None]  # (name of the step or table, rows since the last call)


class CopyError(Exception):
    """The copy cannot be made; the message says why and what to do."""


class UniqueConflict(Exception):
    """A new row has the same unique value as an outdated row that is still in the target."""


class Table(NamedTuple):
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]  # primary key; a table without one is copied as a single range
    text_columns: frozenset[str]
    condition: str = ""  # SQL condition of the rows to copy; empty: all rows

    def key_of(self, row: Row) -> Key:
        return tuple(row[self.columns.index(column)] for column in self.key)

    def order(self, dialect: Dialect) -> str:
        """Return the key columns to sort rows by; texts are compared by bytes, so that both databases sort alike."""
        is_collated = dialect == "postgres"
        return ", ".join(f'{c} COLLATE "C"' if is_collated and c in self.text_columns else c for c in self.key)

    def select(self, dialect: Dialect) -> str:
        where = f" WHERE {self.condition}" if self.condition else ""
        order = f" ORDER BY {self.order(dialect)}" if self.key else ""
        return f"SELECT {', '.join(self.columns)} FROM {self.name}{where}{order}"

    def where_between(self, dialect: Dialect, after: Key, last: Key) -> str:
        """Return the condition of a range's rows, with placeholders for its bounds; an empty bound means no limit."""
        conditions, number = [self.condition] if self.condition else [], 0
        for operator, bound in ((">", after), ("<=", last)):
            if bound:
                values = ", ".join(f"${number + i}" if dialect == "postgres" else "?" for i, _ in enumerate(bound, 1))
                conditions.append(f"({self.order(dialect)}) {operator} ({values})")
                number += len(bound)
        return " AND ".join(conditions) or "1 = 1"

    def digest(self, rows: Sequence[Row]) -> str:
        encoded_rows = [msgspec.msgpack.encode(row) for row in rows]
        return hashlib.blake2b(b"".join(encoded_rows if self.key else sorted(encoded_rows)), digest_size=16).hexdigest()


class Range(NamedTuple):
    """The rows of a table after the previous range, up to and including `last_key`."""

    last_key: Key
    digest: str


class SqliteConnection:
    """A connection to the source or the target of a copy."""

    def __init__(self, path: Path) -> None:
        self._connection = open_sqlite(path)
        self._listeners_folder = listeners_folder(path)

    async def lock(self) -> None:
        """Lock the database against writes of other connections; all reads from now on see the same snapshot."""
        self._connection.execute("BEGIN IMMEDIATE")

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[None]:
        """Let all reads in this context see the same snapshot."""
        is_locked = self._connection.in_transaction
        if not is_locked:
            self._connection.execute("BEGIN")
        try:
            yield
        finally:
            if not is_locked:
                self._connection.execute("ROLLBACK")

    async def tables(self) -> list[Table]:
        return _sqlite_tables(self._connection)

    async def rows(self, table: Table) -> AsyncGenerator[Row, None]:
        """Yield all rows of a table in key order."""
        for row in self._connection.execute(table.select("sqlite")):
            yield row

    async def range_rows(self, table: Table, after: Key, last: Key) -> list[Row]:
        """Return the rows of a range in key order; with an empty `last`, up to the end of the table."""
        bounded = table._replace(condition=table.where_between("sqlite", after, last))
        return await self.fetch(bounded.select("sqlite"), *after, *last)

    async def fetch(self, sql: str, *params: Any) -> list[Row]:
        return self._connection.execute(sql, params).fetchall()

    async def write_range(self, table: Table, after: Key | None, range_: Range, rows: Sequence[Row]) -> None:
        """Write the rows of a range and record the range in the same transaction; raises UniqueConflict.

        Rows of the target between `after` (the last key of the previous range) and the end of this range are replaced.
        `after` is None if the target cannot have such rows.
        """
        columns = ", ".join(table.columns)
        try:
            with self._connection:
                if after is not None:
                    where = table.where_between("sqlite", after, range_.last_key)
                    self._connection.execute(f"DELETE FROM {table.name} WHERE {where}", (*after, *range_.last_key))
                self._connection.executemany(
                    f"INSERT INTO {table.name} ({columns}) VALUES ({', '.join('?' * len(table.columns))})", rows
                )
                self._connection.execute(
                    "INSERT OR REPLACE INTO copy_range VALUES (?, ?, ?)",
                    (table.name, _encode(range_.last_key), range_.digest),
                )
        except apsw.ConstraintError as error:
            raise UniqueConflict(str(error)) from error

    async def run(self, *statements: str) -> None:
        """Run statements in one transaction."""
        with self._connection:
            for statement in statements:
                self._connection.execute(statement)

    async def prepare_ranges(self, tables: Sequence[Table]) -> None:
        """Create the indexes that range queries need: none, because primary keys have the order of ranges."""

    async def is_in_use(self) -> bool:
        """Return whether a service is connected to the database."""
        return has_listener(self._listeners_folder)

    async def last_message_key(self) -> int:
        """Return the greatest message key assigned so far, including keys of deleted messages."""
        keys = "SELECT max(key) AS key FROM message UNION ALL SELECT next FROM counter WHERE name = 'message'"
        return int(self._connection.execute(f"SELECT coalesce(max(key), 0) FROM ({keys})").get)

    async def advance_keys(self, last_message_key: int) -> None:
        """Advance the key sequences, so that new rows get keys after the copied ones."""
        await self.run(
            f"INSERT INTO counter VALUES ('message', {last_message_key}) "
            "ON CONFLICT (name) DO UPDATE SET next = max(next, excluded.next)"
        )

    async def close(self) -> None:
        self._connection.close()


class PostgresConnection:
    """Has the same methods as SqliteConnection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._is_locked = False

    @classmethod
    async def open(cls, url: str) -> "PostgresConnection":
        return cls(await connect(Hosts(url)))

    async def lock(self) -> None:
        await self._begin()
        await self._connection.execute(f"SET LOCAL lock_timeout = '{LOCK_S}s'")
        names = ", ".join(table.name for table in _expected_tables())
        await self._connection.execute(f"LOCK TABLE {names} IN SHARE MODE")
        self._is_locked = True

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[None]:
        if self._is_locked:
            yield
            return
        transaction = await self._begin()
        try:
            yield
        finally:
            await transaction.rollback()

    async def _begin(self) -> Any:
        transaction = self._connection.transaction(isolation="repeatable_read")
        await transaction.start()
        await self._connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        return transaction

    async def tables(self) -> list[Table]:
        columns = await self.fetch(
            "SELECT table_name::text, column_name::text FROM information_schema.columns "
            "WHERE table_schema = current_schema()"
        )
        existing = set(columns)
        return [table for table in _expected_tables() if {(table.name, column) for column in table.columns} <= existing]

    async def rows(self, table: Table) -> AsyncGenerator[Row, None]:
        least, most = count, _ = FETCH_ROWS
        async with self._connection.transaction():
            cursor = await self._connection.cursor(table.select("postgres"))
            while rows := [tuple(row) for row in await cursor.fetch(count)]:
                for row in rows:
                    yield row
                count = min(most, 2 * count) if sum(map(_size, rows)) < FETCH_BYTES else least

    async def range_rows(self, table: Table, after: Key, last: Key) -> list[Row]:
        bounded = table._replace(condition=table.where_between("postgres", after, last))
        async with self._connection.transaction():
            await self._connection.execute("SET LOCAL enable_seqscan = off")
            return await self.fetch(bounded.select("postgres"), *after, *last)

    async def fetch(self, sql: str, *params: Any) -> list[Row]:
        return [tuple(row) for row in await self._connection.fetch(sql, *params)]

    async def write_range(self, table: Table, after: Key | None, range_: Range, rows: Sequence[Row]) -> None:
        try:
            async with self._connection.transaction():
                if after is not None:
                    await self._connection.execute("SET LOCAL enable_seqscan = off")
                    where = table.where_between("postgres", after, range_.last_key)
                    await self._connection.execute(f"DELETE FROM {table.name} WHERE {where}", *after, *range_.last_key)
                await self._connection.copy_records_to_table(table.name, records=rows, columns=table.columns)
                await self._connection.execute(
                    "INSERT INTO copy_range VALUES ($1, $2, $3) "
                    "ON CONFLICT (name, last_key) DO UPDATE SET digest = excluded.digest",
                    table.name,
                    _encode(range_.last_key),
                    range_.digest,
                )
        except asyncpg.UniqueViolationError as error:
            raise UniqueConflict(str(error)) from error

    async def run(self, *statements: str) -> None:
        async with self._connection.transaction():
            for statement in statements:
                await self._connection.execute(statement)

    async def prepare_ranges(self, tables: Sequence[Table]) -> None:
        """Create indexes that order texts by their bytes, because primary keys use the collation of the database."""
        await self.run(
            *(
                f"CREATE INDEX IF NOT EXISTS {_range_index(table)} ON {table.name} ({table.order('postgres')})"
                for table in tables
                if table.text_columns.intersection(table.key)
            )
        )

    async def is_in_use(self) -> bool:
        sql = (
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'heliograph' "
            "AND pid <> pg_backend_pid()"
        )
        return bool(await self.fetch(sql))

    async def last_message_key(self) -> int:
        return int((await self.fetch("SELECT last_value FROM message_key_seq"))[0][0])

    async def advance_keys(self, last_message_key: int) -> None:
        identities = await self.fetch(
            "SELECT table_name::text, column_name::text FROM information_schema.columns "
            "WHERE table_schema = current_schema() AND is_identity = 'YES'"
        )
        for table, column in identities:
            ((newest,),) = await self.fetch(f"SELECT coalesce(max({column}), 1) FROM {table}")
            last = max(newest, last_message_key if table == "message" else 1)
            # The query names no table, because Citus would then advance the sequence on a worker.
            await self.fetch("SELECT setval(pg_get_serial_sequence($1, $2), $3)", table, column, last)

    async def write_file(self, hash_: str, content: bytes, now: int) -> None:
        """Write an attachment file in one transaction."""
        chunks = [(hash_, part, chunk) for part, chunk in enumerate(split_chunks(content))]
        async with self._connection.transaction():
            for table, records in (("blob_file", [(hash_, len(content), now, None)]), ("blob_chunk", chunks)):
                await self._connection.copy_records_to_table(table, records=records)

    async def close(self) -> None:
        self._connection.terminate()


CopyConnection = SqliteConnection | PostgresConnection


async def is_unfinished(connection: CopyConnection) -> bool:
    """Return whether the database is the target of an unfinished copy."""
    sql = f"SELECT 1 FROM schema_version WHERE version = {UNFINISHED_COPY}"
    return bool(await connection.tables() and await connection.fetch(sql))


class DatabaseCopy:
    def __init__(self, source: CopyConnection, target: CopyConnection, report: ProgressCallback) -> None:
        self._source = source
        self._target = target
        self._report = report
        self._compared = set[tuple[str, Key]]()  # (table, last key) of ranges that were compared with the target

    async def prepare(self) -> list[Table]:
        """Check that the target is empty or an unfinished copy, and return the tables to copy. Raises CopyError.

        Source and target must have the schema of this version.
        """
        tables = await self._source.tables()
        if type(self._source) is not type(self._target):
            tables = [_without_database_files(table) for table in tables]  # copy_files copies these files
        if not await is_unfinished(self._target):
            await self._empty_target()
        await self._target.prepare_ranges(tables)
        return tables

    async def lock(self) -> None:
        """Lock the source against writes. Raises CopyError if a service uses it."""
        if await self._source.is_in_use():
            raise CopyError("a service uses the source. Stop it first, or copy with --live.")
        await self._source.lock()

    async def _empty_target(self) -> None:
        """Delete the initial rows of a new schema from the target. Raises CopyError if the target has other rows."""
        initial = _initial_rows()
        for table in await self._target.tables():
            rows = await self._target.fetch(
                f"SELECT {', '.join(table.columns)} FROM {table.name} LIMIT {len(initial[table.name]) + 1}"
            )
            if sorted(rows) != sorted(initial[table.name]):
                raise CopyError(f"the target is not empty: its table {table.name} has rows. Use a new database.")
        await self._target.run(
            *(f"DELETE FROM {name}" for name, rows in initial.items() if rows),
            CREATE_RANGE_TABLE,
            f"INSERT INTO schema_version VALUES ({UNFINISHED_COPY})",
        )

    async def count(self, tables: Sequence[Table]) -> int:
        """Return the number of rows of the source."""
        counts = [
            await self._source.fetch(f"SELECT count(*) FROM {table.name} WHERE {table.condition or '1 = 1'}")
            for table in tables
        ]
        return sum(rows[0][0] for rows in counts)

    async def synchronize(self, tables: Sequence[Table]) -> int:
        """Make one pass: write the ranges that differ in the target, and return the number of rows written."""
        written = 0
        for table in tables:
            async with self._source.snapshot():
                row_count, has_conflict = await self._synchronize_table(table)
                written += row_count
                if has_conflict:  # all other ranges are up to date now, so no outdated row conflicts any more
                    row_count, _ = await self._synchronize_table(table)
                    written += row_count
        return written

    async def _synchronize_table(self, table: Table) -> tuple[int, bool]:
        """Return the number of rows written, and whether ranges were skipped because of a UniqueConflict."""
        known_ranges, previous_key = deque(await self._ranges(table)), Key()
        rows, size, written, has_conflict = list[Row](), 0, 0, False

        async def end_range(known_range: Range | None, *, is_new: bool = False) -> None:
            nonlocal previous_key, size, written, has_conflict
            last_key = known_range.last_key if known_range else table.key_of(rows[-1])
            range_ = Range(last_key, table.digest(rows))
            if range_ != known_range:
                after = None if is_new else previous_key
                self._compared.discard((table.name, last_key))
                try:
                    await self._target.write_range(table, after, range_, rows)
                    written += len(rows)
                except UniqueConflict:
                    await self._target.write_range(table, after, range_._replace(digest=NO_DIGEST), [])
                    has_conflict = True
            self._report(table.name, len(rows))
            previous_key, size = last_key, 0
            rows.clear()

        async with aclosing(self._source.rows(table)) as source_rows:
            async for row in source_rows:
                if table.key:
                    key = table.key_of(row)
                    while known_ranges and key > known_ranges[0].last_key:
                        await end_range(known_ranges.popleft())
                    growth = 2 if known_ranges else 1  # a known range is split when it has grown to twice a batch
                    if len(rows) >= growth * BATCH_ROWS or size > growth * BATCH_BYTES:
                        await end_range(None, is_new=not known_ranges)
                rows.append(row)
                size += _size(row)
        while known_ranges:
            await end_range(known_ranges.popleft())
        if rows:
            await end_range(None, is_new=True)
        return written, has_conflict

    async def _ranges(self, table: Table) -> list[Range]:
        """Return the ranges recorded in the target, in key order."""
        rows = await self._target.fetch(f"SELECT last_key, digest FROM copy_range WHERE name = '{table.name}'")
        return sorted(Range(tuple(msgspec.json.decode(key)), digest) for key, digest in rows)

    async def find_differences(self, tables: Sequence[Table]) -> list[str]:
        """Compare the ranges written since the last comparison with their digests; return the tables that differ."""
        return [table.name for table in tables if not await self._matches_digests(table)]

    async def _matches_digests(self, table: Table) -> bool:
        after = Key()
        for range_ in await self._ranges(table):
            if (table.name, range_.last_key) not in self._compared:
                rows = await self._target.range_rows(table, after, range_.last_key)
                if table.digest(rows) != range_.digest:
                    return False
                self._compared.add((table.name, range_.last_key))
                self._report(f"comparing {table.name}", len(rows))
            after = range_.last_key
        return not table.key or not await self._target.range_rows(table, after, ())

    async def copy_files(self, folder: LocalFiles, now: int) -> None:
        """Copy attachment files between PostgreSQL and the data folder of SQLite, but not files in an object store.

        Raises CopyError if files are missing.
        """
        rows = await self._source.fetch(
            "SELECT f.hash FROM (SELECT hash FROM blob UNION SELECT raw FROM received WHERE raw IS NOT NULL) f "
            "WHERE NOT EXISTS (SELECT 1 FROM blob_file b WHERE b.hash = f.hash AND b.name IS NOT NULL)"
        )
        hashes, missing = [hash_ for (hash_,) in rows], list[str]()
        if isinstance(self._source, SqliteConnection) and isinstance(self._target, PostgresConnection):
            for hash_ in hashes:
                if await self._target.fetch("SELECT 1 FROM blob_file WHERE hash = $1", hash_):
                    continue
                if folder.size(hash_):
                    await self._target.write_file(hash_, folder.get(hash_), now)
                else:
                    missing.append(hash_)
        elif isinstance(self._source, PostgresConnection) and isinstance(self._target, SqliteConnection):
            for hash_ in hashes:
                chunks = await self._source.fetch("SELECT content FROM blob_chunk WHERE hash = $1 ORDER BY part", hash_)
                if chunks:
                    folder.put(b"".join(content for (content,) in chunks))
                elif not folder.size(hash_):
                    missing.append(hash_)
        if missing:
            raise CopyError(
                f"{len(missing)} of {len(hashes)} attachment files of the source are missing, such as {missing[0]}. "
                "Name the data folder of its service with --data."
            )

    async def finish(self, reason: str, identity: int) -> None:
        """Complete the copy, so that a service can use the target, with delivery paused for `reason`.

        `identity`: new id of the target, so that rollback detection does not take the target for the source.
        """
        await self._target.advance_keys(await self._source.last_message_key())
        rows = await self._target.fetch("SELECT body FROM setting WHERE kind = 'platform' AND id = 'platform'")
        platform = msgspec.json.decode(rows[0][0] or "{}") if rows else {}
        body = msgspec.json.encode(platform | {"paused": True, "paused_reason": reason}).decode().replace("'", "''")
        await self._target.run(
            "UPDATE counter SET next = next + 1 WHERE name = 'setting'",
            "INSERT INTO setting (kind, id, body, version) "
            f"SELECT 'platform', 'platform', '{body}', next FROM counter WHERE name = 'setting' "
            "ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body, version = excluded.version",
            f"UPDATE counter SET next = {identity} WHERE name = 'identity'",
            "DROP TABLE copy_range",
            *(f"DROP INDEX IF EXISTS {_range_index(table)}" for table in _expected_tables()),
            f"DELETE FROM schema_version WHERE version = {UNFINISHED_COPY}",
        )


def _without_database_files(table: Table) -> Table:
    """Return the table without the rows of attachment files stored in the database, which `copy_files` copies."""
    if table.name == "blob_file":
        return table._replace(condition="name IS NOT NULL")
    return table._replace(condition="1 = 0") if table.name == "blob_chunk" else table


def _sqlite_tables(connection: apsw.Connection) -> list[Table]:
    tables = []
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"):
        if name in NOT_COPIED or name.startswith("sqlite_"):
            continue
        columns: list[Any] = connection.execute(f"PRAGMA table_info({name})").fetchall()
        key = sorted((position, column) for _, column, _, _, _, position in columns if position)
        texts = frozenset(column for _, column, type_, *_ in columns if type_ == "TEXT")
        tables.append(Table(name, tuple(column[1] for column in columns), tuple(column for _, column in key), texts))
    return tables


def _new_database() -> apsw.Connection:
    """Return an empty database with the schema of this version."""
    connection = apsw.Connection(":memory:")
    for _, sql in schema_files():
        connection.execute(for_dialect(sql, "sqlite"))
    return connection


def _expected_tables() -> list[Table]:
    return _sqlite_tables(_new_database())


def _initial_rows() -> dict[str, list[Row]]:
    """Return the rows that the schema itself contains, by table."""
    connection = _new_database()
    return {table.name: connection.execute(table.select("sqlite")).fetchall() for table in _sqlite_tables(connection)}


def _range_index(table: Table) -> str:
    return f"copy_{table.name}"


def _size(row: Row) -> int:
    return sum(len(value) for value in row if isinstance(value, str | bytes))


def _encode(key: Key) -> str:
    return msgspec.json.encode(key).decode()
