"""Migrations: once, whole, and never on a database of the future."""

import asyncio
from pathlib import Path

import pytest

from heliograph.app import migrate
from heliograph.settings import Settings
from heliograph.storage import migrate as migrations
from heliograph.storage.migrate import NewerSchema, schema_files
from heliograph.storage.store import Store
from tests.storage.conftest import Sql

pytestmark = pytest.mark.anyio

NUMBERS = [number for number, _ in schema_files()]


@pytest.fixture
def settings(empty_database_url: str, tmp_path: Path) -> Settings:
    return Settings(database=empty_database_url, data=tmp_path / "data")


async def test_each_file_is_applied_once(settings: Settings) -> None:
    assert await migrate(settings) == NUMBERS
    assert await migrate(settings) == []


async def test_two_processes_that_start_together(settings: Settings) -> None:
    def run() -> list[int]:
        return asyncio.run(migrate(settings))

    applied = await asyncio.gather(*(asyncio.to_thread(run) for _ in range(4)))
    assert sorted(applied) == [[], [], [], NUMBERS]


async def test_a_newer_schema_is_refused(store: Store, settings: Settings, sql: Sql) -> None:
    newer = NUMBERS[-1] + 1
    await sql(f"INSERT INTO schema_version VALUES ({newer})")
    with pytest.raises(NewerSchema, match=rf"has schema {newer}, this Heliograph knows up to {NUMBERS[-1]}"):
        await migrate(settings)


async def test_a_broken_file_changes_nothing(
    store: Store, settings: Settings, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [*schema_files(), (99, "CREATE TABLE half (a BIGINT);\nCREATE TABLE half (a BIGINT);")]
    monkeypatch.setattr(migrations, "schema_files", lambda: broken)
    with pytest.raises(Exception, match="already exists"):
        await migrate(settings)
    monkeypatch.undo()
    assert await migrate(settings) == []
    assert await sql("SELECT max(version) FROM schema_version") == [(NUMBERS[-1],)]
    with pytest.raises(Exception, match="half"):
        await sql("SELECT * FROM half")


def test_no_number_is_given_twice() -> None:
    assert sorted(set(NUMBERS)) == NUMBERS
