"""Migrations: once, whole, and never on a database of the future."""

import asyncio
import re
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from heliograph.opening import migrate, migration_plan, open_store, schema_version, sqlite_path
from heliograph.rules.delivery.circuit import opened
from heliograph.rules.mail.reputation import Reputation
from heliograph.rules.setup.records import Platform
from heliograph.settings import Settings
from heliograph.storage.engine import migrate as migrations
from heliograph.storage.engine.migrate import ADDS, CONTRACT, NewerSchema, SchemaVersion, schema_files
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


async def test_each_file_is_applied_once(settings: Settings) -> None:
    assert await migrate(settings) == NUMBERS
    assert await migrate(settings) == []


async def test_two_processes_that_start_together(settings: Settings) -> None:
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
async def test_the_version_before_can_come_back(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch, mark: str, may_return: bool
) -> None:
    number, text = ADDITION
    with monkeypatch.context() as newer:
        with_files(newer, (number, mark + text))
        assert await migrate(settings) == [number]
        assert await schema_version(settings) == SchemaVersion(found=number, needed=number)
        assert await migrate(settings) == []
    if may_return:
        assert await migrate(settings) == []
    else:
        with pytest.raises(NewerSchema):
            await migrate(settings)


def test_what_takes_away_says_so() -> None:
    """As in ADR 0032: the version before must go on with what is left."""
    for number, text in schema_files():
        if number >= ADDS and not text.startswith(CONTRACT):
            for table in re.findall(r"CREATE TABLE (\w+)", text):  # the version before knows nothing of it
                text = re.sub(rf"UNIQUE INDEX \w+ ON {table}\b", "", text)
            assert not TAKES_AWAY.search(text), f"schema {number}: add it in one release, take it away in the next"


@pytest.mark.parametrize("empty_database_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("file", [ADDITION, INDEX], ids=["a column", "an index"])
async def test_a_table_in_use_is_waited_for_in_short_turns(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch, file: tuple[int, str]
) -> None:
    with_files(monkeypatch, file)
    monkeypatch.setattr(migrations, "TABLE_S", 0.05)
    user: Any = await asyncpg.connect(settings.database)
    await user.execute("BEGIN; INSERT INTO outbox SELECT * FROM outbox")
    migrating = asyncio.create_task(migrate(settings))
    for _ in range(20):  # others write all the same
        await store.upkeep.check_clock()
        other: Any = await asyncpg.connect(settings.database)
        await other.execute("INSERT INTO outbox SELECT * FROM outbox")
        await other.close()
    assert not migrating.done()
    await user.close()
    assert await migrating == [NEXT]


@pytest.mark.parametrize("empty_database_url", ["postgres"], indirect=True)
async def test_an_index_is_built_beside_and_anew_when_it_was_broken_off(
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


async def test_a_plan_says_what_would_be_done(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch, sql: Sql
) -> None:
    rows = ", ".join(f"('usr_{number}', 'team', 'kind', 1)" for number in range(500))
    beside = sqlite_path(settings) is None
    await sql(f"INSERT INTO notice_choice VALUES {rows}")
    if beside:  # else the rows are told of after ANALYZE has counted them, and count twice
        await sql("SELECT pg_stat_force_next_flush()")
    await sql("ANALYZE")
    with_files(
        monkeypatch,
        (NEXT, "CREATE TABLE fresh (a BIGINT);\nALTER TABLE notice_choice ADD COLUMN b BIGINT;"),
        (NEXT + 1, "CREATE INDEX choice_b ON notice_choice (b);"),
        (NEXT + 2, "UPDATE notice_choice SET b = 1;"),
    )
    found = await migration_plan(settings)
    assert [(step.schema - NEXT, step.kind, step.table, step.rows) for step in found] == [
        (0, "new table", "fresh", 0),
        (0, "columns", "notice_choice", 500),
        (1, "index", "notice_choice", 500),
        (2, "rows", "notice_choice", 500),
    ]
    assert [step.seconds > 0 for step in found] == [False, False, True, True]
    assert [step.blocks for step in found] == [True, True, not beside, True]
    assert await schema_version(settings) == SchemaVersion(found=NEXT - 1, needed=NEXT + 2)


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
    assert await sql("SELECT max(abs(version)) FROM schema_version") == [(NUMBERS[-1],)]
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
