"""Leases use a clock shared by all processes; a process with a wrong clock claims and releases nothing."""

from collections.abc import AsyncIterator

import pytest

from heliograph.bootstrap import open_store
from heliograph.domain.limits import HOUR_MS, LEASE_MS, MINUTE_MS
from heliograph.runtime.clock import CLOCK_ERROR_MAX_MS
from heliograph.settings import Settings
from heliograph.storage import leases
from heliograph.storage.leases import STALE_MS, Leases
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.samples import finish, let_leases_end, message, retry_key, start
from tests.storage.test_outbox import sent

pytestmark = pytest.mark.anyio

WRONG = (10 * MINUTE_MS, -10 * MINUTE_MS)


@pytest.fixture
async def other(store: Store, settings: Settings, clock: TestClock) -> AsyncIterator[Store]:
    """Return another process on the same database, with its own clock."""
    await store.maintenance.check_clock()
    async with open_store(settings, TestClock(), "seat/1") as other:
        yield other


def clock_of(store: Store) -> TestClock:
    clock = store.clock
    assert isinstance(clock, TestClock)
    return clock


@pytest.mark.parametrize("by", WRONG)
@pytest.mark.parametrize("compared", [True, False])
async def test_process_with_a_wrong_clock_claims_and_releases_nothing(
    store: Store, other: Store, clock: TestClock, by: int, compared: bool
) -> None:
    """Also before the first periodic check of the shared clock, because every claim checks it."""
    await store.messages.accept(message(clock))
    (held,) = await store.outbox.claim("email", 1)
    await store.messages.accept(message(clock))
    clock_of(other).wall_shift_ms = by
    if compared:
        await other.maintenance.check_clock()
    assert await other.outbox.claim("email", 10) == []
    assert await other.deliveries.claim(["wh_1"]) == []
    await other.outbox.reclaim_abandoned()
    assert await store.outbox.record(sent(held, clock))
    clock_of(other).wall_shift_ms = 0
    await other.maintenance.check_clock()
    assert not clock_of(other).clock_error()
    assert len(await other.outbox.claim("email", 10)) == 1


async def test_process_started_with_a_wrong_clock_uses_the_shared_time(other: Store, settings: Settings) -> None:
    wrong = TestClock()
    wrong.wall_shift_ms = HOUR_MS
    async with open_store(settings, wrong, "seat/2") as late:
        await late.maintenance.check_clock()
    assert wrong.clock_error() == pytest.approx(HOUR_MS, abs=CLOCK_ERROR_MAX_MS)
    assert wrong.now() == pytest.approx(clock_of(other).now(), abs=CLOCK_ERROR_MAX_MS)


@pytest.mark.parametrize("by", [HOUR_MS, -HOUR_MS])
async def test_clock_jump_moves_no_lease_and_in_flight_work_is_recorded(
    store: Store, other: Store, clock: TestClock, by: int
) -> None:
    item = message(clock)
    await store.messages.accept(item)
    (held,) = await other.outbox.claim("email", 1)
    jumping = clock_of(other)
    jumping.wall_shift_ms = by
    assert jumping.clock_error() == pytest.approx(by, abs=CLOCK_ERROR_MAX_MS)  # before the request was sent
    await other.maintenance.check_clock()
    assert jumping.now() == pytest.approx(clock.now(), abs=CLOCK_ERROR_MAX_MS)
    await other.outbox.renew([held])
    await store.outbox.reclaim_abandoned()
    assert await other.outbox.record(sent(held, jumping))


async def test_shared_clock_change_expires_no_lease_of_a_live_process(
    store: Store, clock: TestClock, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on one machine: the wall clocks of all processes change too."""
    await store.maintenance.check_clock()
    async with open_store(settings, clock, "seat/1") as other:
        for _ in range(2):
            await store.messages.accept(message(clock))
        working, lost = await store.outbox.claim("email", 2)
        await other.outbox.reclaim_abandoned()
        events = Leases._shared_time
        monkeypatch.setattr(leases.Leases, "_shared_time", lambda self, row: events(self, row) + HOUR_MS)
        clock.wall_shift_ms = HOUR_MS
        await other.outbox.reclaim_abandoned()
        assert await other.outbox.claim("email", 2) == []
        await store.outbox.renew([working])
        await let_leases_end(other, clock, LEASE_MS // 2)
        await store.outbox.renew([working])
        await let_leases_end(other, clock, LEASE_MS // 2)
        assert [claim.key for claim in await other.outbox.claim("email", 2)] == [lost.key]


async def test_idempotency_key_in_progress_is_not_taken_over_with_a_wrong_clock(
    store: Store, other: Store, clock: TestClock
) -> None:
    running = start(clock, idempotency_key=retry_key("key"))
    await store.verifications.start(running)
    clock_of(other).wall_shift_ms = HOUR_MS
    result = await other.messages.find_stored_response(running.key_id, retry_key("key").hash)
    assert result
    assert not result.abandoned
    await other.outbox.reclaim_abandoned()  # fails no verification
    await store.verifications.finish(finish(running, clock))
    assert await store.verifications.start(start(clock, idempotency_key=retry_key("key")))


# -- the row that stands for a clock on SQLite ------------------------------------------------------------------


class Booted(TestClock):
    """A clock whose monotonic time starts at zero, like after a boot."""

    boot = "another"

    def __init__(self) -> None:
        self._boot_offset = TestClock().monotonic_ms()
        super().__init__()

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() - self._boot_offset


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
class TestMachine:
    async def test_changed_clock_is_trusted_after_a_minute(self, store: Store, clock: TestClock) -> None:
        await store.maintenance.check_clock()
        clock.wall_shift_ms = HOUR_MS
        await store.maintenance.check_clock()
        assert clock.clock_error()
        before = clock.now()
        clock.forward(STALE_MS + 1)
        await store.maintenance.check_clock()
        assert not clock.clock_error()
        assert clock.now() - before == pytest.approx(HOUR_MS + STALE_MS, abs=CLOCK_ERROR_MAX_MS)

    async def test_changed_clock_is_not_trusted_while_another_process_has_the_time(
        self, store: Store, other: Store, clock: TestClock
    ) -> None:
        wrong = clock_of(other)
        wrong.wall_shift_ms = HOUR_MS
        for _ in range(10):
            for item in (clock, wrong):
                item.forward(STALE_MS // 2)
            await store.maintenance.check_clock()
            await other.maintenance.check_clock()
        assert wrong.clock_error()
        assert not clock.clock_error()

    async def test_leases_of_dead_processes_end_after_a_boot(
        self, store: Store, settings: Settings, clock: TestClock
    ) -> None:
        await store.messages.accept(message(clock))
        await store.maintenance.check_clock()
        await store.outbox.claim("email", 1)
        async with open_store(settings, Booted(), "seat/1") as other:
            await other.maintenance.check_clock()
            await other.outbox.reclaim_abandoned()
            assert await other.outbox.claim("email", 1) == []
            await let_leases_end(other, clock_of(other))
            assert len(await other.outbox.claim("email", 1)) == 1

    @pytest.mark.parametrize(("ahead", "seen"), [(0, HOUR_MS), (-HOUR_MS, 0), (0, 0)])
    async def test_clock_row_of_another_boot_is_not_trusted(
        self, store: Store, clock: TestClock, ahead: int, seen: int
    ) -> None:
        """The boot has no id, or a process recorded a wrong time: previously, delivery stopped permanently."""
        row = {"boot": clock.boot, "ahead": ahead, "seen": clock.wall_ms() + seen}
        await store.database.write(lambda tx: tx.run("set_machine_clock", **row))
        await store.messages.accept(message(clock))
        await store.maintenance.check_clock()
        assert not clock.clock_error()
        assert len(await store.outbox.claim("email", 1)) == 1
