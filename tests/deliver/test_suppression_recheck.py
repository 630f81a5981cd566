"""Who was suppressed since the claim: one look for all that wait to go, and none for those that went."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from heliograph.deliver import suppression_recheck
from heliograph.deliver.suppression_recheck import Suppressed
from heliograph.storage.outbox import Claim
from heliograph.storage.store import Store, StoreUnavailable
from heliograph.storage.suppressions import Listing

pytestmark = pytest.mark.anyio


class Lists:
    """Suppression lists, what they were asked for, and the time."""

    def __init__(self) -> None:
        self.listed: set[str] = set()
        self.looks: list[str] = []
        self.now = 0.0
        self.meanwhile: Callable[[], Awaitable[None]] | None = None  # what happens during a look

    def time(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def of(self, places: Iterable[Listing]) -> list[Listing]:
        asked = list(places)
        self.looks.append("".join(place.address for place in asked))
        if self.meanwhile:
            await self.meanwhile()
        return [place for place in asked if place.address in self.listed]


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> Lists:
    made = Lists()
    fake = SimpleNamespace(Lock=asyncio.Lock, get_running_loop=lambda: made, sleep=made.sleep)
    monkeypatch.setattr(suppression_recheck, "asyncio", fake)
    return made


@pytest.fixture
def asks(lists: Lists) -> Suppressed:
    return Suppressed(cast(Store, SimpleNamespace(suppressions=lists)))


def entered(asks: Suppressed, names: str) -> list[Claim]:
    claims: list[Any] = [SimpleNamespace(key=ord(name), team=1, address=name) for name in names]
    for claim in claims:
        asks.enter(claim)
    return claims


async def test_one_look_is_for_all_that_wait(lists: Lists, asks: Suppressed) -> None:
    a, b, c = entered(asks, "abc")
    lists.listed.add("b")
    assert await asks.has(a) is False and not lists.looks  # its claim has just told
    lists.now = 1.0
    assert await asks.has(c) is False and await asks.has(b) is True
    assert lists.looks == ["bc"]


async def test_nobody_looks_for_what_has_gone(lists: Lists, asks: Suppressed) -> None:
    first, *slow, last = entered(asks, "abcdz")
    for lists.now, claim in enumerate((first, *slow), 1):
        await asks.has(claim)
    lists.now += 1
    (late,) = entered(asks, "y")
    lists.listed |= {"b", "z"}
    assert await asks.has(last) is True and await asks.has(late) is False
    assert lists.looks == ["abcdz", "bcdz", "cdz", "dz", "zy"]
    assert await asks.has(slow[0]) is True  # another carrier asks
    assert lists.looks[-1] == "b"
    for claim in (first, *slow, last, late):
        asks.leave(claim)
    assert not asks._waiting and not asks._found


async def test_a_look_that_finds_who_has_left_counts_for_no_later_try(lists: Lists, asks: Suppressed) -> None:
    """It has the same key then, and its suppression may have been lifted."""
    (old,) = entered(asks, "a")
    lists.now = 1.0
    (quick,) = entered(asks, "b")
    lists.listed.add("b")

    async def go() -> None:
        assert await asks.has(quick) is False
        asks.leave(quick)

    lists.meanwhile = go
    await asks.has(old)
    lists.meanwhile = None
    lists.listed.clear()
    entered(asks, "b")
    assert await asks.has(quick) is False


@pytest.mark.parametrize("asked", ["waiting", "again"])
async def test_a_look_that_fails_is_repeated_for_all_that_wait_by_then(
    lists: Lists, asks: Suppressed, asked: str
) -> None:
    (first,) = entered(asks, "a")
    if asked == "again":
        await asks.has(first)
    lists.now = 1.0

    async def fail() -> None:
        lists.meanwhile = None
        entered(asks, "b")
        lists.listed.add("b")  # after its claim, which would have told
        raise StoreUnavailable("away for one look")

    lists.meanwhile = fail
    assert await asks.has(first) is False
    (late,) = (claim for claim, _ in asks._waiting.values())
    assert await asks.has(late) is True
    assert lists.looks == {"waiting": ["a", "ab"], "again": ["a", "a", "b"]}[asked]
