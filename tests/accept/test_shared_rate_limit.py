"""A key has one token bucket, accurate to a tenth, regardless of the number of processes (contract 11, ADR 0016)."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from heliograph.accept.admission import Admission
from heliograph.accept.rate import RateLimits
from heliograph.deliver.jobs.rate_sync import RateSync, sync_rate_limits
from heliograph.domain.refusals import RateLimitExceeded
from heliograph.domain.setup.keys import make_token, parse_token, token_hash
from heliograph.domain.setup.records import Key, TeamRecord
from heliograph.storage.store import Store, StoreUnavailable, make_store
from tests.clocks import StandingClock, TestClock
from tests.dashboard.inside import write_records
from tests.deliver.test_jobs import doing, wait_until
from tests.storage.test_idempotency import make_context

pytestmark = [pytest.mark.anyio, pytest.mark.both_databases]

TOKEN = make_token(bytes(range(64)))
PUBLIC = parse_token(TOKEN) or ""
RATE = 100
BURST = 2 * RATE


class FakeProcess:
    def __init__(self, store: Store, clock: StandingClock) -> None:
        self.rates = RateLimits()
        self.exchanges = 0
        self.sharing = RateSync(store, clock, self.rates)
        self.rates.sync = self.exchange
        self._door = Admission(replace(make_context(store, TestClock()), clock=clock), self.rates)

    async def exchange(self) -> None:
        self.exchanges += 1
        await self.sharing.sync()

    async def ask(self) -> bool:
        try:
            await self._door.authenticate_and_admit(TOKEN.encode(), ("send",), "127.0.0.1")
        except RateLimitExceeded:
            return False
        return True


@pytest.fixture
def clock() -> StandingClock:
    """Return the clock of all processes: on a busy machine, none of them seems dead to the others."""
    return StandingClock()


@pytest.fixture(params=[2, 5])
async def processes(
    request: pytest.FixtureRequest, store: Store, other: Store, clock: StandingClock
) -> list[FakeProcess]:
    """Return this number of processes, which know of each other."""
    team = TeamRecord(ref=1, id="team_a", name="A", mode="live", rate_limit=RATE)
    own = Key(id=PUBLIC, team="team_a", name="k", hash=token_hash(TOKEN))
    await write_records(store, ("team", "team_a", team, "team_a"), ("key", PUBLIC, own, "team_a"))
    await other.setup.refresh()
    more = [
        make_store(store.database, store.local_files, store.clock, f"seat/{number}")
        for number in range(2, request.param)
    ]
    for item in more:
        await item.setup.refresh()
    created = [FakeProcess(item, clock) for item in (store, other, *more)]
    for process in created * 2:
        await process.exchange()
        process.exchanges = 0
    return created


async def request_each(processes: list[FakeProcess], times: int) -> int:
    """Send requests to all processes concurrently."""
    return sum(await asyncio.gather(*(item.ask() for _ in range(times) for item in processes)))


async def test_flood_over_several_processes_gets_one_burst(processes: list[FakeProcess], clock: StandingClock) -> None:
    assert BURST <= await request_each(processes, 300) <= 1.1 * BURST
    clock.forward(1000)
    assert 0.9 * RATE <= await request_each(processes, 300) <= 1.1 * RATE
    assert await request_each(processes, 50) <= 0.1 * RATE


async def test_one_connection_gets_the_whole_burst(processes: list[FakeProcess]) -> None:
    assert await request_each(processes[:1], BURST + 20) == BURST
    assert await request_each(processes[1:], 50) <= 0.1 * BURST


async def test_far_from_its_limit_a_key_never_waits_for_the_database(
    processes: list[FakeProcess], clock: StandingClock
) -> None:
    share = BURST // (10 * len(processes))
    for _ in range(10):
        assert await request_each(processes, share - 1) == (share - 1) * len(processes)
        for item in processes:  # like the background job
            await item.sharing.sync()
        clock.forward(250)
    assert {item.exchanges for item in processes} == {0}


async def test_process_counts_alone_while_the_database_is_unavailable(
    processes: list[FakeProcess], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: object) -> None:
        raise StoreUnavailable

    monkeypatch.setattr(store.requests, "sync_usage", away)
    assert await request_each(processes[:1], BURST + 20) == BURST


async def test_rate_limit_sync_is_requested_only_when_needed(store: Store, clock: StandingClock) -> None:
    rates = RateLimits()
    before: Callable[[], Awaitable[None]] = rates.sync
    async with doing(sync_rate_limits(store, clock, rates)):
        await wait_until(lambda: rates.sync is not before)
        await rates.sync()


async def test_counts_of_an_ended_key_are_dropped_and_do_not_return(processes: list[FakeProcess], store: Store) -> None:
    assert await request_each(processes, 10)
    for process in processes:
        await process.exchange()
        process.sharing.drop_invalid_keys()
    assert all(process.rates.allowed_counts[PUBLIC] for process in processes)
    revoked = Key(id=PUBLIC, team="team_a", name="k", hash=token_hash(TOKEN), revoked=True)
    await write_records(store, ("key", PUBLIC, revoked, "team_a"))
    for process in processes:
        await process.sharing._store.setup.refresh()
        process.sharing.drop_invalid_keys()
        await process.exchange()
        rates = process.rates
        assert not (
            rates._buckets or rates.allowed_counts or rates._reported_counts or process.sharing._published_counts
        )
