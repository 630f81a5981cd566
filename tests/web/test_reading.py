"""What reads hold: few large ones of a team at once, and none of another's."""

import asyncio
import threading

import pytest

from heliograph.domain.limits import IN_THREAD, MIB
from heliograph.domain.refusals import ServiceUnavailable
from heliograph.runtime.threads import BUILDING, LOOKING
from heliograph.web.budget import ByteBudget
from heliograph.web.read_budget import Reads
from heliograph.web.request import ClientGone, Request

pytestmark = pytest.mark.anyio

LARGE = 5 * MIB


def request() -> Request:
    return Request("GET", "/v1/inbox/x", [])


async def held(reads: Reads, team: str, octets: int = LARGE) -> "tuple[Request, asyncio.Task[None]]":
    """A read that has been asked for; done when it may begin."""
    one = request()
    task = asyncio.create_task(reads.hold(one, team, octets))
    await asyncio.sleep(0)
    return one, task


async def test_a_team_holds_few_large_reads_at_once() -> None:
    reads = Reads(ByteBudget(96 * MIB))
    first, second, third = [await held(reads, "a") for _ in range(3)]
    assert [task.done() for _, task in (first, second, third)] == [True, True, False]
    assert (await held(reads, "a", IN_THREAD))[1].done()  # small ones wait for nobody
    assert (await held(reads, "b"))[1].done()
    first[0].answered()
    await third[1]


async def test_a_read_that_has_begun_never_waits_again() -> None:
    reads = Reads(ByteBudget(96 * MIB))
    both = [await held(reads, "a") for _ in range(2)]
    for one, task in both:
        await task
        await asyncio.wait_for(reads.hold(one, "a", LARGE), 10)
    for one, _ in both:
        one.answered()
    assert all(task.done() for _, task in [await held(reads, "a") for _ in range(2)])


async def test_what_is_still_to_be_sent_is_held() -> None:
    reads = Reads(ByteBudget(96 * MIB))
    (one, _), _, (_, waiting) = [await held(reads, "a") for _ in range(3)]
    one.keep(LARGE)
    await waiting


async def test_nobody_reads_for_a_client_that_has_gone() -> None:
    reads, one = Reads(ByteBudget(96 * MIB)), request()
    one.hang_up()
    with pytest.raises(ClientGone):
        await reads.hold(one, "a", LARGE)


async def test_who_waits_too_long_is_refused() -> None:
    reads = Reads(ByteBudget(96 * MIB, wait_s=0.01))
    for _ in range(2):
        await held(reads, "a")
    with pytest.raises(ServiceUnavailable):
        await reads.hold(request(), "a", LARGE)


async def test_what_is_sent_never_waits_for_what_is_looked_at() -> None:
    shown = threading.Event()
    looks = [asyncio.create_task(LOOKING.run(shown.wait, 60)) for _ in range(10)]
    assert await BUILDING.run(lambda: "built") == "built"
    assert not any(look.done() for look in looks)
    shown.set()
    await asyncio.gather(*looks)
