"""Failed attempts are counted across processes: the limit holds under concurrency, and ends after the window."""

import asyncio

import pytest

from heliograph.storage.attempt_limiter import WINDOW_MS as SPAN
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql

pytestmark = pytest.mark.anyio

MOST = 10


async def test_limiter_after_ten_attempts_rejects_until_the_window_ends(store: Store, other: Store) -> None:
    for at in range(MOST):
        assert await (store, other)[at % 2].attempt_limiter.record_attempt({"a": MOST}, at) == 0
    assert await store.attempt_limiter.record_attempt({"a": MOST}, MOST) == SPAN - MOST
    assert await store.attempt_limiter.record_attempt({"b": MOST}, MOST) == 0
    assert await other.attempt_limiter.record_attempt({"a": MOST}, SPAN) == 0  # the first attempt has left the window
    assert await store.attempt_limiter.record_attempt({"a": MOST}, SPAN) == 1
    await store.attempt_limiter.remove_last_attempt(["a"])
    assert await store.attempt_limiter.record_attempt({"a": MOST}, SPAN) == 0


async def test_rejected_attempt_counts_for_no_name(store: Store) -> None:
    assert await store.attempt_limiter.record_attempt({"account": 2, "address": 1}, 0) == 0
    for at in range(1, 5):
        assert await store.attempt_limiter.record_attempt({"account": 2, "address": 1}, at) == SPAN - at
    assert await store.attempt_limiter.record_attempt({"account": 2}, 5) == 0
    assert await store.attempt_limiter.record_attempt({"account": 2}, 6) == SPAN - 6


async def test_concurrent_attempts_in_two_processes_do_not_exceed_the_limit(store: Store, other: Store) -> None:
    tries = [
        (store, other)[number % 2].attempt_limiter.record_attempt({"a": MOST, "b": 100}, number) for number in range(40)
    ]
    assert sum(wait == 0 for wait in await asyncio.gather(*tries)) == MOST


async def test_clearing_an_expired_attempt_changes_nothing(store: Store, clock: TestClock) -> None:
    await store.attempt_limiter.remove_last_attempt(["a"])
    assert await store.attempt_limiter.record_attempt({"a": 1}, clock.now()) == 0


async def test_attempt_names_are_hashed_and_old_attempts_deleted(store: Store, clock: TestClock, sql: Sql) -> None:
    assert await store.attempt_limiter.record_attempt({"account ada@example.com": MOST}, clock.now()) == 0
    clock.forward(SPAN // 2)
    await store.maintenance.purge()
    ((name,),) = await sql("SELECT name FROM wrong_try")
    assert "ada" not in name
    clock.forward(SPAN // 2)
    await store.maintenance.purge()
    assert await sql("SELECT name FROM wrong_try") == []
