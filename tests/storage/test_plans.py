"""No query walks through a table that grows: what SQLite and PostgreSQL plan for every query of `queries/`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from heliograph.opening import migrate, sqlite_path
from heliograph.settings import Settings
from heliograph.storage.engine.query import Statement, load_queries

pytestmark = pytest.mark.anyio

# As many as teams, webhooks, people, or fewer.
SMALL = {
    "account",
    "counter",
    "fact",
    "setting",
    "circuit",
    "judgement",
    "endpoint",
    "person",
    "member",
    "machine_clock",
    "schema_version",
}
# Partial indexes that hold what is in work or has gone wrong: walked from end to end, they are still short.
SHORT = {
    *("outbox_claimed", "outbox_suspect", "recipient_dead", "verification_dispatching", "verification_pending"),
    "suppression_import_open",
}
# Queries that count or show the whole of something, by readers only.
WHOLE = {
    "outbox_depth": {"outbox"},
    "waiting_by_team": {"outbox"},
    "waiting_deliveries": {"delivery"},
    "newest_reputation": {"reputation"},  # a week of hours: nearly all that is kept
    "queues_pulse": {"outbox", "delivery"},  # LIMIT, and the ends of an index
    "seen_spans": {"seen_recipient"},  # the ends of an index
    "due_webhooks": {"delivery"},  # min(): the first entry of an index
}
# In each table on PostgreSQL, which plans by what it finds there; more where a guess about a filter hides the index.
ROWS, MORE = 1000, {"outbox": 20_000, "delivery": 20_000, "recipient": 20_000}
DEAR = "SET enable_seqscan = off; SET enable_mergejoin = off; SET enable_hashjoin = off"


async def test_no_query_walks_through_a_table_that_grows(empty_database_url: str, tmp_path: Path) -> None:
    settings = Settings(database=empty_database_url, data=tmp_path / "data")
    await migrate(settings)
    path = sqlite_path(settings)
    found = sqlite_walks(str(path)) if path else await postgres_walks(settings.database)
    assert {name: walks for name, walks in found.items() if walks - WHOLE.get(name, set())} == {}


def sqlite_walks(path: str) -> dict[str, set[str]]:
    """Planned without statistics, as in production: nobody runs ANALYZE."""
    connection, walks = apsw.Connection(path), dict[str, set[str]]()
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    for name, query in load_queries("sqlite").items():
        given = {param: "[]" if param in query.tables else None for param in query.params}
        steps = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {query.sql}", given)]
        named = dict(re.findall(r"\b(?:FROM|JOIN|UPDATE|INTO)\s+(\w+)(?:\s+AS)?\s+(\w+)\b", query.sql))
        tables_by_alias = {alias: table for table, alias in named.items() if table in tables}
        walks[name] = set()
        for step in steps:
            if scan := re.match(r"SCAN (\w+)(?: USING(?: COVERING)? INDEX (\w+))?", step):
                table = str(tables_by_alias.get(scan[1], scan[1]))
                if table in tables - SMALL and scan[2] not in SHORT:
                    walks[name].add(table)
    connection.close()
    return walks


async def postgres_walks(url: str) -> dict[str, set[str]]:
    """In filled tables, as if reading a whole one were very dear: who still does it has no index to go by."""
    server: Any = await asyncpg.connect(url)
    await fill(server)
    await server.execute(f"{DEAR}; SET plan_cache_mode = force_generic_plan")
    walks = {}
    for name, query in load_queries("postgres").items():
        plan = await plan_of(server, query)
        walks[name] = {
            step["Relation Name"]
            for step in steps_of(plan)
            if "Relation Name" in step
            and "Index Cond" not in step
            and "Recheck Cond" not in step
            and "TID Cond" not in step
            and step["Node Type"] != "ModifyTable"
            and step["Relation Name"] not in SMALL
            and step.get("Index Name") not in SHORT
        }
    await server.close()
    return walks


async def plan_of(server: Any, query: Statement) -> dict[str, Any]:
    prepared = await server.prepare(query.sql)
    kinds = zip(query.params, prepared.get_parameters(), strict=True)
    values = ["'[]'" if param in query.tables else f"'1'::{kind.name}" for param, kind in kinds]
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
    """Numbers and texts that all differ; a tenth of what may be unknown is."""
    columns = await server.fetch(
        "SELECT table_name::text, string_agg(column_name, ', ' ORDER BY ordinal_position), string_agg(CASE"
        " WHEN data_type = 'smallint' THEN '(x % 2)::smallint' WHEN column_name = 'team' THEN '(x % 100)'"
        " WHEN column_name = 'state' THEN $$CASE WHEN x % 2 > 0 THEN 'waiting' ELSE 'delivered' END$$"
        " WHEN is_nullable = 'YES' THEN 'CASE WHEN x % 10 > 0 THEN x END' ELSE 'x' END"
        " || '::' || data_type, ', ' ORDER BY ordinal_position)"
        " FROM information_schema.columns WHERE table_schema = 'public' GROUP BY table_name"
    )
    for table, names, values in columns:
        if table in SMALL:
            continue
        await server.execute(
            f"INSERT INTO {table} ({names}) SELECT {values} FROM generate_series(1, {MORE.get(table, ROWS)}) AS x"
            " ON CONFLICT DO NOTHING"
        )
    await server.execute("ANALYZE")
