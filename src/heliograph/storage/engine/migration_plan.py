"""Estimates the steps and the duration of a migration before it runs."""

import re
from collections.abc import Mapping, Sequence

import apsw
import msgspec

from heliograph.storage.engine.migrate import SchemaFile, missing_in, missing_on
from heliograph.storage.engine.postgres import Hosts, connect, outages

# Approximate rows per second: index builds as measured on two cores, writes estimated.
INDEXED_A_SECOND = 250_000
WRITTEN_A_SECOND = 50_000

_KINDS = {
    "new table": re.compile(r"CREATE TABLE (\w+)"),
    "index": re.compile(r"CREATE (?:UNIQUE )?INDEX \w+ ON (\w+)"),
    "columns": re.compile(r"ALTER TABLE (\w+)"),
    "rows": re.compile(r"(?:UPDATE|DELETE FROM) (\w+)|INSERT INTO \w+.*?SELECT.*?\bFROM (\w+)", re.S),
}
SIZES = """SELECT relname, greatest(reltuples, coalesce(pg_stat_get_live_tuples(oid), 0))::bigint
           FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace"""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    schema: int
    kind: str  # new table, index, columns, rows, other
    table: str
    rows: int
    seconds: float  # estimate
    blocks: bool  # writes to the table wait meanwhile


def steps(changes: Sequence[SchemaFile], rows_of: Mapping[str, int], *, beside: bool) -> list[Step]:
    """Return the migration steps. With `beside`, indexes on existing tables are built concurrently."""
    return [_step(change, text, rows_of, beside) for change in changes for text in change.statements]


def _step(change: SchemaFile, text: str, rows_of: Mapping[str, int], beside: bool) -> Step:
    kind, table = _kind(text)
    rows = rows_of.get(table, 0)
    seconds = {"index": rows / INDEXED_A_SECOND, "rows": rows / WRITTEN_A_SECOND}.get(kind, 0.0)
    blocks = not (beside and text in change.late.values())
    return Step(schema=change.number, kind=kind, table=table, rows=rows, seconds=seconds, blocks=blocks)


def _kind(text: str) -> tuple[str, str]:
    for kind, pattern in _KINDS.items():
        if found := pattern.match(text):
            return kind, next(name for name in found.groups() if name)
    return "other", ""


async def plan_postgres(url: str, connect_s: float | None = None) -> list[Step]:
    connection = await connect(Hosts(url, connect_s))
    try:
        missing = await missing_on(connection)
        with outages():
            return steps(missing, dict(await connection.fetch(SIZES)), beside=True)
    finally:
        connection.terminate()


def plan_sqlite(connection: apsw.Connection) -> list[Step]:
    tables = [str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    rows_of = {name: int(next(connection.execute(f'SELECT count(*) FROM "{name}"'))[0]) for name in tables}
    return steps(missing_in(connection), rows_of, beside=False)
