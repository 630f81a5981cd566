"""Reads the SQL files: named queries, bound by name, in the dialect of one database.

Two things are added to plain SQL. A line that ends in `--sqlite` or `--postgres` belongs to that dialect.
`rows(:name, column type, …)` is a table made of a list of tuples, handed over as one JSON text, so that one statement
serves a whole batch.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Literal

import msgspec

Dialect = Literal["sqlite", "postgres"]

_NAME = re.compile(r"^-- name: (\w+)[ \t]*\n", re.M)
_ROWS = re.compile(r"\brows\(\s*:(\w+)\s*,([^()]*)\)")
_PARAM = re.compile(r"(?<![:\w]):([a-z_]\w*)")
_COMMENT = re.compile(r"[ \t]*--.*$", re.M)


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    sql: str
    params: tuple[str, ...]  # in the order of $1, $2, … on PostgreSQL
    tables: tuple[str, ...]  # parameters that are rows(…)


@cache
def load_queries(dialect: Dialect) -> Mapping[str, Statement]:
    queries: dict[str, Statement] = {}
    for file in sorted(resources.files("heliograph.storage").joinpath("queries").iterdir(), key=lambda f: f.name):
        head, *parts = _NAME.split(file.read_text("utf-8"))
        if _COMMENT.sub("", head).strip():
            raise ValueError(f"{file.name}: SQL before the first '-- name:' line")
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            if name in queries:
                raise ValueError(f"{file.name}: the query name {name} is used twice")
            queries[name] = read_query(text, dialect)
    return queries


def for_dialect(text: str, dialect: Dialect) -> str:
    """Keep the lines of this dialect and of both; drop comments."""
    other = "--postgres" if dialect == "sqlite" else "--sqlite"
    kept = (line for line in text.splitlines() if not line.rstrip().endswith(other))
    return _COMMENT.sub("", "\n".join(kept))


def read_query(text: str, dialect: Dialect) -> Statement:
    tables: list[str] = []

    def expand(found: re.Match[str]) -> str:
        name, columns = found[1], [column.split() for column in found[2].split(",")]
        tables.append(name)
        if dialect == "sqlite":
            picks = ", ".join(f"value ->> {i} AS {column}" for i, (column, _) in enumerate(columns))
            return f"(SELECT {picks} FROM jsonb_each(:{name}))"
        picks = ", ".join(f"(value ->> {i})::{kind} AS {column}" for i, (column, kind) in enumerate(columns))
        return f"(SELECT {picks} FROM jsonb_array_elements(:{name}::text::jsonb) AS value)"

    sql = _ROWS.sub(expand, for_dialect(text, dialect)).strip().rstrip(";")
    params = tuple(dict.fromkeys(_PARAM.findall(sql)))
    if dialect == "postgres":
        place = {name: f"${i}" for i, name in enumerate(params, 1)}
        sql = _PARAM.sub(lambda found: place[found[1]], sql)
    return Statement(sql=sql, params=params, tables=tuple(tables))


def bound(query: Statement, given: dict[str, Any]) -> dict[str, Any]:
    """The parameters as both databases take them: tables of rows as JSON."""
    for name in query.tables:
        given[name] = msgspec.json.encode(given[name]).decode()
    return given
