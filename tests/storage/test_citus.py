"""What Citus requires of statements and tables, as far as plain PostgreSQL shows it; `make proof PROOFS=citus` runs them there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from heliograph.storage.engine import migrate as migrations

pytestmark = pytest.mark.anyio


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
