"""The interface of both databases: run a transaction function in one transaction, to write or to read.

A transaction function (type `TxFunction`) is an async function of a `Tx`. It awaits nothing but the transaction, so the
same function runs on asyncpg's event loop and on SQLite's writer thread (ADR 0003).
"""

import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar

from heliograph.runtime.fair_limiter import FairLimiter, QueueFull
from heliograph.storage.engine.wakeups import Wakeups

_WORD_BOUNDARY = re.compile("(?<=[a-z])(?=[A-Z])")

T = TypeVar("T")
Rows = Sequence[tuple[Any, ...]]

CONCURRENT_SERIALIZED_MAX = 2  # one transaction commits while the next starts; more would only wait for the lock


class StoreUnavailable(Exception):
    """The database is unreachable or cannot be written to now; the whole transaction was rolled back."""


class Conflict(StoreUnavailable):
    """A concurrent transaction won: this one was rolled back, and its function runs again."""


class TooManyChanges(StoreUnavailable):
    """Too many changes of the same team, person or instance already wait; nothing was changed."""

    def __init__(self, retry_after: int) -> None:
        super().__init__("too many changes wait for their turn")
        self.retry_after = retry_after  # whole seconds


def error_text(error: BaseException) -> str:
    """Return the error's message on one line, or the name of its class if the message is empty."""
    return " ".join(str(error).split()) or type(error).__name__


class Tx(Protocol):
    """One open transaction of a database."""

    wakeups: dict[str, int]  # kind of work that the transaction writes → ms until the work is due
    after_commit: list[Callable[[], None]]  # called on the event loop after the commit, to update metrics

    async def run(self, query: str, **params: Any) -> list[Any]:
        """Run a named query of `queries/*.sql` with parameters bound by name; return its rows as sequences."""

    async def run_many(self, **queries: dict[str, Any]) -> list[list[Any]]:
        """Run several queries in one round trip if possible; return the rows of each.

        A query whose row table is empty returns no rows. On PostgreSQL all queries see the snapshot taken before the
        first one waited for a row lock.
        """

    async def write_many(self, tables: Mapping[str, Rows]) -> None:
        """Run several row-writing queries in one round trip if possible; queries without rows are skipped."""


def schedule_wakeup(tx: Tx, kind: str, due_in_ms: int = 0) -> None:
    """Record that the transaction writes work of `kind` that is due in `due_in_ms`. The commit sends the wakeup."""
    tx.wakeups[kind] = min(due_in_ms, tx.wakeups.get(kind, due_in_ms))


TxFunction = Callable[[Tx], Coroutine[Any, Any, T]]


@cache
def metrics_label(qualname: str) -> str:
    """Return the metrics label of a transaction function: its class or outer function in snake case."""
    return _WORD_BOUNDARY.sub("_", qualname.partition(".")[0]).lower()


class Database(Protocol):
    """A PostgreSQL or SQLite database."""

    wakeups: Wakeups
    serialized: FairLimiter  # limits concurrent calls of write_serialized

    async def write(self, function: TxFunction[T]) -> T:
        """Run a transaction function in one transaction; the commit is durable when this returns."""

    async def read(self, function: TxFunction[T]) -> T:
        """Run a transaction function on one consistent snapshot; its writes are rolled back."""

    async def read_standby(self, function: TxFunction[T]) -> T:
        """Run a read-only transaction function on a standby that has everything committed so far.

        Runs like `read` if there is no such standby. For lists, search, statistics and exports, not for queries of
        locks: those are visible only on the primary.
        """

    async def probe(self) -> None:
        """Commit a row; raise StoreUnavailable if the database cannot be written to."""

    async def listen(self) -> None:
        """Receive the wakeups of other processes, until cancelled."""

    async def close(self) -> None: ...


async def write_serialized(database: Database, function: TxFunction[T], group: str | None) -> T:
    """Run a transaction function that locks the setup's version or the end of the audit log.

    Every change locks one of these two rows. A transaction that waits for the row holds a connection (on SQLite: the
    writer thread), so changes wait here before they take a connection. The queue is fair between groups: a team, a
    person or, with None, the instance. Raises TooManyChanges if too many changes of the group wait.
    """
    try:
        async with database.serialized.slot(group or ""):
            return await database.write(function)
    except QueueFull as error:
        raise TooManyChanges(error.retry_after) from None
