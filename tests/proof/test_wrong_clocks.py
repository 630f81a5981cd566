"""P27: workers whose clocks differ, or jump with claims in flight, send nothing twice, and the wrong one says so.

Only the wall clock lies, as on a real machine: by libfaketime, read anew from a file at every look.
"""

from collections import Counter
from pathlib import Path

import pytest

from tests import service as services
from tests.forks import Forked
from tests.journeys.load import Load, ask_database, check_books, finished
from tests.proof.size import FULL, database_name, report, size
from tests.service import Service, until

FAKETIME = next(iter(sorted(Path("/usr").glob("lib*/**/faketime/libfaketimeMT.so.1"))), None)
HAND_OVERS = size("P27 hand-overs")
HAND_OVER_S = 8 if FULL else 1.5  # longer than it takes until claims of the dead are looked for
RECLAIM = "" if FULL else "app.every = lambda seconds, work, **how: every(min(seconds, 0.3), work, **how)"
WRONG, RIGHT = "this machine's clock is wrong: nothing is claimed", "this machine's clock is right again"

# The service with a slow carrier that notes whom it was given, and by which process.
SLOW = f"""
import asyncio, os
from heliograph.carriers.email.simulator import EmailSimulator
from heliograph.cli.main import main
from heliograph import app

every = app.every
{RECLAIM}
send_message, noted = EmailSimulator.send_message, os.open(os.environ["NOTED"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


async def slow(self, message):
    os.write(noted, f"{{os.getpid()}} {{message.message_id}}\\n".encode())
    await asyncio.sleep({HAND_OVER_S})
    return await send_message(self, message)


EmailSimulator.send_message = slow
main()
"""

CASES = [(url, case) for url in ("sqlite", "postgres") for case in ("ahead", "behind", "jump")]
SHORT = [("sqlite", "jump"), ("postgres", "ahead")]
OFF = {"ahead": "+600", "behind": "-600", "jump": "+0"}  # seconds, from the start on


class Workers:
    """Of one service; what each says is kept."""

    def __init__(self, service: Service, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._service, self._folder, self._patch = service, folder, monkeypatch
        self.noted = folder / "noted"

    def start(self, name: str, off: str | None = None) -> Forked:
        """`off`: from the real time; None: by the real clock."""
        said, environment, program = self._folder / f"{name}.log", {"NOTED": str(self.noted)}, SLOW
        if off is not None:
            self.set(name, off)
            environment |= {"LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": f"{self._folder / name}.clock"}
            environment |= {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_NO_CACHE": "1"}
            program = f"os.execv(sys.executable, [sys.executable, '-c', {SLOW!r}, *sys.argv[1:]])"
        before = f"""
import os, sys
os.dup2(os.open({str(said)!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
os.environ.update({environment!r})
"""
        with self._patch.context() as patch:
            patch.setattr(services, "PROGRAM", before + program)
            return self._service.start("worker")

    def set(self, name: str, off: str) -> None:
        new = self._folder / f"{name}.new"
        new.write_text(off)
        new.rename(self._folder / f"{name}.clock")

    def has_said(self, name: str, line: str) -> bool:
        return line in (self._folder / f"{name}.log").read_text()

    def handed_over(self) -> list[tuple[int, str]]:
        """Process and message."""
        lines = self.noted.read_text().splitlines() if self.noted.exists() else []
        return [(int(pid), id_) for pid, id_ in (line.split() for line in lines)]


@pytest.mark.apart
@pytest.mark.parametrize(("database_url", "case"), CASES if FULL else SHORT, indirect=["database_url"])
def test_clocks_that_differ_send_nothing_twice(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    if FAKETIME is None:
        pytest.skip("clocks do not lie here: libfaketime is not installed (Debian's package faketime)")
    with Service(database_url, tmp_path / "data") as service:
        service.apply()
        service.start("api")
        workers = Workers(service, tmp_path, monkeypatch)
        workers.start("honest")
        liar = workers.start("liar", OFF[case])
        with Load(service, 1) as load:
            if case == "jump":
                until(lambda: {pid for pid, _ in workers.handed_over()} > {liar.pid}, 60)
                workers.set("liar", "+3600")
            until(lambda: workers.has_said("liar", WRONG), 60)
            lied = [id_ for pid, id_ in workers.handed_over() if pid == liar.pid]
            load.more(HAND_OVERS, 600)
        finished(database_url, 120)
        handed = workers.handed_over()
        assert [id_ for pid, id_ in handed if pid == liar.pid] == lied  # it claimed no more
        assert bool(lied) == (case == "jump")
        workers.set("liar", "+0")
        until(lambda: workers.has_said("liar", RIGHT), 60)
        assert not workers.has_said("honest", WRONG)
        ended = dict(ask_database(database_url, "SELECT id, status FROM message"))
        assert set(load.accepted.values()) <= set(ended)
        assert set(ended.values()) == {"delivered"}
        assert Counter(id_ for _, id_ in handed) == dict.fromkeys(ended, 1)
        check_books(database_url)
    report(
        "P27",
        f"{database_name(database_url)}, {case}: {len(ended)} messages, {len(lied)} handed over by the wrong clock's "
        "worker before it jumped, 0 after; 0 twice, 0 failed, the wrong clock named and right again",
    )
