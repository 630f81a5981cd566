"""Rates per mailbox provider: shared by all processes, and few statements for many accesses."""

import asyncio

import pytest
from msgspec.structs import replace

from heliograph.domain.delivery.provider_pause import PROBE_WAIT_MS
from heliograph.domain.delivery.provider_rates import (
    ConnectionRequest,
    Exchange,
    Limits,
    ProbeClaim,
    ProviderKey,
    RateRefusal,
    TokenRequest,
)
from heliograph.domain.ids import timestamp
from heliograph.domain.setup.records import CarrierRecord
from heliograph.storage.store import Store, make_store
from tests.api.test_metrics import read_gauges
from tests.clocks import TestClock
from tests.dashboard.inside import OPERATOR, Pages, write_records
from tests.storage.test_idempotency import make_context

pytestmark = pytest.mark.anyio

KEY = ProviderKey("mx", "google", "192.0.2.1")
TEN = Exchange(key=KEY, limits=Limits(per_minute=10, connections=4), tokens=TokenRequest(fresh=4))


@pytest.fixture
def other(store: Store, clock: TestClock) -> Store:
    """Return another process on the same database."""
    return make_store(store.database, store.local_files, clock, "seat/1")


async def test_processes_share_the_tokens_of_a_provider(store: Store, other: Store) -> None:
    exchanges = [process.provider_states.exchange(TEN) for process in (store, other) * 3]
    grants = [result.grant for result in await asyncio.gather(*exchanges)]
    assert sum(grant.fresh for grant in grants if grant) == 10


async def test_processes_share_the_connections_of_a_provider(store: Store, other: Store) -> None:
    request = replace(TEN, tokens=None, connections=ConnectionRequest(wanted=4, opened=0))
    leases = [await process.provider_states.exchange(request) for process in (store, other)]
    assert [lease.connections for lease in leases] == [4, 0]


async def test_processes_share_the_pause_after_a_refusal(store: Store, other: Store, clock: TestClock) -> None:
    refused_at = clock.now()
    refusal = RateRefusal(attempted_at=refused_at, refused_at=refused_at, reply="450 slow down")
    await store.provider_states.exchange(replace(TEN, refusals=(refusal,)))
    assert (await other.provider_states.exchange(TEN)).pause.until == refused_at + PROBE_WAIT_MS
    clock.forward(PROBE_WAIT_MS)
    claim = replace(TEN, tokens=None, probe=ProbeClaim(is_critical=False))
    probe_times = [(await process.provider_states.exchange(claim)).probe_at for process in (store, other)]
    assert probe_times[0] is None
    assert probe_times[1] is not None
    await store.provider_states.exchange(replace(TEN, pause_ended_by=clock.now()))
    assert (await other.provider_states.exchange(claim)).probe_at is None


async def test_states_are_kept_by_carrier_provider_and_source_address(store: Store, clock: TestClock) -> None:
    keys = [KEY, KEY._replace(source=""), KEY._replace(provider="other"), KEY._replace(carrier="b")]
    refusal = RateRefusal(attempted_at=clock.now(), reply="421 slow down")
    await asyncio.gather(*(store.provider_states.exchange(replace(TEN, key=key)) for key in keys))
    await store.provider_states.exchange(replace(TEN, tokens=None, refusals=(refusal,)))
    states = await store.provider_states.read_all()
    assert states.keys() == set(keys)
    assert [key for key, state in states.items() if state.deferrals] == [KEY]
    assert states[KEY].reduced_rate == 5


async def test_rates_are_shown_as_gauge_and_on_the_page_of_the_carrier(store: Store, clock: TestClock) -> None:
    warmup = {"from": timestamp(clock.now())[:10], "days": 30, "start": 50}
    options = {"providers": {"google": {"per_minute": 10}}, "source_ips": [{"address": KEY.source, "warmup": warmup}]}
    carrier = CarrierRecord(id=KEY.carrier, channel="email", kind="mx", options=options)
    await write_records(store, ("carrier", carrier.id, carrier, None))
    refusal = RateRefusal(attempted_at=clock.now(), reply="421 4.7.28 for <ada@gmail.com>")
    for key in (KEY, KEY._replace(carrier="removed")):
        await store.provider_states.exchange(replace(TEN, key=key, refusals=(refusal,)))
    assert (await read_gauges(store))["provider_rate mx google 192.0.2.1"] == 5
    page = await Pages(make_context(store, clock)).get("/dashboard/operator/carriers/mx", OPERATOR)
    assert "google 192.0.2.1 5.0 a minute (reduced) 10 a minute 1 of 50 1" in page.text
    assert "421 4.7.28 for" in page.text and "ada@" not in page.text
