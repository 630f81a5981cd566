"""Memory of reads: few large reads at once per team, independent of other teams."""

import asyncio
import threading

import pytest

from heliograph.domain.limits import MIB, PARSE_IN_THREAD_MIN
from heliograph.domain.refusals import ServiceUnavailable
from heliograph.runtime.threads import BUILD_POOL, READ_POOL
from heliograph.web.budget import ByteBudget
from heliograph.web.read_budget import ReadBudget
from heliograph.web.request import ClientDisconnected, Request

pytestmark = pytest.mark.anyio

LARGE = 5 * MIB


def request() -> Request:
    return Request("GET", "/v1/inbox/x", [])


async def held(reads: ReadBudget, team: str, octets: int = LARGE) -> "tuple[Request, asyncio.Task[None]]":
    """Start a reservation of a read; it is done when the read may begin."""
    one = request()
    task = asyncio.create_task(reads.reserve(one, team, octets))
    await asyncio.sleep(0)
    return one, task


async def test_concurrent_large_reads_of_a_team_are_limited() -> None:
    reads = ReadBudget(ByteBudget(96 * MIB))
    first, second, third = [await held(reads, "a") for _ in range(3)]
    assert [task.done() for _, task in (first, second, third)] == [True, True, False]
    assert (await held(reads, "a", PARSE_IN_THREAD_MIN))[1].done()  # small reads do not wait
    assert (await held(reads, "b"))[1].done()
    first[0].release_reservation()
    await third[1]


async def test_request_with_a_read_reservation_never_waits_for_another() -> None:
    reads = ReadBudget(ByteBudget(96 * MIB))
    both = [await held(reads, "a") for _ in range(2)]
    for one, task in both:
        await task
        async with asyncio.timeout(10):
            await reads.reserve(one, "a", LARGE)
    for one, _ in both:
        one.release_reservation()
    assert all(task.done() for _, task in [await held(reads, "a") for _ in range(2)])


async def test_response_bytes_stay_reserved_until_they_are_sent() -> None:
    reads = ReadBudget(ByteBudget(96 * MIB))
    (one, _), _, (_, waiting) = [await held(reads, "a") for _ in range(3)]
    one.shrink_reservation(LARGE)
    await waiting


async def test_read_for_a_disconnected_client_is_cancelled() -> None:
    reads, one = ReadBudget(ByteBudget(96 * MIB)), request()
    one.hang_up()
    with pytest.raises(ClientDisconnected):
        await reads.reserve(one, "a", LARGE)


async def test_read_that_waits_too_long_is_refused() -> None:
    reads = ReadBudget(ByteBudget(96 * MIB, wait_s=0.01))
    for _ in range(2):
        await held(reads, "a")
    with pytest.raises(ServiceUnavailable):
        await reads.reserve(request(), "a", LARGE)


async def test_sends_do_not_wait_for_page_reads() -> None:
    shown = threading.Event()
    looks = [asyncio.create_task(READ_POOL.run(shown.wait, 60)) for _ in range(10)]
    assert await BUILD_POOL.run(lambda: "built") == "built"
    assert not any(look.done() for look in looks)
    shown.set()
    await asyncio.gather(*looks)
