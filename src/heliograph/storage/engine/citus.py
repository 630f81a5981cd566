"""Queries Citus: whether it is installed, its settings, and which worker has the tables of a cell.

A cell is a schema with the tables of one installation (ADR 0046).
"""

from typing import Any, NamedTuple

CITUS_QUERY = "SELECT count(*) FROM pg_extension WHERE extname = 'citus'"
SETTINGS_QUERY = """SELECT name, setting FROM pg_settings WHERE name IN ('shared_preload_libraries', 'wal_level',
    'max_prepared_transactions', 'max_locks_per_transaction', 'max_replication_slots', 'max_wal_senders',
    'max_worker_processes', 'citus.enable_schema_based_sharding')"""
CELL_QUERY = """SELECT current_schema(), (SELECT p.nodename || ':' || p.nodeport
    FROM pg_class t JOIN pg_dist_shard s ON s.logicalrelid = t.oid JOIN pg_dist_shard_placement p USING (shardid)
    WHERE t.relnamespace = current_schema()::regnamespace LIMIT 1)"""
# Queries the worker, because the coordinator only has empty tables of the same names.
CITUS_TABLE_SIZES_QUERY = """SELECT t.relname, sum(s.result::bigint)::bigint
    FROM pg_class t JOIN pg_dist_partition d ON d.logicalrelid = t.oid, run_command_on_shards(t.oid::regclass,
        'SELECT greatest(reltuples, pg_stat_get_live_tuples(oid))::bigint FROM pg_class WHERE oid = ''%s''::regclass') s
    WHERE t.relnamespace = current_schema()::regnamespace AND s.success GROUP BY t.relname"""


class Cell(NamedTuple):
    schema: str | None  # None if the schema of the URL does not exist
    node: str | None  # None if the schema is not distributed
    settings: dict[str, str]


async def is_citus(connection: Any) -> bool:
    """Return whether the database has the extension Citus, which distributes schemas to worker nodes."""
    return bool(await connection.fetchval(CITUS_QUERY))


async def read_cell(connection: Any) -> Cell:
    schema, node = await connection.fetchrow(CELL_QUERY)
    return Cell(schema, node, dict(await connection.fetch(SETTINGS_QUERY)))
