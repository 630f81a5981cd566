"""Measures search with a database's own trigram index: `python bench/trigrams.py 1000000 [postgresql://…]` (ADR 0042).

One table has the searched texts of 100 teams, as `bench/fill.py` generates them, with FTS5, or with pg_trgm if a server
is named. It prints the time to fill, the size, and the slowest of three runs of a search page's query: the newest 20.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import asyncpg

FILL = """INSERT INTO searched (key, team, text)
WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < {count})
SELECT n, n % 100, 'user' || (n % 50000) || '@example.com receipt ' || n || ' of your order' FROM counted"""
ASKED = {
    "what all have": "example.com",
    "one number": "receipt 77777 of",
    "common letters, never together": "example.order",
    "nothing like it": "zebra crossing",
}
FTS5 = """SELECT key FROM parts JOIN searched ON key = parts.rowid
WHERE parts MATCH ? AND team = 7 ORDER BY parts.rowid DESC LIMIT 20"""
PG_TRGM = "SELECT key FROM searched WHERE team = 7 AND text LIKE $1 ORDER BY key DESC LIMIT 20"


async def timed(name: str, work: Callable[[], Awaitable[object]], times: int = 3) -> None:
    took = []
    for _ in range(times):
        began = time.perf_counter()
        await work()
        took.append(time.perf_counter() - began)
    print(f"  {name}: {max(took) * 1000:,.1f} ms", flush=True)


async def sqlite(path: Path, count: int) -> None:
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE searched (key integer PRIMARY KEY, team integer, text text)")
    db.execute("CREATE VIRTUAL TABLE parts USING fts5 (text, content = '', tokenize = 'trigram')")
    db.execute(FILL.format(count=count))
    bare = path.stat().st_size

    async def run(query: str, *options: str) -> None:
        db.execute(query, options).fetchall()

    await timed("fill", lambda: run("INSERT INTO parts (rowid, text) SELECT key, text FROM searched"), 1)
    print(f"  size: {(path.stat().st_size - bare) / count:.0f} bytes a text")
    for name, text in ASKED.items():
        await timed(name, lambda text=text: run(FTS5, f'"{text}"'))  # type: ignore[misc]


async def postgres(url: str, count: int) -> None:
    db = await asyncpg.connect(url)
    await db.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")
    await db.execute("CREATE TABLE searched (key bigint PRIMARY KEY, team integer, text text)")
    await db.execute(FILL.format(count=count))
    await timed("fill", lambda: db.execute("CREATE INDEX parts ON searched USING gin (text gin_trgm_ops)"), 1)
    size = await db.fetchval("SELECT pg_relation_size('parts')")
    print(f"  size: {size / count:.0f} bytes a text")
    await db.execute("ANALYZE searched")
    for name, text in ASKED.items():
        await timed(name, lambda text=text: db.fetch(PG_TRGM, f"%{text}%"))  # type: ignore[misc]
    await db.execute("DROP TABLE searched")
    await db.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("postgres", nargs="?")
    options = parser.parse_args()
    if options.postgres:
        asyncio.run(postgres(options.postgres, options.count))
    else:
        with TemporaryDirectory() as folder:
            asyncio.run(sqlite(Path(folder) / "texts.db", options.count))
