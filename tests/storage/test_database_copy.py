"""A copy has every row of its source, can be continued, and refuses a target that is not empty."""

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
from heliograph.storage.engine.sqlite import SqliteDatabase
from tests.conftest import fresh_database
from tests.deliver.test_worker import wait_until
from tests.storage.test_wakeups import listening

pytestmark = pytest.mark.anyio

ROWS = 30
TEXTS = ("", "Grüße 👋", "line\nbreak", 'O\'Hara "quoted"', "{}")


def fill(path: Path, numbers: Sequence[int] = range(1, ROWS + 1), shift: int = 0) -> int:
    """Insert rows into every table, with empty, null and other unusual values; return their number.

    `shift`: other values beside the same keys.
    """
    connection = apsw.Connection(str(path))
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT IN "
                                "('schema_version', 'machine_clock')").fetchall()  # fmt: skip
    for (table,) in tables:
        columns: list[Any] = connection.execute(f"PRAGMA table_info({table})").fetchall()
        for number in numbers:
            values = [value_of(column, number if column[5] else number + shift) for column in columns]
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
    """Return a progress callback that stops the copy after this number of rows."""
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
    await database_copy.lock()
    rows = await database_copy.count(tables)
    await database_copy.synchronize(tables)
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


@pytest.fixture
def postgres_urls(postgres: str) -> list[str]:
    return [fresh_database(postgres) for _ in range(2)]


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


@pytest.mark.slow
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
    await database_copy.synchronize(tables)
    await target.run("UPDATE person SET name = 'changed' WHERE id = '001'", "DELETE FROM ledger WHERE key = 1")
    assert await database_copy.find_differences(tables) == ["ledger", "person"]


@pytest.mark.slow
@pytest.mark.parametrize("to_postgres", [True, False])
async def test_next_pass_copies_changes_and_deletions(
    to_postgres: bool, postgres_urls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heliograph.storage.database_copy.BATCH_ROWS", 7)
    before, after, result = (tmp_path / name for name in ("before.db", "after.db", "result.db"))
    for path in (before, after, result):
        migrate_sqlite(path)
    fill(before)
    fill(after, (*range(1, 10), *range(20, 90)))  # between, after and without rows that were there
    fill(after, range(10, 14), shift=1)
    sources: list[CopyConnection] = [SqliteConnection(before), SqliteConnection(after)]
    target: CopyConnection = await PostgresConnection.open(postgres_urls[0])
    if not to_postgres:
        await target.close()
        sources = [await synchronized(*pair) for pair in zip(sources, postgres_urls, strict=True)]
        target = SqliteConnection(result)
    for source in (*sources, sources[1]):
        database_copy = DatabaseCopy(source, target, keep_quiet)
        tables = await database_copy.prepare()
        written = await database_copy.synchronize(tables)
        assert await database_copy.find_differences(tables) == []
        for table in tables:
            expected, rows = [await connection.range_rows(table, (), ()) for connection in (source, target)]
            assert sorted(map(repr, rows)) == sorted(map(repr, expected)), table.name
    assert written == 0
    for connection in (*sources, target):
        await connection.close()


async def synchronized(source: CopyConnection, postgres_url: str) -> PostgresConnection:
    target = await PostgresConnection.open(postgres_url)
    database_copy = DatabaseCopy(source, target, keep_quiet)
    await database_copy.synchronize(await database_copy.prepare())
    return target


@pytest.mark.parametrize("to_postgres", [True, False])
async def test_unique_value_that_moved_to_another_row_is_copied(
    to_postgres: bool, path: Path, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heliograph.storage.database_copy.BATCH_ROWS", 2)
    migrate_sqlite(tmp_path / "target.db")
    target: CopyConnection = SqliteConnection(tmp_path / "target.db")
    if to_postgres:
        target = await PostgresConnection.open(postgres_url)
    connection = apsw.Connection(str(path))
    for number in range(8):
        connection.execute(
            "INSERT INTO person (id, email, name, operator, created_at) VALUES (?, ?, '', 0, 1)",
            (f"usr_{number}", str(number)),
        )
    database_copy = DatabaseCopy(SqliteConnection(path), target, keep_quiet)
    tables = await database_copy.prepare()
    await database_copy.synchronize(tables)
    connection.execute(
        "UPDATE person SET email = 'x' WHERE id = 'usr_7'; UPDATE person SET email = '7' WHERE id = 'usr_0'"
    )
    connection.execute("UPDATE person SET email = '0' WHERE id = 'usr_7'")
    await database_copy.synchronize(tables)
    assert await database_copy.find_differences(tables) == []
    people = await target.fetch("SELECT id, email FROM person ORDER BY id")
    assert people == [(f"usr_{number}", str({0: 7, 7: 0}.get(number, number))) for number in range(8)]
    await target.close()


async def test_source_can_be_written_during_a_pass(path: Path, tmp_path: Path) -> None:
    migrate_sqlite(tmp_path / "target.db")
    fill(path)
    writer, written = apsw.Connection(str(path)), 0

    def write(_action: str, _rows: int) -> None:
        nonlocal written
        written += 1
        writer.execute("INSERT INTO fact VALUES (?, 'b')", (f"during {written}",))

    database_copy = DatabaseCopy(SqliteConnection(path), SqliteConnection(tmp_path / "target.db"), write)
    tables = await database_copy.prepare()
    await database_copy.synchronize(tables)
    assert written > len(tables) / 2
    await database_copy.lock()
    database_copy._report = keep_quiet
    await database_copy.synchronize(tables)
    assert await database_copy.find_differences(tables) == []
    facts = "SELECT count(*) FROM fact WHERE name LIKE 'during %'"
    assert apsw.Connection(str(tmp_path / "target.db")).execute(facts).get == written


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
    await DatabaseCopy(source, SqliteConnection(tmp_path / "target.db"), keep_quiet).lock()
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
    for _ in range(2):  # the second pass finds the row
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


async def test_sqlite_source_in_use_is_refused(path: Path, tmp_path: Path) -> None:
    """The service is detected even if the command got another data folder."""
    migrate_sqlite(tmp_path / "target.db")
    service = SqliteDatabase(path)
    async with listening(service.listen):
        await wait_until(lambda: service.wakeups.subscribed)
        with pytest.raises(CopyError, match="a service uses the source"):
            await copy(SqliteConnection(path), SqliteConnection(tmp_path / "target.db"))
    await copy(SqliteConnection(path), SqliteConnection(tmp_path / "target.db"))
    await service.close()


async def test_postgresql_source_in_use_is_refused(postgres_url: str, path: Path) -> None:
    service = PostgresDatabase(postgres_url)
    await service.read(lambda tx: tx.run("probe"))
    source = await PostgresConnection.open(postgres_url)
    with pytest.raises(CopyError, match="a service uses the source"):
        await copy(source, SqliteConnection(path))
    await source.close()
    await service.close()
