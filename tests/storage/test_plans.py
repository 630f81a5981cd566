"""Query plans of SQLite and PostgreSQL for every query of `queries/`.

No query scans a table that grows or sorts without bound, and each uses only the indexes that `plans.py` lists.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import msgspec
import pytest

from heliograph.bootstrap import migrate, sqlite_path
from heliograph.settings import Settings
from heliograph.storage.engine.postgres import SESSION_SETTINGS
from heliograph.storage.engine.query import Statement, load_queries
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.plans import INDEXES, SHORT, SMALL, SORTED, WHOLE
from tests.storage.samples import message

pytestmark = pytest.mark.anyio

# Rows per table on PostgreSQL, which plans by statistics; more where an estimate would hide the index.
ROWS, MORE = 2_000, dict.fromkeys(("message", "verification", "outbox", "delivery", "recipient", "event"), 20_000)
# On SQLite: all of an owner's rows, or all from a key on.
OPEN = re.compile(r"\(((lane=\? AND )?team|webhook|key_id|lane|carrier)=\?\)|\(rowid[<>]\?\)")


class Plan(msgspec.Struct, frozen=True):
    indexes: frozenset[str]  # indexes on tables that grow
    walked: frozenset[str]  # tables that grow, read from end to end or as far as they belong to one owner
    sorts: bool


async def test_every_query_uses_the_expected_indexes(empty_database_url: str, tmp_path: Path) -> None:
    settings = Settings(database=empty_database_url, data=tmp_path / "data")
    await migrate(settings)
    path = sqlite_path(settings)
    plans = sqlite_plans(str(path)) if path else await postgres_plans(settings.database)
    assert {*plans} == {*INDEXES}, "a row of plans.py for each query"
    assert {name: plan.indexes for name, plan in plans.items() if plan.indexes - {*INDEXES[name].split()}} == {}
    assert {name: plan.walked for name, plan in plans.items() if plan.walked - WHOLE.get(name, {}).keys()} == {}
    assert {name for name, plan in plans.items() if plan.sorts} - SORTED.keys() == set()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_statements_are_not_replanned_for_other_values(store: Store, clock: TestClock) -> None:
    planned: list[object] = []

    def allow(*what: object) -> int:
        """Record an access that SQLite reports while it plans a statement."""
        planned.append(what)
        return apsw.SQLITE_OK

    async def watch(tx: Any) -> None:
        tx._execute.__self__.authorizer = allow

    async def accept(address: str) -> None:
        await store.messages.accept(message(clock, address, suppression_addresses=[address], price=1))

    await store.database.write(watch)
    await accept("ada@example.com")
    assert planned
    planned.clear()
    await accept("bo@example.com")
    assert planned == []


def sqlite_plans(path: str) -> dict[str, Plan]:
    """Return the plans without statistics, as in production, where ANALYZE is not run."""
    connection, plans = apsw.Connection(path), dict[str, Plan]()
    tables = {str(row[0]) for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    for name, query in load_queries("sqlite").items():
        values = (None,) * query.columns_per_row or {
            param: "[]" if param in query.row_tables else None for param in query.params
        }
        steps = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {query.sql}", values)]
        named = re.findall(r"\b(?:FROM|JOIN|UPDATE|INTO)\s+(\w+)(?:\s+AS)?\s+(\w+)\b", query.sql)
        aliases = {alias: table for table, alias in named if table in tables}
        indexes, walked = set(), set()
        for step in steps:
            result = re.match(
                r"(SCAN|SEARCH) (\w+)(?: USING (?:COVERING )?(INTEGER PRIMARY KEY|PRIMARY KEY|INDEX \w+))?", step
            )
            table = aliases.get(result[2], result[2]) if result else ""
            if not result or table not in tables - SMALL:
                continue
            index = _named(result[3] or "INTEGER PRIMARY KEY", table)
            indexes.add(index)
            if (result[1] == "SCAN" or OPEN.search(step)) and index not in SHORT:
                walked.add(table)
        sorts = not query.row_tables and any("TEMP B-TREE" in step for step in steps)
        plans[name] = Plan(frozenset(indexes), frozenset(walked), sorts)
    connection.close()
    return plans


def _named(index: str, table: str) -> str:
    """Return the table's name as PostgreSQL shows it."""
    if index == f"INDEX sqlite_autoindex_{table}_1" and table == "early_return":
        return "early_return_message_position_key"
    return f"{table}_pkey" if "PRIMARY" in index or "autoindex" in index else index.removeprefix("INDEX ")


async def postgres_plans(url: str) -> dict[str, Plan]:
    """Return the plans on filled tables with the product's settings: a scan of a whole table lacks an index."""
    server: Any = await asyncpg.connect(url, server_settings=SESSION_SETTINGS)
    await fill(server)
    await server.execute("SET plan_cache_mode = force_generic_plan")
    plans = {}
    for name, query in load_queries("postgres").items():
        steps = list(steps_of(await plan_of(server, query)))
        growing = [step for step in steps if step.get("Relation Name", "setting") not in SMALL]
        indexes = {step["Index Name"] for step in steps if "Index Name" in step and not _is_small(step["Index Name"])}
        walked = {
            step["Relation Name"]
            for step in growing
            if not {"Index Cond", "Recheck Cond", "TID Cond"} & step.keys()
            and step["Node Type"] != "ModifyTable"
            and step.get("Index Name") not in SHORT
        }
        sorts = not query.row_tables and any("Sort" in step["Node Type"] for step in steps)
        plans[name] = Plan(frozenset(indexes), frozenset(walked), sorts)
    await server.close()
    return plans


def _is_small(index: str) -> bool:
    """Return whether the table does not grow."""
    return any(index.startswith(f"{table}_") for table in SMALL)


async def plan_of(server: Any, query: Statement) -> dict[str, Any]:
    prepared = await server.prepare(query.sql)
    kinds = zip(query.params, prepared.get_parameters(), strict=True)
    values = ["'[]'" if param in query.row_tables else f"'1'::{kind.name}" for param, kind in kinds]
    await server.execute(f"PREPARE asked AS {query.sql}")
    text = await server.fetchval("EXPLAIN (FORMAT JSON) EXECUTE asked" + (f"({', '.join(values)})" if values else ""))
    await server.execute("DEALLOCATE asked")
    plan: dict[str, Any] = json.loads(text)[0]["Plan"]
    return plan


def steps_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from steps_of(inner)


async def fill(server: Any) -> None:
    """Insert distinct numbers and texts, twenty teams, three states; a tenth of nullable columns is null."""
    columns = await server.fetch(
        "SELECT table_name::text, string_agg(column_name, ', ' ORDER BY ordinal_position), string_agg(CASE"
        " WHEN data_type = 'smallint' THEN '(x % 2)::smallint' WHEN column_name = 'team' THEN '(x % 20)'"
        " WHEN column_name = 'status' AND data_type = 'text' THEN"
        " $$CASE x % 3 WHEN 0 THEN 'delivered' WHEN 1 THEN 'verified' ELSE 'failed' END$$"
        " WHEN column_name = 'state' THEN $$CASE WHEN x % 2 > 0 THEN 'waiting' ELSE 'delivered' END$$"
        " WHEN is_nullable = 'YES' THEN 'CASE WHEN x % 10 > 0 THEN x END' ELSE 'x' END"
        " || '::' || data_type, ', ' ORDER BY ordinal_position)"
        " FROM information_schema.columns WHERE table_schema = 'public' AND table_name <> 'whole_content'"
        " GROUP BY table_name"
    )
    for table, names, values in columns:
        if table in SMALL:
            continue
        await server.execute(
            f"INSERT INTO {table} ({names}) SELECT {values} FROM generate_series(1, {MORE.get(table, ROWS)}) AS x"
            " ON CONFLICT DO NOTHING"
        )
    await server.execute("ANALYZE")
