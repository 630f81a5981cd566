"""What was sent, as it is stored: a small content comes with its message, for a large one there must be room first."""

from collections.abc import Awaitable, Callable

from heliograph.rules.limits import IN_THREAD
from heliograph.storage.engine.database import Database

SMALL = IN_THREAD
ANY_SIZE = (1 << 31) - 1  # the most that PostgreSQL compares a length with

Room = Callable[[int], Awaitable[None]]  # waits until so many bytes may be read


async def read_content(database: Database, message: int, known: str | None, size: int, room: Room) -> str | None:
    """The content that was too large to be read at once, or the one that was not; None: retention has taken it."""
    if size <= SMALL:
        return known
    await room(size)
    rows = await database.read(lambda tx: tx.run("inbox_contents", messages=[(message,)]))
    return rows[0][1] if rows else None
