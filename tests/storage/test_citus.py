"""What Citus requires of statements and tables, as far as plain PostgreSQL shows it (see also tests/proof)."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from heliograph.bootstrap import open_store
from heliograph.settings import Settings
from heliograph.storage.engine import migrate as migrations
from heliograph.storage.engine import postgres
from heliograph.storage.engine.postgres import CitusTx
from heliograph.storage.engine.query import load_queries, read_query, with_literals
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql

pytestmark = pytest.mark.anyio

QUERIES = load_queries("postgres")


class RecordingConnection:
    """Stands in for a connection of asyncpg; records the statements."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        yield

    async def execute(self, sql: str) -> None:
        self.statements.append(sql)

    async def fetch(self, sql: str, *_: Any) -> list[Any]:
        self.statements.append(sql)
        return [(None,)]


async def test_migration_sends_each_statement_alone() -> None:
    connection = RecordingConnection()
    await migrations._apply_files(connection, migrations.pending_files(0, 0, "postgres"))
    assert len(connection.statements) > 100
    assert [sql for sql in connection.statements if ";" in sql] == []


def test_returning_calls_no_volatile_function() -> None:
    volatile = re.compile(r"RETURNING.*(random|uuid|nextval|clock_timestamp|now\()", re.S)
    assert [name for name, query in QUERIES.items() if volatile.search(query.sql)] == []


def test_no_parameter_follows_on_conflict_of_an_insert_select() -> None:
    """The coordinator runs such a SELECT, and sends its rows to the worker without the parameters."""
    for name, query in QUERIES.items():
        params = {param: f"it's ${i}" if i % 2 else i for i, param in enumerate(query.params)}
        sql, values = with_literals(query, params)
        numbers = {int(number) for number in re.findall(r"'[^']*'|\$(\d+)", sql) if number}
        assert len(values) == max(numbers, default=0), name
        if re.search(r"INSERT INTO.*SELECT.*ON CONFLICT", query.sql, re.S):
            assert not re.search(r"\$\d", re.sub(r"'[^']*'", "", sql.partition("ON CONFLICT")[2])), name
        else:
            assert (sql, values) == (query.sql, list(params.values())), name


def test_literals_are_quoted() -> None:
    query = read_query(
        "INSERT INTO t (a, b) SELECT a, :b FROM rows(:r, a bigint) AS r WHERE true "
        "ON CONFLICT (a) DO UPDATE SET b = '$2' WHERE t.b <> :b AND t.a > :now AND t.c = :none RETURNING a",
        "postgres",
    )
    sql, values = with_literals(query, {"b": "it's", "r": "[]", "now": 7, "none": None})
    assert sql.partition("DO UPDATE ")[2] == "SET b = '$2' WHERE t.b <> 'it''s' AND t.a > 7 AND t.c = NULL RETURNING a"
    assert sorted(values) == ["[]", "it's"]


async def test_keys_are_drawn_alone_and_literals_are_written_out() -> None:
    connection = RecordingConnection()
    tx = CitusTx(connection, QUERIES)
    await tx.run_many(lock_accounts={"teams": [(1,)]}, next_message_keys={"count": 2}, find_idempotency={"keys": []})
    await tx.run("claim_endpoints", owner="seat/0", webhooks=[("w",)], lease_until=2, over=1)
    keys, others, claim = connection.statements
    assert keys == QUERIES["next_message_keys"].sql
    assert "account" in others and "nextval" not in others
    assert "lease_until <= 1 OR endpoint.owner = 'seat/0'" in claim


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_every_table_can_be_moved(store: Store, sql: Sql) -> None:
    """A move copies changes by logical replication, which needs a primary key or whole rows."""
    assert (
        await sql(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace "
            "AND relreplident <> 'f' AND oid NOT IN (SELECT indrelid FROM pg_index WHERE indisprimary)"
        )
        == []
    )


def test_rows_are_locked_once_by_a_claim() -> None:
    claims = {name: query.sql for name, query in QUERIES.items() if re.search("SKIP LOCKED.*UPDATE", query.sql, re.S)}
    assert [name for name, sql in claims.items() if not re.search(r"WITH \w+ AS MATERIALIZED \(", sql)] == []
    assert claims


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_planner_settings_are_set_in_each_transaction(
    settings: Settings, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Session settings of the coordinator do not reach the worker."""

    async def yes(_: Any) -> bool:
        return True

    monkeypatch.setattr(postgres, "is_citus", yes)
    async with open_store(settings, clock, "seat/0") as store:

        async def local_settings(tx: Any) -> list[Any]:
            names = ("citus.propagate_set_commands", *postgres.PLANNER_SETTINGS)
            return [await tx._fetch("SELECT current_setting($1, true)", name) for name in names]

        values = [rows[0][0] for rows in await store.database.read(local_settings)]
        assert values == ["local", *postgres.PLANNER_SETTINGS.values()]


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_literals_are_read_as_written_where_strings_have_backslash_escapes(
    settings: Settings, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With standard_conforming_strings = off, a backslash in a literal would begin an escape sequence."""

    async def yes(_: Any) -> bool:
        return True

    monkeypatch.setattr(postgres, "is_citus", yes)
    url = f"{settings.database}{'&' if '?' in settings.database else '?'}standard_conforming_strings=off"
    owner = r"it's a\nb\\c\'"
    async with open_store(msgspec.structs.replace(settings, database=url), clock, "seat/0") as store:

        async def claim_twice(tx: Any) -> list[Any]:
            claim = {"owner": owner, "webhooks": [("whk_1",)], "lease_until": 9, "over": 0}
            await tx.run("claim_endpoints", **claim)
            claimed = await tx.run("claim_endpoints", **claim)  # only its owner claims it before the lease ends
            stored = await tx._fetch("SELECT owner FROM endpoint")
            return [tuple(row) for row in (*claimed, *stored)]

        assert await store.database.write(claim_twice) == [("whk_1", 2), (owner,)]
