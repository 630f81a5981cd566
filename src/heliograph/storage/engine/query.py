"""Reads the SQL files: named queries with named parameters, in the dialect of one database.

Three extensions to plain SQL:

A line that ends in `--sqlite` or `--postgres` belongs to that dialect.

`rows(:name, column type, …)` stands for a table whose rows are a list of tuples, the parameter `name`, so that one
statement serves a whole batch. The list is passed as one JSON text. Exception: on SQLite, a statement that only inserts
or updates from one such table, named `r`, is executed with bound columns, once per row or, with `many rows at once`
after its name, once per group of rows (ADR 0002).

`batch(table WHERE condition | key | texts | others)` stands for a complete query that scans a table in batches, ordered
by its column `key`. It returns those rows of the next batch that contain one of the search texts (parameter `needles`)
in a column of `texts`, with the columns `others`. The last row of the batch is always returned, because the next batch
starts after its key.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache, partial
from importlib import resources
from typing import Any, Literal

import msgspec

Dialect = Literal["sqlite", "postgres"]

_QUERY_HEAD = re.compile(r"^-- name: (\w+)(, many rows at once)?[ \t]*\n", re.M)
_ROW_TABLE = re.compile(r"\brows\(\s*:(\w+)\s*,([^()]*)\)")
_BATCH_QUERY = re.compile(r"\bbatch\(([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\)")
_NAMED_PARAM = re.compile(r"(?<![:\w]):([a-z_]\w*)")
_PLACEHOLDER = re.compile(r"'[^']*'|([$?])(\d+)")
_COMMENT = re.compile(r"[ \t]*--.*$", re.M)
_INSERT_FROM_ROWS = re.compile(
    r"(INSERT INTO \w+ \([^()]*\))\s+SELECT\s+(.*?)\s+FROM rows\(\s*:\w+\s*,([^()]*)\) AS r", re.S
)
_UPDATE_FROM_ROWS = re.compile(r"(UPDATE \w+ SET .*?)\s+FROM rows\(\s*:\w+\s*,([^()]*)\) AS r\s+(WHERE .*)", re.S)
_IDENTIFIER = re.compile(r"'[^']*'|\b(r\.)?([a-z_]\w*)")
_CONFLICT_OF_SELECT = re.compile(r"\bINSERT INTO\b.*?\bSELECT\b.*?\bON CONFLICT\b", re.S)


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """One SQL query in the dialect of a database."""

    sql: str
    params: tuple[str, ...]  # in the order of $1, $2, … on PostgreSQL
    row_tables: tuple[str, ...]  # parameters that are rows(…)
    columns_per_row: int = 0  # SQLite: number of columns bound per row; 0 if the rows are passed as one JSON text
    is_multi_row: bool = False  # SQLite: bind several rows per execution; only for small rows, which stay in memory
    literals_from: int = 0  # Citus: offset in `sql` from which parameters are written as literals
    is_sequence: bool = False  # PostgreSQL: reads the next values of a sequence

    def has_rows(self, params: Mapping[str, Any]) -> bool:
        return all(params[name] for name in self.row_tables)


@cache
def load_queries(dialect: Dialect) -> Mapping[str, Statement]:
    """Return all named queries of `queries/*.sql`."""
    queries: dict[str, Statement] = {}
    for file in sorted(resources.files("heliograph.storage").joinpath("queries").iterdir(), key=lambda f: f.name):
        preamble, *parts = _QUERY_HEAD.split(file.read_text("utf-8"))
        if _COMMENT.sub("", preamble).strip():
            raise ValueError(f"{file.name}: SQL before the first '-- name:' line")
        for name, multi_row, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            if name in queries:
                raise ValueError(f"{file.name}: the query name {name} is used twice")
            queries[name] = read_query(text, dialect, is_multi_row=bool(multi_row))
    return queries


def for_dialect(text: str, dialect: Dialect) -> str:
    """Return the lines of an SQL text for this dialect and those for both dialects, without comments."""
    excluded_suffix = "--postgres" if dialect == "sqlite" else "--sqlite"
    lines = (line for line in text.splitlines() if not line.rstrip().endswith(excluded_suffix))
    return _COMMENT.sub("", "\n".join(lines))


def read_query(text: str, dialect: Dialect, *, is_multi_row: bool = False) -> Statement:
    """Return the statement of a query: `rows(…)` and `batch(…)` expanded, and parameters numbered for the dialect."""
    text = for_dialect(text, dialect).strip().rstrip(";").rstrip()
    tables: list[str] = []

    def expand_row_table(match: re.Match[str]) -> str:
        name, columns = match[1], [column.split() for column in match[2].split(",")]
        tables.append(name)
        if dialect == "sqlite":
            selected = ", ".join(f"value ->> {i} AS {column}" for i, (column, _) in enumerate(columns))
            return f"(SELECT {selected} FROM jsonb_each(:{name}))"
        selected = ", ".join(f"(value ->> {i})::{type_} AS {column}" for i, (column, type_) in enumerate(columns))
        return f"(SELECT {selected} FROM jsonb_array_elements(:{name}::text::jsonb) AS value)"

    sql = _ROW_TABLE.sub(expand_row_table, _BATCH_QUERY.sub(partial(_expand_batch_query, dialect), text))
    params = tuple(dict.fromkeys(_NAMED_PARAM.findall(sql)))
    if dialect == "postgres":
        placeholder_by_name = {name: f"${i}" for i, name in enumerate(params, 1)}
        sql = _NAMED_PARAM.sub(lambda match: placeholder_by_name[match[1]], sql)
        match = _CONFLICT_OF_SELECT.search(sql)
        return Statement(
            sql=sql,
            params=params,
            row_tables=tuple(dict.fromkeys(tables)),
            literals_from=match.end() if match else len(sql),
            is_sequence="nextval(" in sql,
        )
    if params == tuple(tables) and "RETURNING" not in sql:
        sql, columns_per_row = _single_row_statement(text) or (sql, 0)
        return Statement(
            sql=sql, params=params, row_tables=tuple(tables), columns_per_row=columns_per_row, is_multi_row=is_multi_row
        )
    return Statement(sql=sql, params=params, row_tables=tuple(dict.fromkeys(tables)))


def _expand_batch_query(dialect: Dialect, match: re.Match[str]) -> str:
    source, key_column, texts, others = map(str.strip, match.groups())
    columns = [part.strip() for part in f"{key_column}, {texts}, {others}".rstrip(", ").split(",")]
    text = " || ' ' || ".join(f"coalesce(s.{name.strip()}, '')" for name in texts.split(","))
    search_function = "instr" if dialect == "sqlite" else "strpos"
    return f"""WITH seen AS (
        SELECT {", ".join(columns)} FROM {source} AND {key_column} > :after ORDER BY {key_column} LIMIT :limit
    )
    SELECT {", ".join(f"s.{name}" for name in columns)} FROM seen s
    WHERE s.{key_column} = (SELECT max({key_column}) FROM seen) OR EXISTS (
        SELECT 1 FROM rows(:needles, needle text) AS n WHERE {search_function}(lower({text}), n.needle) > 0
    )
    ORDER BY s.{key_column}"""


def _single_row_statement(text: str) -> tuple[str, int] | None:
    """Return a statement whose parameters ?1, ?2, … are one row, and their number; None if its rows must be JSON."""
    if match := _INSERT_FROM_ROWS.fullmatch(text):
        into, selected, columns = match.groups()
        placeholder_by_column = _placeholder_by_column(columns)
        values = _IDENTIFIER.sub(lambda token: placeholder_by_column.get(token[2], token[0]), selected)
        return f"{into} VALUES ({values})", len(placeholder_by_column)
    if match := _UPDATE_FROM_ROWS.fullmatch(text):
        assignments, columns, where = match.groups()
        placeholder_by_column = _placeholder_by_column(columns)
        update = f"{assignments} {where}"
        sql = _IDENTIFIER.sub(lambda token: placeholder_by_column[token[2]] if token[1] else token[0], update)
        return sql, len(placeholder_by_column)
    return None


@cache
def insert_many(query: Statement, count: int) -> str:
    """Return the SQLite statement that inserts `count` rows, with the columns of all rows bound in sequence."""
    into, values, row = query.sql.partition(" VALUES ")
    rows = (
        _PLACEHOLDER.sub(partial(_shift_placeholder, number * query.columns_per_row), row) for number in range(count)
    )
    return f"{into}{values}{', '.join(rows)}"


def _placeholder_by_column(columns: str) -> dict[str, str]:
    return {column.split()[0]: f"?{i}" for i, column in enumerate(columns.split(","), 1)}


def encode_row_tables(query: Statement, params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters with row tables encoded as JSON, as both databases expect."""
    for name in query.row_tables:
        params[name] = as_json(params[name])
    return params


def with_literals(query: Statement, params: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Return the text and the parameters of a query for Citus; parameters after `literals_from` become literals.

    Citus runs an insert from a SELECT statement in two steps, and passes the parameters only to that statement.
    """
    head, tail = query.sql[: query.literals_from], query.sql[query.literals_from :]
    values = [params[name] for name in query.params]

    def literal(match: re.Match[str]) -> str:
        return _literal(values[int(match[2]) - 1]) if match[1] else match[0]

    tail = _PLACEHOLDER.sub(literal, tail)
    used_numbers = [int(match[2]) for match in _PLACEHOLDER.finditer(head) if match[1]]
    return head + tail, values[: max(used_numbers, default=0)]


def _literal(value: str | int | None) -> str:
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else "'{}'".format(value.replace("'", "''"))


def as_json(rows: Sequence[Any]) -> str:
    return msgspec.json.encode(rows).decode()


@cache
def combine_writes(queries: tuple[Statement, ...]) -> str:
    """Combine PostgreSQL statements whose only parameter is a row table into one statement."""
    parts = (f"part_{i} AS ({query.sql.replace('$1', f'${i}')})" for i, query in enumerate(queries, 1))
    return f"WITH {', '.join(parts)} SELECT 1"


@cache
def combine_queries(queries: tuple[Statement, ...]) -> str:
    """Combine PostgreSQL queries into one; its only row has the result of each query as JSON."""
    parts, param_count = [], 0
    for query in queries:
        sql = _PLACEHOLDER.sub(partial(_shift_placeholder, param_count), query.sql)
        parts.append(f"(SELECT json_agg(found) FROM ({sql}) AS found)")
        param_count += len(query.params)
    return f"SELECT {', '.join(parts)}"


def _shift_placeholder(offset: int, match: re.Match[str]) -> str:
    """Return a parameter placeholder with its number increased by `offset`."""
    return f"{match[1]}{offset + int(match[2])}" if match[1] else match[0]
