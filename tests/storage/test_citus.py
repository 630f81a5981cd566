"""What Citus requires of statements and tables, as far as plain PostgreSQL shows it; `make proof PROOFS=citus` runs them there."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from heliograph.storage.engine import migrate as migrations
from heliograph.storage.engine.query import load_queries

pytestmark = pytest.mark.anyio

QUERIES = load_queries("postgres")
NAMES = sorted(QUERIES)


class RecordingConnection:
    """Stands in for a connection of asyncpg; records the statements."""

    def __init__(self) -> None:
        self.statements: list[tuple[str, ...]] = []

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        yield

    async def execute(self, sql: str) -> None:
        self.statements.append((sql,))


async def test_migration_sends_each_statement_alone() -> None:
    connection = RecordingConnection()
    await migrations._apply_files(connection, migrations.pending(0, 0, "postgres"))
    assert len(connection.statements) > 100
    assert [sql for (sql,) in connection.statements if ";" in sql] == []


@pytest.mark.parametrize("name", NAMES)
def test_returning_calls_no_volatile_function(name: str) -> None:
    _, _, returned = QUERIES[name].sql.partition("RETURNING")
    assert not re.search(r"random|uuid|nextval|clock_timestamp|now\(", returned)
