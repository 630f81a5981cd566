"""Stored message contents: small contents are read with their message, large ones after a memory reservation."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from heliograph.domain.limits import PARSE_IN_THREAD_MIN
from heliograph.storage.engine.database import Database, Tx

SMALL_BYTES = PARSE_IN_THREAD_MIN
ANY_SIZE = (1 << 31) - 1  # maximum integer to which PostgreSQL compares a length

ReserveMemory = Callable[[int], Awaitable[None]]  # reserves this many bytes of the memory budget, waiting if necessary


async def read_content(
    database: Database, message: int, small_content: str | None, size: int, reserve_memory: ReserveMemory
) -> str | None:
    """Return a message's content: `small_content` if small, else from the database; None if deleted."""
    if size <= SMALL_BYTES:
        return small_content
    await reserve_memory(size)
    rows = await database.read(lambda tx: tx.run("inbox_contents", messages=[(message,)]))
    return rows[0][1] if rows else None


async def delete_contents(tx: Tx, messages: Sequence[tuple[Any, ...]]) -> None:
    """Delete the contents of these messages, and shared texts that no other message uses."""
    deleted = await tx.run("purge_contents", messages=messages)
    texts = [(key,) for key in sorted({text_key for (text_key,) in deleted if text_key is not None})]
    if texts:
        await tx.run("lock_texts", texts=texts)
        await tx.run("purge_texts", texts=texts)
