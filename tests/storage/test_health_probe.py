"""Concurrent health checks share one database query, which ends within a second."""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest

from heliograph.storage.engine import health_probe, postgres
from heliograph.storage.engine.database import Tx
from heliograph.storage.engine.health_probe import Probe
from heliograph.storage.engine.postgres import PostgresDatabase
from heliograph.storage.store import Store, StoreUnavailable

pytestmark = pytest.mark.anyio


async def test_concurrent_probes_share_one_query(monkeypatch: pytest.MonkeyPatch) -> None:
    requested = []

    async def ask() -> int:
        requested.append(1)
        await asyncio.sleep(0)
        return len(requested)

    shared = Probe(ask)
    assert await asyncio.gather(*(shared.get() for _ in range(5))) == [1] * 5
    assert await shared.get() == 1
    monkeypatch.setattr(health_probe, "FRESH_S", 0.0)
    assert await shared.get() == 2


async def test_waiting_probe_gets_its_result_although_another_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_probe, "FRESH_S", 0.0)
    loop, anew = asyncio.get_running_loop(), []
    questions: list[asyncio.Future[int]] = [loop.create_future() for _ in range(2)]
    shared = Probe(iter(questions).__next__)
    questions[0].add_done_callback(lambda _: anew.append(asyncio.create_task(shared.get())))
    loop.call_later(0.01, questions[0].set_result, 1)
    assert await shared.get() == 1
    questions[1].set_result(2)
    assert await asyncio.gather(*anew) == [2]


async def test_probe_without_an_answer_in_time_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_probe, "TIMEOUT_S", 0.01)
    monkeypatch.setattr(health_probe, "FRESH_S", 0.0)
    comes = asyncio.Event()
    shared = Probe(comes.wait)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="no answer"):
            await shared.get()
    comes.set()
    await asyncio.sleep(0)
    assert await shared.get()


async def test_readiness_probe_commits_a_write(store: Store) -> None:
    await store.maintenance.can_commit.get()
    assert await store.database.write(lambda tx: tx.run("probe")) == []


async def test_failed_probe_is_cached_for_less_time_than_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_probe, "FRESH_S", 3600)
    monkeypatch.setattr(health_probe, "FAILURE_FRESH_S", 0.0)
    answers: Iterator[int | Exception] = iter([StoreUnavailable("stopped"), 1, 2])

    async def ask() -> int:
        if isinstance(answer := next(answers), Exception):
            raise answer
        return answer

    shared = Probe(ask)
    with pytest.raises(StoreUnavailable):
        await shared.get()
    assert [await shared.get() for _ in range(2)] == [1, 1]


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_readiness_returns_while_every_connection_of_the_pool_is_in_use(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an outage, when requests wait for a server that is gone."""
    monkeypatch.setattr(postgres, "PROBE_S", 0.5)
    started, end = asyncio.Semaphore(0), asyncio.Event()

    async def hold(tx: Tx) -> None:
        started.release()
        await end.wait()

    holding = [asyncio.create_task(store.database.write(hold)) for _ in range(postgres.POOL_MAX)]
    for _ in holding:
        await started.acquire()
    with pytest.raises(StoreUnavailable):
        await store.database.probe()
    monkeypatch.setattr(postgres, "PROBE_S", 60.0)
    await store.database.probe()
    end.set()
    await asyncio.gather(*holding)
    await store.database.probe()


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_probe_succeeds_on_a_machine_where_connecting_takes_longer_than_its_deadline(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = cast(PostgresDatabase, store.database)
    await database.probe()
    connect = database._connect

    async def connect_slowly() -> Any:
        await asyncio.sleep(3 * postgres.PROBE_S)
        return await connect()

    monkeypatch.setattr(postgres, "PROBE_S", 0.01)
    monkeypatch.setattr(database, "_connect", connect_slowly)
    monkeypatch.setattr(database, "_probe_failed", True)
    monkeypatch.setattr(database._hosts, "connect_s", 60.0)
    await database.probe()


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_probe_does_not_wait_for_a_connection_to_a_host_that_hangs(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = cast(PostgresDatabase, store.database)
    await database.probe()
    connect, hangs = database._connect, asyncio.Event()
    attempts = iter([hangs.wait, connect])
    monkeypatch.setattr(postgres, "PROBE_RETRY_S", 0.01)
    monkeypatch.setattr(database, "_connect", lambda: next(attempts, connect)())
    monkeypatch.setattr(database, "_probe_failed", True)
    monkeypatch.setattr(database._hosts, "connect_s", 60.0)
    await database.probe()
    assert next(attempts, None) is None
