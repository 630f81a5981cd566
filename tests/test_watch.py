"""The watch on the event loop: what held it is named, and how late it was is a metric."""

import asyncio
import time
from typing import Any

import pytest
import structlog

from heliograph import watch
from heliograph.watch import LoopWatch

pytestmark = pytest.mark.anyio


async def held(by: str | None) -> tuple[LoopWatch, list[Any]]:
    """A watch that saw the loop held by a task of this name, or by a callback, until it had noticed."""
    seen = LoopWatch()
    running = asyncio.create_task(seen.run())
    await asyncio.sleep(0)

    def hold() -> None:
        while seen._held_by is None:
            time.sleep(0.01)

    async def held_request() -> None:
        hold()

    with structlog.testing.capture_logs() as lines:
        if by is None:
            asyncio.get_running_loop().call_soon(hold)
        else:
            holder = asyncio.create_task(held_request(), name=by or None)
            assert not holder.done()
        while not lines:
            await asyncio.sleep(0.01)
    running.cancel()
    return seen, lines


@pytest.mark.parametrize(
    ("by", "named"), [("POST /v1/emails", "POST /v1/emails"), ("", "held.<locals>.held_request"), (None, "connections")]
)
async def test_who_held_the_loop_is_named(by: str | None, named: str) -> None:
    seen, lines = await held(by)
    assert [(line["event"], line["by"]) for line in lines] == [("event loop blocked", named)]
    assert lines[0]["seconds"] > watch.HELD_S and lines[0]["at"].count(":") == 1
    assert seen.lag() > watch.HELD_S


def test_the_longest_lag_is_told_for_a_minute_or_two() -> None:
    seen = LoopWatch()
    for now, lag, told in ((0, 0.1, 0.1), (1, 0.2, 0.2), (2, 0, 0.2), (61, 0.05, 0.2), (62, 0, 0.2), (122, 0, 0.05)):
        seen._due = now - lag
        seen._note(now)
        assert seen.lag() == pytest.approx(told)
