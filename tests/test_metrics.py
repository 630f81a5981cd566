"""Our faster counters give the same values as the library's."""

import random

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from heliograph.runtime import metrics
from heliograph.storage.engine.database import StoreUnavailable, Tx
from heliograph.storage.store import Store


def test_a_histogram_counted_in_portions_is_the_librarys() -> None:
    events = []
    chance = random.Random(1)
    values = [*metrics.SHORT_BUCKETS_S, 0.0, 11.0, *(chance.expovariate(2) for _ in range(500))]
    for portion in (1, 7, len(values)):
        registry = CollectorRegistry()
        metric = Histogram("some_seconds", "Some.", registry=registry, buckets=metrics.SHORT_BUCKETS_S)
        retained = metrics._BufferedHistogram(metric, metrics.SHORT_BUCKETS_S)
        for number, value in enumerate(values):
            retained.observe(value)
            if number % portion == 0:
                retained.flush()
        retained.flush()
        retained.flush()
        events.append(generate_latest(registry))
    registry = CollectorRegistry()
    metric = Histogram("some_seconds", "Some.", registry=registry, buckets=metrics.SHORT_BUCKETS_S)
    for value in values:
        metric.observe(value)
    expected = generate_latest(registry)
    for text in events:
        assert [line for line in text.splitlines() if b"_sum" not in line] == [
            line for line in expected.splitlines() if b"_sum" not in line
        ]


def test_a_counter_counted_in_portions_is_the_librarys() -> None:
    registry = CollectorRegistry()
    retained = metrics._BufferedCounter(Counter("some_total", "Some.", registry=registry))
    retained.inc()
    retained.inc(4)
    retained.flush()
    retained.flush()
    assert registry.get_sample_value("some_total") == 5


@pytest.mark.anyio
async def test_only_committed_changes_are_counted(store: Store) -> None:
    counted: list[str] = []

    async def writes(tx: Tx) -> None:
        tx.after_commit.append(lambda: counted.append("written"))

    async def fails(tx: Tx) -> None:
        tx.after_commit.append(lambda: counted.append("undone"))
        raise StoreUnavailable("away")

    await store.database.write(writes)
    await store.database.read(writes)
    with pytest.raises(StoreUnavailable):
        await store.database.write(fails)
    assert counted == ["written"]
    assert metrics.open_transactions == {"read": 0, "write": 0}
