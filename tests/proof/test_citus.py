"""Cells on Citus: PostgreSQL's tests pass there, a cell moves under load, a killed worker stops its own cell only."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from tests.journeys.load import Load, check_all_arrived
from tests.proof.citus import Citus, running
from tests.proof.size import report
from tests.service import Service, until

STEP_MS = 20
MOVES = 4
FOLDERS = ("tests/storage", "tests/deliver")
# Tests that look for what a cell does not have: locks that wait at the coordinator, tables of one schema only, a URL
# with the name of a database, PostgresTx itself, plans of queries.
HARNESS = {
    "test_approval_decided_during_a_read_is_found_once",
    "test_batch_finished_by_two_processes_publishes_one_event",
    "test_changes_beyond_the_queue_limit_are_refused_with_a_retry_time",
    "test_changes_of_two_teams_alternate",
    "test_changes_waiting_for_a_shared_row_use_two_connections_and_others_write",
    "test_changes_waiting_for_the_writer_thread_let_others_write_between_them",
    "test_erased_address_is_in_no_table_any_more",
    "test_every_query_uses_the_expected_indexes",
    "test_late_reports_about_an_erased_address_are_not_stored",
    "test_migration_plan_lists_pending_migrations",
    "test_postgres_database_that_does_not_exist_is_named_with_what_to_do",
}


@pytest.fixture(scope="module")
def citus() -> Iterator[Citus]:
    with running() as citus:
        yield citus


def move_cell(citus: Citus, schema: str, worker: int) -> None:
    if worker != worker_of(citus, schema):
        port = citus.ports[worker]
        citus.run(f"SELECT citus_schema_move('{schema}', '127.0.0.1', {port}, 'force_logical')")


def worker_of(citus: Citus, schema: str) -> int:
    """Return the number of the worker that has a schema."""
    rows = citus.run(
        "SELECT DISTINCT n.nodeport FROM pg_dist_schema d JOIN pg_dist_partition t USING (colocationid) "
        "JOIN pg_dist_shard s USING (logicalrelid) JOIN pg_dist_shard_placement n USING (shardid) "
        f"WHERE d.schemaid = '{schema}'::regnamespace"
    )
    return citus.ports.index(rows[0][0]) if rows else 0


@contextmanager
def longest_gap(load: Load) -> Iterator[list[float]]:
    """Append the longest time in seconds without an accepted message."""
    ended, gaps = threading.Event(), list[float]()

    def watch() -> None:
        times, count = [time.monotonic()], 0
        while not ended.wait(0.005):
            if len(load.accepted) > count:
                count = len(load.accepted)
                times.append(time.monotonic())
        times.append(time.monotonic())
        gaps.append(max(after - before for before, after in pairwise(times)))

    thread = threading.Thread(target=watch)
    thread.start()
    yield gaps
    ended.set()
    thread.join()


def test_cell_moves_under_load(citus: Citus, tmp_path: Path) -> None:
    citus.run("CREATE SCHEMA cell_01")
    url = citus.url("cell_01")
    with Service(url, tmp_path / "data", STEP_MS) as service:
        service.apply()
        service.start()
        began, longest, seconds = time.monotonic(), 0.0, list[float]()
        with Load(service, clients=2) as load:
            load.more(30)
            for _ in range(MOVES):
                with longest_gap(load) as gaps:
                    moving = time.monotonic()
                    move_cell(citus, "cell_01", 3 - worker_of(citus, "cell_01"))
                    seconds.append(time.monotonic() - moving)
                longest = max(longest, *gaps)
                load.more(30)
        rate = len(load.accepted) / (time.monotonic() - began)
        check_all_arrived(url, load.accepted)
        assert (
            f"the cell cell_01 is on 127.0.0.1:{citus.ports[worker_of(citus, 'cell_01')]}"
            in service.run("doctor").stdout
        )
    keys = [row[0] for row in citus.run("SET search_path = cell_01", "SELECT key FROM message ORDER BY key")]
    report(
        "citus",
        f"{MOVES} moves there and back at {rate:.0f} accepted per second, {max(seconds):.1f} s each at most: "
        f"{len(load.accepted)} accepted, {len(load.refused)} refused and repeated, 0 lost, 0 sent twice, longest gap "
        f"{longest:.2f} s, largest message key {keys[-1]}",
    )
    assert keys[-1] < 2**31
    assert longest <= 2


def test_killed_worker_stops_its_own_cell_only(citus: Citus, tmp_path: Path) -> None:
    for number in (1, 2):
        citus.run(f"CREATE SCHEMA other_{number}")
    with (
        Service(citus.url("other_1"), tmp_path / "1", STEP_MS) as first,
        Service(citus.url("other_2"), tmp_path / "2", STEP_MS) as second,
    ):
        for number, service in ((1, first), (2, second)):
            service.apply()
            move_cell(citus, f"other_{number}", number)
            service.start()
        with Load(first, clients=1) as stopped, Load(second, clients=1) as untouched:
            stopped.more(20)
            untouched.more(20)
            citus.workers[0].stop(signal.SIGKILL)
            with longest_gap(untouched) as gaps:
                until(lambda: stopped.refused or stopped.broken)
                untouched.more(30)
            citus.workers[0].start()
            began = time.monotonic()
            stopped.more(1)
            back = time.monotonic() - began
            stopped.more(20)
        statuses = {answer.status for answer in stopped.refused}
        check_all_arrived(citus.url("other_1"), stopped.accepted)
        check_all_arrived(citus.url("other_2"), untouched.accepted)
    report(
        "citus",
        f"killed worker: its cell answered {sorted(statuses)} and accepted again after {back:.1f} s; the other cell "
        f"refused {len(untouched.refused)}, longest gap {gaps[0]:.2f} s; {len(stopped.accepted)} and "
        f"{len(untouched.accepted)} accepted, 0 lost, 0 sent twice",
    )
    assert statuses <= {503}
    assert not untouched.refused
    assert back <= 5


def test_tests_of_postgresql_pass_in_cells(citus: Citus) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "--tb=line", "-p", "no:cacheprovider"]
    command += ["-k", " and not ".join(("postgres", *sorted(HARNESS)))]
    environment = {**os.environ, "TEST_CITUS": citus.url()}
    environment.pop("PROOF", None)
    done = subprocess.run([*command, *FOLDERS], env=environment, capture_output=True, text=True)
    failed = set(re.findall(r"^(?:FAILED|ERROR) \S+::(\w+)", done.stdout, re.M))
    counts = re.findall(r"^\d+ .*(?:passed|failed).*$", done.stdout, re.M)
    report("citus", f"{', '.join(FOLDERS)}: {''.join(counts[-1:])}; failed: {', '.join(sorted(failed)) or 'none'}")
    assert not failed, done.stdout[-10_000:]
