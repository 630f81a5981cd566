"""Adds, lists and moves cells: schemas with one installation each, on plain PostgreSQL or a Citus worker (ADR 0046)."""

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg
import msgspec

from heliograph.domain.setup.cells import cell_url
from heliograph.storage.engine.citus import is_citus
from heliograph.storage.engine.database import error_text
from heliograph.storage.engine.migrate import migrate_postgres
from heliograph.storage.engine.postgres import Hosts, connect, raise_outages

PROGRESS_INTERVAL_S = 0.5
CLEANUP_TIMEOUT_S = 120.0
CLEANUP_INTERVAL_S = 0.5
CELLS_QUERY = """SELECT n.nspname, NULL, sum(pg_total_relation_size(t.oid))::bigint
    FROM pg_namespace n JOIN pg_class t ON t.relnamespace = n.oid AND t.relkind = 'r'
    WHERE has_schema_privilege(n.oid, 'USAGE')
    GROUP BY n.nspname HAVING count(*) FILTER (WHERE t.relname IN ('schema_version', 'outbox')) = 2 ORDER BY 1"""
# A cell is a schema: `citus_shards` lists the tables of those that are distributed; the others are on the coordinator.
CITUS_CELLS_QUERY = f"""SELECT c.nspname, s.node, coalesce(s.size, c.size)
    FROM ({CELLS_QUERY}) AS c (nspname, node, size) LEFT JOIN (
        SELECT n.nspname, nodename || ':' || nodeport AS node, sum(shard_size)::bigint AS size
        FROM citus_shards JOIN pg_class t ON t.oid = table_name JOIN pg_namespace n ON n.oid = t.relnamespace
        WHERE citus_table_type = 'schema' GROUP BY 1, 2) AS s USING (nspname) ORDER BY 1"""
CELL_DETAILS = """SELECT (SELECT coalesce(max(abs(version)), 0) FROM {schema}.schema_version),
    (SELECT count(*) FROM {schema}.outbox)"""
SHARDING_QUERY = "SELECT current_setting('citus.enable_schema_based_sharding')"
MOVE_QUERY = "SELECT citus_schema_move($1::text::regnamespace, $2, $3, 'force_logical')"
# Citus removes the tables that a move leaves behind after some seconds or when asked to. Until then, it refuses to move
# the cell again.
LEFTOVERS_QUERY = "SELECT count(*) FROM pg_dist_cleanup WHERE starts_with(object_name, quote_ident($1) || '.')"
CLEANUP_CALL = "CALL citus_cleanup_orphaned_resources()"
PROGRESS_QUERY = """SELECT coalesce(sum(least(target_shard_size, source_shard_size)), 0)::bigint,
    coalesce(sum(source_shard_size), 0)::bigint, coalesce(min(status), '') FROM get_rebalance_progress()
    WHERE table_name::regclass IN (SELECT oid FROM pg_class WHERE relnamespace = $1::text::regnamespace)"""


ShowProgress = Callable[[int, int, str], None]  # bytes copied, bytes of the cell, step


class CellError(Exception):
    """A cell cannot be added, found or moved; the text says why."""


class CellStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    node: str | None  # worker of Citus; None if the tables are on the server of the database URL
    size: int  # bytes of tables and indexes
    version: int  # version of the schema
    queued: int  # number of messages to deliver


async def read_cells(url: str) -> list[CellStatus]:
    connection = await connect(Hosts(url))
    try:
        with raise_outages():
            rows = await connection.fetch(CITUS_CELLS_QUERY if await is_citus(connection) else CELLS_QUERY)
            return [await _read_status(connection, *row) for row in rows]
    finally:
        connection.terminate()


async def _read_status(connection: Any, name: str, node: str | None, size: int) -> CellStatus:
    schema = '"' + name.replace('"', '""') + '"'
    version, queued = await connection.fetchrow(CELL_DETAILS.format(schema=schema))
    return CellStatus(name=name, node=node, size=size, version=version, queued=queued)


async def find_cell(url: str, name: str) -> CellStatus:
    for cell in await read_cells(url):
        if cell.name == name:
            return cell
    raise CellError(f"there is no cell {name}. See: heliograph cell list")


async def add_cell(url: str, name: str) -> None:
    """Create a cell's schema and tables. An existing empty schema is used, so that an interrupted call can be repeated.

    `name` must be an identifier that needs no quotes.
    """
    connection = await connect(Hosts(url))
    try:
        with raise_outages():
            is_local = await is_citus(connection) and await connection.fetchval(SHARDING_QUERY) != "on"
        if is_local:
            raise CellError(
                "citus.enable_schema_based_sharding is off, and the cell would stay on the coordinator. First: "
                "ALTER DATABASE … SET citus.enable_schema_based_sharding TO on"
            )
        with raise_outages():
            await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{name}"')
    finally:
        connection.terminate()
    if not await migrate_postgres(cell_url(url, name)):
        raise CellError(f"the cell {name} exists already")


async def move_cell(url: str, name: str, host: str, port: int, show: ShowProgress) -> None:
    """Move a cell to another worker of Citus, while it is in use; pass the progress to `show`."""
    connection = await connect(Hosts(url))
    try:
        with raise_outages():
            can_move = await is_citus(connection)
        if not can_move:
            raise CellError("moving a cell needs Citus, and this database is a plain PostgreSQL")
        cell = await find_cell(url, name)
        if cell.node is None:
            raise CellError(f"the cell {name} is not in a distributed schema, so Citus cannot move it")
        if cell.node == f"{host}:{port}":
            raise CellError(f"the cell {name} is already on {cell.node}")
        watch_task = asyncio.create_task(_watch_move(url, name, show))
        try:
            await connection.execute("SET statement_timeout = 0")
            await _remove_leftovers(connection, name)
            await connection.fetch(MOVE_QUERY, name, host, port)
        except (asyncpg.PostgresError, CellError) as error:
            raise CellError(f"the cell {name} is still on {cell.node}: {error_text(error)}") from error
        finally:
            watch_task.cancel()
            await asyncio.gather(watch_task, return_exceptions=True)  # a failed watch only loses the progress display
    finally:
        connection.terminate()


async def _remove_leftovers(connection: Any, name: str) -> None:
    """Wait until the tables that the last move of the cell has left on the other worker are removed."""
    try:
        async with asyncio.timeout(CLEANUP_TIMEOUT_S):
            while await connection.fetchval(LEFTOVERS_QUERY, name):
                await connection.execute(CLEANUP_CALL)
                await asyncio.sleep(CLEANUP_INTERVAL_S)
    except TimeoutError as error:
        raise CellError("Citus has not removed the tables of its last move") from error


async def _watch_move(url: str, name: str, show: ShowProgress) -> None:
    connection = await connect(Hosts(url))
    try:
        while True:
            await asyncio.sleep(PROGRESS_INTERVAL_S)
            copied, size, step = await connection.fetchrow(PROGRESS_QUERY, name)
            if size:
                show(copied, size, step)
    finally:
        connection.terminate()
