"""Fills a database with messages as the worker leaves them: `python bench/fill.py sqlite:///x.db 1000000`.

For measuring how the product grows. Keys, ids and rows are made in the database, 15 s for a million on SQLite, and
some 40 s for the index of parts of texts.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import asyncpg

from heliograph.bootstrap import migrate, open_store
from heliograph.domain.limits import DAY_MS
from heliograph.domain.setup.records import KEEP_CONTENT_DAYS
from heliograph.runtime.clock import Clock
from heliograph.settings import Settings

SQLITE = "sqlite:///"
DAYS = 80  # over which they are spread, oldest first: retention has its usual little to do
PEOPLE = 50_000  # who are written to in turns
PORTION = 50_000
NEXT = "SELECT coalesce(max(key), 0) + 1 FROM message"
LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # of a ULID
TIME = " || ".join(f"substr('{LETTERS}', CAST((at >> {shift}) & 31 AS integer) + 1, 1)" for shift in range(45, -1, -5))
SAID = '{"carrier":"simulator","code":"250","enhanced":"2.1.5","text":"250 2.1.5 Said (simulator)","simulated":true}'

# As both databases read it. Of a thousand messages 10 bounced, 4 failed and 1 was complained about. A tenth each is of
# tpl_1 to tpl_8, one in ten thousand of tpl_9, the rest was sent without a template.
FILL = f"""
INSERT INTO message (key, id, team, channel, status, sandbox, key_id, template_id, template_version, price, charge,
                     sequence, created_at, ended_at, has_body, record)
WITH RECURSIVE counted (n) AS (SELECT :low UNION ALL SELECT n + 1 FROM counted WHERE n < :high),
timed AS (SELECT n, :first_at + (n - :first) * :span / :count AS at FROM counted),
named AS (SELECT n, at, 'eml_' || {TIME} || substr(CAST(10000000000000000 + n AS text), 2) AS id FROM timed)
SELECT n, id, :team, 'email',
       CASE WHEN n % 1000 < 10 THEN 'bounced' WHEN n % 1000 < 14 THEN 'failed' WHEN n % 1000 = 14 THEN 'complained'
            ELSE 'delivered' END,
       0, 'bench', CASE WHEN n % 10000 = 99 THEN 'tpl_9' WHEN n % 10 BETWEEN 1 AND 8 THEN 'tpl_' || (n % 10) END,
       NULL, 0, 'none', 2, at, at + 1000, CASE WHEN at > :kept_since THEN 1 ELSE 0 END,
       '{{"id":"' || id || '","to":"user' || (n % {PEOPLE}) || '@example.com","to_addresses":["user' || (n % {PEOPLE})
       || '@example.com"],"cc":[],"bcc":[],"reply_to":null,"from":"hello@bench.test","subject":"Receipt ' || n
       || '","recipient_count":1,"attachments_count":0,"status":"sending","sandbox":false,"created_at":"2026"}}'
FROM named;

INSERT INTO content (message, body)
SELECT key, '{{"from_name":"B","from_address":"hello@bench.test","to":["user' || (key % {PEOPLE}) || '@example.com"]'
       || ',"subject":"Receipt ' || key || '","html":"<p>Thank you for your order.</p>","text":"Thank you."}}'
FROM message WHERE key BETWEEN :low AND :high AND has_body = 1;

INSERT INTO recipient (message, position, address, given, kind, status, updated_at, late, carrier, carrier_id, detail)
SELECT key, 0, 'user' || (key % {PEOPLE}) || '@example.com', 'user' || (key % {PEOPLE}) || '@example.com', 'to', status,
       created_at + 1000, 0, 'sim', 'sim-' || id || '-user' || (key % {PEOPLE}) || '@example.com',
       '{SAID}'
FROM message WHERE key BETWEEN :low AND :high;

INSERT INTO seen_recipient (span, team, address, message)
SELECT message >> 12, :team, address, message FROM recipient WHERE message BETWEEN :low AND :high;

INSERT INTO event (id, team, subject, message, recipient, sequence, type, status, previous_status, message_status,
                   detail, created_at)
SELECT 'evt_' || substr(m.id, 5, 10) || t.n || substr(m.id, 16), m.team, m.id, m.key,
       'user' || (m.key % {PEOPLE}) || '@example.com', t.n,
       'email.' || CASE t.n WHEN 1 THEN 'sent' ELSE m.status END, CASE t.n WHEN 1 THEN 'sent' ELSE m.status END,
       CASE t.n WHEN 1 THEN 'sending' ELSE 'sent' END, CASE t.n WHEN 1 THEN 'sent' ELSE m.status END,
       '{SAID}', m.created_at + t.n * 500
FROM message m CROSS JOIN (SELECT 1 AS n UNION ALL SELECT 2) t WHERE m.key BETWEEN :low AND :high;

INSERT INTO figure (team, hour, channel, sent, delivered, bounced, complained, failed, read)
SELECT team, created_at / 3600000 * 3600000, channel, count(*), count(*), 0, 0, 0, 0 FROM message
WHERE key BETWEEN :low AND :high GROUP BY 1, 2, 3 ON CONFLICT DO NOTHING;

INSERT INTO reputation (team, hour, sends, bounces, complaints)
SELECT team, created_at / 3600000 * 3600000, count(*), 0, 0 FROM message
WHERE key BETWEEN :low AND :high AND created_at > :counted_since GROUP BY 1, 2 ON CONFLICT DO NOTHING;

INSERT INTO carrier_use (carrier, minute, seat, accepted, refused, put_off, took_ms)
SELECT 'sim', created_at / 60000 * 60000, 'bench/0', count(*), 0, 0, 0 FROM message
WHERE key BETWEEN :low AND :high AND created_at > :counted_since GROUP BY 2 ON CONFLICT DO NOTHING;
"""


def fill(database: str, count: int, team: int = 1) -> None:
    """`count` more messages of this team. The database is migrated, and nobody else has it open."""
    if database.startswith(SQLITE):
        _fill_file(database.removeprefix(SQLITE), count, team)
    else:
        asyncio.run(_fill_server(database, count, team))
    asyncio.run(_build_index(database))


async def _build_index(database: str) -> None:
    """Of parts of texts, which a duty of a running service builds in time."""
    with TemporaryDirectory() as folder:
        async with open_store(Settings(database=database, data=Path(folder)), Clock(), "bench/0") as store:
            while await store.search_index.build_next():
                continue


def _scripts(count: int, first: int, team: int) -> Iterator[str]:
    now = time.time_ns() // 1_000_000
    values = {
        "team": team,
        "count": count,
        "first_at": now - DAYS * DAY_MS,
        "span": f"CAST({DAYS * DAY_MS - 60_000} AS bigint)",  # the last one a minute ago
        "first": first,
        "kept_since": now - KEEP_CONTENT_DAYS * DAY_MS,
        "counted_since": now - 8 * DAY_MS,
    }
    for low in range(first, first + count, PORTION):
        portion = values | {"low": f"CAST({low} AS bigint)", "high": min(low + PORTION, first + count) - 1}
        script = FILL
        for name in sorted(portion, key=len, reverse=True):
            script = script.replace(f":{name}", str(portion[name]))
        yield script


def _fill_file(path: str, count: int, team: int) -> None:
    db = apsw.Connection(path)
    for pragma in ("journal_mode=DELETE", "journal_mode=OFF", "synchronous=OFF", "cache_size=-400000"):
        db.execute(f"PRAGMA {pragma}").fetchall()
    first = db.execute(NEXT).get
    assert isinstance(first, int)
    for script in _scripts(count, first, team):
        db.execute(f"BEGIN; {script} COMMIT")
    db.execute("PRAGMA journal_mode=WAL").fetchall()
    db.close()


async def _fill_server(url: str, count: int, team: int) -> None:
    server = await asyncpg.connect(url)
    await server.execute("SET synchronous_commit = off")
    first = await server.fetchval(NEXT)
    for script in _scripts(count, first, team):
        await server.execute(script)
    await server.execute("SELECT setval(pg_get_serial_sequence('message', 'key'), max(key)) FROM message")
    await server.execute("VACUUM ANALYZE")  # as its own housekeeping does in time
    await server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database", help="sqlite:///file or the URL of a PostgreSQL database")
    parser.add_argument("count", type=int)
    parser.add_argument("--team", type=int, default=1, help="its number, as in the setup")
    given = parser.parse_args()
    asyncio.run(migrate(Settings(database=given.database, data=Path())))
    began = time.monotonic()
    fill(given.database, given.count, given.team)
    print(f"{given.count:,} messages in {time.monotonic() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
