"""What was sent, as it is stored: a small content comes with its message, for a large one there must be room first."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from heliograph.domain.limits import IN_THREAD
from heliograph.storage.engine.database import Database, Tx

SMALL = IN_THREAD
ANY_SIZE = (1 << 31) - 1  # the most that PostgreSQL compares a length with

Room = Callable[[int], Awaitable[None]]  # waits until so many bytes may be read


async def read_content(database: Database, message: int, known: str | None, size: int, room: Room) -> str | None:
    """Return the content, reading it if it was too large to be read at once; None when retention has taken it."""
    if size <= SMALL:
        return known
    await room(size)
    rows = await database.read(lambda tx: tx.run("inbox_contents", messages=[(message,)]))
    return rows[0][1] if rows else None


async def drop(tx: Tx, messages: Sequence[tuple[Any, ...]]) -> None:
    """Drop the contents of these messages, with the texts that no other message has."""
    gone = await tx.run("purge_contents", messages=messages)
    texts = [(key,) for key in sorted({shared for (shared,) in gone if shared is not None})]
    if texts:
        await tx.run("lock_texts", texts=texts)
        await tx.run("purge_texts", texts=texts)
