"""Brings a database to the schema of this code, one numbered file at a time, each in its own transaction."""

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
VERSION = "SELECT coalesce(max(version), 0) FROM schema_version"
LOCK = 7_240_001  # PostgreSQL advisory lock: two processes that start together migrate one after the other


class NewerSchema(Exception):
    """The database was written by a newer Heliograph."""


def schema_files() -> list[tuple[int, str]]:
    folder = resources.files("heliograph.storage").joinpath("schema")
    return sorted(
        (int(f.name.split("_")[0]), f.read_text("utf-8")) for f in folder.iterdir() if f.name.endswith(".sql")
    )


def pending(done: int, dialect: Dialect) -> list[tuple[int, str]]:
    files = schema_files()
    newest = files[-1][0]
    if done > newest:
        raise NewerSchema(
            f"the database has schema {done}, this Heliograph knows up to {newest}: start the newer version"
        )
    return [(number, for_dialect(text, dialect)) for number, text in files if number > done]


class SchemaVersion(msgspec.Struct, frozen=True, kw_only=True):
    found: int  # 0: the database was never migrated
    needed: int


def sqlite_version(path: Path) -> SchemaVersion:
    """Of a file that is there: none is made. Raises NewerSchema."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        found: Any = connection.execute(VERSION).get
    except apsw.SQLError:
        found = 0
    finally:
        connection.close()
    return _compared(found)


async def postgres_version(url: str) -> SchemaVersion:
    connection = await connect(Hosts(url))
    try:
        found = await connection.fetchval(VERSION)
    except asyncpg.UndefinedTableError:
        found = 0
    finally:
        connection.terminate()
    return _compared(found)


def _compared(found: int) -> SchemaVersion:
    pending(found, "sqlite")  # raises it, whichever database this is
    return SchemaVersion(found=found, needed=schema_files()[-1][0])


def migrate_sqlite(path: Path) -> list[int]:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return _migrate_file(path)
    except (*BUSY, apsw.IOError) as error:
        raise StoreUnavailable(f"SQLite database {path}: {reason_of(error)}") from error


def _migrate_file(path: Path) -> list[int]:
    connection = open_sqlite(path)
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(VERSION_TABLE)
            done: Any = connection.execute(VERSION).get
            applied = []
            for number, sql in pending(done, "sqlite"):
                connection.execute(sql)
                connection.execute("INSERT INTO schema_version VALUES (?)", (number,))
                applied.append(number)
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        return applied
    finally:
        connection.close()


async def migrate_postgres(url: str) -> list[int]:
    connection = await connect(Hosts(url))
    try:
        with outages():
            await connection.execute("BEGIN")  # undone when the connection ends
            await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
            await connection.execute(VERSION_TABLE)
            done = await connection.fetchval(VERSION)
        missing = pending(done, "postgres")
        with outages():
            for number, sql in missing:
                await connection.execute(sql)
                await connection.execute("INSERT INTO schema_version VALUES ($1)", number)
            await connection.execute("COMMIT")
        return [number for number, _ in missing]
    finally:
        connection.terminate()
