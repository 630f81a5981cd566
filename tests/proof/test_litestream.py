"""Litestream, the real program: it copies under load, the machine is lost, and what comes back starts paused."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from heliograph.storage.rollback_detection import COPIED_REASON
from tests.journeys.load import Load, ask_database
from tests.proof.size import report
from tests.proof.test_restore import STEP_MS, check_at_rest, check_paused_then_resume
from tests.service import Service, until

PROGRAM = str(Path(sys.executable).with_name("litestream"))
FILE = "heliograph.db"
SETUP = """
l0-retention: 1m
snapshot: {{interval: 1h, retention: 24h}}
dbs:
  - path: {database}
    checkpoint-interval: 1s
    min-checkpoint-page-count: 100
    replica: {{type: file, path: {replica}, sync-interval: 100ms}}
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    (tmp_path / "litestream.yml").write_text(SETUP.format(database=tmp_path / FILE, replica=tmp_path / "replica"))
    return tmp_path


@contextmanager
def replicating(machine: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with (machine / "litestream.log").open("wb") as said:
        command = [PROGRAM, "replicate", "-config", str(machine / "litestream.yml")]
        copying = subprocess.Popen(command, stdout=said, stderr=said)
        try:
            yield copying
        finally:
            copying.kill()
            copying.wait()


def restore(machine: Path, target: Path) -> None:
    command = [PROGRAM, "restore", "-config", str(machine / "litestream.yml"), "-o", str(target), str(machine / FILE)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


def newest(machine: Path, scratch: str) -> set[str]:
    """The ids of the messages that a restore would bring back now; none before the first copy."""
    target = machine / scratch
    try:
        restore(machine, target)
    except subprocess.CalledProcessError:
        return set()
    found = {id_ for (id_,) in ask_database(f"sqlite:///{target}", "SELECT id FROM message")}
    target.unlink()
    return found


def snapshots(machine: Path) -> int:
    command = [PROGRAM, "ltx", "-config", str(machine / "litestream.yml"), "-level", "9", str(machine / FILE)]
    return len(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()) - 1


def test_lost_machine_is_restored_from_litestream(machine: Path) -> None:
    file = machine / FILE
    with Service(f"sqlite:///{file}", machine / "data", STEP_MS, checkpoint="external") as service:
        service.apply()
        service.start()
        with replicating(machine) as copying:
            with Load(service, clients=2) as load:
                load.more(150)
            accepted = dict(load.accepted)
            wanted, tries = set(accepted.values()), iter(range(1000))
            until(lambda: wanted <= newest(machine, f"scratch{next(tries)}"))
            with Load(service, clients=2) as later:
                later.more(20)  # some of these are lost
            copying.kill()  # the machine goes, all of it at once
            service.kill()
        assert snapshots(machine) <= 1  # all else are changes: nobody else brought the log into the file
        for part in machine.glob(f"{FILE}*"):
            if part.is_file():
                part.unlink()
        restore(machine, file)
        check_at_rest(service.database, accepted)
        connection = apsw.Connection(str(file))  # as if two minutes had passed: the claims have run out
        connection.execute("UPDATE outbox SET lease_until = 0 WHERE owner IS NOT NULL")
        connection.close()
        with replicating(machine):
            service.start()
            check_paused_then_resume(service, COPIED_REASON, accepted)
    stored = {id_ for (id_,) in ask_database(service.database, "SELECT id FROM message")}
    lost = len(set(later.accepted.values()) - stored)
    report(
        "restore",
        f"Litestream: {len(accepted)} messages are back, {lost} of the last {len(later.accepted)} gone; paused",
    )


def test_checkpointing_is_left_to_litestream(tmp_path: Path) -> None:
    """Its own checkpoints are off: the file stays as it was, however much is written."""
    sizes = {}
    for mode in ("own", "external"):
        file = tmp_path / mode / FILE
        file.parent.mkdir()
        with Service(f"sqlite:///{file}", file.parent / "data", STEP_MS, checkpoint=mode) as service:
            service.apply()
            service.start()
            with Load(service, clients=2) as load:
                load.more(150)
            sizes[mode] = file.with_name(f"{FILE}-wal").stat().st_size
            said = service.run("doctor", "--listen", "127.0.0.1:0").stdout
            assert ("checkpoints" in said) == (mode == "external")
    assert sizes["external"] > 1.5 * sizes["own"]
