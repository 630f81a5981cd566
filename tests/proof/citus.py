"""Citus on loopback: built from source where it is missing; a coordinator and two workers.

CITUS_SOURCE names the folder of the source; PG_CONFIG the program of the PostgreSQL to build for.
"""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import asyncpg

from heliograph.storage.engine import cells
from tests.npm import miss
from tests.postgres_server import PostgresServer, temporary_folder
from tests.service import free_port

PG_CONFIG = os.environ.get("PG_CONFIG") or shutil.which("pg_config") or ""
SOURCE = os.environ.get("CITUS_SOURCE", "")
DATABASE = "cells"
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "shared_preload_libraries": "citus",
    "wal_level": "logical",
    "max_connections": "300",
    "max_prepared_transactions": "600",
    "max_worker_processes": "64",
    "max_replication_slots": "40",
    "max_wal_senders": "40",
    "max_locks_per_transaction": "1024",
    "citus.node_conninfo": "sslmode=disable",
    "citus.enable_schema_based_sharding": "on",
    "fsync": "off",
    "full_page_writes": "off",
}


class Citus:
    """A running coordinator and its workers."""

    def __init__(self, nodes: list[PostgresServer], ports: list[int]) -> None:
        self.coordinator, *self.workers = nodes
        self.ports = ports

    def url(self, schema: str = "", node: int = 0, database: str = DATABASE) -> str:
        """Return the URL of a cell's schema through a node; node 0 is the coordinator."""
        option = f"&search_path={schema}" if schema else ""
        return f"postgresql://postgres@127.0.0.1:{self.ports[node]}/{database}?sslmode=disable{option}"

    def new_database(self, name: str) -> str:
        """Create a database with Citus on all nodes; return its URL at the coordinator."""
        for node in range(len(self.ports)):
            self.run(f"CREATE DATABASE {name}", node=node, database="postgres")
            self.run("CREATE EXTENSION citus", node=node, database=name)
        self.run(
            f"SELECT citus_set_coordinator_host('127.0.0.1', {self.ports[0]})",
            *(f"SELECT citus_add_node('127.0.0.1', {port})" for port in self.ports[1:]),
            database=name,
        )
        return self.url(database=name)

    def run(self, *statements: str, node: int = 0, database: str = DATABASE) -> list[Any]:
        """Run statements and return the rows of the last."""
        return asyncio.run(run(self.url(node=node, database=database), *statements))


async def run(url: str, *statements: str) -> list[Any]:
    connection: Any = await asyncpg.connect(url)
    try:
        rows = list[Any]()
        for statement in statements:
            rows = await connection.fetch(statement)
        return rows
    finally:
        await connection.close()


def move_cell(citus: Citus, schema: str, worker: int) -> None:
    if worker != worker_of(citus, schema):
        asyncio.run(cells.move_cell(citus.url(), schema, "127.0.0.1", citus.ports[worker], lambda *_: None))


def worker_of(citus: Citus, schema: str) -> int:
    """Return the number of the worker that has a schema."""
    rows = citus.run(
        "SELECT DISTINCT n.nodeport FROM pg_dist_schema d JOIN pg_dist_partition t USING (colocationid) "
        "JOIN pg_dist_shard s USING (logicalrelid) JOIN pg_dist_shard_placement n USING (shardid) "
        f"WHERE d.schemaid = '{schema}'::regnamespace"
    )
    return citus.ports.index(rows[0][0]) if rows else 0


@contextmanager
def running(**changed: str) -> Iterator[Citus]:
    """Yield a new cluster with changed settings; skip the proof, with the reason, if Citus cannot be built."""
    programs = built()
    with ExitStack() as stack:
        folder, ports = stack.enter_context(temporary_folder()), [free_port() for _ in range(3)]
        nodes = []
        for name, port in zip(("coordinator", "worker-1", "worker-2"), ports, strict=True):
            nodes.append(PostgresServer(folder / name, programs, port=str(port), **SETTINGS | changed))
            stack.callback(nodes[-1].stop)
        citus = Citus(nodes, ports)
        citus.new_database(DATABASE)
        yield citus


def built() -> Path:
    """Return the folder of PostgreSQL's programs, after building and installing Citus for it if missing."""
    if not PG_CONFIG:
        miss("citus", "pg_config is missing: install PostgreSQL with its development files")
    if not (_folder("--pkglibdir") / "citus.so").exists():
        _build()
    return _folder("--bindir")


def _build() -> None:
    if not (Path(SOURCE) / "configure").is_file() or not SOURCE:
        miss("citus", "not installed, and CITUS_SOURCE is not a folder with its source")
    if missing := [name for name in ("gcc", "make", "flex") if not shutil.which(name)]:
        miss("citus", f"building it needs {', '.join(missing)}")
    if not (_folder("--includedir-server") / "postgres.h").is_file():
        miss("citus", "building it needs the development files of PostgreSQL's server")
    with temporary_folder() as folder:
        source = shutil.copytree(SOURCE, folder / "source")
        for file in (source / "src").rglob("*.[ch]"):  # PostgreSQL 15.20 exports a function of this name
            text = file.read_text(errors="surrogateescape")
            if "have_createdb_privilege" in text:
                renamed = text.replace("have_createdb_privilege", "citus_have_createdb_privilege")
                file.write_text(renamed, errors="surrogateescape")
        options = (f"PG_CONFIG={PG_CONFIG}", "--without-libcurl", "--without-lz4", "--without-zstd")
        for command in (
            ["./configure", *options],
            ["make", f"-j{os.cpu_count()}", "-s", "with_llvm=no", "extension"],
            ["make", "-s", "with_llvm=no", "install-extension"],
        ):
            done = subprocess.run(command, cwd=source, capture_output=True, text=True)
            if done.returncode:
                line = next((line for line in done.stderr.splitlines() if "error" in line.lower()), "unknown error")
                miss("citus", f"it could not be built: {line.strip()}")


def _folder(option: str) -> Path:
    return Path(subprocess.check_output([PG_CONFIG, option], text=True).strip())
