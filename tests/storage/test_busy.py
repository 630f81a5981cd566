"""SQLite's write lock held by another program: we wait in short steps, for a limited time, until that program dies."""

import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from heliograph.storage.engine import sqlite
from heliograph.storage.engine.database import StoreUnavailable, Tx
from heliograph.storage.engine.migrate import migrate_sqlite
from heliograph.storage.engine.sqlite import SqliteDatabase, open_sqlite, wait_for_lock

pytestmark = pytest.mark.anyio

HOLD = """
import apsw, sys
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    migrate_sqlite(tmp_path / "a.db")
    return tmp_path / "a.db"


@pytest.fixture
async def database(path: Path) -> AsyncIterator[SqliteDatabase]:
    database = SqliteDatabase(path)
    yield database
    await database.close()


@contextmanager
def holder(path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Run another program that holds a write transaction."""
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "held\n"
        yield process
        process.kill()


async def bump(tx: Tx) -> int:
    ((number,),) = await tx.run("increase_restore_counter")
    return int(number)


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> dict[int, Callable[[], None]]:
    """Return number of attempts to get the lock → function to call then; the test fills it."""
    happens: dict[int, Callable[[], None]] = {}

    def watched(tries: int) -> bool:
        happens.get(tries, lambda: None)()
        return wait_for_lock(tries)

    monkeypatch.setattr(sqlite, "wait_for_lock", watched)
    return happens


async def test_database_locked_by_another_program_is_waited_for(
    path: Path, database: SqliteDatabase, tries: dict[int, Callable[[], None]]
) -> None:
    other = open_sqlite(path)
    other.execute("BEGIN IMMEDIATE")
    tries[10] = lambda: other.execute("COMMIT").close()
    assert await database.write(bump) == 1
    other.close()


@pytest.mark.parametrize("signal_", [signal.SIGKILL, signal.SIGTERM])
async def test_lock_of_a_killed_program_is_released(
    path: Path, database: SqliteDatabase, tries: dict[int, Callable[[], None]], signal_: signal.Signals
) -> None:
    with holder(path) as process:
        tries[2] = lambda: process.send_signal(signal_)
        assert await database.write(bump) == 1


async def test_lock_of_a_stopped_program_is_waited_for_only_up_to_a_limit(
    path: Path, database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holder(path) as process:
        process.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(sqlite, "BUSY_MS", 20)
        with pytest.raises(StoreUnavailable, match="locked"):
            await database.write(bump)
        monkeypatch.undo()
        process.kill()
        assert await database.write(bump) == 1
