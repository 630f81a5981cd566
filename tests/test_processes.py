"""The parent of several processes, with small programs in their place: it starts, monitors, replaces and stops them."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from heliograph.runtime import processes
from heliograph.runtime.processes import ProcessGroup, run_groups
from tests.deliver.test_worker import wait_until

pytestmark = pytest.mark.anyio

# Records its start, reports ready, and waits to be stopped, unless a file says otherwise.
CHILD = """
import json, os, signal, sys, time
place, folder = json.loads(sys.argv[-1]), sys.argv[1]
with open(folder + "/begun", "a") as begun:
    begun.write(f"{place['number']} {os.getpid()}\\n")
while os.path.exists(f"{folder}/waits {place['number']}"):
    time.sleep(0.01)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: sys.exit(0))
if os.path.exists(f"{folder}/fails {place['number']}"):
    sys.exit(3)
os.write(place["control"], b"hello of %d\\n" % place["number"])
os.read(place["control"], 1)
"""


class Family:
    def __init__(self, folder: Path, count: int, **options: Any) -> None:
        self.folder = folder
        self.greetings: list[str] = []
        command = [sys.executable, "-I", "-S", "-c", CHILD, str(folder)]
        self.parent = ProcessGroup(count, [], self.greetings.append, command, **options)

    def begun(self) -> list[tuple[int, int]]:
        """Return (number, process id) of all processes that have started, in order."""
        file = self.folder / "begun"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(int(number), int(pid)) for number, pid in map(str.split, lines)]

    def fails(self, *numbers: int) -> None:
        for number in numbers:
            (self.folder / f"fails {number}").touch()

    @contextmanager
    def waits(self, number: int) -> Iterator[None]:
        """Keep the process from becoming ready until the end of the block."""
        file = self.folder / f"waits {number}"
        file.touch()
        try:
            yield
        finally:
            file.unlink()


@asynccontextmanager
async def running(family: Family) -> AsyncIterator["asyncio.Task[int]"]:
    task = asyncio.create_task(run_groups([family.parent]))
    try:
        yield task
    finally:
        family.parent.stop()
        await task


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "RESTART_DELAY_S", 0.01)
    monkeypatch.setattr(processes, "RESTART_DELAY_MAX_S", 0.02)


@pytest.fixture
def make(tmp_path: Path) -> Callable[[int], Family]:
    return lambda count: Family(tmp_path, count)


Make = Callable[[int], Family]


async def test_supervisor_reports_ready_once_and_ends_with_its_processes(make: Make) -> None:
    family = make(3)
    async with running(family) as task:
        await wait_until(lambda: family.greetings)
        assert family.greetings == ["hello of 1"]
        assert family.begun()[0][0] == 1  # the others wait for it
        assert sorted(number for number, _ in family.begun()) == [1, 2, 3]
    assert task.result() == 0
    assert not any(is_alive(pid) for _, pid in family.begun())


async def test_a_process_that_dies_is_started_again_and_the_others_stay(make: Make) -> None:
    family = make(2)
    async with running(family):
        await wait_until(lambda: family.greetings)
        first, second = family.begun()
        with capture_logs() as logs:
            kill(second[1])
            await wait_until(lambda: len(family.begun()) == 3)
        assert family.begun()[2][0] == 2
        assert is_alive(first[1])
        assert [(line["process"], line["code"]) for line in logs if "died" in line["event"]] == [(2, -9)]
    assert family.greetings == ["hello of 1"]


async def test_supervisor_ends_when_the_start_fails(make: Make) -> None:
    family = make(2)
    family.fails(1)
    assert await run_groups([family.parent]) == 1
    assert [number for number, _ in family.begun()] == [1]


async def test_supervisor_exits_when_no_process_becomes_ready(make: Make) -> None:
    family = make(2)
    async with running(family) as task:
        await wait_until(lambda: family.greetings)
        family.fails(1, 2)
        for _, pid in family.begun():
            kill(pid)
        assert await task == 1
    assert len(family.begun()) >= 2 + 2 * processes.DEATHS_MAX


async def test_process_that_cannot_start_does_not_end_the_others(make: Make) -> None:
    family = make(2)
    family.fails(2)
    async with running(family):
        await wait_until(lambda: len(family.begun()) > 1 + 2 * processes.DEATHS_MAX)
        assert is_alive(family.begun()[0][1])
        assert not family.greetings


async def test_group_that_cannot_start_is_tried_again_beside_a_group_that_runs(tmp_path: Path) -> None:
    families = []
    for name in ("cell_01", "cell_02"):
        (tmp_path / name).mkdir()
        families.append(Family(tmp_path / name, 1, gives_up=False, cell=name, environment={"HELIOGRAPH_CELL": name}))
    broken, other = families
    broken.fails(1)
    task = asyncio.create_task(run_groups([family.parent for family in families]))
    with capture_logs() as logs:
        await wait_until(lambda: len(broken.begun()) > 2 * processes.DEATHS_MAX and other.greetings)
        assert len(other.begun()) == 1
        assert {line["cell"] for line in logs if "died" in line["event"]} == {"cell_01"}
        ((_, pid),) = other.begun()
        assert b"HELIOGRAPH_CELL=cell_02\0" in Path(f"/proc/{pid}/environ").read_bytes()
        (broken.folder / "fails 1").unlink()
        await wait_until(lambda: broken.greetings)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await task == 0
    assert not is_alive(pid)


async def test_reload_replaces_the_processes_one_after_the_other(make: Make) -> None:
    family = make(2)
    async with running(family):
        await wait_until(lambda: family.greetings)
        with capture_logs() as logs:
            family.parent.reload()
            await wait_until(lambda: any("replaced" in line["event"] for line in logs))
        assert [number for number, _ in family.begun()] == [1, 2, 1, 2]
        assert [is_alive(pid) for _, pid in family.begun()] == [False, False, True, True]
        assert [line for line in logs if "died" in line["event"]] == []


async def test_failed_reload_keeps_the_old_processes(make: Make) -> None:
    family = make(2)
    async with running(family):
        await wait_until(lambda: family.greetings)
        family.fails(1, 2)
        with capture_logs() as logs:
            family.parent.reload()
            await wait_until(lambda: any("not replaced" in line["event"] for line in logs))
        assert [number for number, _ in family.begun()] == [1, 2, 1]
        assert [is_alive(pid) for _, pid in family.begun()] == [True, True, False]


async def test_reload_during_the_start_replaces_the_processes_once_they_are_ready(make: Make) -> None:
    family = make(2)
    async with running(family):
        with capture_logs() as logs, family.waits(1):
            await wait_until(lambda: family.begun())
            family.parent.reload()
        await wait_until(lambda: len(family.begun()) == 3 and family.greetings)
        assert sorted(number for number, _ in family.begun()) == [1, 1, 2]
        assert [line for line in logs if "died" in line["event"]] == []


async def test_reload_during_a_reload_replaces_all_processes_again(make: Make) -> None:
    family = make(2)
    async with running(family):
        await wait_until(lambda: family.greetings)
        with family.waits(2):
            family.parent.reload()
            await wait_until(lambda: len(family.begun()) == 4)  # the first is replaced
            for _ in range(3):
                family.parent.reload()
        await wait_until(lambda: len(family.begun()) == 6)
        assert [number for number, _ in family.begun()] == [1, 2, 1, 2, 1, 2]


async def test_stop_during_a_reload_ends_the_replacement_process(make: Make) -> None:
    family = make(2)
    async with running(family) as task:
        await wait_until(lambda: family.greetings)
        with capture_logs() as logs, family.waits(1):
            family.parent.reload()
            await wait_until(lambda: len(family.begun()) == 3)
            family.parent.stop()
            assert await task == 0
    assert not any(is_alive(pid) for _, pid in family.begun())
    assert [line["event"] for line in logs] == ["all processes stopped"]


async def test_process_that_dies_during_a_reload_is_replaced_once(make: Make) -> None:
    family = make(1)
    async with running(family):
        await wait_until(lambda: family.greetings)
        with family.waits(1), capture_logs():
            family.parent.reload()
            await wait_until(lambda: len(family.begun()) == 2)
            kill(family.begun()[0][1])
            await wait_until(lambda: len(family.begun()) == 3)  # started again, beside the one that takes its place
        await wait_until(lambda: sum(is_alive(pid) for _, pid in family.begun()) == 1)


async def test_stop_during_the_start_exits_without_an_error(make: Make) -> None:
    family = make(2)
    with family.waits(1):
        async with running(family) as task:
            await wait_until(lambda: family.begun())
    assert task.result() == 0


def is_alive(pid: int) -> bool:
    """Return whether the process exists; a zombie counts as alive."""
    return Path(f"/proc/{pid}").exists()


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
