"""The SQL files: every query is valid on both databases and used, every query that is used exists."""

import re
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from heliograph import storage
from heliograph.opening import sqlite_path
from heliograph.settings import Settings
from heliograph.storage.engine.query import bound, load_queries, read_query
from heliograph.storage.store import Store

CODE = "\n".join(file.read_text() for file in sorted(Path(storage.__path__[0]).rglob("*.py")))
NAMES = sorted(load_queries("sqlite"))


@pytest.mark.anyio
async def test_every_query_is_valid(store: Store, settings: Settings) -> None:
    path = sqlite_path(settings)
    if path:
        file = apsw.Connection(str(path))
        for query in load_queries("sqlite").values():
            file.execute(f"EXPLAIN {query.sql}", dict.fromkeys(query.params)).fetchall()
        file.close()
    else:
        server: Any = await asyncpg.connect(settings.database)
        for query in load_queries("postgres").values():
            await server.prepare(query.sql)
        await server.close()


@pytest.mark.parametrize("name", NAMES)
def test_every_query_is_used(name: str) -> None:
    assert f'"{name}"' in CODE


def test_every_query_that_is_used_exists() -> None:
    assert set(re.findall(r'\brun\(\s*"(\w+)"', CODE)) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_both_dialects_take_the_same_parameters(name: str) -> None:
    sqlite, postgres = load_queries("sqlite")[name], load_queries("postgres")[name]
    assert sqlite.tables == postgres.tables
    assert set(sqlite.params) == set(postgres.params)


def test_rows_become_a_table() -> None:
    text = "SELECT a FROM rows(:things, a bigint, b text) AS t WHERE b = :b AND a::text <> '' -- why"
    sqlite, postgres = read_query(text, "sqlite"), read_query(text, "postgres")
    assert "jsonb_each(:things)" in sqlite.sql
    assert "jsonb_array_elements($1::text::jsonb)" in postgres.sql
    assert "b = $2 AND a::text" in postgres.sql
    for query in (sqlite, postgres):
        assert query.params == ("things", "b")
        assert bound(query, {"things": [(1, "x"), (2, None)], "b": "x"}) == {"things": '[[1,"x"],[2,null]]', "b": "x"}


@pytest.mark.parametrize(
    ("dialect", "expected"), [("sqlite", "SELECT 1 FROM a"), ("postgres", "SELECT 1 FROM b FOR UPDATE")]
)
def test_a_marked_line_belongs_to_one_dialect(dialect: Any, expected: str) -> None:
    text = "SELECT 1\nFROM a  --sqlite\nFROM b --postgres\nFOR UPDATE  --postgres\n;"
    assert read_query(text, dialect).sql.split() == expected.split()
