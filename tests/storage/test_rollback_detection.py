"""A database that was turned back is paused; one that was not never is, whoever crashes or starts beside it."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from heliograph.bootstrap import leave, open_store, pause_if_turned_back
from heliograph.data_folder import keep_number, seen_numbers
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.setup.records import TeamRecord
from heliograph.domain.setup.snapshot import to_row
from heliograph.manage.pause import set_paused
from heliograph.settings import Settings
from heliograph.storage.rollback_detection import COPIED, TURNED_BACK
from heliograph.storage.store import Store
from tests.setup_helpers import set_up
from tests.storage.conftest import Sql

pytestmark = pytest.mark.anyio


async def is_paused(store: Store) -> bool:
    return (await store.setup.refresh()).platform.paused


async def test_starts_grow_the_number(store: Store, settings: Settings) -> None:
    assert [await pause_if_turned_back(store, settings.data) for _ in range(3)] == [False, False, False]
    (number,) = seen_numbers(settings.data).values()
    assert number == 3
    assert not await is_paused(store)


async def test_a_new_data_folder_makes_no_claim(store: Store, tmp_path: Path) -> None:
    await pause_if_turned_back(store, tmp_path / "one")
    await pause_if_turned_back(store, tmp_path / "one")
    assert not await pause_if_turned_back(store, tmp_path / "two")
    assert not await pause_if_turned_back(store, tmp_path / "one")
    assert not await is_paused(store)


async def test_a_crash_between_the_two_writes_is_no_turn(store: Store, settings: Settings) -> None:
    await pause_if_turned_back(store, settings.data)
    for _ in range(3):
        await store.upkeep.pause_if_turned_back(seen_numbers(settings.data))  # the folder is not told
    assert not await pause_if_turned_back(store, settings.data)
    assert not await is_paused(store)


@pytest.mark.parametrize("text", ["", "x", "-5", "１２x"])
async def test_a_file_that_was_only_begun_is_not_read(store: Store, settings: Settings, text: str) -> None:
    await pause_if_turned_back(store, settings.data)
    (file,) = (settings.data / "witness").iterdir()
    file.write_text(text)
    assert not await pause_if_turned_back(store, settings.data)


async def test_many_processes_on_one_folder(store: Store, settings: Settings) -> None:
    async def process() -> list[bool]:
        async with open_store(settings) as other:
            return [await pause_if_turned_back(other, settings.data) for _ in range(10)]

    told = await asyncio.gather(*(process() for _ in range(4)))
    assert told == [[False] * 10] * 4
    assert not await is_paused(store)


async def test_another_database_makes_no_claim(tmp_path: Path) -> None:
    for name in ("one", "two", "one"):
        async with open_store(Settings(database=f"sqlite:///{tmp_path / name}.db", data=tmp_path)) as store:
            for _ in range(3):
                assert not await pause_if_turned_back(store, tmp_path)
            assert not await is_paused(store)


async def test_a_database_that_was_turned_back_is_paused_once(store: Store, settings: Settings) -> None:
    await pause_if_turned_back(store, settings.data)
    ((database, number),) = seen_numbers(settings.data).items()
    keep_number(settings.data, database, number + 1)  # as if the newest commit were gone
    with capture_logs() as logs:
        assert await pause_if_turned_back(store, settings.data)
    assert [line["event"] for line in logs] == ["the database was turned back: delivery is paused"]
    platform = store.setup.current.platform
    assert (platform.paused, platform.paused_reason) == (True, TURNED_BACK)
    (entry,) = await store.audit.lines(None)
    assert (entry.actor, entry.action, entry.detail) == ("service", "delivery.pause", TURNED_BACK)
    await set_paused(store, COMMAND_LINE, False)
    assert not await pause_if_turned_back(store, settings.data)
    platform = (await store.setup.refresh()).platform
    assert (platform.paused, platform.paused_reason) == (False, "")


@pytest.fixture
def files(tmp_path: Path) -> Callable[[str], Settings]:
    return lambda name: Settings(database=f"sqlite:///{tmp_path / name}", data=tmp_path)


async def test_the_original_goes_on_beside_its_copy(tmp_path: Path, files: Callable[[str], Settings]) -> None:
    async with open_store(files("original")) as store:
        await pause_if_turned_back(store, tmp_path)
    shutil.copy(tmp_path / "original", tmp_path / "copy")
    async with open_store(files("original")) as original, open_store(files("copy")) as copy:
        await pause_if_turned_back(original, tmp_path)
        assert await pause_if_turned_back(copy, tmp_path)
        for store in (copy, original, copy, original):
            assert not await pause_if_turned_back(store, tmp_path)
        assert (await is_paused(original), await is_paused(copy)) == (False, True)


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "in use"])
async def test_a_copy_as_new_as_its_original(tmp_path: Path, files: Callable[[str], Settings], stopped: bool) -> None:
    """Of a database in use it has what was sent since as due; after a clean stop it is but another place."""
    file, copy = tmp_path / "original", tmp_path / "copy"
    async with open_store(files("original")) as store:
        assert not await pause_if_turned_back(store, tmp_path, file)
        assert not await pause_if_turned_back(store, tmp_path, file)
        if stopped:
            await leave(store, tmp_path)
    shutil.copy(file, copy)
    async with open_store(files("original")) as store:  # a restart after a crash, say
        assert not await pause_if_turned_back(store, tmp_path, file)
        assert not await is_paused(store)
        if stopped:
            await leave(store, tmp_path)
    seen = tmp_path / "witness"
    numbers = [path for path in seen.iterdir() if path.name.isdecimal()]
    numbers[0].unlink()  # less than ten seconds old: the numbers say nothing
    async with open_store(files("copy")) as store:
        assert await pause_if_turned_back(store, tmp_path, copy) == (not stopped)
        platform = (await store.setup.refresh()).platform
        assert (platform.paused, platform.paused_reason) == (not stopped, "" if stopped else COPIED)
        assert not await pause_if_turned_back(store, tmp_path, copy)


async def test_a_process_that_runs_on_knows_what_the_database_says(store: Store, sql: Sql) -> None:
    """It has seen versions of the setup that the database has no longer, and gives to others."""
    before, after = (TeamRecord(id="team_1", name=name, ref=1) for name in ("before", "after"))
    await set_up(store, rows=[to_row("team", "team_1", before, "team_1")])
    seen = await store.upkeep.pause_if_turned_back({})
    kept = await sql("SELECT body, version FROM setting WHERE kind = 'team'")
    for _ in range(3):
        await set_up(store, rows=[to_row("team", "team_1", after, "team_1")])
    ((body, version),) = kept
    await sql(f"UPDATE setting SET body = '{body}', version = {version} WHERE kind = 'team'")
    await sql(f"UPDATE counter SET next = {version} WHERE name = 'setting'")
    assert (await store.upkeep.pause_if_turned_back({seen.identity: seen.number + 5})).turned_back
    assert await is_paused(store)
    assert store.setup.current.teams["team_1"].record.name == "before"
