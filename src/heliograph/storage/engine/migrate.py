"""Migrates a database to the schema of this code: numbered files, each in one transaction.

The first file creates all of schema 47, the oldest supported one. Later files only add, so that the previous version
can run at the same time and a rollback is possible (ADR 0032). A file that removes something, or adds a constraint on
writes, begins with `-- contract`: earlier versions refuse its database. On PostgreSQL, an index on an existing table is
built concurrently after the file, and whenever the index is found missing.
"""

import asyncio
import re
from collections.abc import Collection
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import msgspec

from heliograph.storage.engine.database import StoreUnavailable, error_text
from heliograph.storage.engine.postgres import Hosts, connect, raise_outages
from heliograph.storage.engine.query import Dialect, for_dialect
from heliograph.storage.engine.sqlite import BUSY_ERRORS, open_sqlite

VERSION_TABLE = "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT PRIMARY KEY)"
# Files compatible with older versions are recorded as negative numbers, which older versions ignore.
VERSION_QUERY = "SELECT coalesce(max(abs(version)), 0), coalesce(max(version), 0) FROM schema_version"
BASE = 47  # number of the first file: the complete schema of that version
BASE_COMMIT = "8edf077"
CONTRACT_START = "-- contract"
UNFINISHED_COPY = 1_000_000  # schema version of the target of an unfinished `heliograph copy`, which no service opens
# PostgreSQL advisory lock of a schema: processes that start together migrate one after the other.
LOCK_CALL = "pg_advisory_xact_lock(7240001, hashtext(current_schema()))"
TABLE_LOCK_S = 1.0  # maximum wait for a table lock, because other transactions queue behind this one
LOCK_ATTEMPTS = 60
TABLE_LOCK_ERRORS = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)

UNBUILT_QUERY = """SELECT name FROM unnest($1::text[]) AS name WHERE NOT EXISTS (
    SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(name) AND indisvalid)"""

_CREATE_INDEX = re.compile(r"CREATE INDEX (\w+) ON (\w+)")
_CREATE_TABLE = re.compile(r"CREATE TABLE (\w+)")
_DROP_INDEX = re.compile(r"DROP INDEX (\w+)")


class ForeignSchema(Exception):
    """The database has a schema newer than this code, or older than the oldest supported one."""


class UnfinishedCopy(ForeignSchema):
    """The database is the target of a copy that has not ended."""


class SchemaFile(msgspec.Struct, frozen=True):
    number: int
    recorded_as: int
    sql: str

    @property
    def statements(self) -> list[str]:
        return [part.strip() for part in self.sql.split(";") if part.strip()]

    @property
    def concurrent_indexes(self) -> dict[str, str]:
        """Return the indexes to build concurrently, by name: those on tables that existed before this file."""
        new_tables = set(_CREATE_TABLE.findall(self.sql))
        match_by_statement = {text: _CREATE_INDEX.match(text) for text in self.statements} if self.number > BASE else {}
        return {match[1]: text for text, match in match_by_statement.items() if match and match[2] not in new_tables}

    def statements_to_run(self, excluded: Collection[str] = ()) -> list[str]:
        """Return the statements to run, except those in `excluded`; the last one records the version."""
        statements = [text for text in self.statements if text not in excluded]
        return [*statements, f"INSERT INTO schema_version VALUES ({self.recorded_as})"]


@cache
def schema_files() -> list[tuple[int, str]]:
    folder = resources.files("heliograph.storage").joinpath("schema")
    return sorted(
        (int(file.name.split("_")[0]), file.read_text("utf-8"))
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    )


def pending_files(current: int, needed: int, dialect: Dialect) -> list[SchemaFile]:
    """Return the schema files to apply to a database at version `current`.

    `needed`: the lowest schema version that code must support to use this database. Raises ForeignSchema if this code
    cannot use the database.
    """
    files = schema_files()
    newest = files[-1][0]
    if needed == UNFINISHED_COPY:
        raise UnfinishedCopy("the database is an unfinished copy: run `heliograph copy` again, which continues it")
    if needed > newest:
        raise ForeignSchema(
            f"the database has schema {needed}, this Heliograph knows up to {newest}: start the newer version"
        )
    if 0 < current < BASE:
        raise ForeignSchema(
            f"the database has schema {current}, this Heliograph supports {BASE} and later: run `heliograph migrate` "
            f"of a version with schema {BASE} on it (commit {BASE_COMMIT}) first, then this one's"
        )
    return [
        SchemaFile(
            number,
            number if number == BASE or text.startswith(CONTRACT_START) else -number,
            for_dialect(text, dialect),
        )
        for number, text in files
        if number > current
    ]


class SchemaVersion(msgspec.Struct, frozen=True, kw_only=True):
    current: int  # 0 if the database was never migrated
    needed: int


def sqlite_version(path: Path) -> SchemaVersion:
    """Return the schema version of an existing file; never creates a file.

    Raises ForeignSchema if this code cannot use the database.
    """
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return _schema_version(missing_on_sqlite(connection))
    finally:
        connection.close()


async def postgres_version(url: str, connect_s: float | None = None) -> SchemaVersion:
    connection = await connect(Hosts(url, connect_s))
    try:
        return _schema_version(await missing_on_postgres(connection))
    finally:
        connection.terminate()


def _schema_version(missing_files: list[SchemaFile]) -> SchemaVersion:
    versions = [0, *(number for number, _ in schema_files())]
    return SchemaVersion(current=versions[-1 - len(missing_files)], needed=versions[-1])


def migrate_sqlite(path: Path) -> list[int]:
    """Apply the missing schema files to an SQLite database; return their numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return _migrate_sqlite_file(path)
    except (*BUSY_ERRORS, apsw.IOError) as error:
        raise StoreUnavailable(f"SQLite database {path}: {error_text(error)}") from error


def _migrate_sqlite_file(path: Path) -> list[int]:
    connection, applied_numbers = open_sqlite(path), list[int]()
    try:
        while missing_on_sqlite(connection):
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute(VERSION_TABLE)
                files = _next_files(missing_on_sqlite(connection))
                for file in files:
                    connection.execute(";".join(file.statements_to_run()))
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # SQLite has already rolled back if the disk is full
                    connection.execute("ROLLBACK")
                raise
            applied_numbers += [file.number for file in files]
        return applied_numbers
    finally:
        connection.close()


def missing_on_sqlite(connection: apsw.Connection) -> list[SchemaFile]:
    try:
        current, needed = next(connection.execute(VERSION_QUERY))
    except apsw.SQLError:
        current = needed = 0
    return pending_files(current, needed, "sqlite")


def _next_files(missing_files: list[SchemaFile]) -> list[SchemaFile]:
    """Return the files for one transaction: the next file, or all files for an empty database."""
    return missing_files if missing_files and missing_files[0].number == BASE else missing_files[:1]


async def migrate_postgres(url: str, connect_s: float | None = None) -> list[int]:
    """Apply the missing schema files and build missing indexes on PostgreSQL; return the numbers of the files."""
    connection, applied_numbers = await connect(Hosts(url, connect_s)), list[int]()
    try:
        if not await missing_on_postgres(connection) and not await _unbuilt_indexes(connection):
            return []
        lock_connection = await connect(Hosts(url, connect_s))
        try:
            with raise_outages():
                await lock_connection.execute(
                    f"BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0; SELECT {LOCK_CALL}"
                )
                await connection.execute(VERSION_TABLE)
            while files := _next_files(await missing_on_postgres(connection)):
                with raise_outages():
                    await _apply_files(connection, files)
                applied_numbers += [file.number for file in files]
            for name, statement in (await _unbuilt_indexes(connection)).items():
                with raise_outages():
                    await _build_index(connection, name, statement)
        finally:
            lock_connection.terminate()
        return applied_numbers
    finally:
        connection.terminate()


async def missing_on_postgres(connection: Any) -> list[SchemaFile]:
    try:
        with raise_outages():
            current, needed = await connection.fetchrow(VERSION_QUERY)
    except asyncpg.UndefinedTableError:
        current = needed = 0
    return pending_files(current, needed, "postgres")


async def _apply_files(connection: Any, files: list[SchemaFile]) -> None:
    """Apply schema files, with retries while their tables are locked, because a long wait would block all other users.

    Statements are sent one by one, because Citus cannot distribute a string of several statements.
    """
    indexes = list(files[0].concurrent_indexes.values()) if len(files) == 1 else []
    statements = [statement for file in files for statement in file.statements_to_run(indexes)]
    for retries_left in reversed(range(LOCK_ATTEMPTS)):
        try:
            async with connection.transaction():
                for statement in (f"SET LOCAL lock_timeout = {round(TABLE_LOCK_S * 1000)}", *statements):
                    await connection.execute(statement)
            return
        except TABLE_LOCK_ERRORS:
            if not retries_left:
                raise
            await asyncio.sleep(TABLE_LOCK_S)


async def _unbuilt_indexes(connection: Any) -> dict[str, str]:
    """Return index name → statement for the concurrently built indexes that are missing or invalid."""
    statement_by_index: dict[str, str] = {}
    for file in pending_files(BASE, 0, "postgres"):
        for name in _DROP_INDEX.findall(file.sql):
            statement_by_index.pop(name, None)
        statement_by_index |= file.concurrent_indexes
    with raise_outages():
        return {
            name: statement_by_index[name]
            for (name,) in await connection.fetch(UNBUILT_QUERY, list(statement_by_index))
        }


async def _build_index(connection: Any, name: str, statement: str) -> None:
    await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
    await connection.execute(statement.replace("CREATE INDEX", "CREATE INDEX CONCURRENTLY", 1))
