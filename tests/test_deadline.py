"""A timeout shared by many waiters: each ends in time, independent of the others."""

import asyncio

import pytest

from heliograph.runtime.deadline import within

pytestmark = pytest.mark.anyio

SOON, LATER = 0.02, 30.0


async def hang(seconds: float) -> str:
    try:
        with within(seconds):
            await asyncio.Event().wait()
    except TimeoutError:
        return "over"
    raise AssertionError("it ended by itself")


async def test_work_done_within_the_deadline_continues() -> None:
    for _ in range(3):
        with within(SOON):
            await asyncio.sleep(0)
    await asyncio.sleep(2 * SOON)  # the timer of the first finds none of them


async def test_concurrent_tasks_with_the_same_timeout_each_get_the_full_time() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    first = asyncio.create_task(hang(SOON))
    await asyncio.sleep(SOON / 2)
    assert {await hang(SOON), await first} == {"over"}
    assert loop.time() - began >= 1.5 * SOON


async def test_inner_of_two_nested_deadlines_ends_first() -> None:
    with within(LATER):
        assert await hang(SOON) == "over"
    task = asyncio.current_task()
    assert task and not task.cancelling()


async def test_cancellation_within_a_deadline_stays_a_cancellation() -> None:
    task = asyncio.create_task(hang(LATER))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_error_within_a_deadline_is_unchanged() -> None:
    with pytest.raises(KeyError), within(SOON):
        raise KeyError
    await asyncio.sleep(2 * SOON)
