"""`serve --processes`: processes on one address are killed, replaced under load, and end with their parent."""

import os
import re
import signal
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest

from tests.conftest import fresh_database
from tests.forks import Forked
from tests.journeys.load import Load, check_all_arrived
from tests.journeys.test_metric_set import METRICS
from tests.service import Service, until

ROOT = Path(__file__).parents[2]
SOURCE, CLIENT = ROOT / "src", ROOT / "clients" / "python" / "src"


def test_processes_are_killed_and_replaced_and_nothing_is_lost(postgres: str, tmp_path: Path) -> None:
    with Service(fresh_database(postgres), tmp_path / "data") as service:
        service.apply()
        parent = service.start("all", 0, "--processes", "2")
        killed, other = children(parent)
        with Load(service, clients=1) as load:
            load.more(10)
            os.kill(killed, signal.SIGKILL)
            until(lambda: len(children(parent)) == 2 and killed not in children(parent))
            load.more(10)
        assert other in children(parent)
        accepted = load.accepted

        before = set(children(parent))
        with Load(service, clients=1, name="reload") as load:
            load.more(10)
            parent.send_signal(signal.SIGHUP)
            until(lambda: len(children(parent)) == 2 and not before & set(children(parent)))
            load.more(10)
        assert (load.refused, load.broken) == ([], [])  # no request failed
        check_all_arrived(service.database, accepted | load.accepted)

        until(lambda: reporting_processes(service) == set(children(parent)))
        assert METRICS.keys() <= metric_names(service)

        left = children(parent)
        service.kill(parent)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left))


@pytest.mark.slow
def test_modules_in_the_current_folder_are_not_imported_by_processes_that_we_start(tmp_path: Path) -> None:
    (folder := tmp_path / "hostile").mkdir()
    for name in ("dns", "heliograph", "apsw", "msgspec", "asyncio"):
        (folder / f"{name}.py").write_text(f"open({str(folder / 'imported')!r}, 'w').close(); raise SystemExit(3)")
    given = {name: value for name, value in os.environ.items() if not name.startswith("HELIOGRAPH_")}
    given |= {"HELIOGRAPH_DATA": str(tmp_path / "data"), "HELIOGRAPH_BOUNCE_LISTEN": "off", "PYTHONUNBUFFERED": "1"}
    program = Path(sys.executable).with_name("heliograph")  # as users start it
    running = subprocess.Popen(
        [str(program), "serve", "--processes", "2", "--listen", "127.0.0.1:0"],
        cwd=folder,
        env=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert running.stdout
        lines = takewhile(lambda line: not line.startswith("Heliograph is "), running.stdout)
        output = "".join(lines)  # ends early if the parent does
        assert not (folder / "imported").exists(), output
        assert running.poll() is None, output
    finally:
        running.terminate()
        running.communicate()


def test_every_python_that_we_start_ignores_the_current_folder() -> None:
    starts = {
        path.as_posix(): line
        for path in (*SOURCE.rglob("*.py"), *CLIENT.rglob("*.py"))
        for line in path.read_text("utf-8").splitlines()
        if "sys.executable" in line
    }
    assert all(re.search(r'sys\.executable, "-[PI]"', line) for line in starts.values()), starts


def children(parent: Forked) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()]


def reporting_processes(service: Service) -> set[int]:
    """Return the processes that one process reports; it reports for all."""
    lag = r'^heliograph_event_loop_lag_seconds{pid="(\d+)"}'
    return {int(pid) for pid in re.findall(lag, service.get("/metrics").raw.decode(), re.M)}


def metric_names(service: Service) -> set[str]:
    """Return all metrics by name, including those without values."""
    return set(re.findall(r"^# TYPE (heliograph_\w+)", service.get("/metrics").raw.decode(), re.M))
