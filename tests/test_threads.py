import asyncio
import threading
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from heliograph.runtime.threads import ThreadPool
from tests.service import PATIENCE_S

pytestmark = pytest.mark.anyio
VALUE: ContextVar[str] = ContextVar("value", default="")


@pytest.fixture
def threads() -> Iterator[ThreadPool]:
    threads = ThreadPool("tested", 2)
    yield threads
    threads.close()


class Gate:
    """Work that waits until released, and counts how much of it runs concurrently."""

    def __init__(self) -> None:
        self.opened, self.entered = threading.Event(), threading.Semaphore(0)
        self.names: list[str] = []

    def wait(self) -> str:
        self.names.append(threading.current_thread().name)
        self.entered.release()
        assert self.opened.wait(PATIENCE_S)
        return "done"

    async def has_entered(self) -> None:
        assert await asyncio.to_thread(self.entered.acquire, timeout=PATIENCE_S)


async def test_thread_pool_returns_the_result_or_raises(threads: ThreadPool) -> None:
    assert await threads.submit(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await threads.submit(divmod, 7, 0)


async def test_thread_pool_turns_stop_iteration_into_an_error(threads: ThreadPool) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await threads.submit(next, iter(()))


async def test_thread_that_cannot_start_fails_the_submission(
    threads: ThreadPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="can't start"):
            threads.submit(abs, -1)
    assert await threads.submit(abs, -1) == 1
    monkeypatch.setattr(threading.Thread, "start", fail)
    requested = [threads.submit(abs, number) for number in (-1, -2)]  # by the one that is there
    assert await asyncio.gather(*requested) == [1, 2]


async def test_thread_pool_keeps_the_context_of_the_caller(threads: ThreadPool) -> None:
    VALUE.set("mine")
    assert await threads.run(VALUE.get) == "mine"


async def test_thread_pool_reuses_threads_up_to_its_limit(threads: ThreadPool) -> None:
    assert {await threads.submit(lambda: threading.current_thread().name) for _ in range(5)} == {"tested_0"}
    gate = Gate()
    requested = [threads.submit(gate.wait) for _ in range(3)]
    for _ in range(2):
        await gate.has_entered()
    assert sorted(gate.names) == ["tested_0", "tested_1"]
    gate.opened.set()
    assert await asyncio.gather(*requested) == ["done"] * 3


async def test_thread_pool_skips_a_job_cancelled_while_queued() -> None:
    threads, gate, done = ThreadPool("tested", 1), Gate(), list[int]()
    first, second, third = threads.submit(gate.wait), threads.submit(done.append, 2), threads.submit(done.append, 3)
    await gate.has_entered()
    first.cancel()  # the work continues, although its caller is gone
    second.cancel()
    gate.opened.set()
    await third
    assert done == [3]
    threads.close()


async def test_thread_pool_close_waits_for_submitted_jobs(threads: ThreadPool) -> None:
    gate = Gate()
    requested = threads.submit(gate.wait)
    await gate.has_entered()
    gate.opened.set()
    await asyncio.to_thread(threads.close)
    assert await requested == "done"
    with pytest.raises(RuntimeError, match="tested: closed"):
        threads.submit(gate.wait)


def test_thread_pool_ignores_a_result_after_the_loop_closed() -> None:
    threads, gate = ThreadPool("tested", 1), Gate()

    async def leave() -> None:
        threads.submit(gate.wait)
        await gate.has_entered()

    async def ask() -> int:
        return await threads.submit(abs, -1)

    asyncio.run(leave())
    gate.opened.set()
    assert asyncio.run(ask()) == 1
    threads.close()
