"""Wrong tries, counted over processes: the limit holds also for many at once, and opens again."""

import asyncio

import pytest

from heliograph.storage.attempt_limiter import SPAN_MS as SPAN
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql

pytestmark = pytest.mark.anyio

MOST = 10


async def test_ten_tries_in_a_while_and_then_again(store: Store, other: Store) -> None:
    for at in range(MOST):
        assert await (store, other)[at % 2].tries.begin({"a": MOST}, at) == 0
    assert await store.tries.begin({"a": MOST}, MOST) == SPAN - MOST
    assert await store.tries.begin({"b": MOST}, MOST) == 0
    assert await other.tries.begin({"a": MOST}, SPAN) == 0  # the first of them is over
    assert await store.tries.begin({"a": MOST}, SPAN) == 1
    await store.tries.forgive(["a"])
    assert await store.tries.begin({"a": MOST}, SPAN) == 0


async def test_a_try_that_may_not_be_counts_for_no_name(store: Store) -> None:
    assert await store.tries.begin({"account": 2, "address": 1}, 0) == 0
    for at in range(1, 5):
        assert await store.tries.begin({"account": 2, "address": 1}, at) == SPAN - at
    assert await store.tries.begin({"account": 2}, 5) == 0
    assert await store.tries.begin({"account": 2}, 6) == SPAN - 6


async def test_many_at_once_from_two_processes_gain_nothing(store: Store, other: Store) -> None:
    tries = [(store, other)[number % 2].tries.begin({"a": MOST, "b": 100}, number) for number in range(40)]
    assert sum(wait == 0 for wait in await asyncio.gather(*tries)) == MOST


async def test_forgiving_what_is_over_is_nothing(store: Store, clock: TestClock) -> None:
    await store.tries.forgive(["a"])
    assert await store.tries.begin({"a": 1}, clock.now()) == 0


async def test_names_are_hashed_and_old_tries_go(store: Store, clock: TestClock, sql: Sql) -> None:
    assert await store.tries.begin({"account ada@example.com": MOST}, clock.now()) == 0
    clock.forward(SPAN // 2)
    await store.upkeep.purge()
    ((name,),) = await sql("SELECT name FROM wrong_try")
    assert "ada" not in name
    clock.forward(SPAN // 2)
    await store.upkeep.purge()
    assert await sql("SELECT name FROM wrong_try") == []
