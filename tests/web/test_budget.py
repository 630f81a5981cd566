"""The byte budget: reserved as bytes arrive, shared by teams, small bodies first, and the oldest can always finish."""

import asyncio

import pytest

from heliograph.domain.limits import KIB, MIB
from heliograph.domain.refusals import PayloadTooLarge, ServiceUnavailable
from heliograph.web.budget import SMALL_BODY_RESERVE, WAIT_S, WAITING_MAX, ByteBudget, Reservation
from heliograph.web.request import Request

pytestmark = pytest.mark.anyio

BIG = 40 * MIB


async def begun(budget: ByteBudget, holder: Reservation, size: int) -> "asyncio.Task[None]":
    """Start a reservation; it is done if it did not have to wait."""
    task = asyncio.ensure_future(budget.reserve(holder, size))
    await asyncio.sleep(0)
    return task


async def granted(tasks: "list[asyncio.Task[None]]") -> list[bool]:
    for _ in range(3):
        await asyncio.sleep(0)
    return [task.done() for task in tasks]


async def test_announced_length_reserves_no_bytes() -> None:
    budget = ByteBudget()
    for _ in range(100):
        await budget.reserve(Reservation("greedy", BIG), 1)
    async with asyncio.timeout(60):
        await budget.reserve(Reservation("greedy", 100 * KIB), 100 * KIB)
    async with asyncio.timeout(60):
        await budget.reserve(Reservation("other", BIG), BIG)


async def test_team_cannot_reserve_more_than_its_share() -> None:
    budget = ByteBudget()
    first, second = Reservation("greedy", BIG), Reservation("greedy", BIG)
    await budget.reserve(first, BIG)
    waiting = await begun(budget, second, 20 * MIB)
    assert not waiting.done()
    async with asyncio.timeout(60):
        await budget.reserve(Reservation("other", BIG), BIG)
    budget.release(first)
    assert await granted([waiting]) == [True]


async def test_timeout_of_a_body_applies_to_all_its_parts_together() -> None:
    """The timeout applies to all parts of a body together; otherwise a request could take minutes."""
    budget = ByteBudget()
    first, late = Reservation("greedy", BIG), Reservation("greedy", BIG, waited_s=WAIT_S)
    await budget.reserve(first, BIG)
    with pytest.raises(ServiceUnavailable):
        async with asyncio.timeout(60):
            await budget.reserve(late, 20 * MIB)
    waiting = await begun(budget, other := Reservation("greedy", BIG), 20 * MIB)
    budget.release(first)
    await waiting
    assert other.waited_s > 0


async def test_large_bodies_in_parallel_all_finish() -> None:
    """Twenty bodies of 25 MiB, reserved as they arrive, all finish one after the other."""
    budget = ByteBudget()
    ended = []

    async def read(number: int) -> None:
        holder = Reservation("team", 25 * MIB)
        for _ in range(100):
            await budget.reserve(holder, MIB // 4)
            await asyncio.sleep(0)
        ended.append(number)
        budget.release(holder)

    async with asyncio.timeout(60):
        await asyncio.gather(*map(read, range(20)))
    assert sorted(ended) == list(range(20)) and ended[0] == 0


async def test_small_bodies_are_served_before_large_ones() -> None:
    budget = ByteBudget()
    await budget.reserve(Reservation("a", BIG), BIG)
    await budget.reserve(Reservation("b", BIG), BIG)
    large = await begun(budget, Reservation("c", BIG), SMALL_BODY_RESERVE + MIB)
    small = [
        await begun(budget, Reservation("c", 100 * KIB), 100 * KIB) for _ in range(SMALL_BODY_RESERVE // (100 * KIB))
    ]
    assert (large.done(), all(task.done() for task in small)) == (False, True)
    large.cancel()


async def test_small_budget_refuses_only_bodies_that_can_never_fit() -> None:
    budget = ByteBudget(16 * MIB)
    assert len(await request(b"x" * 8 * MIB, b"x" * 8 * MIB, length=None).read_body(BIG, budget, "team")) == 16 * MIB
    with pytest.raises(PayloadTooLarge):
        await request(b"", length=16 * MIB + 1).read_body(BIG, budget, "team")


async def test_waiting_reservations_are_served_in_the_documented_order() -> None:
    """Small bodies first, then the team with the fewest reserved bytes, then the longest wait."""
    budget = ByteBudget(total=20 * MIB)
    all_of_it = Reservation("x", 19 * MIB)
    await budget.reserve(all_of_it, 19 * MIB)
    await budget.reserve(Reservation("rich", MIB), MIB)
    wanted = [("rich", 4 * MIB), ("rich", 4 * MIB), ("poor", 4 * MIB), ("poor", 4 * MIB), ("small", MIB)]
    tasks = [await begun(budget, Reservation(team, size), size) for team, size in wanted]
    assert await granted(tasks) == [False] * 5
    budget.release(all_of_it)
    assert await granted(tasks) == [False, False, True, True, True]
    for task in tasks:
        task.cancel()


async def test_reservation_that_waits_too_long_is_refused_with_retry() -> None:
    budget = ByteBudget(wait_s=0.01)
    await budget.reserve(Reservation("team", BIG), BIG)
    late = Reservation("team", BIG)
    with pytest.raises(ServiceUnavailable) as refused:
        await budget.reserve(late, 20 * MIB)
    assert refused.value.retry_after == 5
    budget.release(late)  # releases without a reservation


async def test_waiting_reservations_per_team_are_limited() -> None:
    budget = ByteBudget()
    await budget.reserve(Reservation("team", BIG), BIG)
    waiting = [await begun(budget, Reservation("team", BIG), 20 * MIB) for _ in range(WAITING_MAX)]
    with pytest.raises(ServiceUnavailable):
        await budget.reserve(Reservation("team", BIG), 20 * MIB)
    await budget.reserve(Reservation("other", BIG), 20 * MIB)
    assert not any(await granted(waiting))
    for task in waiting:
        task.cancel()


# -- bodies --------------------------------------------------------------------------------------------------------


def request(*parts: bytes, length: int | None) -> Request:
    """Create a request whose parts arrive when they are needed."""
    left = list(parts)

    def come() -> None:
        asyncio.get_running_loop().call_soon(made.feed, left.pop(0))
        if not left:
            asyncio.get_running_loop().call_soon(made.end)

    made = Request("POST", "/", [] if length is None else [(b"content-length", b"%d" % length)], need_more=come)
    return made


@pytest.mark.parametrize("length", [300 * KIB, None], ids=["announced", "chunked"])
async def test_reservation_of_a_body_equals_its_received_bytes(length: int | None) -> None:
    asked = request(*[b"x" * 100 * KIB] * 3, length=length)
    assert len(await asked.read_body(MIB, ByteBudget(), "team")) == 300 * KIB
    assert asked.body_reservation and (asked.body_reservation.reserved, asked.body_reservation.expected_size) == (
        300 * KIB,
        length or MIB,
    )


@pytest.mark.parametrize("size", [0, 1, 64 * KIB])
async def test_small_body_reserves_nothing(size: int) -> None:
    asked = request(b"x" * size, length=size)
    assert len(await asked.read_body(64 * KIB, ByteBudget(), "team")) == size
    assert asked.body_reservation is None


@pytest.mark.parametrize("length", [MIB + 1, None, 5])
async def test_body_above_its_limit_is_refused(length: int | None) -> None:
    with pytest.raises(PayloadTooLarge):
        await request(b"x" * MIB, b"x", length=length).read_body(MIB, ByteBudget(), "team")
