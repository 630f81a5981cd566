"""P3, pauses: workers that live through an outage longer than their leases send nothing twice.

The short form has leases and pauses that are shorter than in production by the same factor, so that a round takes
seconds. The full form has those of production, and many installations at the same time.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

from tests import postgres_server
from tests import service as services
from tests.journeys.load import Load, ask_database, check_books, finished
from tests.postgres_server import PostgresServer
from tests.proof.send_log import count_sends, program
from tests.proof.size import FULL, report, rounds, size
from tests.service import PATIENCE_S, Service

PAUSES = size("P3 pauses")  # of all installations
INSTALLATIONS = 5 if FULL else 1
SCALE = 1 if FULL else 40
SHORT_S, LONG_S = (1.0, 20.0), (130.0, 130.0, 300.0)  # full: the lease is 120 s
SCALED_S = (150.0, 300.0)  # short
SEND_S = 1.0 if FULL else 0.3
SEED = 39

Pause = Callable[[], AbstractContextManager[None]]


def pause_lengths(seed: int) -> list[float]:
    """Return the lengths of an installation's pauses, in seconds."""
    rng, count = Random(seed), PAUSES // INSTALLATIONS
    if not FULL:
        return [rng.uniform(*SCALED_S) / SCALE for _ in range(count)]
    lengths = [*LONG_S, *(rng.uniform(*SHORT_S) for _ in range(count - len(LONG_S)))]
    rng.shuffle(lengths)
    return lengths


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


@contextmanager
def database(kind: str, folder: Path) -> Iterator[tuple[str, Pause]]:
    """Yield the URL of a new database, and what pauses it."""
    if kind == "SQLite":
        url = f"sqlite:///{folder / 'heliograph.db'}"
        yield url, lambda: locked_sqlite(url)
        return
    with postgres_server.temporary_folder() as servers:
        server = PostgresServer(servers / "data")
        try:
            yield server.url(), lambda: stopped_postgres(server.pid)
        finally:
            server.stop()


def drill(kind: str, folder: Path, seed: int) -> list[int]:
    """Pause an installation's database under load, and return how often each message was sent."""
    folder.mkdir()
    timeouts: dict[str, Any] = {} if FULL else {"database_timeout_s": "1", "database_connect_s": "1"}
    with database(kind, folder) as (url, paused), Service(url, folder / "data", **timeouts) as service:
        service.apply()
        running = [service.start() for _ in range(2)]
        pace: dict[str, Any] = {"clients": 2, "pause_s": 0.3, "retry_s": 0.3} if FULL else {}
        lengths = pause_lengths(seed)
        with Load(service, **pace) as load:
            for number in rounds(f"pauses {seed}", len(lengths)):
                load.more(20, 5 * PATIENCE_S)
                with paused():
                    time.sleep(lengths[number])
            load.more(20, 5 * PATIENCE_S)
        finished(url, 5 * PATIENCE_S)
        assert all(process.poll() is None for process in running)
        times = count_sends(folder / "data")
        assert times.keys() >= set(load.accepted.values())
        check_books(url)
        assert {status for (status,) in ask_database(url, "SELECT DISTINCT status FROM message")} == {"delivered"}
    return list(times.values())


@pytest.mark.parametrize("kind", ["SQLite", "PostgreSQL"])
def test_outage_longer_than_lease_sends_nothing_twice(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "PostgreSQL":
        if not postgres_server.is_installed():
            pytest.skip(postgres_server.MISSING)
        postgres_server.bin_path()  # copied once, before the threads
    monkeypatch.setattr(services, "PROGRAM", program(SCALE, SEND_S))
    began = time.monotonic()
    with ThreadPoolExecutor(INSTALLATIONS) as pool:
        drills = [pool.submit(drill, kind, tmp_path / str(seed), SEED + seed) for seed in range(INSTALLATIONS)]
        times = [count for each in drills for count in each.result()]
    twice = sum(count > 1 for count in times)
    lengths = [length for seed in range(INSTALLATIONS) for length in pause_lengths(SEED + seed)]
    report(
        "pauses",
        f"{kind}: {len(lengths)} pauses of {min(lengths):.0f} to {max(lengths):.0f} s, "
        f"{sum(length * SCALE >= LONG_S[0] for length in lengths)} of them longer than the lease (time at 1/{SCALE}), "
        f"{INSTALLATIONS} installations with two processes each, {len(times)} sent, {twice} twice; "
        f"{time.monotonic() - began:.0f} s, load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs",
    )
    assert twice == 0
