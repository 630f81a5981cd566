"""An upgrade and the way back under load: processes of an older version and of this one side by side."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from heliograph.storage.engine.migrate import BASE_COMMIT
from tests.journeys.load import Load, check_all_arrived
from tests.npm import miss
from tests.proof.size import DATABASES, database_name, report, rounds
from tests.service import Service, free_port, until

ROOT = Path(__file__).parents[2]
BEFORE = BASE_COMMIT  # the oldest version whose database is taken over
ROUNDS = 2
CLIENTS = 4
COMMAND = (sys.executable, "-P", "-m", "heliograph.cli.main")
SETTLED = 10 * CLIENTS  # answers after which no client is still at a process that was taken out


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the older version."""
    folder = tmp_path_factory.mktemp("before")
    archive = subprocess.run(["git", "archive", BEFORE, "src", "tests/setup.toml"], cwd=ROOT, capture_output=True)
    if archive.returncode:
        miss("upgrades", f"this clone has no {BEFORE}")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


class Fleet:
    """Two places for processes of either release; one that is replaced gets no more requests before it stops."""

    def __init__(self, service: Service, before: Path) -> None:
        self.service = service
        self.environment = service._environment
        self._old = {name: value for name, value in self.environment.items() if name != "HELIOGRAPH_STOP_DELAY_MS"}
        self._old["PYTHONPATH"] = str(before / "src")
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def run(self, release: str, *arguments: str) -> None:
        subprocess.run([*COMMAND, *arguments], env=self._of(release), check=True, stdout=subprocess.DEVNULL)

    def start(self, release: str, port: int) -> None:
        command = [*COMMAND, "serve", "--listen", f"127.0.0.1:{port}"]
        self._running[port] = subprocess.Popen(command, env=self._of(release), stdout=subprocess.DEVNULL)
        until(lambda: self._is_ready(port))
        self.service.ports.append(port)

    def replace(self, release: str, port: int, load: Load) -> None:
        self.service.ports.remove(port)
        load.more(SETTLED)
        self._running[port].terminate()
        assert self._running[port].wait() == 0
        self.start(release, port)

    def kill(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()

    def _of(self, release: str) -> dict[str, str]:
        return self._old if release == "old" else self.environment

    def _is_ready(self, port: int) -> bool:
        assert self._running[port].poll() is None
        try:
            return self.service.get("/readyz", key=None, port=port).status == 200
        except OSError:
            return False


@pytest.mark.parametrize("empty_database_url", DATABASES, indirect=True)
def test_upgrade_refuses_and_loses_nothing(empty_database_url: str, before: Path, tmp_path: Path) -> None:
    ports = [free_port(), free_port()]
    fleet = Fleet(Service(empty_database_url, tmp_path / "data"), before)
    with ExitStack() as ended:
        ended.callback(fleet.kill)
        fleet.run("old", "apply", str(before / "tests/setup.toml"))
        for port in ports:
            fleet.start("old", port)
        with Load(fleet.service, CLIENTS) as load:
            for _ in rounds("upgrade", ROUNDS):
                load.more(SETTLED)
                fleet.run("new", "migrate")
                for release in ("new", "old"):
                    for port in ports:
                        load.more(SETTLED)
                        fleet.replace(release, port, load)
                load.more(SETTLED)
        assert [(answer.status, answer.raw) for answer in load.refused] == []
        assert load.broken == []
        check_all_arrived(empty_database_url, load.accepted)
    name = database_name(empty_database_url)
    said = f"{name}: {ROUNDS} times from {BEFORE} to this version and back under load"
    report("upgrade", f"{said}, {len(load.accepted)} accepted, 0 refused, 0 missing")
