"""The two things a database can do here: run a story in one transaction, to write or to read.

A story is an async function of a `Tx`; it awaits nothing but the transaction, so the same story runs on
asyncpg's event loop and on SQLite's writer thread (ADR 0003).
"""

import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar

from heliograph.runtime.fair_limiter import FairLimiter, QueueFull
from heliograph.storage.engine.wakeups import Hints

_HUMP = re.compile("(?<=[a-z])(?=[A-Z])")

T = TypeVar("T")
Rows = Sequence[tuple[Any, ...]]

SERIALIZED_MAX = 2  # one commits while the next one prepares; more would only wait for the same row


class StoreUnavailable(Exception):
    """The database cannot be reached or cannot write now; the whole transaction is undone."""


class Conflict(StoreUnavailable):
    """Another process was faster; the transaction is undone and its story runs again."""


class TooManyChanges(StoreUnavailable):
    """Too many changes of this group wait for their turn; nothing was changed."""

    def __init__(self, retry_after: int) -> None:
        super().__init__("too many changes wait for their turn")
        self.retry_after = retry_after  # whole seconds


def reason_of(error: BaseException) -> str:
    """Say what went wrong, on one line; for an exception without words, what it is."""
    return " ".join(str(error).split()) or type(error).__name__


class Tx(Protocol):
    hints: dict[str, int]  # the kinds of work that it writes, and in how many ms they are due
    afterwards: list[Callable[[], None]]  # called once all is durable, on the event loop: what is counted

    async def run(self, query: str, **params: Any) -> list[Any]:
        """Run a named query of `queries/*.sql`; parameters bound by name; rows come as sequences."""

    async def ask(self, **queries: dict[str, Any]) -> list[list[Any]]:
        """Run queries together if possible, and return what each found; one whose table has no rows finds nothing.

        On PostgreSQL all of them see what was there when the first began to wait for a row.
        """

    async def write(self, tables: Mapping[str, Rows]) -> None:
        """Run queries that take nothing but rows and give nothing back, together if possible; none without rows."""


def note(tx: Tx, kind: str, in_ms: int = 0) -> None:
    """Note that the transaction writes work that is due then: its commit is a hint."""
    tx.hints[kind] = min(in_ms, tx.hints.get(kind, in_ms))


Story = Callable[[Tx], Coroutine[Any, Any, T]]


@cache
def subject_of(qualname: str) -> str:
    """Name the part of the store that tells the story of this name, for the metrics."""
    return _HUMP.sub("_", qualname.partition(".")[0]).lower()


class Database(Protocol):
    hints: Hints
    serialized: FairLimiter  # see write_serialized

    async def write(self, story: Story[T]) -> T:
        """Run the story in one transaction; when this returns, it is durable."""

    async def read(self, story: Story[T]) -> T:
        """Run the story on one consistent view; what it writes is undone."""

    async def probe(self) -> None:
        """Commit a row; raises StoreUnavailable."""

    async def listen(self) -> None:
        """Hear the hints of other processes, until cancelled."""

    async def close(self) -> None: ...


async def write_serialized(database: Database, story: Story[T], group: str | None) -> T:
    """Run a transaction function that locks a row which all such changes share.

    Those rows are the setup's version and the end of the audit log. A transaction that waits for such a row holds a
    connection (on SQLite: the writer thread), so changes wait here before they take one, and groups take turns: a
    team, a person or, with None, the instance. Raises TooManyChanges.
    """
    try:
        async with database.serialized.slot(group or ""):
            return await database.write(story)
    except QueueFull as error:
        raise TooManyChanges(error.retry_after) from None
