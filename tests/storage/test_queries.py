"""SQL files: every query is valid on both databases and used, and every used query exists."""

import re
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

import heliograph
from heliograph.bootstrap import sqlite_path
from heliograph.settings import Settings
from heliograph.storage.engine.database import Tx
from heliograph.storage.engine.query import (
    Dialect,
    combine_writes,
    encode_row_tables,
    insert_many,
    load_queries,
    read_query,
)
from heliograph.storage.engine.sqlite import ROWS_PER_INSERT, SqliteTx, open_sqlite, run_to_completion
from heliograph.storage.store import Store
from tests.storage.conftest import Sql

CODE = "\n".join(file.read_text() for file in sorted(Path(heliograph.__path__[0]).rglob("*.py")))
QUERIES = load_queries("sqlite")


@pytest.mark.anyio
async def test_every_query_is_valid(store: Store, settings: Settings) -> None:
    path = sqlite_path(settings)
    if path:
        file = apsw.Connection(str(path))
        for query in load_queries("sqlite").values():
            file.execute(
                f"EXPLAIN {query.sql}", (None,) * query.columns_per_row or dict.fromkeys(query.params)
            ).fetchall()
            if query.is_multi_row:
                many = insert_many(query, ROWS_PER_INSERT[0])
                file.execute(f"EXPLAIN {many}", (None,) * query.columns_per_row * ROWS_PER_INSERT[0]).fetchall()
                assert len(many) < file.cache_stats()["max_cacheable_bytes"]
        file.close()
    else:
        server: Any = await asyncpg.connect(settings.database)
        for query in load_queries("postgres").values():
            await server.prepare(query.sql)
        await server.close()


def test_every_query_is_used() -> None:
    def is_used(name: str) -> bool:
        verb, _, table = name.partition("_")
        is_composed = f'f"{verb}_{{table.name}}"' in CODE and f'TextTable("{table}"' in CODE  # erasure and export
        return is_composed or f'"{name}"' in CODE

    assert [name for name in QUERIES if not is_used(name)] == []


def test_every_query_that_is_used_exists() -> None:
    assert set(re.findall(r'\brun\(\s*"(\w+)"', CODE)) <= QUERIES.keys()


def test_both_dialects_have_the_same_parameters() -> None:
    for name, postgres in load_queries("postgres").items():
        assert QUERIES[name].row_tables == postgres.row_tables, name
        assert set(QUERIES[name].params) == set(postgres.params), name


@pytest.mark.parametrize(("dialect", "find"), [("sqlite", "instr"), ("postgres", "strpos")])
def test_query_batch_contains_its_rows_and_the_last(dialect: Dialect, find: str) -> None:
    query = read_query("batch(t WHERE team = :team | id | a, b | c);", dialect)
    assert "SELECT id, a, b, c FROM t WHERE team = " in query.sql
    assert "SELECT s.id, s.a, s.b, s.c FROM seen s" in " ".join(query.sql.split())
    assert f"{find}(lower(coalesce(s.a, '') || ' ' || coalesce(s.b, '')), n.needle) > 0" in query.sql
    assert (query.params, query.row_tables) == (("team", "after", "limit", "needles"), ("needles",))


def test_rows_are_passed_as_a_table() -> None:
    text = "SELECT a FROM rows(:things, a bigint, b text) AS t WHERE b = :b AND a::text <> '' -- why"
    sqlite, postgres = read_query(text, "sqlite"), read_query(text, "postgres")
    assert "jsonb_each(:things)" in sqlite.sql
    assert "jsonb_array_elements($1::text::jsonb)" in postgres.sql
    assert "b = $2 AND a::text" in postgres.sql
    for query in (sqlite, postgres):
        assert query.params == ("things", "b")
        assert not query.columns_per_row
        assert encode_row_tables(query, {"things": [(1, "x"), (2, None)], "b": "x"}) == {
            "things": '[[1,"x"],[2,null]]',
            "b": "x",
        }


@pytest.mark.parametrize(
    ("text", "expected", "columns"),
    [
        (
            "INSERT INTO t (a, b, c, d)\nSELECT b, 0, 'a b', coalesce(r.a, 1) FROM rows(:x, a bigint, b text) AS r;",
            "INSERT INTO t (a, b, c, d) VALUES (?2, 0, 'a b', coalesce(?1, 1))",
            2,
        ),
        (
            "UPDATE t SET b = r.b, c = b FROM rows(:x,\n  a bigint, b text) AS r\nWHERE t.a = r.a AND t.b <> 'r.b';",
            "UPDATE t SET b = ?2, c = b WHERE t.a = ?1 AND t.b <> 'r.b'",
            2,
        ),
        ("INSERT INTO t (a) SELECT a FROM rows(:x, a bigint) AS r WHERE true ON CONFLICT DO NOTHING", None, 0),
        ("INSERT INTO t (a) SELECT a FROM rows(:x, a bigint) AS r RETURNING a", None, 0),
        ("UPDATE t SET b = r.b FROM rows(:x, a bigint, b text) AS r WHERE t.a = r.a RETURNING t.a", None, 0),
        ("UPDATE t SET b = :b FROM rows(:x, a bigint) AS r WHERE t.a = r.a", None, 0),
        ("DELETE FROM t WHERE a IN (SELECT a FROM rows(:x, a bigint) AS r)", None, 0),
    ],
)
def test_sqlite_write_only_query_binds_columns(text: str, expected: str | None, columns: int) -> None:
    result = read_query(text, "sqlite")
    assert result.columns_per_row == columns
    if expected:
        assert result.sql == expected
    else:
        assert "jsonb_each(:x)" in result.sql


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 31, 32, 33, 40, 100])
def test_sqlite_inserts_many_rows_at_once(count: int) -> None:
    file = apsw.Connection(":memory:")
    file.execute("CREATE TABLE t (a, b, c)").fetchall()
    put = read_query(
        "INSERT INTO t (a, b, c) SELECT a, '$1', c FROM rows(:x, c text, a bigint) AS r", "sqlite", is_multi_row=True
    )
    run_to_completion(lambda tx: tx.run("put", x=[(f"c{n}", n) for n in range(count)]), SqliteTx(file, {"put": put}))
    assert file.execute("SELECT * FROM t").fetchall() == [(n, "$1", f"c{n}") for n in range(count)]


def test_sqlite_releases_the_contents_of_the_last_write(tmp_path: Path) -> None:
    file = apsw.Connection(str(tmp_path / "file"))
    file.execute("CREATE TABLE content (message, body)").fetchall()
    rows = [(n, "x" * 1_000_000) for n in range(ROWS_PER_INSERT[0])]
    run_to_completion(lambda tx: tx.run("insert_contents", contents=rows), SqliteTx(file, load_queries("sqlite")))
    assert 1_000_000 < file.status(apsw.SQLITE_DBSTATUS_STMT_USED)[0] < 8_000_000
    file.close()


def test_sqlite_has_lookaside_memory_beside_cached_statements(tmp_path: Path) -> None:
    file = open_sqlite(tmp_path / "file")
    file.execute("CREATE TABLE t (a, b, c, d)").fetchall()
    put = read_query(
        "INSERT INTO t (a, b, c, d) SELECT a, b, c, d FROM rows(:x, a text, b text, c text, d text) AS r",
        "sqlite",
        is_multi_row=True,
    )
    run_to_completion(lambda tx: tx.run("put", x=[("a" * 40,) * 4] * ROWS_PER_INSERT[0]), SqliteTx(file, {"put": put}))
    assert file.status(apsw.SQLITE_DBSTATUS_LOOKASIDE_MISS_FULL)[1] == 0
    file.close()


def test_postgres_runs_write_only_queries_in_one_round_trip() -> None:
    texts = [f"INSERT INTO {t} (a) SELECT a FROM rows(:x, a bigint) AS r" for t in ("t", "u")]
    sql = combine_writes(tuple(read_query(text, "postgres") for text in texts))
    assert sql.startswith("WITH part_1 AS (INSERT INTO t")
    assert [f"jsonb_array_elements(${i}::text" in sql for i in (1, 2, 3)] == [True, True, False]


@pytest.mark.parametrize(
    ("number", "small", "text"),
    [
        (7, 1, None),
        (2**63 - 1, 32767, ""),
        (-(2**63), -32768, "naïve ✓ 🛰 \u202e"),
        (0, 0, "12"),
        (1, 1, "null"),
        (2, 2, "'; -- :now $1 ?1 r.key"),
        (3, 3, '{"a": "\\"\\u0041", "b": [1, null]}'),
        (4, 4, "\t\n\r\x7f"),
        (5, 5, "x" * 100_000),
    ],
    ids=["none", "largest", "smallest", "digits", "word", "syntax", "json", "control", "long"],
)
@pytest.mark.anyio
async def test_every_value_is_read_back_unchanged(
    store: Store, sql: Sql, number: int, small: int, text: str | None
) -> None:
    async def function(tx: Tx) -> None:
        values = text or ""
        recipient = (number, small, values, values, "to", "sending", number, None)
        await tx.write_many({"insert_contents": [], "insert_recipients": [recipient]})
        await tx.run("update_recipients", recipients=[(number, small, "sent", number, 1, text, text, text)])
        suppression = (number, values, values, "manual", text, text, number)  # rows that are read as a table
        assert [tuple(row) for row in await tx.run("insert_suppressions", suppressions=[suppression])] == [
            (number, values)
        ]

        assert await tx.run_many(
            find_suppressed={"addresses": [(number, values)]},
            find_idempotency={"keys": []},
            find_marketing={"addresses": [(number, values, 0)]},
            inbox_recipients={"message": 0, "carriers": [("sim",)]},  # something else, then a table
            next_message_keys={"count": 2},
        ) == [[(number, values)], [], [], [], [(1,), (2,)]]

    await store.database.write(function)
    assert await sql("SELECT message, position, given, carrier, detail, updated_at, late FROM recipient") == [
        (number, small, text or "", text, text, number, 1)
    ]
    assert await sql("SELECT team, address, detail, created_at FROM suppression") == [
        (number, text or "", text, number)
    ]


@pytest.mark.anyio
async def test_query_without_rows_runs_no_statement(store: Store) -> None:
    async def function(tx: Tx) -> list[Any]:
        await tx.write_many({"insert_contents": [], "update_accounts": []})
        await tx.write_many({})
        await tx.run("insert_audit", entries=[])
        await tx.run("remember_idempotency", keys=[], window=0, over=0)
        return await tx.run("find_suppressed", addresses=[])

    assert await store.database.write(function) == []


@pytest.mark.parametrize(
    ("dialect", "expected"), [("sqlite", "SELECT 1 FROM a"), ("postgres", "SELECT 1 FROM b FOR UPDATE")]
)
def test_query_line_marked_for_a_dialect_is_used_only_there(dialect: Any, expected: str) -> None:
    text = "SELECT 1\nFROM a  --sqlite\nFROM b --postgres\nFOR UPDATE  --postgres\n;"
    assert read_query(text, dialect).sql.split() == expected.split()
