"""Migrations: applied once and completely, and never to a database of a newer version."""

import asyncio
import re
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from heliograph.bootstrap import migrate, migration_plan, schema_version, sqlite_path
from heliograph.settings import Settings
from heliograph.storage.engine import migrate as migrations
from heliograph.storage.engine.migrate import (
    BASE,
    BASE_COMMIT,
    CONTRACT_START,
    ForeignSchema,
    SchemaVersion,
    schema_files,
)
from heliograph.storage.store import Store
from tests.storage.conftest import Sql, asking

pytestmark = pytest.mark.anyio

TAKES_AWAY = re.compile(
    r"\bDROP\b|\bRENAME\b|\bALTER COLUMN\b|ADD COLUMN (?![^;]*DEFAULT)[^;]*NOT NULL|ADD CONSTRAINT|UNIQUE INDEX", re.I
)
NUMBERS = [number for number, _ in schema_files()]


@pytest.fixture
def settings(empty_database_url: str, tmp_path: Path) -> Settings:
    return Settings(database=empty_database_url, data=tmp_path / "data")


async def test_each_migration_is_applied_once(settings: Settings) -> None:
    assert await migrate(settings) == NUMBERS
    assert await migrate(settings) == []


async def test_migrations_of_two_processes_starting_together_run_once(settings: Settings) -> None:
    def run() -> list[int]:
        return asyncio.run(migrate(settings))

    applied = await asyncio.gather(*(asyncio.to_thread(run) for _ in range(4)))
    assert sorted(applied) == [[], [], [], NUMBERS]


NEXT = NUMBERS[-1] + 1
ADDITION = (NEXT, "ALTER TABLE outbox ADD COLUMN extra BIGINT;")
INDEX = (NEXT, "CREATE TABLE beside (a BIGINT);\nCREATE INDEX outbox_extra ON outbox (expires_at);")


def with_files(monkeypatch: pytest.MonkeyPatch, *more: tuple[int, str]) -> None:
    files = [*migrations.schema_files(), *more]
    monkeypatch.setattr(migrations, "schema_files", lambda: files)


@pytest.mark.parametrize(("mark", "may_return"), [("", True), ("-- contract: nobody reads it\n", False)])
async def test_previous_version_starts_after_an_expanding_migration_only(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch, mark: str, may_return: bool
) -> None:
    number, text = ADDITION
    with monkeypatch.context() as newer:
        with_files(newer, (number, mark + text))
        assert await migrate(settings) == [number]
        assert await schema_version(settings) == SchemaVersion(current=number, needed=number)
        assert await migrate(settings) == []
    if may_return:
        assert await migrate(settings) == []
    else:
        with pytest.raises(ForeignSchema):
            await migrate(settings)


def test_migration_that_removes_a_column_is_marked_as_contract() -> None:
    """ADR 0032: the previous version must be able to use the schema."""
    for number, text in schema_files():
        if number > BASE and not text.startswith(CONTRACT_START):
            for table in re.findall(r"CREATE TABLE (\w+)", text):  # the previous version does not know this table
                text = re.sub(rf"UNIQUE INDEX \w+ ON {table}\b", "", text)
            assert not TAKES_AWAY.search(text), f"schema {number}: add it in one release, take it away in the next"


@pytest.mark.parametrize("empty_database_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("file", [ADDITION, INDEX], ids=["a column", "an index"])
async def test_migration_of_a_locked_table_retries_with_short_waits(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch, file: tuple[int, str]
) -> None:
    with_files(monkeypatch, file)
    monkeypatch.setattr(migrations, "TABLE_LOCK_S", 0.05)
    user: Any = await asyncpg.connect(settings.database)
    await user.execute("BEGIN; INSERT INTO outbox SELECT * FROM outbox")
    migrating = asyncio.create_task(migrate(settings))
    for _ in range(20):  # other processes write meanwhile
        await store.maintenance.check_clock()
        other: Any = await asyncpg.connect(settings.database)
        await other.execute("INSERT INTO outbox SELECT * FROM outbox")
        await other.close()
    assert not migrating.done()
    await user.close()
    assert await migrating == [NEXT]


@pytest.mark.parametrize("empty_database_url", ["postgres"], indirect=True)
async def test_index_is_built_concurrently_and_rebuilt_after_an_interruption(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch, sql: Sql
) -> None:
    with_files(monkeypatch, INDEX)
    whole = "SELECT indisvalid FROM pg_index WHERE indexrelid = 'outbox_extra'::regclass"
    assert await migrate(settings) == [NEXT]
    assert await sql(whole) == [(True,)]
    await sql("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'outbox_extra'::regclass")
    assert await migrate(settings) == []
    assert await sql(whole) == [(True,)]
    with_files(monkeypatch, (NEXT + 1, "DROP INDEX outbox_extra;"))
    assert await migrate(settings) == [NEXT + 1]
    assert await migrate(settings) == []


async def test_migration_plan_lists_pending_migrations(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch, sql: Sql
) -> None:
    rows = ", ".join(f"('usr_{number}', 'team', 'kind', 1)" for number in range(500))
    beside = sqlite_path(settings) is None
    await sql(f"INSERT INTO notice_choice VALUES {rows}")
    if beside:  # otherwise rows reported after ANALYZE has counted them would count twice; on Citus at the worker
        await sql("SELECT pg_stat_force_next_flush() FROM notice_choice LIMIT 1")
    await sql("ANALYZE")
    with_files(
        monkeypatch,
        (NEXT, "CREATE TABLE fresh (a BIGINT);\nALTER TABLE notice_choice ADD COLUMN b BIGINT;"),
        (NEXT + 1, "CREATE INDEX choice_b ON notice_choice (b);"),
        (NEXT + 2, "UPDATE notice_choice SET b = 1;"),
    )
    result = await migration_plan(settings)
    assert [(step.schema - NEXT, step.kind, step.table, step.rows) for step in result] == [
        (0, "new table", "fresh", 0),
        (0, "columns", "notice_choice", 500),
        (1, "index", "notice_choice", 500),
        (2, "rows", "notice_choice", 500),
    ]
    assert [step.seconds > 0 for step in result] == [False, False, True, True]
    assert [step.blocks for step in result] == [True, True, not beside, True]
    assert await schema_version(settings) == SchemaVersion(current=NEXT - 1, needed=NEXT + 2)


async def test_newer_schema_is_refused(store: Store, settings: Settings, sql: Sql) -> None:
    newer = NUMBERS[-1] + 1
    await sql(f"INSERT INTO schema_version VALUES ({newer})")
    with pytest.raises(ForeignSchema, match=rf"has schema {newer}, this Heliograph knows up to {NUMBERS[-1]}"):
        await migrate(settings)


async def test_database_with_the_oldest_supported_schema_is_used_unchanged(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its version table has a row for each of the former 47 files."""
    with monkeypatch.context() as then:
        then.setattr(migrations, "schema_files", lambda: schema_files()[:1])
        await migrate(settings)
    async with asking(settings) as sql:
        await sql("DELETE FROM schema_version")
        for number in range(1, BASE + 1):
            await sql(f"INSERT INTO schema_version VALUES ({number if number < 37 else -number})")
        await sql("INSERT INTO fact VALUES ('kept', 'yes')")
        assert await schema_version(settings) == SchemaVersion(current=BASE, needed=NUMBERS[-1])
        assert await migrate(settings) == NUMBERS[1:]
        assert await sql("SELECT * FROM fact") == [("kept", "yes")]


@pytest.mark.parametrize("version", [1, 36, -46])
async def test_older_unsupported_schema_is_refused(store: Store, settings: Settings, sql: Sql, version: int) -> None:
    await sql("DELETE FROM schema_version")
    await sql(f"INSERT INTO schema_version VALUES ({version})")
    said = f"has schema {abs(version)}, this Heliograph supports {BASE} and later: .*commit {BASE_COMMIT}"
    for ask in (migrate, schema_version, migration_plan):
        with pytest.raises(ForeignSchema, match=said):
            await ask(settings)
    assert await sql("SELECT version FROM schema_version") == [(version,)]


async def test_broken_migration_changes_nothing(
    store: Store, settings: Settings, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [*schema_files(), (99, "CREATE TABLE half (a BIGINT);\nCREATE TABLE half (a BIGINT);")]
    monkeypatch.setattr(migrations, "schema_files", lambda: broken)
    with pytest.raises(Exception, match="already exists"):
        await migrate(settings)
    monkeypatch.undo()
    assert await migrate(settings) == []
    assert await sql("SELECT max(abs(version)) FROM schema_version") == [(NUMBERS[-1],)]
    with pytest.raises(Exception, match="half"):
        await sql("SELECT * FROM half")


def test_migration_numbers_are_unique() -> None:
    assert list(range(BASE, BASE + len(NUMBERS))) == NUMBERS
