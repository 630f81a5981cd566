"""After retention, SQLite returns free pages to the disk in small steps, without delaying other writes."""

from pathlib import Path
from typing import Any

import apsw
import pytest

from heliograph.bootstrap import migrate, open_store
from heliograph.settings import Settings
from heliograph.storage import retention
from heliograph.storage.engine.database import TxFunction
from heliograph.storage.engine.sqlite import open_sqlite, vacuum
from heliograph.storage.store import Store

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)]

FILL = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8000)
INSERT INTO content (message, body) SELECT i, hex(randomblob(1000)) FROM n
"""
SPACE = "SELECT p.page_count, f.freelist_count FROM pragma_page_count() p, pragma_freelist_count() f"


def space(path: Path) -> tuple[int, int]:
    """Return the number of pages of the file, and of those that are free."""
    connection = apsw.Connection(str(path))
    pages, free = connection.execute(SPACE).fetchall()[0]
    connection.close()
    assert isinstance(pages, int) and isinstance(free, int)
    return pages, free


def empty(path: Path, most: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(f"{FILL}; DELETE FROM content WHERE {most}")
    connection.close()


@pytest.fixture
def path(settings: Settings) -> Path:
    return Path(settings.database.removeprefix("sqlite:///"))


async def test_sqlite_free_space_is_returned_to_the_file_system(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty(path, "message > 500")
    pages, free = space(path)
    assert free > pages * 0.8
    writes: list[int] = []
    write = store.database.write

    async def noted(function: TxFunction[Any]) -> Any:
        before = space(path)[1]
        done = await write(function)
        writes.append(before - space(path)[1])
        return done

    monkeypatch.setattr(store.database, "write", noted)
    await store.maintenance.purge()
    left, still_free = space(path)
    assert still_free <= max(left // retention.FREE_SHARE, retention.FREE_PAGES) and left < pages / 2
    assert max(writes) <= 100  # pages, as `free_pages` says: the writer is never held for long
    vacuum(path)  # the WAL is written to the file
    assert path.stat().st_size == space(path)[0] * 4096


async def test_sqlite_keeps_a_little_free_space_for_new_rows(store: Store, path: Path) -> None:
    empty(path, "message % 20 = 0")
    before = space(path)
    await store.maintenance.purge()
    assert space(path) == before


async def test_older_sqlite_file_returns_space_after_its_next_vacuum(tmp_path: Path, settings: Settings) -> None:
    path = tmp_path / "old.db"
    old = apsw.Connection(str(path))
    old.execute("PRAGMA auto_vacuum = NONE; CREATE TABLE x (y)")
    old.close()
    there = Settings(database=f"sqlite:///{path}", data=settings.data)
    await migrate(there)
    empty(path, "message > 500")
    before = space(path)
    async with open_store(there) as store:
        await store.maintenance.purge()
        assert space(path)[0] >= before[0]  # the pages cannot be returned, and it stops trying
    vacuum(path)
    connection = open_sqlite(path)
    assert connection.execute("PRAGMA auto_vacuum").get == 2
    connection.close()
