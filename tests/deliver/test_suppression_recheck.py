"""Suppressions since the claim: one query for all waiting claims, none for finished ones."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from heliograph.deliver import suppression_recheck
from heliograph.deliver.suppression_recheck import SuppressionRecheck
from heliograph.storage.outbox import Claim
from heliograph.storage.store import Store, StoreUnavailable
from heliograph.storage.suppressions import TeamAddress

pytestmark = pytest.mark.anyio


class FakeSuppressions:
    """A fake suppression list that records queries, and a clock."""

    def __init__(self) -> None:
        self.listed: set[str] = set()
        self.queries: list[str] = []
        self.now = 0.0
        self.meanwhile: Callable[[], Awaitable[None]] | None = None  # runs during a query

    def time(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def find_suppressed(self, addresses: Iterable[TeamAddress]) -> list[TeamAddress]:
        listings = list(addresses)
        self.queries.append("".join(listing.address for listing in listings))
        if self.meanwhile:
            await self.meanwhile()
        return [listing for listing in listings if listing.address in self.listed]


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> FakeSuppressions:
    fake_suppressions = FakeSuppressions()
    fake = SimpleNamespace(Lock=asyncio.Lock, get_running_loop=lambda: fake_suppressions, sleep=fake_suppressions.sleep)
    monkeypatch.setattr(suppression_recheck, "asyncio", fake)
    return fake_suppressions


@pytest.fixture
def asks(lists: FakeSuppressions) -> SuppressionRecheck:
    return SuppressionRecheck(cast(Store, SimpleNamespace(suppressions=lists)))


def entered(asks: SuppressionRecheck, names: str) -> list[Claim]:
    claims: list[Any] = [SimpleNamespace(key=ord(name), team=1, address=name) for name in names]
    for claim in claims:
        asks.add(claim)
    return claims


async def test_recheck_queries_all_waiting_recipients_at_once(
    lists: FakeSuppressions, asks: SuppressionRecheck
) -> None:
    a, b, c = entered(asks, "abc")
    lists.listed.add("b")
    assert await asks.is_suppressed(a) is False and not lists.queries  # the claim is recent enough
    lists.now = 1.0
    assert await asks.is_suppressed(c) is False and await asks.is_suppressed(b) is True
    assert lists.queries == ["bc"]


async def test_recheck_does_not_query_removed_claims(lists: FakeSuppressions, asks: SuppressionRecheck) -> None:
    first, *slow, last = entered(asks, "abcdz")
    for lists.now, claim in enumerate((first, *slow), 1):
        await asks.is_suppressed(claim)
    lists.now += 1
    (late_claim,) = entered(asks, "y")
    lists.listed |= {"b", "z"}
    assert await asks.is_suppressed(last) is True and await asks.is_suppressed(late_claim) is False
    assert lists.queries == ["abcdz", "bcdz", "cdz", "dz", "zy"]
    assert await asks.is_suppressed(slow[0]) is True  # asked again by another carrier
    assert lists.queries[-1] == "b"
    for claim in (first, *slow, last, late_claim):
        asks.remove(claim)
    assert not asks._pending and not asks._suppressed_keys


async def test_recheck_result_of_a_removed_claim_is_not_used_for_a_later_attempt(
    lists: FakeSuppressions, asks: SuppressionRecheck
) -> None:
    """The later attempt has the same key, and the suppression may have been removed."""
    (old,) = entered(asks, "a")
    lists.now = 1.0
    (quick,) = entered(asks, "b")
    lists.listed.add("b")

    async def go() -> None:
        assert await asks.is_suppressed(quick) is False
        asks.remove(quick)

    lists.meanwhile = go
    await asks.is_suppressed(old)
    lists.meanwhile = None
    lists.listed.clear()
    entered(asks, "b")
    assert await asks.is_suppressed(quick) is False


@pytest.mark.parametrize("asked", ["waiting", "again"])
async def test_failed_recheck_is_repeated_for_all_waiting_by_then(
    lists: FakeSuppressions, asks: SuppressionRecheck, asked: str
) -> None:
    (first,) = entered(asks, "a")
    if asked == "again":
        await asks.is_suppressed(first)
    lists.now = 1.0

    async def fail() -> None:
        lists.meanwhile = None
        entered(asks, "b")
        lists.listed.add("b")  # after the claim, which checked before
        raise StoreUnavailable("away for one look")

    lists.meanwhile = fail
    assert await asks.is_suppressed(first) is False
    (late_claim,) = (claim for claim, _ in asks._pending.values())
    assert await asks.is_suppressed(late_claim) is True
    assert lists.queries == {"waiting": ["a", "ab"], "again": ["a", "a", "b"]}[asked]
