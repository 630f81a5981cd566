"""Wrong tries, counted over processes: the limit holds also for many at once, and opens again."""

import asyncio
from functools import partial

import pytest

from heliograph.storage import throttle
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql

pytestmark = pytest.mark.anyio

MOST, SPAN = 10, 900_000


async def begin(store: Store, limits: dict[str, int], now: int) -> int:
    return await store.database.write(partial(throttle.begin_try, limits=limits, now=now, span_ms=SPAN))


async def forgive(store: Store, *names: str) -> None:
    await store.database.write(partial(throttle.forgive_try, names=names, span_ms=SPAN))


async def test_ten_tries_in_a_while_and_then_again(store: Store, other: Store) -> None:
    for at in range(MOST):
        assert await begin((store, other)[at % 2], {"a": MOST}, at) == 0
    assert await begin(store, {"a": MOST}, MOST) == SPAN - MOST
    assert await begin(store, {"b": MOST}, MOST) == 0
    assert await begin(other, {"a": MOST}, SPAN) == 0  # the first of them is over
    assert await begin(store, {"a": MOST}, SPAN) == 1
    await forgive(store, "a")
    assert await begin(store, {"a": MOST}, SPAN) == 0


async def test_a_try_that_may_not_be_counts_for_no_name(store: Store) -> None:
    assert await begin(store, {"account": 2, "address": 1}, 0) == 0
    for at in range(1, 5):
        assert await begin(store, {"account": 2, "address": 1}, at) == SPAN - at
    assert await begin(store, {"account": 2}, 5) == 0
    assert await begin(store, {"account": 2}, 6) == SPAN - 6


async def test_many_at_once_from_two_processes_gain_nothing(store: Store, other: Store) -> None:
    tries = [begin((store, other)[number % 2], {"a": MOST, "b": 100}, number) for number in range(40)]
    assert sum(wait == 0 for wait in await asyncio.gather(*tries)) == MOST


async def test_forgiving_what_is_over_is_nothing(store: Store, clock: TestClock) -> None:
    await forgive(store, "a")
    assert await begin(store, {"a": 1}, clock.now()) == 0


async def test_names_are_hashed_and_old_tries_go(store: Store, clock: TestClock, sql: Sql) -> None:
    assert await begin(store, {"account ada@example.com": MOST}, clock.now()) == 0
    clock.forward(SPAN - 1000)
    await store.upkeep.purge()
    ((name,),) = await sql("SELECT name FROM wrong_try")
    assert "ada" not in name
    clock.forward(1000)
    await store.upkeep.purge()
    assert await sql("SELECT name FROM wrong_try") == []
