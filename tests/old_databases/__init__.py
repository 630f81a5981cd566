"""Databases that earlier versions wrote, each kept as SQL text, and what was waiting in them.

`python -m tests.old_databases.make` writes the files again from the versions' own code.
"""

import asyncio
import base64
import gzip
import sqlite3
from pathlib import Path
from typing import Any

import asyncpg

REVISIONS = ("8edf077", "7a86e2df")
SECRET = base64.b64encode(bytes(range(32))).decode()  # the master secret of these databases
RELAY = "relay"  # id of the carrier that sends their email
CARRIER = """
[[carriers]]
id = "relay"
channel = "email"
kind = "smtp"
host = "127.0.0.1"
port = {port}
tls = "none"
"""

DELIVERED = "sent before the dump"  # subject of the one email that was final
DEFERRED = [f"deferred {number}" for number in range(3)]  # refused for now by the relay
INTERRUPTED = [f"interrupted {number}" for number in range(3)]  # being sent when their process was killed
SCHEDULED = [f"scheduled {number}" for number in range(3)]
BATCH = [f"batch {number}" for number in range(10)]
QUEUED = [f"queued {number}" for number in range(20)]
WAITING_EMAILS = [*DEFERRED, *INTERRUPTED, *SCHEDULED, *BATCH, *QUEUED]
WAITING_PHONES = 6  # SMS and WhatsApp messages
SUPPRESSED = "bounced@example.com"


def dump_file(revision: str, kind: str) -> Path:
    """Return the file of a revision's dump; `kind` is sqlite or postgres."""
    return Path(__file__).with_name(f"{revision}.{kind}.sql.gz")


def load_dump(revision: str, url: str) -> None:
    """Write the database that `revision` left into the empty database `url`."""
    kind = "sqlite" if url.startswith("sqlite") else "postgres"
    text = gzip.decompress(dump_file(revision, kind).read_bytes()).decode()
    if kind == "sqlite":
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        connection.executescript(text)
        connection.close()
    else:
        asyncio.run(_execute(url, text))


async def _execute(url: str, text: str) -> None:
    server: Any = await asyncpg.connect(url)
    try:
        await server.execute(text)
    finally:
        await server.close()
