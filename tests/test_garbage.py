"""Garbage collection by the clock: when the event loop is idle and it is worthwhile, otherwise rarely."""

import asyncio
import gc
import weakref

import pytest

from heliograph.runtime import garbage
from tests.service import PATIENCE_S

pytestmark = pytest.mark.anyio

IDLE, BUSY = float("inf"), -1.0  # whatever the machine does


class Collector:
    """Replaces Python's garbage collector: counts collections and reports the number of new objects."""

    def __init__(self, new: int) -> None:
        self.new, self.done = new, list[str]()

    def get_count(self) -> tuple[int, int, int]:
        return self.new, 0, 0

    def collect(self) -> None:
        self.done.append("collect")

    def freeze(self) -> None:
        self.done.append("freeze")

    def set_threshold(self, *_: int) -> None:
        self.done.append("threshold")


async def run_for(ticks: int) -> None:
    """Run the job for this many iterations of the event loop."""
    garbage.freeze_existing()
    duty = asyncio.create_task(garbage.collect_when_idle())
    for _ in range(ticks + 1):
        await asyncio.sleep(0)
    duty.cancel()
    await asyncio.gather(duty, return_exceptions=True)


@pytest.mark.parametrize(
    ("late", "new", "ticks", "collected"),
    [
        (IDLE, garbage.NEW_OBJECTS_MIN, 5, 5),
        (IDLE, garbage.NEW_OBJECTS_MIN - 1, 5, 0),
        (BUSY, garbage.NEW_OBJECTS_MAX, garbage.BUSY_TICKS - 1, 0),
        (BUSY, 0, garbage.BUSY_TICKS, 1),
        (BUSY, garbage.NEW_OBJECTS_MAX, 2 * garbage.BUSY_TICKS, 2),
        (IDLE, 0, garbage.BUSY_TICKS, 1),
    ],
)
async def test_garbage_is_collected_when_idle_or_due(
    monkeypatch: pytest.MonkeyPatch, late: float, new: int, ticks: int, collected: int
) -> None:
    collector = Collector(new)
    monkeypatch.setattr(garbage, "gc", collector)
    monkeypatch.setattr(garbage, "IDLE_LAG_S", late)
    monkeypatch.setattr(garbage, "TICK_S", 0)
    await run_for(ticks)
    assert collector.done == ["collect", "freeze", "threshold"] + ["collect"] * collected


async def test_garbage_collection_frees_closed_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncio's transports contain reference cycles, so only a collection frees them."""
    monkeypatch.setattr(gc, "set_threshold", lambda *_: gc.disable())  # until the end of the test
    for name, value in (("IDLE_LAG_S", IDLE), ("TICK_S", 0), ("NEW_OBJECTS_MIN", 0)):
        monkeypatch.setattr(garbage, name, value)
    created = weakref.WeakSet[asyncio.BaseTransport]()

    class Listener(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            created.add(transport)

    server = await asyncio.get_running_loop().create_server(Listener, "127.0.0.1", 0)
    garbage.freeze_existing()
    duty = asyncio.create_task(garbage.collect_when_idle())
    try:
        async with asyncio.timeout(PATIENCE_S):
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            while not created:
                await asyncio.sleep(0)
            writer.close()
            while created:
                await asyncio.sleep(0)
    finally:
        duty.cancel()
        server.close()
        gc.unfreeze()
        gc.enable()
