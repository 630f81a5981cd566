"""Point-in-time recovery: PostgreSQL goes back to a moment by a copy and its archived log, and starts paused."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliograph.storage.rollback_detection import RESTORED_REASON
from tests.journeys.load import Load, ask_database
from tests.postgres_server import PostgresServer, server_uid, temporary_folder
from tests.proof.size import report
from tests.proof.test_restore import STEP_MS, check_at_rest, check_paused_then_resume
from tests.service import Service, until


@pytest.fixture
def folder(postgres: str) -> Iterator[Path]:
    with temporary_folder() as made:
        yield made


@pytest.fixture
def server(folder: Path) -> Iterator[PostgresServer]:
    """It keeps every segment of its log."""
    archive = folder / "archive"
    archive.mkdir()
    os.chown(archive, server_uid(), -1)
    server = PostgresServer(folder / "first", archive_mode="on", archive_command=f"cp %p {archive}/%f")
    yield server
    server.stop()


def restored(folder: Path, moment: str) -> PostgresServer:
    """A second server, brought to that moment."""
    second = folder / "second"
    (second / "recovery.signal").touch()
    os.chown(second / "recovery.signal", server_uid(), -1)
    return PostgresServer(
        second,
        restore_command=f"cp {folder}/archive/%f %p",
        recovery_target_lsn=moment,
        recovery_target_action="promote",
    )


def test_point_in_time_restore_has_the_messages_of_that_moment(
    server: PostgresServer, folder: Path, tmp_path: Path
) -> None:
    url, second = server.url(), folder / "second"
    with Service(url, tmp_path, STEP_MS) as service:
        service.apply()
        service.start()
        with Load(service, clients=2) as load:
            load.more(40)
            server.run("pg_basebackup", "-d", url, "-D", f"{folder}/copy", "-c", "fast", "-X", "none")
            load.more(40)
            before = dict(load.accepted)
            ((moment,),) = ask_database(url, "SELECT pg_current_wal_insert_lsn()::text")
            load.more(40)
            lost = len(load.accepted) - len(before)
        assert service.stop() == 0
    ask_database(url, "SELECT pg_switch_wal()::text")
    archived = f"SELECT last_archived_wal >= pg_walfile_name('{moment}') FROM pg_stat_archiver"
    until(lambda: ask_database(url, archived) == [(True,)])
    server.stop()
    (folder / "copy").rename(second)
    again = restored(folder, moment)
    try:
        until(lambda: ask_database(again.url(), "SELECT pg_is_in_recovery()") == [(False,)])
        check_at_rest(again.url(), before)
        with Service(again.url(), tmp_path, step_ms=1) as service:
            service.start()
            check_paused_then_resume(service, RESTORED_REASON, before)
            assert service.stop() == 0
    finally:
        again.stop()
    report("restore", f"point in time: {len(before)} messages of that moment are back, {lost} later ones gone; paused")
