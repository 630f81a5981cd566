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

from heliograph.storage.engine.database import StoreUnavailable, reason_of
from heliograph.storage.engine.postgres import Hosts, connect, outages
from heliograph.storage.engine.query import Dialect, for_dialect
from heliograph.storage.engine.sqlite import BUSY, open_sqlite

VERSION_TABLE = "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT PRIMARY KEY)"
# Files compatible with older versions are recorded as negative numbers, which older versions ignore.
VERSION = "SELECT coalesce(max(abs(version)), 0), coalesce(max(version), 0) FROM schema_version"
BASE = 47  # number of the first file: the complete schema of that version
BASE_COMMIT = "8edf077"
CONTRACT = "-- contract"
# PostgreSQL advisory lock of a schema: processes that start together migrate one after the other.
LOCK = "pg_advisory_xact_lock(7240001, hashtext(current_schema()))"
TABLE_S = 1.0  # maximum wait for a table lock: other transactions queue behind us meanwhile
TRIES = 60
BUSY_TABLE = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)

UNBUILT = """SELECT name FROM unnest($1::text[]) AS name WHERE NOT EXISTS (
    SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(name) AND indisvalid)"""

_INDEX = re.compile(r"CREATE INDEX (\w+) ON (\w+)")
_TABLE = re.compile(r"CREATE TABLE (\w+)")
_DROP = re.compile(r"DROP INDEX (\w+)")


class ForeignSchema(Exception):
    """The database has a schema newer than this code, or older than the oldest supported one."""


class SchemaFile(msgspec.Struct, frozen=True):
    number: int
    recorded: int
    sql: str

    @property
    def statements(self) -> list[str]:
        return [part.strip() for part in self.sql.split(";") if part.strip()]

    @property
    def late(self) -> dict[str, str]:
        """Return the indexes to build concurrently, by name: those on tables that existed before this file."""
        made = set(_TABLE.findall(self.sql))
        found = {text: _INDEX.match(text) for text in self.statements} if self.number > BASE else {}
        return {index[1]: text for text, index in found.items() if index and index[2] not in made}

    def text(self, without: Collection[str] = ()) -> str:
        """Return the SQL to run, with the record of the version, without the statements in `without`."""
        kept = [text for text in self.statements if text not in without]
        return "".join(f"{text};" for text in (*kept, f"INSERT INTO schema_version VALUES ({self.recorded})"))


@cache
def schema_files() -> list[tuple[int, str]]:
    folder = resources.files("heliograph.storage").joinpath("schema")
    return sorted(
        (int(f.name.split("_")[0]), f.read_text("utf-8")) for f in folder.iterdir() if f.name.endswith(".sql")
    )


def pending(done: int, needed: int, dialect: Dialect) -> list[SchemaFile]:
    """Return the files to apply to a database at version `done`.

    `needed`: the lowest schema version that a Heliograph must know to use this database. Raises ForeignSchema.
    """
    files = schema_files()
    newest = files[-1][0]
    if needed > newest:
        raise ForeignSchema(
            f"the database has schema {needed}, this Heliograph knows up to {newest}: start the newer version"
        )
    if 0 < done < BASE:
        raise ForeignSchema(
            f"the database has schema {done}, this Heliograph takes over {BASE} and later: run `heliograph migrate` of "
            f"a version with schema {BASE} on it (commit {BASE_COMMIT}) first, then this one's"
        )
    return [
        SchemaFile(
            number, number if number == BASE or text.startswith(CONTRACT) else -number, for_dialect(text, dialect)
        )
        for number, text in files
        if number > done
    ]


class SchemaVersion(msgspec.Struct, frozen=True, kw_only=True):
    found: int  # 0 if the database was never migrated
    needed: int


def sqlite_version(path: Path) -> SchemaVersion:
    """Return the schema version of an existing file; never creates a file. Raises ForeignSchema."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return _compared(missing_in(connection))
    finally:
        connection.close()


async def postgres_version(url: str, connect_s: float | None = None) -> SchemaVersion:
    connection = await connect(Hosts(url, connect_s))
    try:
        return _compared(await missing_on(connection))
    finally:
        connection.terminate()


def _compared(missing: list[SchemaFile]) -> SchemaVersion:
    known = [0, *(number for number, _ in schema_files())]
    return SchemaVersion(found=known[-1 - len(missing)], needed=known[-1])


def migrate_sqlite(path: Path) -> list[int]:
    """Apply the missing files; return their numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return _migrate_file(path)
    except (*BUSY, apsw.IOError) as error:
        raise StoreUnavailable(f"SQLite database {path}: {reason_of(error)}") from error


def _migrate_file(path: Path) -> list[int]:
    connection, applied = open_sqlite(path), list[int]()
    try:
        while missing_in(connection):
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute(VERSION_TABLE)
                changes = _at_once(missing_in(connection))
                for change in changes:
                    connection.execute(change.text())
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # SQLite has already rolled back if the disk is full
                    connection.execute("ROLLBACK")
                raise
            applied += [change.number for change in changes]
        return applied
    finally:
        connection.close()


def missing_in(connection: apsw.Connection) -> list[SchemaFile]:
    try:
        done, needed = next(connection.execute(VERSION))
    except apsw.SQLError:
        done = needed = 0
    return pending(done, needed, "sqlite")


def _at_once(missing: list[SchemaFile]) -> list[SchemaFile]:
    """Return the files for one transaction: the next file, or all files for an empty database."""
    return missing if missing and missing[0].number == BASE else missing[:1]


async def migrate_postgres(url: str, connect_s: float | None = None) -> list[int]:
    """Apply the missing files and build missing indexes; return the numbers of the files."""
    connection, applied = await connect(Hosts(url, connect_s)), list[int]()
    try:
        if not await missing_on(connection) and not await _unbuilt(connection):
            return []
        guard = await connect(Hosts(url, connect_s))
        try:
            with outages():
                await guard.execute(f"BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0; SELECT {LOCK}")
                await connection.execute(VERSION_TABLE)
            while changes := _at_once(await missing_on(connection)):
                with outages():
                    await _apply(connection, changes)
                applied += [change.number for change in changes]
            for name, text in (await _unbuilt(connection)).items():
                with outages():
                    await _build(connection, name, text)
        finally:
            guard.terminate()
        return applied
    finally:
        connection.terminate()


async def missing_on(connection: Any) -> list[SchemaFile]:
    try:
        with outages():
            done, needed = await connection.fetchrow(VERSION)
    except asyncpg.UndefinedTableError:
        done = needed = 0
    return pending(done, needed, "postgres")


async def _apply(connection: Any, changes: list[SchemaFile]) -> None:
    """Apply files, with retries while their tables are locked: a long wait would block all other users."""
    files = "".join(change.text(change.late.values() if len(changes) == 1 else ()) for change in changes)
    for left in reversed(range(TRIES)):
        try:
            await connection.execute(f"BEGIN; SET LOCAL lock_timeout = {round(TABLE_S * 1000)}; {files} COMMIT")
            return
        except BUSY_TABLE:
            if not left:
                raise
            await connection.execute("ROLLBACK")
            await asyncio.sleep(TABLE_S)


async def _unbuilt(connection: Any) -> dict[str, str]:
    """Return the concurrently built indexes that are missing or invalid, as name and statement."""
    wanted: dict[str, str] = {}
    for file in pending(BASE, 0, "postgres"):
        for name in _DROP.findall(file.sql):
            wanted.pop(name, None)
        wanted |= file.late
    with outages():
        return {name: wanted[name] for (name,) in await connection.fetch(UNBUILT, list(wanted))}


async def _build(connection: Any, name: str, text: str) -> None:
    await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
    await connection.execute(text.replace("CREATE INDEX", "CREATE INDEX CONCURRENTLY", 1))
