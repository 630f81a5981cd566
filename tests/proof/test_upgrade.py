"""An upgrade and the way back under load: processes of an older version and of this one side by side.

It starts with a database that the older version left (tests/old_databases), with messages waiting in it.
"""

import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from email import message_from_bytes
from pathlib import Path

import pytest

from tests.journeys.load import Load, ask_database, check_books, finished
from tests.journeys.smtp_sink import Sink
from tests.npm import miss
from tests.old_databases import CARRIER, REVISIONS, SECRET, WAITING_EMAILS, load_dump
from tests.proof.size import DATABASES, database_name, report, rounds
from tests.service import Service, free_port, until

ROOT = Path(__file__).parents[2]
ROUNDS = 2
CLIENTS = 4
COMMAND = (sys.executable, "-P", "-m", "heliograph.cli.main")
SETTLED = 10 * CLIENTS  # answers after which no client is still at a process that was taken out


def extract(revision: str, folder: Path) -> Path:
    """Write the sources of the older version into `folder`."""
    archive = subprocess.run(["git", "archive", revision, "src", "tests/setup.toml"], cwd=ROOT, capture_output=True)
    if archive.returncode:
        miss("upgrades", f"this clone has no {revision}")
    folder.mkdir()
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
@pytest.mark.parametrize("revision", REVISIONS)
def test_upgrade_refuses_and_loses_nothing(revision: str, empty_database_url: str, tmp_path: Path) -> None:
    before = extract(revision, tmp_path / "before")
    load_dump(revision, empty_database_url)
    ports = [free_port(), free_port()]
    fleet = Fleet(Service(empty_database_url, tmp_path / "data", secret=SECRET), before)
    with ExitStack() as ended:
        sink = ended.enter_context(Sink())
        ended.callback(fleet.kill)
        setup = (before / "tests/setup.toml").read_text("utf-8") + CARRIER.format(port=sink.port)
        (tmp_path / "setup.toml").write_text(setup, "utf-8")
        fleet.run("old", "apply", str(tmp_path / "setup.toml"))
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
        finished(empty_database_url)
        received = Counter(message_from_bytes(content)["Subject"] for _, _, content in sink.mails)
    assert received == dict.fromkeys([*WAITING_EMAILS, *load.accepted], 1)
    unsent = "SELECT id FROM message WHERE status NOT IN ('sent', 'delivered', 'read')"
    assert ask_database(empty_database_url, unsent) == []
    check_books(empty_database_url)
    name = database_name(empty_database_url)
    said = f"{name}: {ROUNDS} times from {revision} to this version and back under load"
    counts = f"{len(load.accepted)} accepted and {len(WAITING_EMAILS)} waiting before"
    report("upgrade", f"{said}, {counts}, 0 refused, each sent once")
