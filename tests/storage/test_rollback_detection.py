"""A restored database is paused; others never are, whichever process crashes or starts next to it."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from heliograph.bootstrap import mark_clean_shutdown, open_store, pause_if_restored
from heliograph.data_folder import read_database_counters, save_database_counter
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.setup.records import TeamRecord
from heliograph.domain.setup.snapshot import to_row
from heliograph.manage.pause import set_paused
from heliograph.settings import Settings
from heliograph.storage.rollback_detection import COPIED_REASON, RESTORED_REASON
from heliograph.storage.store import Store
from tests.setup_helpers import set_up
from tests.storage.conftest import Sql

pytestmark = pytest.mark.anyio


async def is_paused(store: Store) -> bool:
    return (await store.setup.refresh()).platform.paused


async def test_each_start_increments_the_start_number(store: Store, settings: Settings) -> None:
    assert [await pause_if_restored(store, settings.data) for _ in range(3)] == [False, False, False]
    (number,) = read_database_counters(settings.data).values()
    assert number == 3
    assert not await is_paused(store)


async def test_new_data_folder_detects_no_rollback(store: Store, tmp_path: Path) -> None:
    await pause_if_restored(store, tmp_path / "one")
    await pause_if_restored(store, tmp_path / "one")
    assert not await pause_if_restored(store, tmp_path / "two")
    assert not await pause_if_restored(store, tmp_path / "one")
    assert not await is_paused(store)


async def test_crash_between_the_two_writes_detects_no_rollback(store: Store, settings: Settings) -> None:
    await pause_if_restored(store, settings.data)
    for _ in range(3):
        await store.maintenance.pause_if_restored(read_database_counters(settings.data))  # folder not updated
    assert not await pause_if_restored(store, settings.data)
    assert not await is_paused(store)


@pytest.mark.parametrize("text", ["", "x", "-5", "１２x"])
async def test_partial_start_file_is_ignored(store: Store, settings: Settings, text: str) -> None:
    await pause_if_restored(store, settings.data)
    (file,) = (settings.data / "witness").iterdir()
    file.write_text(text)
    assert not await pause_if_restored(store, settings.data)


async def test_many_processes_on_one_folder_detect_no_rollback(store: Store, settings: Settings) -> None:
    async def process() -> list[bool]:
        async with open_store(settings) as other:
            return [await pause_if_restored(other, settings.data) for _ in range(10)]

    events = await asyncio.gather(*(process() for _ in range(4)))
    assert events == [[False] * 10] * 4
    assert not await is_paused(store)


async def test_another_database_detects_no_rollback(tmp_path: Path) -> None:
    for name in ("one", "two", "one"):
        async with open_store(Settings(database=f"sqlite:///{tmp_path / name}.db", data=tmp_path)) as store:
            for _ in range(3):
                assert not await pause_if_restored(store, tmp_path)
            assert not await is_paused(store)


async def test_restored_database_is_paused_once(store: Store, settings: Settings) -> None:
    await pause_if_restored(store, settings.data)
    ((database, number),) = read_database_counters(settings.data).items()
    save_database_counter(settings.data, database, number + 1)  # as if the newest commit were gone
    with capture_logs() as logs:
        assert await pause_if_restored(store, settings.data)
    assert [line["event"] for line in logs] == ["database was restored from an older copy: delivery is paused"]
    platform = store.setup.current.platform
    assert (platform.paused, platform.paused_reason) == (True, RESTORED_REASON)
    (entry,) = await store.audit.list_rows(None)
    assert (entry.actor, entry.action, entry.detail) == ("service", "delivery.pause", RESTORED_REASON)
    await set_paused(store, COMMAND_LINE, False)
    assert not await pause_if_restored(store, settings.data)
    platform = (await store.setup.refresh()).platform
    assert (platform.paused, platform.paused_reason) == (False, "")


@pytest.fixture
def files(tmp_path: Path) -> Callable[[str], Settings]:
    return lambda name: Settings(database=f"sqlite:///{tmp_path / name}", data=tmp_path)


async def test_original_database_continues_beside_its_copy(tmp_path: Path, files: Callable[[str], Settings]) -> None:
    async with open_store(files("original")) as store:
        await pause_if_restored(store, tmp_path)
    shutil.copy(tmp_path / "original", tmp_path / "copy")
    async with open_store(files("original")) as original, open_store(files("copy")) as copy:
        await pause_if_restored(original, tmp_path)
        assert await pause_if_restored(copy, tmp_path)
        for store in (copy, original, copy, original):
            assert not await pause_if_restored(store, tmp_path)
        assert (await is_paused(original), await is_paused(copy)) == (False, True)


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "in use"])
async def test_copy_as_new_as_its_original_is_paused_unless_stopped_cleanly(
    tmp_path: Path, files: Callable[[str], Settings], stopped: bool
) -> None:
    """In a copy of a database in use, messages sent since are due again; after a clean stop, it is a moved file."""
    file, copy = tmp_path / "original", tmp_path / "copy"
    async with open_store(files("original")) as store:
        assert not await pause_if_restored(store, tmp_path, file)
        assert not await pause_if_restored(store, tmp_path, file)
        if stopped:
            await mark_clean_shutdown(store, tmp_path)
    shutil.copy(file, copy)
    async with open_store(files("original")) as store:  # for example a restart after a crash
        assert not await pause_if_restored(store, tmp_path, file)
        assert not await is_paused(store)
        if stopped:
            await mark_clean_shutdown(store, tmp_path)
    seen = tmp_path / "witness"
    numbers = [path for path in seen.iterdir() if path.name.isdecimal()]
    numbers[0].unlink()  # less than ten seconds old: the numbers say nothing
    async with open_store(files("copy")) as store:
        assert await pause_if_restored(store, tmp_path, copy) == (not stopped)
        platform = (await store.setup.refresh()).platform
        assert (platform.paused, platform.paused_reason) == (not stopped, "" if stopped else COPIED_REASON)
        assert not await pause_if_restored(store, tmp_path, copy)


async def test_running_process_detects_that_its_database_was_restored(store: Store, sql: Sql) -> None:
    """The process knows setup versions that the restored database lacks and will assign again."""
    before, after = (TeamRecord(id="team_1", name=name, ref=1) for name in ("before", "after"))
    await set_up(store, rows=[to_row("team", "team_1", before, "team_1")])
    seen = await store.maintenance.pause_if_restored({})
    retained = await sql("SELECT body, version FROM setting WHERE kind = 'team'")
    for _ in range(3):
        await set_up(store, rows=[to_row("team", "team_1", after, "team_1")])
    ((body, version),) = retained
    await sql(f"UPDATE setting SET body = '{body}', version = {version} WHERE kind = 'team'")
    await sql(f"UPDATE counter SET next = {version} WHERE name = 'setting'")
    assert (await store.maintenance.pause_if_restored({seen.database_id: seen.counter + 5})).is_restored
    assert await is_paused(store)
    assert store.setup.current.teams["team_1"].record.name == "before"
