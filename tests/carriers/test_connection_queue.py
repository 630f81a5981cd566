"""Waiting for a connection: by priority, without losing a place, and not for ever behind others."""

import asyncio

import pytest

from heliograph.carriers.connection_queue import Line
from heliograph.carriers.contract import FREE, Parcel, Passage
from heliograph.domain.setup.records import Priority

pytestmark = pytest.mark.anyio


class Noted(Passage):
    def __init__(self) -> None:
        self.waits: list[float] = []

    def waited(self, seconds: float) -> None:
        self.waits.append(seconds)


def parcel(priority: Priority = "normal", passage: Passage = FREE) -> Parcel:
    return Parcel(message_id="eml_1", address="a@x.test", content=b"{}", attempt=0, priority=priority, passage=passage)


async def test_the_most_urgent_goes_first_and_each_class_gets_one_in_twenty() -> None:
    line, order = Line(1), list[Priority]()

    async def hand_over(priority: Priority) -> None:
        assert await line.take(parcel(priority))
        order.append(priority)
        line.give_back()

    assert await line.take(parcel())
    counts: dict[Priority, int] = {"bulk": 3, "normal": 3, "critical": 40}
    tasks = [asyncio.create_task(hand_over(priority)) for priority, count in counts.items() for _ in range(count)]
    await asyncio.sleep(0)
    line.give_back()
    await asyncio.gather(*tasks)
    assert order[:9] == ["critical"] * 9
    assert order[9] == order[29] == "normal"
    assert order[19] == order[39] == "bulk"
    assert order[44:] == ["normal", "bulk"]


async def test_who_is_cancelled_takes_no_place() -> None:
    line = Line(1)
    assert await line.take(parcel())
    waiting = [asyncio.create_task(line.take(parcel())) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # while it waits
    line.give_back()
    waiting[1].cancel()  # when the place is its own already
    await asyncio.wait(waiting)
    assert [task.cancelled() for task in waiting] == [True, True, False]
    line.give_back()
    assert line.is_free


async def test_only_those_with_others_before_them_are_sent_away() -> None:
    line, passage = Line(1), Noted()
    assert await line.take(parcel("bulk", passage), 0.01)
    next_, last = (asyncio.create_task(line.take(parcel("normal", passage), 0.01)) for _ in range(2))
    assert not await last
    assert not next_.done()
    line.give_back()
    assert await next_
    assert passage.waits[0] == 0.0
    assert all(passage.waits[1:])
