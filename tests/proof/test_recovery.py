"""Readiness after an outage: PostgreSQL is stopped and started under load by two API and two worker processes."""

import asyncio
import os
import statistics
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.journeys.load import Load, check_books, check_sent_once, finished
from tests.postgres_server import PostgresServer
from tests.proof.size import FULL, report, rounds, size
from tests.proof.test_database_crash import server
from tests.service import PATIENCE_S, Service

__all__ = ["server"]  # a fixture

STOPS = size("recovery stops")
LOOK_S = 0.05  # between two checks
DOWN_S = 3.0 if FULL else 0.5
READY_S = 1.0  # after the first statement that succeeds


class FirstStatement:
    """Notes when a client of its own first commits again."""

    def __init__(self, url: str) -> None:
        self.at = 0.0
        self._url = url
        self._thread = threading.Thread(target=lambda: asyncio.run(self._look()))
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    async def _look(self) -> None:
        while not self.at:
            with suppress(OSError, asyncpg.PostgresError, TimeoutError):
                connection: Any = await asyncpg.connect(self._url, timeout=1)
                await connection.execute("CREATE TEMPORARY TABLE seen (at bigint)")
                self.at = time.monotonic()
                await connection.close()
            await asyncio.sleep(LOOK_S)


@pytest.mark.usefixtures("postgres")
def test_database_that_returns_makes_every_process_ready(server: PostgresServer, tmp_path: Path) -> None:
    url = server.url()
    waits, refused_after = list[float](), list[int]()
    with Service(url, tmp_path) as service:
        service.apply()
        running = [service.start(role) for role in ("api", "api", "worker", "worker")]

        def are_ready() -> bool:
            return all(service.get("/readyz", key=None, port=port).status == 200 for port in service.ports)

        with Load(service) as load:
            for _ in rounds("recovery", STOPS):
                load.more(20)
                server.stop()
                time.sleep(DOWN_S)
                first = FirstStatement(url)
                server.start(wait=False)
                checks = 0  # that began after the first statement, and failed
                while True:
                    began = time.monotonic()
                    if are_ready():
                        break
                    checks += bool(first.at and began > first.at)
                    assert checks < PATIENCE_S / LOOK_S, "it does not become ready"
                    time.sleep(LOOK_S)
                ready = time.monotonic()
                first.join()
                server.wait_until_ready()
                waits.append(max(0.0, ready - first.at))
                refused_after.append(checks)
                load.more(1)
        assert all(process.poll() is None for process in running)
        finished(url, 5 * PATIENCE_S)
        check_sent_once(url)
        check_books(url)
    report(
        "recovery",
        f"{STOPS} stops, {len(load.accepted)} accepted; both API processes ready after the first statement that "
        f"succeeded: {statistics.median(waits):.2f} s in the middle, {max(waits):.2f} s at most, "
        f"{max(refused_after)} checks refused in between at most; load of the machine {os.getloadavg()[0]:.1f} "
        f"on {os.cpu_count()} CPUs",
    )
    assert not FULL or max(waits) <= READY_S
