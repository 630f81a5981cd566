"""Migrations: once, whole, and never on a database of the future."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from heliograph.opening import migrate, open_store
from heliograph.rules.circuit import opened
from heliograph.rules.reputation import Reputation
from heliograph.rules.setup.records import Platform
from heliograph.settings import Settings
from heliograph.storage.engine import migrate as migrations
from heliograph.storage.engine.migrate import NewerSchema, schema_files
from heliograph.storage.store import Store
from tests.storage.conftest import Sql, asking

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


async def test_circuits_and_reputations_move_out_of_the_setup(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [(number, text) for number, text in schema_files() if number < 28]
    with monkeypatch.context() as older:
        older.setattr(migrations, "schema_files", lambda: before)
        await migrate(settings)
    circuit, paused = opened(None, "a", "no answer", 1), Reputation(team="team_1", state="paused", since=1)
    rows = [("circuit", "a", circuit), ("reputation", "team_1", paused), ("platform", "platform", Platform())]
    async with asking(settings) as sql:
        for kind, id_, record in rows:
            body = msgspec.json.encode(record).decode()
            await sql(f"INSERT INTO setting VALUES ('{kind}', '{id_}', NULL, '{body}', 5)")
    async with open_store(settings) as store:
        assert store.circuits.current == {"a": circuit}
        assert store.reputation.current == {"team_1": paused}
        assert await store.circuits.change("a", circuit, None)


def test_no_number_is_given_twice() -> None:
    assert list(range(1, len(NUMBERS) + 1)) == NUMBERS


async def test_members_of_before_stay_and_the_invited_are_asked(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who never chose a password has accepted nothing, and links of before do not say who made them."""
    before = [(number, text) for number, text in schema_files() if number < 18]
    monkeypatch.setattr(migrations, "schema_files", lambda: before)
    await migrate(settings)
    monkeypatch.undo()
    async with asking(settings) as sql:
        for name, password, operator in (("ada", "'argon2id'", 1), ("bob", "'argon2id'", 0), ("new", "NULL", 1)):
            values = f"'usr_{name}', '{name}@example.com', '{name}', {password}, {operator}, 1"
            await sql(f"INSERT INTO person (id, email, name, password, operator, created_at) VALUES ({values})")
            await sql(f"INSERT INTO member VALUES ('usr_{name}', 'team_1', 'owner')")
            for purpose in ("welcome", "reset"):
                await sql(f"INSERT INTO link VALUES ('{name}{purpose}', 'usr_{name}', '{purpose}', 9)")
        await migrate(settings)
        assert await sql("SELECT person FROM member ORDER BY person") == [("usr_ada",), ("usr_bob",)]
        offered = [("usr_new", "", "operator"), ("usr_new", "team_1", "owner")]
        assert await sql("SELECT person, team, role FROM invitation ORDER BY team") == offered
        kept = [("usr_ada", 1, 1), ("usr_bob", 0, 0), ("usr_new", 0, 0)]
        assert await sql("SELECT id, operator, proven FROM person ORDER BY id") == kept
        assert await sql("SELECT * FROM link") == []
