"""A database that tests use in turn looks freshly migrated to each of them."""

import asyncio
from typing import Any

import asyncpg
import pytest

from tests import conftest
from tests.conftest import Lent, fresh_database, lent_database


async def contents(url: str, *changes: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return every table's rows and every sequence's position after these changes."""
    server: Any = await asyncpg.connect(url)
    for change in changes:
        await server.execute(change)
    tables = [row[0] for row in await server.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
    requested = {table: f"SELECT * FROM {table} ORDER BY 1" for table in tables}
    requested["pg_sequences"] = "SELECT sequencename, last_value FROM pg_sequences ORDER BY 1"
    result = {name: [tuple(row) for row in await server.fetch(query)] for name, query in requested.items()}
    await server.close()
    return result


def test_postgres_is_emptied_for_the_next_borrower(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    retained: list[Lent] = []  # not one that other tests have used up
    monkeypatch.setattr(conftest, "_lent", retained)
    new = asyncio.run(contents(fresh_database(postgres)))
    changes = (
        "INSERT INTO audit (at, action, subject, person, team, address, detail) VALUES (1, 'a', 'b', '', '', '', '')",
        "DELETE FROM counter",
        "SELECT nextval('message_key_seq')",
    )
    with lent_database(postgres) as url:
        assert asyncio.run(contents(url, *changes)) != new
    with lent_database(postgres) as again:
        assert again == url
        assert asyncio.run(contents(again)) == new
    retained.pop().close()
