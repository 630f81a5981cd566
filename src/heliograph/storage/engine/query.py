"""Reads the SQL files: named queries with named parameters, in the dialect of one database.

Three extensions to plain SQL:

A line that ends in `--sqlite` or `--postgres` belongs to that dialect.

`rows(:name, column type, …)` is a table made of a list of tuples, so that one statement serves a whole batch. The list
is passed as one JSON text. Exception: on SQLite, a statement that only inserts or updates from one such table, named
`r`, is executed with bound columns, once per row or, with `many rows at once` after its name, once per group of rows
(ADR 0002).

`portion(table WHERE condition | place | texts | others)` is a whole query: from the next batch of rows ordered by
`place`, the query returns the rows whose texts contain one of the needles, and always the last row.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache, partial
from importlib import resources
from typing import Any, Literal

import msgspec

Dialect = Literal["sqlite", "postgres"]

_NAME = re.compile(r"^-- name: (\w+)(, many rows at once)?[ \t]*\n", re.M)
_ROWS = re.compile(r"\brows\(\s*:(\w+)\s*,([^()]*)\)")
_PORTION = re.compile(r"\bportion\(([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\)")
_PARAM = re.compile(r"(?<![:\w]):([a-z_]\w*)")
_PLACE = re.compile(r"'[^']*'|([$?])(\d+)")
_COMMENT = re.compile(r"[ \t]*--.*$", re.M)
_INSERT = re.compile(r"(INSERT INTO \w+ \([^()]*\))\s+SELECT\s+(.*?)\s+FROM rows\(\s*:\w+\s*,([^()]*)\) AS r", re.S)
_UPDATE = re.compile(r"(UPDATE \w+ SET .*?)\s+FROM rows\(\s*:\w+\s*,([^()]*)\) AS r\s+(WHERE .*)", re.S)
_WORD = re.compile(r"'[^']*'|\b(r\.)?([a-z_]\w*)")


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """One query in the dialect of a database."""

    sql: str
    params: tuple[str, ...]  # in the order of $1, $2, … on PostgreSQL
    tables: tuple[str, ...]  # parameters that are rows(…)
    each: int = 0  # SQLite: number of columns bound per row; 0 if the rows are passed as one JSON text
    many: bool = False  # SQLite: bind several rows per execution; small rows only: values stay in memory

    def has_rows(self, given: Mapping[str, Any]) -> bool:
        return all(given[name] for name in self.tables)


@cache
def load_queries(dialect: Dialect) -> Mapping[str, Statement]:
    """Return all named queries of `queries/*.sql`."""
    queries: dict[str, Statement] = {}
    for file in sorted(resources.files("heliograph.storage").joinpath("queries").iterdir(), key=lambda f: f.name):
        head, *parts = _NAME.split(file.read_text("utf-8"))
        if _COMMENT.sub("", head).strip():
            raise ValueError(f"{file.name}: SQL before the first '-- name:' line")
        for name, many, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            if name in queries:
                raise ValueError(f"{file.name}: the query name {name} is used twice")
            queries[name] = read_query(text, dialect, many=bool(many))
    return queries


def for_dialect(text: str, dialect: Dialect) -> str:
    """Return the lines of this dialect and of both dialects, without comments."""
    other = "--postgres" if dialect == "sqlite" else "--sqlite"
    kept = (line for line in text.splitlines() if not line.rstrip().endswith(other))
    return _COMMENT.sub("", "\n".join(kept))


def read_query(text: str, dialect: Dialect, *, many: bool = False) -> Statement:
    """Expand `rows(…)` and `portion(…)` and number the parameters for the dialect."""
    text = for_dialect(text, dialect).strip().rstrip(";").rstrip()
    tables: list[str] = []

    def expand(found: re.Match[str]) -> str:
        name, columns = found[1], [column.split() for column in found[2].split(",")]
        tables.append(name)
        if dialect == "sqlite":
            picks = ", ".join(f"value ->> {i} AS {column}" for i, (column, _) in enumerate(columns))
            return f"(SELECT {picks} FROM jsonb_each(:{name}))"
        picks = ", ".join(f"(value ->> {i})::{kind} AS {column}" for i, (column, kind) in enumerate(columns))
        return f"(SELECT {picks} FROM jsonb_array_elements(:{name}::text::jsonb) AS value)"

    sql = _ROWS.sub(expand, _PORTION.sub(partial(_portion, dialect), text))
    params = tuple(dict.fromkeys(_PARAM.findall(sql)))
    if dialect == "postgres":
        place = {name: f"${i}" for i, name in enumerate(params, 1)}
        sql = _PARAM.sub(lambda found: place[found[1]], sql)
    elif params == tuple(tables) and "RETURNING" not in sql:
        sql, each = _for_each_row(text) or (sql, 0)
        return Statement(sql=sql, params=params, tables=tuple(tables), each=each, many=many)
    return Statement(sql=sql, params=params, tables=tuple(dict.fromkeys(tables)))


def _portion(dialect: Dialect, found: re.Match[str]) -> str:
    source, place, texts, others = map(str.strip, found.groups())
    columns = [part.strip() for part in f"{place}, {texts}, {others}".rstrip(", ").split(",")]
    text = " || ' ' || ".join(f"coalesce(s.{name.strip()}, '')" for name in texts.split(","))
    find = "instr" if dialect == "sqlite" else "strpos"
    return f"""WITH seen AS (
        SELECT {", ".join(columns)} FROM {source} AND {place} > :after ORDER BY {place} LIMIT :limit
    )
    SELECT {", ".join(f"s.{name}" for name in columns)} FROM seen s
    WHERE s.{place} = (SELECT max({place}) FROM seen) OR EXISTS (
        SELECT 1 FROM rows(:needles, needle text) AS n WHERE {find}(lower({text}), n.needle) > 0
    )
    ORDER BY s.{place}"""


def _for_each_row(text: str) -> tuple[str, int] | None:
    """Return the statement for one row with columns ?1, ?2, …, and the number of columns.

    None if the statement must take its rows as JSON.
    """
    if found := _INSERT.fullmatch(text):
        into, picks, columns = found.groups()
        place = _places(columns)
        return f"{into} VALUES ({_WORD.sub(lambda word: place.get(word[2], word[0]), picks)})", len(place)
    if found := _UPDATE.fullmatch(text):
        changes, columns, where = found.groups()
        place = _places(columns)
        return _WORD.sub(lambda word: place[word[2]] if word[1] else word[0], f"{changes} {where}"), len(place)
    return None


@cache
def of_rows(query: Statement, count: int) -> str:
    """Return the SQLite statement that inserts `count` rows, with all columns bound in sequence."""
    into, values, row = query.sql.partition(" VALUES ")
    rows = (_PLACE.sub(partial(_further, number * query.each), row) for number in range(count))
    return f"{into}{values}{', '.join(rows)}"


def _places(columns: str) -> dict[str, str]:
    return {column.split()[0]: f"?{i}" for i, column in enumerate(columns.split(","), 1)}


def bound(query: Statement, given: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters with row tables encoded as JSON, as both databases expect."""
    for name in query.tables:
        given[name] = as_json(given[name])
    return given


def as_json(rows: Sequence[Any]) -> str:
    return msgspec.json.encode(rows).decode()


@cache
def together(queries: tuple[Statement, ...]) -> str:
    """Combine PostgreSQL statements whose only parameter is a row table into one statement."""
    parts = (f"part_{i} AS ({query.sql.replace('$1', f'${i}')})" for i, query in enumerate(queries, 1))
    return f"WITH {', '.join(parts)} SELECT 1"


@cache
def side_by_side(queries: tuple[Statement, ...]) -> str:
    """Combine PostgreSQL queries into one; its only row has the result of each query as JSON."""
    parts, before = [], 0
    for query in queries:
        sql = _PLACE.sub(partial(_further, before), query.sql)
        parts.append(f"(SELECT json_agg(found) FROM ({sql}) AS found)")
        before += len(query.params)
    return f"SELECT {', '.join(parts)}"


def _further(by: int, place: re.Match[str]) -> str:
    """Return a parameter placeholder with its number increased by `by`."""
    return f"{place[1]}{by + int(place[2])}" if place[1] else place[0]
