"""Estimates the steps and the duration of a migration before it runs."""

import re
from collections.abc import Mapping, Sequence

import apsw
import msgspec

from heliograph.storage.engine.citus import CITUS_TABLE_SIZES_QUERY, is_citus
from heliograph.storage.engine.migrate import SchemaFile, missing_on_postgres, missing_on_sqlite
from heliograph.storage.engine.postgres import Hosts, connect, raise_outages

# Approximate rows per second: index builds as measured on two cores, writes estimated.
INDEXED_ROWS_PER_S = 250_000
WRITTEN_ROWS_PER_S = 50_000

_PATTERN_BY_KIND = {
    "new table": re.compile(r"CREATE TABLE (\w+)"),
    "index": re.compile(r"CREATE (?:UNIQUE )?INDEX \w+ ON (\w+)"),
    "columns": re.compile(r"ALTER TABLE (\w+)"),
    "rows": re.compile(r"(?:UPDATE|DELETE FROM) (\w+)|INSERT INTO \w+.*?SELECT.*?\bFROM (\w+)", re.S),
}
TABLE_SIZES_QUERY = """SELECT relname, greatest(reltuples, coalesce(pg_stat_get_live_tuples(oid), 0))::bigint
           FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace"""


class MigrationStep(msgspec.Struct, frozen=True, kw_only=True):
    schema: int
    kind: str  # new table, index, columns, rows, other
    table: str
    rows: int
    seconds: float  # estimate
    blocks: bool  # writes to the table wait until this step ends


def plan_steps(
    files: Sequence[SchemaFile], rows_by_table: Mapping[str, int], *, concurrent: bool
) -> list[MigrationStep]:
    """Return the steps of a migration. With `concurrent`, indexes on existing tables are built concurrently."""
    return [_plan_step(file, statement, rows_by_table, concurrent) for file in files for statement in file.statements]


def _plan_step(file: SchemaFile, statement: str, rows_by_table: Mapping[str, int], concurrent: bool) -> MigrationStep:
    kind, table = _kind_and_table(statement)
    rows = rows_by_table.get(table, 0)
    seconds = {"index": rows / INDEXED_ROWS_PER_S, "rows": rows / WRITTEN_ROWS_PER_S}.get(kind, 0.0)
    blocks = not (concurrent and statement in file.concurrent_indexes.values())
    return MigrationStep(schema=file.number, kind=kind, table=table, rows=rows, seconds=seconds, blocks=blocks)


def _kind_and_table(statement: str) -> tuple[str, str]:
    for kind, pattern in _PATTERN_BY_KIND.items():
        if match := pattern.match(statement):
            return kind, next(name for name in match.groups() if name)
    return "other", ""


async def plan_postgres(url: str, connect_s: float | None = None) -> list[MigrationStep]:
    connection = await connect(Hosts(url, connect_s))
    try:
        missing_files = await missing_on_postgres(connection)
        with raise_outages():
            rows_by_table = dict(await connection.fetch(TABLE_SIZES_QUERY))
            if await is_citus(connection):
                rows_by_table |= dict(await connection.fetch(CITUS_TABLE_SIZES_QUERY))
            return plan_steps(missing_files, rows_by_table, concurrent=True)
    finally:
        connection.terminate()


def plan_sqlite(connection: apsw.Connection) -> list[MigrationStep]:
    tables = [str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    rows_by_table = {name: int(next(connection.execute(f'SELECT count(*) FROM "{name}"'))[0]) for name in tables}
    return plan_steps(missing_on_sqlite(connection), rows_by_table, concurrent=False)
