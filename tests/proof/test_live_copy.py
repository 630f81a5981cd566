"""A database is copied under load, from SQLite to PostgreSQL and back: nothing is lost, and nothing is sent twice."""

import json
import random
import sys
from pathlib import Path

import pytest

from tests.conftest import fresh_database
from tests.journeys.load import Load, ask_database, check_all_arrived, check_sent_once
from tests.proof.size import FULL, report, rounds, size
from tests.proof.test_restore import HANDED_OVER, check_at_rest
from tests.service import Service

KILLS = size("live copy kills")
STEP_MS = 100  # of simulated messages: some are always under way
READY = "Stop the service now"
LINES = 1000 if FULL else 200  # fewer than a copy prints
# It has many small ranges, and prints a line for each, so that a kill comes between two of them.
PROGRAM = """
from heliograph.cli.copy import Progress
from heliograph.cli.main import main
from heliograph.storage import database_copy
database_copy.BATCH_ROWS = 20
Progress.__call__ = lambda _, action, rows: print(action, rows)
main()
"""


class LiveCopy:
    def __init__(self, service: Service, target: str) -> None:
        self._process = service.launch(PROGRAM, "copy", "--live", "--from", service.database, "--to", target)
        self.text = ""

    def read(self, lines: int) -> bool:
        """Read its output until it says READY, at most so many lines; return whether it did."""
        for _ in range(lines):
            self.text += (line := self._process.stdout.readline())
            assert line, self.text
            if line.startswith(READY):
                return True
        return False

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def finish(self) -> None:
        with self._process.stdout as output:
            self.text += output.read()
        assert self._process.wait() == 0, self.text


@pytest.mark.parametrize("kind", ["SQLite", "PostgreSQL"])
def test_live_copy_killed_under_load_is_continued_and_complete(kind: str, postgres: str, tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path / 'heliograph.db'}", fresh_database(postgres, "template1")]
    source, target = urls if kind == "SQLite" else reversed(urls)
    chance = random.Random(44)
    with Service(source, tmp_path / "data", STEP_MS) as old, Service(target, tmp_path / "data", STEP_MS) as new:
        old.apply()
        service, waits, kills = old.start(), 0, KILLS + (kind == "PostgreSQL")
        with Load(old, clients=2) as load:
            load.more(30)
            for _ in rounds("copy", KILLS):
                copy = LiveCopy(old, target)
                waits += copy.read(chance.randrange(LINES))
                copy.kill()
                load.more(10)
            copy = LiveCopy(old, target)
            assert copy.read(sys.maxsize)
            assert "unfinished copy" in new.run("resume").stderr
            load.more(20)  # copied in the pause
            assert old.stop(service) == 0
            if kind == "PostgreSQL":
                copy.read(chance.randrange(LINES // 4))
                copy.kill()  # in its last pass
                copy = LiveCopy(old, target)
            copy.finish()
            before = dict(load.accepted)
            waiting, sent = check_at_rest(target, before), ask_database(target, HANDED_OVER)
            head = new.run("audit", "head").stdout.split()
            assert old.run("audit", "check", *head).returncode == 0
            new.start(port=old.ports[0])
            load.more(20)
            assert ask_database(target, HANDED_OVER) == sent  # it is paused
            assert new.run("resume").returncode == 0
            load.more(20)
        check_all_arrived(target, load.accepted)
        check_sent_once(source)
        for copied in (old, new):
            findings = json.loads(copied.run("doctor", "--json").stdout)["findings"]
            assert [finding["level"] for finding in findings if finding["check"] == "audit log"] == ["ok"]
    pause = next(line for line in copy.text.splitlines() if line.startswith("The pause was"))
    report(
        "copy",
        f"live from {kind}: {kills} kills, {waits} of them while it waited, {len(before)} accepted before and "
        f"{len(load.accepted) - len(before)} after, 0 lost, 0 sent twice, {waiting} waited during the copy. {pause}",
    )
