"""One thread that lets many actors take turns: the real store on SQLite in memory, time and chance by a seed.

An actor is a coroutine that gives up its turn before and sometimes after every transaction, and around every call of
a carrier. Whoever is next is drawn by lot; a crash is an actor that never gets another turn. Nothing here sleeps.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import apsw

from heliograph.domain.ids import ulid
from heliograph.runtime.clock import Clock
from heliograph.storage.engine.database import T, TxFunction
from heliograph.storage.engine.group_commit import GroupCommit
from heliograph.storage.engine.local_files import LocalFiles
from heliograph.storage.engine.migrate import pending_files
from heliograph.storage.engine.query import load_queries
from heliograph.storage.engine.sqlite import SqliteTx, run_to_completion
from heliograph.storage.engine.wakeups import Wakeups
from heliograph.storage.store import Store, make_store
from tests.clocks import StandingClock

ANSWER_WAITS = 0.3  # how often others act between a commit and its answer
QUERIES = load_queries("sqlite")


class Turn:
    """`await Turn()`: now somebody else."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class SimClock(StandingClock):
    def __init__(self, rng: Random) -> None:
        super().__init__()
        self._rng = rng
        self._ids = 0

    def new_id(self, prefix: str) -> str:
        self._ids += 1
        return prefix + ulid(self._now, self._ids)

    def random_bytes(self, size: int) -> bytes:
        return self._rng.randbytes(size)

    def randbelow(self, limit: int) -> int:
        return self._rng.randrange(limit)


class Memory:
    """The seam `Database`: every transaction whole, one after the other, on one connection."""

    def __init__(self, template: apsw.Connection, rng: Random, written: Callable[[], None]) -> None:
        self.connection = apsw.Connection(":memory:")
        with self.connection.backup("main", template, "main") as copying:
            copying.step(-1)
        self._rng = rng
        self.wakeups = Wakeups(self._nobody)
        self.serialized: Any = Unlimited()
        self._written = written  # called after every transaction that changed something

    async def write(self, story: TxFunction[T]) -> T:
        await Turn()
        result = self.transact(story)
        if self._rng.random() < ANSWER_WAITS:
            await Turn()
        return result

    async def read(self, story: TxFunction[T]) -> T:
        await Turn()
        return self.transact(story, "ROLLBACK")

    read_standby = read

    async def probe(self) -> None: ...

    async def listen(self) -> None: ...

    async def close(self) -> None:
        self.connection.close()

    async def _nobody(self, text: str) -> None: ...

    def transact(self, story: TxFunction[T], end: str = "COMMIT") -> T:
        before = self.connection.total_changes()
        self.connection.execute("BEGIN")
        try:
            tx = SqliteTx(self.connection, QUERIES)
            result = run_to_completion(story, tx)
            self.connection.execute(end)
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        if end == "COMMIT" and self.connection.total_changes() != before:
            self._written()
        for act in tx.after_commit if end == "COMMIT" else ():
            act()
        return result

    def ask(self, sql: str, *given: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, given).fetchall()


class Unlimited:
    """In place of FairLimiter, which needs asyncio's loop: there is one connection, so nothing waits inside it."""

    @asynccontextmanager
    async def slot(self, group: str) -> AsyncIterator[None]:
        yield


class TurningGroup:
    """Group commit as `GroupCommit` does it, in turns: whoever has the turn commits for all that wait."""

    def __init__(self, database: Memory, story: Callable[..., Coroutine[Any, Any, Sequence[Any]]]) -> None:
        self._database = database
        self._story = story
        self._waiting: list[list[Any]] = []

    async def submit(self, item: Any) -> Any:
        slot = [item]
        self._waiting.append(slot)
        await Turn()
        if len(slot) == 1:
            taken, self._waiting = self._waiting, []
            self._commit(taken)
            if self._database._rng.random() < ANSWER_WAITS:
                await Turn()
        if isinstance(slot[1], Exception):
            raise slot[1]
        return slot[1]

    def _commit(self, taken: list[list[Any]]) -> None:
        items = [slot[0] for slot in taken]
        try:
            results = self._database.transact(lambda tx: self._story(tx, items))
        except AssertionError:
            raise
        except Exception as error:
            if len(taken) > 1:
                for one in taken:
                    self._commit([one])
                return
            results = [error]
        for slot, result in zip(taken, results, strict=True):
            slot.append(result)


def make_turning_store(database: Memory, clock: Clock, owner: str, folder: Path) -> Store:
    store = make_store(database, LocalFiles(folder), clock, owner)
    for part in (store.messages, store.verifications, store.outbox, store.deliveries):
        for name, group in vars(part).items():
            if isinstance(group, GroupCommit):
                setattr(part, name, TurningGroup(database, group._function))
    return store


def empty_database() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    for change in pending_files(0, 0, "sqlite"):
        connection.execute(change.sql)
    return connection
