"""Stored message contents: small contents are read with their message, large ones after a memory reservation."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from heliograph.domain.limits import IN_THREAD
from heliograph.storage.engine.database import Database, Tx

SMALL = IN_THREAD
ANY_SIZE = (1 << 31) - 1  # maximum integer to which PostgreSQL compares a length

Room = Callable[[int], Awaitable[None]]  # reserves this many bytes of the memory budget, waiting if necessary


async def read_content(database: Database, message: int, known: str | None, size: int, room: Room) -> str | None:
    """Return the content: `known` if small, otherwise read from the database; None if deleted by retention."""
    if size <= SMALL:
        return known
    await room(size)
    rows = await database.read(lambda tx: tx.run("inbox_contents", messages=[(message,)]))
    return rows[0][1] if rows else None


async def drop(tx: Tx, messages: Sequence[tuple[Any, ...]]) -> None:
    """Delete the contents of these messages, and shared texts that no other message uses."""
    gone = await tx.run("purge_contents", messages=messages)
    texts = [(key,) for key in sorted({shared for (shared,) in gone if shared is not None})]
    if texts:
        await tx.run("lock_texts", texts=texts)
        await tx.run("purge_texts", texts=texts)
