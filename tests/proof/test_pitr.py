"""Point-in-time recovery: PostgreSQL goes back to a moment by a copy and its archived log, and starts paused."""

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from heliograph.storage.restored import TURNED_BACK
from tests.conftest import start_postgres, stop_at_once, with_patience
from tests.journeys.load import Load, ask_database
from tests.proof.size import report
from tests.proof.test_restore import STEP_MS, check_at_rest, check_paused_then_resume
from tests.service import Service, until


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below pytest's folder, which keeps the server's user out."""
    with tempfile.TemporaryDirectory(prefix="heliograph-pitr-", ignore_cleanup_errors=True) as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def server(folder: Path) -> Iterator[Any]:
    """It keeps every segment of its log."""
    server = start_postgres(str(folder / "first"), cleanup_mode=None)
    archive = folder / "archive"
    archive.mkdir()
    for place in (folder, archive):
        shutil.chown(place, server.system_user)
    set_up(server.get_uri(), archive_mode="on", archive_command=f"cp %p {archive}/%f")
    stop_at_once(server)
    with_patience(server.ensure_postgres_running)
    yield server
    server.cleanup()


def set_up(url: str, **settings: str) -> None:
    async def execute() -> None:
        connection: Any = await asyncpg.connect(url)
        for name, value in settings.items():
            await connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        await connection.close()

    asyncio.run(execute())


def restored(server: Any, folder: Path, moment: str) -> Any:
    """A second server, brought to that moment."""
    second = folder / "second"
    (second / "recovery.signal").touch()
    for own in second.glob(".s.PGSQL*"):  # the first one's socket is in its folder
        own.unlink()
    with (second / "postgresql.auto.conf").open("a") as settings:
        settings.write(f"archive_mode = off\nrestore_command = 'cp {folder}/archive/%f %p'\n")
        settings.write(f"recovery_target_lsn = '{moment}'\nrecovery_target_action = promote\n")
    shutil.chown(second / "recovery.signal", server.system_user)
    return start_postgres(str(second), cleanup_mode=None)


def test_back_to_a_moment(server: Any, folder: Path, tmp_path: Path) -> None:
    url, second = server.get_uri(), folder / "second"
    with Service(url, tmp_path, STEP_MS) as service:
        service.apply()
        service.start()
        with Load(service, clients=2) as load:
            load.more(40)
            command = [server.bin_path / "pg_basebackup", "-d", url, "-D", folder / "copy", "-c", "fast", "-X", "none"]
            subprocess.run(command, check=True, user=server.system_user)
            load.more(40)
            before = dict(load.accepted)
            ((moment,),) = ask_database(url, "SELECT pg_current_wal_insert_lsn()::text")
            load.more(40)
            lost = len(load.accepted) - len(before)
        assert service.stop() == 0
    ask_database(url, "SELECT pg_switch_wal()::text")
    archived = f"SELECT last_archived_wal >= pg_walfile_name('{moment}') FROM pg_stat_archiver"
    until(lambda: ask_database(url, archived) == [(True,)])
    stop_at_once(server)
    (folder / "copy").rename(second)
    again = restored(server, folder, moment)
    try:
        until(lambda: ask_database(again.get_uri(), "SELECT pg_is_in_recovery()") == [(False,)])
        check_at_rest(again.get_uri(), before)
        with Service(again.get_uri(), tmp_path, step_ms=1) as service:
            service.start()
            check_paused_then_resume(service, TURNED_BACK, before)
            assert service.stop() == 0
    finally:
        again.cleanup()
    report("restore", f"point in time: {len(before)} messages of that moment are back, {lost} later ones gone; paused")
