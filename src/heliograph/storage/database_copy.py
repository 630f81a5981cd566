"""Copies all rows of a database to an empty one, between SQLite and PostgreSQL in either direction.

Rows are copied table by table in the order of their keys, in batches. Each batch is committed together with its last
key, so that an interrupted copy continues there. Until the copy is complete, its target has a schema number that every
Heliograph refuses. The source is locked against writes meanwhile.
"""

import hashlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import apsw
import msgspec

from heliograph.storage.attachments import split_chunks
from heliograph.storage.engine.local_files import LocalFiles
from heliograph.storage.engine.migrate import UNFINISHED_COPY, schema_files
from heliograph.storage.engine.postgres import Hosts, connect
from heliograph.storage.engine.query import for_dialect
from heliograph.storage.engine.sqlite import open_sqlite

BATCH_ROWS = 1000
BATCH_BYTES = 8 << 20
PREFETCH_ROWS = 16  # of PostgreSQL's cursor; rows may have several MB
LOCK_S = 10  # maximum wait for the writes of others to end

# `schema_version` belongs to the schema, and `machine_clock` to the machine.
NOT_COPIED = ("schema_version", "machine_clock", "copy_progress")
PROGRESS_TABLE = "CREATE TABLE IF NOT EXISTS copy_progress (name TEXT PRIMARY KEY, last_key TEXT NOT NULL)"

Row = tuple[Any, ...]
Report = Callable[[str, int], None]  # (what is done, rows since the last call)


class CopyError(Exception):
    """The copy cannot be made; the exception's text says why and what to do."""


class Table(NamedTuple):
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]  # primary key; empty if there is none
    condition: str = ""  # rows to copy; empty: all

    def select(self, *, after: str = "") -> str:
        """Return a SELECT of the rows in key order. `after`: placeholders of the last key already read."""
        conditions = [self.condition, f"({', '.join(self.key)}) > ({after})" if after else ""]
        where = " AND ".join(filter(None, conditions))
        order = ", ".join(self.key or self.columns)
        return f"SELECT {', '.join(self.columns)} FROM {self.name} {f'WHERE {where}' if where else ''} ORDER BY {order}"


class Digest(NamedTuple):
    """Number of rows, and the sum of their hashes, which does not depend on their order."""

    rows: int
    sum: int


class CopyConnection(Protocol):
    """A connection to a database that is copied from or to."""

    async def lock(self) -> None:
        """Lock the database against writes of other connections; all later reads see the same snapshot."""

    async def tables(self) -> list[Table]: ...

    def rows(self, table: Table, after: Sequence[Any]) -> AsyncGenerator[Row, None]:
        """Yield the table's rows whose key is greater than `after`, in key order."""

    async def fetch(self, sql: str, *params: Any) -> list[Row]: ...

    async def write(self, table: Table, rows: Sequence[Row], last_key: Sequence[Any]) -> None:
        """Insert rows into the table, and record the last copied key in the same transaction."""

    async def run(self, *statements: str) -> None:
        """Run SQL statements in one transaction."""

    async def is_in_use(self) -> bool:
        """Return whether a service is connected to the database."""

    async def last_message_key(self) -> int:
        """Return the greatest message key assigned so far, including keys of deleted messages."""

    async def advance_keys(self, last_message_key: int) -> None:
        """Advance the key sequences, so that new rows get keys greater than the copied ones."""

    async def close(self) -> None: ...


class SqliteConnection:
    def __init__(self, path: Path) -> None:
        self._connection = open_sqlite(path)

    async def lock(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    async def tables(self) -> list[Table]:
        return _sqlite_tables(self._connection)

    async def rows(self, table: Table, after: Sequence[Any]) -> AsyncGenerator[Row, None]:
        for row in self._connection.execute(table.select(after=", ".join("?" * len(after))), tuple(after)):
            yield row

    async def fetch(self, sql: str, *params: Any) -> list[Row]:
        return self._connection.execute(sql, params).fetchall()

    async def write(self, table: Table, rows: Sequence[Row], last_key: Sequence[Any]) -> None:
        columns = ", ".join(table.columns)
        with self._connection:
            self._connection.executemany(
                f"INSERT INTO {table.name} ({columns}) VALUES ({', '.join('?' * len(table.columns))})", rows
            )
            self._connection.execute(
                "INSERT OR REPLACE INTO copy_progress VALUES (?, ?)", (table.name, _encode(last_key))
            )

    async def run(self, *statements: str) -> None:
        with self._connection:
            for statement in statements:
                self._connection.execute(statement)

    async def is_in_use(self) -> bool:
        return False  # its processes have slots in the data folder

    async def last_message_key(self) -> int:
        keys = "SELECT max(key) AS key FROM message UNION ALL SELECT next FROM counter WHERE name = 'message'"
        return int(self._connection.execute(f"SELECT coalesce(max(key), 0) FROM ({keys})").get)

    async def advance_keys(self, last_message_key: int) -> None:
        await self.run(
            f"INSERT INTO counter VALUES ('message', {last_message_key}) "
            "ON CONFLICT (name) DO UPDATE SET next = max(next, excluded.next)"
        )

    async def close(self) -> None:
        self._connection.close()


class PostgresConnection:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, url: str) -> "PostgresConnection":
        return cls(await connect(Hosts(url)))

    async def lock(self) -> None:
        await self._connection.transaction(isolation="repeatable_read").start()
        await self._connection.execute(f"SET LOCAL lock_timeout = '{LOCK_S}s'")
        await self._connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        names = ", ".join(table.name for table in _expected_tables())
        await self._connection.execute(f"LOCK TABLE {names} IN SHARE MODE")

    async def tables(self) -> list[Table]:
        columns = await self.fetch(
            "SELECT table_name::text, column_name::text FROM information_schema.columns "
            "WHERE table_schema = current_schema() ORDER BY table_name, column_name"
        )
        present = set(columns)
        return [table for table in _expected_tables() if {(table.name, column) for column in table.columns} <= present]

    async def rows(self, table: Table, after: Sequence[Any]) -> AsyncGenerator[Row, None]:
        sql = table.select(after=", ".join(f"${number}" for number in range(1, len(after) + 1)))
        async with self._connection.transaction():
            async for row in self._connection.cursor(sql, *after, prefetch=PREFETCH_ROWS):
                yield tuple(row)

    async def fetch(self, sql: str, *params: Any) -> list[Row]:
        return [tuple(row) for row in await self._connection.fetch(sql, *params)]

    async def write(self, table: Table, rows: Sequence[Row], last_key: Sequence[Any]) -> None:
        async with self._connection.transaction():
            await self._connection.copy_records_to_table(table.name, records=rows, columns=table.columns)
            await self._connection.execute(
                "INSERT INTO copy_progress VALUES ($1, $2) "
                "ON CONFLICT (name) DO UPDATE SET last_key = excluded.last_key",
                table.name,
                _encode(last_key),
            )

    async def run(self, *statements: str) -> None:
        async with self._connection.transaction():
            for statement in statements:
                await self._connection.execute(statement)

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
            least = max(1, last_message_key) if table == "message" else 1
            await self._connection.execute(
                f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), "
                f"greatest({least}, (SELECT max({column}) FROM {table})))"
            )

    async def write_file(self, hash_: str, content: bytes, now: int) -> None:
        """Write an attachment file in one transaction."""
        chunks = [(hash_, part, chunk) for part, chunk in enumerate(split_chunks(content))]
        async with self._connection.transaction():
            for table, records in (("blob_file", [(hash_, len(content), now, None)]), ("blob_chunk", chunks)):
                await self._connection.copy_records_to_table(table, records=records)

    async def close(self) -> None:
        self._connection.terminate()


async def is_unfinished(connection: CopyConnection) -> bool:
    """Return whether the database is the target of an unfinished copy."""
    sql = f"SELECT 1 FROM schema_version WHERE version = {UNFINISHED_COPY}"
    return bool(await connection.tables() and await connection.fetch(sql))


class DatabaseCopy:
    def __init__(self, source: CopyConnection, target: CopyConnection, report: Report) -> None:
        self._source = source
        self._target = target
        self._report = report

    async def prepare(self) -> list[Table]:
        """Lock the source, check that the target is empty or an unfinished copy, and return the tables to copy.

        Both databases have the schema of this version. Raises CopyError if a check fails.
        """
        if await self._source.is_in_use():
            raise CopyError("a service uses the source. Stop it first.")
        await self._source.lock()
        tables = await self._source.tables()
        if type(self._source) is not type(self._target):
            tables = [_without_files(table) for table in tables]  # see copy_files
        if not await is_unfinished(self._target):
            await self._empty_target()
        return tables

    async def _empty_target(self) -> None:
        """Remove the rows of a new schema from the target. Raises CopyError if it contains other rows."""
        initial = _initial_rows()
        for table in await self._target.tables():
            rows = await self._target.fetch(f"{table.select()} LIMIT {len(initial[table.name]) + 1}")
            if sorted(rows) != sorted(initial[table.name]):
                raise CopyError(f"the target is not empty: its table {table.name} has rows. Use a new database.")
        await self._target.run(
            *(f"DELETE FROM {name}" for name, rows in initial.items() if rows),
            PROGRESS_TABLE,
            f"INSERT INTO schema_version VALUES ({UNFINISHED_COPY})",
        )

    async def count(self, tables: Sequence[Table]) -> int:
        """Return the number of rows to copy."""
        counts = [
            await self._source.fetch(f"SELECT count(*) FROM {table.name} WHERE {table.condition or '1 = 1'}")
            for table in tables
        ]
        return sum(rows[0][0] for rows in counts)

    async def copy(self, tables: Sequence[Table]) -> None:
        last_keys: dict[str, str] = dict(await self._target.fetch("SELECT name, last_key FROM copy_progress"))
        for table in tables:
            last_key = msgspec.json.decode(last_keys.get(table.name, "[]"))
            if table.key or table.name not in last_keys:  # a table without a key is one batch
                await self._copy_table(table, last_key)

    async def _copy_table(self, table: Table, last_key: Sequence[Any]) -> None:
        key_columns = [table.columns.index(column) for column in table.key]
        batch, size = list[Row](), 0

        async def write_batch() -> None:
            await self._target.write(table, batch, [batch[-1][index] for index in key_columns])
            self._report(table.name, len(batch))

        async with aclosing(self._source.rows(table, last_key)) as rows:
            async for row in rows:
                batch.append(row)
                size += sum(len(value) for value in row if isinstance(value, str | bytes))
                if table.key and (len(batch) == BATCH_ROWS or size > BATCH_BYTES):
                    await write_batch()
                    batch, size = [], 0
        if batch:
            await write_batch()

    async def find_differences(self, tables: Sequence[Table]) -> list[str]:
        """Read all rows of both databases and return the names of the tables that differ."""
        return [
            table.name
            for table in tables
            if await self._digest(self._source, table) != await self._digest(self._target, table)
        ]

    async def _digest(self, connection: CopyConnection, table: Table) -> Digest:
        count, total, reported = 0, 0, 0
        async with aclosing(connection.rows(table, ())) as rows:
            async for row in rows:
                total += int.from_bytes(hashlib.blake2b(msgspec.json.encode(row), digest_size=16).digest())
                count += 1
                if count - reported == BATCH_ROWS:
                    self._report(f"comparing {table.name}", BATCH_ROWS)
                    reported = count
        self._report(f"comparing {table.name}", count - reported)
        return Digest(count, total % (1 << 128))

    async def copy_files(self, folder: LocalFiles, now: int) -> None:
        """Copy attachment files between PostgreSQL and the data folder, where SQLite has them.

        Files in an object store stay there. Raises CopyError if a file is missing.
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
        """Complete the target, with delivery paused for `reason`; from now on, a service can use the target.

        `identity`: its new database id, so that restore detection does not compare it with the source.
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
            "DROP TABLE copy_progress",
            f"DELETE FROM schema_version WHERE version = {UNFINISHED_COPY}",
        )


def _without_files(table: Table) -> Table:
    """Return the table without its rows about attachment files, which only PostgreSQL stores in tables."""
    if table.name == "blob_file":
        return table._replace(condition="name IS NOT NULL")
    return table._replace(condition="1 = 0") if table.name == "blob_chunk" else table


def _sqlite_tables(connection: apsw.Connection) -> list[Table]:
    names = [
        name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    ]
    tables = []
    for name in names:
        columns: list[Any] = connection.execute(f"PRAGMA table_info({name})").fetchall()
        key = sorted((position, column) for _, column, _, _, _, position in columns if position)
        tables.append(Table(name, tuple(column[1] for column in columns), tuple(column for _, column in key)))
    return [table for table in tables if table.name not in NOT_COPIED and not table.name.startswith("sqlite_")]


def _new_database() -> apsw.Connection:
    """Return an empty in-memory database with the schema of this version."""
    connection = apsw.Connection(":memory:")
    for _, sql in schema_files():
        connection.execute(for_dialect(sql, "sqlite"))
    return connection


def _expected_tables() -> list[Table]:
    return _sqlite_tables(_new_database())


def _initial_rows() -> dict[str, list[Row]]:
    """Return the rows that the schema itself contains, by table."""
    connection = _new_database()
    return {table.name: connection.execute(table.select()).fetchall() for table in _sqlite_tables(connection)}


def _encode(last_key: Sequence[Any]) -> str:
    return msgspec.json.encode(last_key).decode()
