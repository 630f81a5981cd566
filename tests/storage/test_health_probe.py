"""One question to the database for all who ask, answered within a second or not at all."""

import asyncio
from collections.abc import Iterator

import pytest

from heliograph.storage.engine import health_probe, postgres
from heliograph.storage.engine.database import Tx
from heliograph.storage.engine.health_probe import Probe
from heliograph.storage.store import Store, StoreUnavailable

pytestmark = pytest.mark.anyio


async def test_many_who_ask_share_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def ask() -> int:
        asked.append(1)
        await asyncio.sleep(0)
        return len(asked)

    shared = Probe(ask)
    assert await asyncio.gather(*(shared.answer() for _ in range(5))) == [1] * 5
    assert await shared.answer() == 1
    monkeypatch.setattr(health_probe, "FRESH_S", 0.0)
    assert await shared.answer() == 2


async def test_who_waited_gets_that_answer_though_another_asks_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_probe, "FRESH_S", 0.0)
    loop, anew = asyncio.get_running_loop(), []
    questions: list[asyncio.Future[int]] = [loop.create_future() for _ in range(2)]
    shared = Probe(iter(questions).__next__)
    questions[0].add_done_callback(lambda _: anew.append(asyncio.create_task(shared.answer())))
    loop.call_later(0.01, questions[0].set_result, 1)
    assert await shared.answer() == 1
    questions[1].set_result(2)
    assert await asyncio.gather(*anew) == [2]


async def test_no_answer_in_time_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_probe, "ANSWER_S", 0.01)
    monkeypatch.setattr(health_probe, "FRESH_S", 0.0)
    comes = asyncio.Event()
    shared = Probe(comes.wait)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="no answer"):
            await shared.answer()
    comes.set()
    await asyncio.sleep(0)
    assert await shared.answer()


async def test_ready_means_that_something_was_committed(store: Store) -> None:
    await store.upkeep.can_commit.answer()
    assert await store.database.write(lambda tx: tx.run("probe")) == []


async def test_failed_answer_is_not_reused_as_long_as_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_probe, "FRESH_S", 3600)
    monkeypatch.setattr(health_probe, "FAILED_S", 0.0)
    answers: Iterator[int | Exception] = iter([StoreUnavailable("stopped"), 1, 2])

    async def ask() -> int:
        if isinstance(answer := next(answers), Exception):
            raise answer
        return answer

    shared = Probe(ask)
    with pytest.raises(StoreUnavailable):
        await shared.answer()
    assert [await shared.answer() for _ in range(2)] == [1, 1]


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_readiness_returns_while_every_connection_of_the_pool_is_in_use(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an outage, in which requests wait for a server that is gone."""
    monkeypatch.setattr(postgres, "PROBE_S", 0.5)
    begun, end = asyncio.Semaphore(0), asyncio.Event()

    async def hold(tx: Tx) -> None:
        begun.release()
        await end.wait()

    holding = [asyncio.create_task(store.database.write(hold)) for _ in range(postgres.POOL_MAX)]
    for _ in holding:
        await begun.acquire()
    with pytest.raises(StoreUnavailable):
        await store.database.probe()
    monkeypatch.setattr(postgres, "PROBE_S", 60.0)
    await store.database.probe()
    end.set()
    await asyncio.gather(*holding)
    await store.database.probe()
