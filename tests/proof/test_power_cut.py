"""P2: a 202 survives a power cut. The kernel's own record: synced first, answered after."""

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import service as services
from tests.journeys.load import email
from tests.proof.size import report, size
from tests.service import Service, until

ACCEPTS = size("P2 accepts")
CALLS = "trace=fsync,fdatasync,pwrite64,write,sendto,sendmsg"

# The same command with SQLite's other mode, which writes and does not sync: the test must notice.
LAX = """
from heliograph.cli.main import main
from heliograph.storage.engine import sqlite

opened = sqlite.open_sqlite


def open_lax(path, **options):
    connection = opened(path, **options)
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection


sqlite.open_sqlite = open_lax
main()
"""

pytestmark = pytest.mark.skipif(not shutil.which("strace"), reason="strace is not on PATH")


@contextmanager
def traced(pid: int, log: Path) -> Iterator[None]:
    command = ["strace", "-f", "-y", "-s", "5000", "-e", CALLS, "-o", str(log), "-p", str(pid)]
    tracing = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert tracing.stderr
    said = tracing.stderr.readline()
    if "attached" not in said:
        tracing.wait()
        pytest.skip(f"strace may not look at processes here: {said.strip()}")
    try:
        yield
    finally:
        tracing.send_signal(signal.SIGINT)
        tracing.communicate()


def synced_before_answered(log: Path) -> list[bool]:
    """For each accept: was its text in the WAL, and the WAL synced, before its 202 began to be written?"""
    lines = log.read_text(errors="replace").splitlines()
    written: dict[int, int] = {}
    synced: list[int] = []
    answered: list[int] = []
    syncing: set[str] = set()  # threads whose sync of the WAL has not returned
    for number, line in enumerate(lines):
        thread = line.split()[0]
        if "-wal>" in line and (found := re.search(r"proof ([0-9]+) end", line)):
            written.setdefault(int(found[1]), number)
        if re.search(r"f(data)?sync\([^)]*-wal>", line):
            if "unfinished" in line:
                syncing.add(thread)
            elif line.endswith("= 0"):
                synced.append(number)
        elif re.search(r"f(data)?sync resumed>", line) and thread in syncing and line.endswith("= 0"):
            syncing.discard(thread)
            synced.append(number)
        elif '"HTTP/1.1 202' in line:
            answered.append(number)
    assert len(answered) == len(written) == ACCEPTS
    return [any(written[i] < at < answered[i] for at in synced) for i in range(ACCEPTS)]


@pytest.mark.parametrize("mode", ["FULL", "NORMAL"])
def test_every_202_was_synced_before_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    if mode == "NORMAL":
        monkeypatch.setattr(services, "PROGRAM", LAX)
    with Service(f"sqlite:///{tmp_path / 'heliograph.db'}", tmp_path / "data") as service:
        service.apply()
        process = service.start("api")  # no worker: every sync is an accept's own
        with traced(process.pid, tmp_path / "trace"):
            for number in range(ACCEPTS):
                assert service.post("/v1/emails", email(f"proof {number} end")).status == 202
            until(lambda: (tmp_path / "trace").read_text(errors="replace").count('"HTTP/1.1 202') == ACCEPTS)
    results = synced_before_answered(tmp_path / "trace")
    if mode == "FULL":
        assert all(results)
    else:
        assert not all(results)  # the control: this test can fail
    report("P2", f"synchronous={mode}: {sum(results)} of {ACCEPTS} synced before they were answered")
