"""P3, pauses: workers that live through an outage longer than their leases send nothing twice.

Leases and pauses are shorter than in production by the same factor, so that a round takes seconds.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

from tests import postgres_server
from tests import service as services
from tests.journeys.load import Load, ask_database, check_books, finished
from tests.postgres_server import PostgresServer
from tests.proof.size import FULL, database_name, report, rounds, size
from tests.service import PATIENCE_S, Service

PAUSES = size("P3 pauses")
SCALE = 20 if FULL else 40  # an hour of production in 3 or 1.5 minutes
SECONDS = (1, 300) if FULL else (150, 300)  # length of a pause at production scale
SEED = 39

# The service with a slow carrier, which writes down each message it accepts.
PROGRAM = f"""
import asyncio, os
from heliograph.domain import limits

limits.LEASE_MS //= {SCALE}
limits.HEARTBEAT_MS //= {SCALE}
limits.CONTACT_PAUSE_MAX_MS //= {SCALE}

from heliograph import app
from heliograph.carriers.email.simulator import EmailSimulator
from heliograph.cli.main import main
from heliograph.storage.engine import sqlite

every = app.every
app.every = lambda seconds, work, **how: every(seconds / {SCALE}, work, **how)
sqlite.BUSY_MS = 10_000 // {SCALE}
send_message, sent = EmailSimulator.send_message, os.open(os.environ["SENT"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


async def slow(self, message):
    await message.hooks.before_send()
    os.write(sent, f"{{message.message_id}}\\n".encode())
    await asyncio.sleep(0.3)
    return await send_message(self, message)


EmailSimulator.send_message = slow
main()
"""


@contextmanager
def locked_sqlite(url: str) -> Iterator[None]:
    """Hold the write lock, as another program may."""
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.set_busy_timeout(int(PATIENCE_S * 1000))
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.execute("ROLLBACK")
    connection.close()


@contextmanager
def stopped_postgres(server: int) -> Iterator[None]:
    """Stop every process of the server with this process id, as a machine that hangs does, and let them continue."""
    stopped = [server]
    os.kill(server, signal.SIGSTOP)  # first, so that it starts no other process
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, parent = int(stat.parent.name), int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == server:
                os.kill(pid, signal.SIGSTOP)
                stopped.append(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
    yield
    for pid in stopped:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Address of a database for this test alone, and what pauses it."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'heliograph.db'}"
        yield url, lambda: locked_sqlite(url)
        return
    request.getfixturevalue("postgres")
    with postgres_server.temporary_folder() as folder:
        server = PostgresServer(folder / "data")
        try:
            yield server.url(), lambda: stopped_postgres(server.pid)
        finally:
            server.stop()


def test_outage_longer_than_lease_sends_nothing_twice(
    database: tuple[str, Callable[[], Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (url, paused), sent, rng = database, tmp_path / "sent", Random(SEED)
    with Service(url, tmp_path / "data", database_timeout_s="1", database_connect_s="1") as service:
        service.apply()
        started = f"import os, sys; os.environ['SENT'] = {str(sent)!r}; "
        # A new interpreter: a fork of this one has bound the limits already.
        started += f"os.execv(sys.executable, [sys.executable, '-c', {PROGRAM!r}, *sys.argv[1:]])"
        monkeypatch.setattr(services, "PROGRAM", started)
        running = [service.start(role) for role in ("api", "worker", "worker")]
        with Load(service) as load:
            for _ in rounds("pauses", PAUSES):
                load.more(20)
                with paused():
                    time.sleep(rng.uniform(*SECONDS) / SCALE)
            load.more(20)
        finished(url, 5 * PATIENCE_S)
        assert all(process.poll() is None for process in running)
        times = Counter(sent.read_text().split())
        assert times.keys() >= set(load.accepted.values())
        twice = [id_ for id_, count in times.items() if count > 1]
        check_books(url)
        statuses = {status for (status,) in ask_database(url, "SELECT DISTINCT status FROM message")}
    report(
        "pauses",
        f"{database_name(url)}: {PAUSES} pauses of {SECONDS[0]} to {SECONDS[1]} s (at 1/{SCALE}), two workers, "
        f"{len(times)} sent, {len(twice)} twice",
    )
    assert twice == []
    assert statuses == {"delivered"}
