"""Cells on Citus: PostgreSQL's tests pass there, a cell moves under load, a killed worker stops its own cell only."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from queue import Queue

import pytest

from tests.journeys.load import Load, ask_database, check_all_arrived
from tests.journeys.test_webhooks import Hooks, HookService
from tests.proof.citus import Citus, move_cell, running, worker_of
from tests.proof.size import report
from tests.service import Service, until

STEP_MS = 20
MOVES = 6  # three times there and back
FOLDERS = ("tests/storage", "tests/deliver", "tests/api", "tests/journeys")
FILES_AT_ONCE = 6
STREAMS = 3  # of test processes at the same time, each with a database of its own
TEST_S = 120  # a test that takes longer ends its process, which reports its stack
PROCESS_S = 1800
COMPLETE = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
# Tests that cannot pass in a cell, and why.
SKIPPED = {
    "test_every_query_uses_the_expected_indexes": "it fills and explains tables of the schema public",
    "test_upgrade_of_an_old_database_loses_nothing": "its dumps are of the schema public and of PostgreSQL 18",
}


@pytest.fixture(scope="module")
def citus() -> Iterator[Citus]:
    with running() as citus:
        yield citus


def test_outcomes_are_read_where_other_output_is_among_them() -> None:
    lines = [
        "collecting ... collected 9 items / 5 deselected / 4 selected",
        "tests/a.py::test_a[postgres] PASSED [ 25%]",
        "tests/a.py::test_b[postgres] a line of another process",
        "PASSED [ 50%]",
        "tests/a.py::test_c[postgres] a line of another process",
        "FAILED [ 75%]",
    ]
    summary = ["PASSED tests/a.py::test_a[postgres]", "PASSED tests/a.py::test_b[postgres]"]
    summary += ["FAILED tests/a.py::test_c[postgres] - TimeoutError"]
    outcomes = read_outcomes("\n".join(lines + summary))
    assert sorted(outcomes.values()) == ["ERROR", "FAILED", "PASSED", "PASSED"]  # one of the four has no outcome
    assert outcomes["tests/a.py::test_c[postgres]"] == "FAILED"


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
    try:
        yield gaps
    finally:  # or the thread would keep the process from ending
        ended.set()
        thread.join()


def check_webhooks(url: str, hooks: Hooks, accepted: dict[str, str]) -> int:
    """Check that each event of a message arrived once and in order; return the number of events."""
    until(lambda: ask_database(url, "SELECT count(*) FROM delivery WHERE state = 'waiting'") == [(0,)])
    published = [id_ for (id_,) in ask_database(url, "SELECT id FROM event WHERE message IS NOT NULL")]
    arrived, sequences = list[str](), defaultdict[str, list[int]](list)
    for event in hooks.told():
        if event["data"].get("id") in set(accepted.values()):
            arrived.append(event["id"])
            sequences[event["data"]["id"]].append(event["sequence"])
    assert sorted(arrived) == sorted(published)
    assert {id_: sorted(set(numbers)) for id_, numbers in sequences.items()} == sequences
    return len(arrived)


def test_cell_moves_under_load(citus: Citus, tmp_path: Path) -> None:
    citus.run("CREATE SCHEMA cell_01")
    url, hooks = citus.url("cell_01"), Hooks(tmp_path)
    with HookService(url, tmp_path / "data", STEP_MS) as service, ExitStack() as stack:
        stack.callback(hooks.stop)
        service.apply()
        service.subscribe(tmp_path, hooks.start() + "/")
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
        events = check_webhooks(url, hooks, load.accepted)
        assert (
            f"the cell cell_01 is on 127.0.0.1:{citus.ports[worker_of(citus, 'cell_01')]}"
            in service.run("doctor").stdout
        )
    keys = [row[0] for row in citus.run("SET search_path = cell_01", "SELECT key FROM message ORDER BY key")]
    unused = keys[-1] - keys[0] + 1 - len(keys)
    report(
        "citus",
        f"{MOVES} moves there and back at {rate:.0f} accepted per second, {max(seconds):.1f} s each at most: "
        f"{len(load.accepted)} accepted, {len(load.refused)} refused and repeated, 0 lost, 0 sent twice, longest gap "
        f"{longest:.2f} s; {events} webhooks, each once and in order; message keys {keys[0]} to {keys[-1]}, "
        f"{unused} unused",
    )
    assert unused <= len(load.refused)
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


@pytest.mark.parametrize("folder", FOLDERS)
def test_tests_of_postgresql_pass_in_cells(citus: Citus, folder: str) -> None:
    files = sorted(str(path) for path in Path(folder).glob("test_*.py"))
    parts = [files[start : start + FILES_AT_ONCE] for start in range(0, len(files), FILES_AT_ONCE)]
    databases = Queue[str]()
    for number in range(STREAMS):
        databases.put(citus.new_database(f"{Path(folder).name}_{number}"))
    with ThreadPoolExecutor(STREAMS) as pool:
        results = list(pool.map(partial(run_files, databases), parts))
    outcomes = {name: end for result in results for name, end in result[0].items()}
    counts = Counter(outcomes.values())
    failed = sorted(name.rpartition("::")[2] for name, end in outcomes.items() if end not in ("PASSED", "SKIPPED"))
    report(
        "citus",
        f"{folder}: {', '.join(f'{count} {end.lower()}' for end, count in sorted(counts.items()))}; "
        f"did not pass: {', '.join(failed) or 'none'}",
    )
    assert not failed and outcomes, "".join(output for _, output in results if "= FAILURES =" in output)[-20_000:]


def run_files(databases: Queue[str], files: list[str]) -> tuple[dict[str, str], str]:
    """Run the tests on PostgreSQL in files, on a database that is free; return the outcome of each, and the output."""
    database = databases.get()
    environment = {**os.environ, "TEST_CITUS": database}
    environment.pop("PROOF", None)
    outcomes, output = dict[str, str](), ""
    try:
        while files:
            part = files
            printed, code = run_tests(part, environment)
            output += printed
            files = []
            if code not in COMPLETE:
                outcomes[f"{part[0]}::exit_code_{code}"] = "ERROR"
            outcomes |= read_outcomes(printed)
            if unfinished := re.findall(r"^(\S+::.+) Timeout \(", printed, re.M):
                outcomes[unfinished[0]] = "TIMEOUT"
                files = [file for file in part if file > unfinished[0].partition("::")[0]]
            print(f"citus: {' '.join(part)}: {dict(Counter(outcomes.values()))}", flush=True)
    finally:
        databases.put(database)
    return outcomes, output


def read_outcomes(printed: str) -> dict[str, str]:
    """Return the outcome of each test by its name, from the lines of the tests and from the summary at the end.

    Other output may come between the name of a test and its outcome. Tests without an outcome count as an error.
    """
    outcomes = dict(re.findall(r"^(\S+::.+?) (PASSED|FAILED|ERROR|SKIPPED)", printed, re.M))
    summary = re.findall(r"^(PASSED|FAILED|ERROR) (\S+::.+?)(?: - .*)?$", printed, re.M)
    outcomes |= {name: outcome for outcome, name in sorted(summary, key=lambda line: line[0] != "PASSED")}
    selected = re.findall(r"^collecting \.\.\. collected (\d+) items?(?:.* (\d+) selected)?", printed, re.M)
    missing = sum(int(some or every) for every, some in selected) - len(outcomes)
    return outcomes | ({f"{next(iter(outcomes), '')}::{missing}_tests_without_outcome": "ERROR"} if missing else {})


def run_tests(files: list[str], environment: dict[str, str]) -> tuple[str, int]:
    """Run the tests on PostgreSQL in files; return the output and the exit code. A test that takes too long ends it."""
    command = [sys.executable, "-m", "pytest", "-vv", "--tb=short", "-p", "no:cacheprovider"]
    command += ["-rfEp", "-o", f"faulthandler_timeout={TEST_S}", "-o", "faulthandler_exit_on_timeout=true"]
    command += ["-k", " and not ".join(("postgres", *SKIPPED))]
    done = subprocess.run(
        [*command, *files],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PROCESS_S,
    )
    return done.stdout, done.returncode
