"""The queue for connections: priority order, no lost slots, and a bounded wait behind other messages."""

import asyncio

import pytest

from heliograph.carriers.connection_queue import PrioritySemaphore
from heliograph.carriers.contract import NO_HOOKS, OutboundMessage, SendHooks
from heliograph.domain.setup.records import Priority

pytestmark = pytest.mark.anyio


class RecordingHooks(SendHooks):
    def __init__(self) -> None:
        self.waits: list[float] = []

    def on_queued(self, seconds: float) -> None:
        self.waits.append(seconds)


def outbound_message(priority: Priority = "normal", passage: SendHooks = NO_HOOKS) -> OutboundMessage:
    return OutboundMessage(
        message_id="eml_1", address="a@x.test", content=b"{}", attempt=0, priority=priority, hooks=passage
    )


async def test_queue_serves_urgent_first_and_each_class_one_in_twenty() -> None:
    line, order = PrioritySemaphore(1), list[Priority]()

    async def send(priority: Priority) -> None:
        assert await line.acquire(outbound_message(priority))
        order.append(priority)
        line.release()

    assert await line.acquire(outbound_message())
    counts: dict[Priority, int] = {"bulk": 3, "normal": 3, "critical": 40}
    tasks = [asyncio.create_task(send(priority)) for priority, count in counts.items() for _ in range(count)]
    await asyncio.sleep(0)
    line.release()
    await asyncio.gather(*tasks)
    assert order[:9] == ["critical"] * 9
    assert order[9] == order[29] == "normal"
    assert order[19] == order[39] == "bulk"
    assert order[44:] == ["normal", "bulk"]


async def test_cancelled_waiter_uses_no_slot() -> None:
    line = PrioritySemaphore(1)
    assert await line.acquire(outbound_message())
    waiting = [asyncio.create_task(line.acquire(outbound_message())) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # while it waits
    line.release()
    waiting[1].cancel()  # after the slot was assigned
    await asyncio.wait(waiting)
    assert [task.cancelled() for task in waiting] == [True, True, False]
    line.release()
    assert line.is_free


async def test_queue_timeout_applies_only_to_waiters_behind_others() -> None:
    line, passage = PrioritySemaphore(1), RecordingHooks()
    assert await line.acquire(outbound_message("bulk", passage), 0.01)
    next_, last = (asyncio.create_task(line.acquire(outbound_message("normal", passage), 0.01)) for _ in range(2))
    assert not await last
    assert not next_.done()
    line.release()
    assert await next_
    assert passage.waits[0] == 0.0
    assert all(passage.waits[1:])
