"""The limit on concurrent changes: slots, turns of groups, a bounded queue, and cancelled waiters."""

import asyncio

import pytest

from heliograph.runtime.fair_limiter import FairLimiter, QueueFull

pytestmark = pytest.mark.anyio


class Holders:
    """Tasks that hold a slot until told to end; `begun` lists their names in the order in which they got one."""

    def __init__(self, limiter: FairLimiter) -> None:
        self.begun: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._limiter = limiter
        self._ends: dict[str, asyncio.Event] = {}

    async def start(self, *names: str) -> None:
        """Start holders; the group of `a1` is `a`."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._hold(name))
        await self._settle()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self.tasks[name]
        await self._settle()

    async def _hold(self, name: str) -> None:
        async with self._limiter.slot(name[0]):
            self.begun.append(name)
            await self._ends[name].wait()

    async def _settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


async def test_caller_waits_while_every_slot_is_taken() -> None:
    holders = Holders(FairLimiter(2))
    await holders.start("a1", "a2", "a3")
    assert holders.begun == ["a1", "a2"]
    await holders.end("a1")
    assert holders.begun == ["a1", "a2", "a3"]


async def test_freed_slot_is_given_to_the_waiting_groups_in_turn() -> None:
    holders = Holders(FairLimiter(1))
    await holders.start("a1", "a2", "a3", "a4", "b1", "b2", "c1")
    while len(holders.begun) < 7:
        await holders.end(holders.begun[-1])
    assert holders.begun == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]


async def test_full_queue_refuses_its_own_group_only() -> None:
    limiter = FairLimiter(1, waiters_max=2)
    holders = Holders(limiter)
    await holders.start("a1", "a2", "a3", "b1")
    with pytest.raises(QueueFull) as refused:
        async with limiter.slot("a"):
            pass
    assert refused.value.retry_after >= 1
    for name in ("a1", "a2", "b1", "a3"):
        await holders.end(name)
    assert holders.begun == ["a1", "a2", "b1", "a3"]


async def test_caller_that_waits_too_long_is_refused_and_removed() -> None:
    limiter = FairLimiter(1, wait_s=0.01)
    async with limiter.slot("a"):
        with pytest.raises(QueueFull):
            async with limiter.slot("b"):
                pass
    async with limiter.slot("c"):
        pass


@pytest.mark.parametrize("has_slot", [False, True])
async def test_slot_of_a_cancelled_caller_is_given_to_the_next(has_slot: bool) -> None:
    """Also if the waiter is cancelled after it got the slot and before it runs."""
    holders = Holders(FairLimiter(1))
    await holders.start("a1", "b1", "c1")
    if has_slot:
        holders._ends["a1"].set()
        await asyncio.sleep(0)  # a1 ends, and its slot is assigned to the next
    holders.tasks["b1"].cancel()
    await asyncio.gather(holders.tasks["b1"], return_exceptions=True)
    await holders.end("a1")
    assert holders.begun == ["a1", "c1"]
    await holders.end("c1")
    await holders.start("d1")
    assert holders.begun[-1] == "d1"
    await holders.end("d1")


async def test_holder_that_fails_frees_its_slot() -> None:
    limiter = FairLimiter(1)
    with pytest.raises(ValueError, match="broken"):
        async with limiter.slot("a"):
            raise ValueError("broken")
    async with limiter.slot("a"):
        pass
