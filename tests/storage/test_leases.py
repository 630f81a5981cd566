"""Leases run by a clock that all processes share; a process whose own is wrong claims nothing and frees nothing."""

from collections.abc import AsyncIterator

import pytest

from heliograph.bootstrap import open_store
from heliograph.domain.limits import HOUR_MS, LEASE_MS, MINUTE_MS
from heliograph.runtime.clock import OFF_MS
from heliograph.settings import Settings
from heliograph.storage import leases
from heliograph.storage.leases import FORGOTTEN_MS, Leases
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.samples import finish, let_leases_end, message, retry_key, start
from tests.storage.test_outbox import sent

pytestmark = pytest.mark.anyio

WRONG = (10 * MINUTE_MS, -10 * MINUTE_MS)


@pytest.fixture
async def other(store: Store, settings: Settings, clock: TestClock) -> AsyncIterator[Store]:
    """Another process on the same database, with a clock of its own."""
    await store.upkeep.check_clock()
    async with open_store(settings, TestClock(), "seat/1") as other:
        yield other


def clock_of(store: Store) -> TestClock:
    clock = store.clock
    assert isinstance(clock, TestClock)
    return clock


@pytest.mark.parametrize("by", WRONG)
@pytest.mark.parametrize("compared", [True, False])
async def test_a_wrong_clock_claims_nothing_and_frees_nothing(
    store: Store, other: Store, clock: TestClock, by: int, compared: bool
) -> None:
    """Also before the first look at the shared clock: every claim is a look."""
    await store.messages.accept(message(clock))
    (held,) = await store.outbox.claim("email", 1)
    await store.messages.accept(message(clock))
    clock_of(other).wrong = by
    if compared:
        await other.upkeep.check_clock()
    assert await other.outbox.claim("email", 10) == []
    assert await other.deliveries.claim(["wh_1"]) == []
    await other.outbox.reclaim()
    assert await store.outbox.record(sent(held, clock))
    clock_of(other).wrong = 0
    await other.upkeep.check_clock()
    assert not clock_of(other).off()
    assert len(await other.outbox.claim("email", 10)) == 1


async def test_who_begins_with_a_wrong_clock_goes_by_the_shared_one(other: Store, settings: Settings) -> None:
    wrong = TestClock()
    wrong.wrong = HOUR_MS
    async with open_store(settings, wrong, "seat/2") as late:
        await late.upkeep.check_clock()
    assert wrong.off() == pytest.approx(HOUR_MS, abs=OFF_MS)
    assert wrong.now() == pytest.approx(clock_of(other).now(), abs=OFF_MS)


@pytest.mark.parametrize("by", [HOUR_MS, -HOUR_MS])
async def test_a_jump_moves_nothing_and_what_is_in_flight_is_recorded(
    store: Store, other: Store, clock: TestClock, by: int
) -> None:
    item = message(clock)
    await store.messages.accept(item)
    (held,) = await other.outbox.claim("email", 1)
    jumping = clock_of(other)
    jumping.wrong = by
    assert jumping.off() == pytest.approx(by, abs=OFF_MS)  # before anybody was asked
    await other.upkeep.check_clock()
    assert jumping.now() == pytest.approx(clock.now(), abs=OFF_MS)
    await other.outbox.heartbeat([held])
    await store.outbox.reclaim()
    assert await other.outbox.record(sent(held, jumping))


async def test_nobody_is_robbed_when_the_shared_clock_is_set(
    store: Store, clock: TestClock, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on one machine: the wall clocks of all processes go with it."""
    await store.upkeep.check_clock()
    async with open_store(settings, clock, "seat/1") as other:
        for _ in range(2):
            await store.messages.accept(message(clock))
        working, lost = await store.outbox.claim("email", 2)
        await other.outbox.reclaim()
        told = Leases._shared
        monkeypatch.setattr(leases.Leases, "_shared", lambda self, row: told(self, row) + HOUR_MS)
        clock.wrong = HOUR_MS
        await other.outbox.reclaim()
        assert await other.outbox.claim("email", 2) == []
        await store.outbox.heartbeat([working])
        await let_leases_end(other, clock, LEASE_MS // 2)
        await store.outbox.heartbeat([working])
        await let_leases_end(other, clock, LEASE_MS // 2)
        assert [claim.key for claim in await other.outbox.claim("email", 2)] == [lost.key]


async def test_a_key_under_way_is_not_taken_over_by_a_wrong_clock(store: Store, other: Store, clock: TestClock) -> None:
    running = start(clock, retry_key=retry_key("key"))
    await store.verifications.start(running)
    clock_of(other).wrong = HOUR_MS
    found = await other.messages.remembered(running.key_id, retry_key("key").hash)
    assert found
    assert not found.abandoned
    await other.outbox.reclaim()  # gives up nobody's verification
    await store.verifications.finish(finish(running, clock))
    assert await store.verifications.start(start(clock, retry_key=retry_key("key")))


# -- the row that stands for a clock on SQLite ------------------------------------------------------------------


class Booted(TestClock):
    """Its count begins anew, whatever this machine's is."""

    boot = "another"

    def __init__(self) -> None:
        self._booted = TestClock().count()
        super().__init__()

    def count(self) -> int:
        return super().count() - self._booted


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
class TestMachine:
    async def test_a_clock_that_was_set_is_believed_after_a_minute(self, store: Store, clock: TestClock) -> None:
        await store.upkeep.check_clock()
        clock.wrong = HOUR_MS
        await store.upkeep.check_clock()
        assert clock.off()
        before = clock.now()
        clock.forward(FORGOTTEN_MS + 1)
        await store.upkeep.check_clock()
        assert not clock.off()
        assert clock.now() - before == pytest.approx(HOUR_MS + FORGOTTEN_MS, abs=OFF_MS)

    async def test_but_not_while_another_process_has_the_time(
        self, store: Store, other: Store, clock: TestClock
    ) -> None:
        wrong = clock_of(other)
        wrong.wrong = HOUR_MS
        for _ in range(10):
            for one in (clock, wrong):
                one.forward(FORGOTTEN_MS // 2)
            await store.upkeep.check_clock()
            await other.upkeep.check_clock()
        assert wrong.off()
        assert not clock.off()

    async def test_after_a_boot_the_leases_of_the_dead_end(
        self, store: Store, settings: Settings, clock: TestClock
    ) -> None:
        await store.messages.accept(message(clock))
        await store.upkeep.check_clock()
        await store.outbox.claim("email", 1)
        async with open_store(settings, Booted(), "seat/1") as other:
            await other.upkeep.check_clock()
            await other.outbox.reclaim()
            assert await other.outbox.claim("email", 1) == []
            await let_leases_end(other, clock_of(other))
            assert len(await other.outbox.claim("email", 1)) == 1

    @pytest.mark.parametrize(("ahead", "seen"), [(0, HOUR_MS), (-HOUR_MS, 0), (0, 0)])
    async def test_a_row_that_cannot_be_of_this_boot_is_not_believed(
        self, store: Store, clock: TestClock, ahead: int, seen: int
    ) -> None:
        """Where a boot has no name, or a process lied about its count: delivery stood still for ever."""
        row = {"boot": clock.boot, "ahead": ahead, "seen": clock.wall() + seen}
        await store.database.write(lambda tx: tx.run("set_machine_clock", **row))
        await store.messages.accept(message(clock))
        await store.upkeep.check_clock()
        assert not clock.off()
        assert len(await store.outbox.claim("email", 1)) == 1
