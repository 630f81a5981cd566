import asyncio
import threading
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from heliograph.runtime.threads import Threads
from tests.service import PATIENCE_S

pytestmark = pytest.mark.anyio
VALUE: ContextVar[str] = ContextVar("value", default="")


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads("tested", 2)
    yield threads
    threads.close()


class Gate:
    """Work that waits, and how much of it is under way."""

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


async def test_what_it_returns_or_raises(threads: Threads) -> None:
    assert await threads.submit(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await threads.submit(divmod, 7, 0)


async def test_what_no_future_takes_is_told(threads: Threads) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await threads.submit(next, iter(()))


async def test_a_thread_that_cannot_start(threads: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="can't start"):
            threads.submit(abs, -1)
    assert await threads.submit(abs, -1) == 1
    monkeypatch.setattr(threading.Thread, "start", fail)
    asked = [threads.submit(abs, number) for number in (-1, -2)]  # by the one that is there
    assert await asyncio.gather(*asked) == [1, 2]


async def test_the_caller_s_context_goes_along(threads: Threads) -> None:
    VALUE.set("mine")
    assert await threads.run(VALUE.get) == "mine"


async def test_one_thread_for_one_after_the_other_and_no_more_than_so_many(threads: Threads) -> None:
    assert {await threads.submit(lambda: threading.current_thread().name) for _ in range(5)} == {"tested_0"}
    gate = Gate()
    asked = [threads.submit(gate.wait) for _ in range(3)]
    for _ in range(2):
        await gate.has_entered()
    assert sorted(gate.names) == ["tested_0", "tested_1"]
    gate.opened.set()
    assert await asyncio.gather(*asked) == ["done"] * 3


async def test_what_is_cancelled_before_its_turn_is_not_done() -> None:
    threads, gate, done = Threads("tested", 1), Gate(), list[int]()
    first, second, third = threads.submit(gate.wait), threads.submit(done.append, 2), threads.submit(done.append, 3)
    await gate.has_entered()
    first.cancel()  # it goes on, for nobody
    second.cancel()
    gate.opened.set()
    await third
    assert done == [3]
    threads.close()


async def test_closing_waits_for_what_was_asked(threads: Threads) -> None:
    gate = Gate()
    asked = threads.submit(gate.wait)
    await gate.has_entered()
    gate.opened.set()
    await asyncio.to_thread(threads.close)
    assert await asked == "done"
    with pytest.raises(RuntimeError, match="tested: closed"):
        threads.submit(gate.wait)


def test_a_loop_that_ended_before_its_answer() -> None:
    threads, gate = Threads("tested", 1), Gate()

    async def leave() -> None:
        threads.submit(gate.wait)
        await gate.has_entered()

    async def ask() -> int:
        return await threads.submit(abs, -1)

    asyncio.run(leave())
    gate.opened.set()
    assert asyncio.run(ask()) == 1
    threads.close()
