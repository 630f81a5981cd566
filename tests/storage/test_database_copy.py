"""A copy has every row of its source, continues after a break, and refuses a target that is not empty."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from heliograph.storage.database_copy import (
    CopyConnection,
    CopyError,
    DatabaseCopy,
    PostgresConnection,
    SqliteConnection,
    is_unfinished,
)
from heliograph.storage.engine.local_files import LocalFiles
from heliograph.storage.engine.migrate import ForeignSchema, migrate_postgres, migrate_sqlite
from heliograph.storage.engine.postgres import PostgresDatabase
from tests.conftest import fresh_database

pytestmark = pytest.mark.anyio

ROWS = 30
TEXTS = ("", "Grüße 👋", "line\nbreak", 'O\'Hara "quoted"', "{}")


def fill(path: Path) -> int:
    """Insert rows into every table, with empty, null and other unusual values; return their number."""
    connection = apsw.Connection(str(path))
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT IN "
                                "('schema_version', 'machine_clock')").fetchall()  # fmt: skip
    for (table,) in tables:
        columns: list[Any] = connection.execute(f"PRAGMA table_info({table})").fetchall()
        for number in range(1, ROWS + 1):
            values = [value_of(column, number) for column in columns]
            connection.execute(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(values))})", values)
    return sum(connection.execute(f"SELECT count(*) FROM {table}").get for (table,) in tables)


def value_of(column: Sequence[Any], number: int) -> Any:
    _, _, kind, not_null, _, key_position = column
    if kind == "BLOB":
        return bytes([0, number, 255])
    if kind == "TEXT":
        unusual = None if number % 3 == 0 and not not_null else TEXTS[number % len(TEXTS)]
        return f"{number:03}" if key_position else unusual
    return number if key_position or number % 2 else 1


def stop_after(rows: int) -> Any:
    """Return a report function that breaks the copy off after so many rows."""
    left = rows

    def report(_: str, count: int) -> None:
        nonlocal left
        left -= count
        if left < 0:
            raise InterruptedError

    return report


def keep_quiet(_action: str, _rows: int) -> None:
    pass


async def copy(source: CopyConnection, target: CopyConnection, report: Any = keep_quiet) -> int:
    database_copy = DatabaseCopy(source, target, report)
    tables = await database_copy.prepare()
    rows = await database_copy.count(tables)
    await database_copy.copy(tables)
    assert await database_copy.find_differences(tables) == []
    await database_copy.finish("copied", 7)
    return rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    migrate_sqlite(tmp_path / "source.db")
    return tmp_path / "source.db"


@pytest.fixture
def postgres_url(postgres: str) -> str:
    return fresh_database(postgres)


async def test_every_table_is_copied_to_postgresql_and_back(path: Path, postgres_url: str, tmp_path: Path) -> None:
    rows = fill(path)
    there, back = await PostgresConnection.open(postgres_url), tmp_path / "back.db"
    migrate_sqlite(back)
    copied = await copy(SqliteConnection(path), there)
    assert rows - 2 * ROWS <= copied < rows  # without chunks of files and files without an object name
    await there.close()
    source = await PostgresConnection.open(postgres_url)
    assert await copy(source, SqliteConnection(back)) == copied + 1  # and the platform's record, which is paused
    await source.close()
    assert await migrate_postgres(postgres_url) == [] and migrate_sqlite(back) == []


async def test_interrupted_copy_continues(path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = fill(path)
    monkeypatch.setattr("heliograph.storage.database_copy.BATCH_ROWS", 7)
    breaks = 0
    while breaks < 10:
        source, target = SqliteConnection(path), await PostgresConnection.open(postgres_url)
        with pytest.raises(InterruptedError):
            await copy(source, target, stop_after((breaks + 1) * rows // 20))
        breaks += 1
        assert await is_unfinished(target)
        with pytest.raises(ForeignSchema, match="unfinished copy"):
            await migrate_postgres(postgres_url)
        await source.close()
        await target.close()
    target = await PostgresConnection.open(postgres_url)
    assert await copy(SqliteConnection(path), target) > rows // 2
    await target.close()
    assert await migrate_postgres(postgres_url) == []


async def test_changed_row_is_found(path: Path, tmp_path: Path) -> None:
    fill(path)
    migrate_sqlite(tmp_path / "target.db")
    target = SqliteConnection(tmp_path / "target.db")
    database_copy = DatabaseCopy(SqliteConnection(path), target, keep_quiet)
    tables = await database_copy.prepare()
    await database_copy.copy(tables)
    await target.run("UPDATE person SET name = 'changed' WHERE id = '001'", "DELETE FROM ledger WHERE key = 1")
    assert await database_copy.find_differences(tables) == ["ledger", "person"]


async def test_new_keys_follow_the_copied_keys(path: Path, postgres_url: str) -> None:
    with apsw.Connection(str(path)) as connection:
        connection.execute("INSERT INTO counter VALUES ('message', 4711)")  # the key of a deleted message
    target = await PostgresConnection.open(postgres_url)
    await copy(SqliteConnection(path), target)
    assert await target.fetch("SELECT nextval('message_key_seq')") == [(4712,)]
    await target.close()


async def test_target_with_rows_is_refused_and_unchanged(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "target.db"
    migrate_sqlite(target)
    with apsw.Connection(str(target)) as connection:
        connection.execute("INSERT INTO setting VALUES ('team', 'team_a', NULL, '{}', 1)")
    with pytest.raises(CopyError, match="table setting has rows"):
        await copy(SqliteConnection(path), SqliteConnection(target))
    assert migrate_sqlite(target) == []
    assert apsw.Connection(str(target)).execute("SELECT count(*) FROM setting").get == 1


async def test_source_is_locked_against_writes(path: Path, tmp_path: Path) -> None:
    migrate_sqlite(tmp_path / "target.db")
    source = SqliteConnection(path)
    await DatabaseCopy(source, SqliteConnection(tmp_path / "target.db"), keep_quiet).prepare()
    with pytest.raises(apsw.BusyError):
        await asyncio.to_thread(apsw.Connection(str(path)).execute, "INSERT INTO fact VALUES ('a', 'b')")
    await source.close()


async def test_attachments_move_between_folder_and_database(path: Path, postgres_url: str, tmp_path: Path) -> None:
    content = bytes(range(256)) * 3000
    folder, other_folder = LocalFiles(tmp_path / "blobs"), LocalFiles(tmp_path / "other")
    hash_ = folder.put(content)
    with apsw.Connection(str(path)) as connection:
        connection.execute("INSERT INTO blob VALUES (?, 1)", (hash_,))
    target = await PostgresConnection.open(postgres_url)
    for _ in range(2):  # the second finds it there
        await DatabaseCopy(SqliteConnection(path), target, keep_quiet).copy_files(folder, 1)
    assert await target.fetch("SELECT hash, size FROM blob_file") == [(hash_, len(content))]
    await target.run(f"INSERT INTO blob VALUES ('{hash_}', 1)")
    await DatabaseCopy(target, SqliteConnection(path), keep_quiet).copy_files(other_folder, 1)
    assert other_folder.get(hash_) == content
    await target.close()


async def test_missing_attachment_is_reported(path: Path, postgres_url: str, tmp_path: Path) -> None:
    with apsw.Connection(str(path)) as connection:
        connection.execute("INSERT INTO blob VALUES ('missing', 1)")
    target = await PostgresConnection.open(postgres_url)
    with pytest.raises(CopyError, match="1 of 1 attachment files of the source are missing.*--data"):
        await DatabaseCopy(SqliteConnection(path), target, keep_quiet).copy_files(LocalFiles(tmp_path), 1)
    await target.close()


async def test_postgresql_source_in_use_is_refused(postgres_url: str, path: Path) -> None:
    service = PostgresDatabase(postgres_url)
    await service.read(lambda tx: tx.run("probe"))
    source = await PostgresConnection.open(postgres_url)
    with pytest.raises(CopyError, match="a service uses the source"):
        await copy(source, SqliteConnection(path))
    await source.close()
    await service.close()
