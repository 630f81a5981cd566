"""What is counted cheaply is what the library would have counted."""

import random

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from heliograph.runtime import metrics
from heliograph.storage.engine.database import StoreUnavailable, Tx
from heliograph.storage.store import Store


def test_a_histogram_counted_in_portions_is_the_librarys() -> None:
    told = []
    chance = random.Random(1)
    values = [*metrics.QUICK_S, 0.0, 11.0, *(chance.expovariate(2) for _ in range(500))]
    for portion in (1, 7, len(values)):
        registry = CollectorRegistry()
        metric = Histogram("some_seconds", "Some.", registry=registry, buckets=metrics.QUICK_S)
        kept = metrics._Steps(metric, metrics.QUICK_S)
        for number, value in enumerate(values):
            kept.observe(value)
            if number % portion == 0:
                kept.flush()
        kept.flush()
        kept.flush()
        told.append(generate_latest(registry))
    registry = CollectorRegistry()
    metric = Histogram("some_seconds", "Some.", registry=registry, buckets=metrics.QUICK_S)
    for value in values:
        metric.observe(value)
    wanted = generate_latest(registry)
    for text in told:
        assert [line for line in text.splitlines() if b"_sum" not in line] == [
            line for line in wanted.splitlines() if b"_sum" not in line
        ]


def test_a_counter_counted_in_portions_is_the_librarys() -> None:
    registry = CollectorRegistry()
    kept = metrics._Count(Counter("some_total", "Some.", registry=registry))
    kept.inc()
    kept.inc(4)
    kept.flush()
    kept.flush()
    assert registry.get_sample_value("some_total") == 5


@pytest.mark.anyio
async def test_only_what_is_durable_is_counted(store: Store) -> None:
    counted: list[str] = []

    async def writes(tx: Tx) -> None:
        tx.afterwards.append(lambda: counted.append("written"))

    async def fails(tx: Tx) -> None:
        tx.afterwards.append(lambda: counted.append("undone"))
        raise StoreUnavailable("away")

    await store.database.write(writes)
    await store.database.read(writes)
    with pytest.raises(StoreUnavailable):
        await store.database.write(fails)
    assert counted == ["written"]
    assert metrics.under_way == {"read": 0, "write": 0}
