"""Deletes stored message contents, and defines the size limit of small contents; body_files.py reads contents."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from heliograph.domain.limits import PARSE_IN_THREAD_MIN
from heliograph.storage.engine.database import Tx

SMALL_BYTES = PARSE_IN_THREAD_MIN
ANY_SIZE = (1 << 31) - 1  # size limit that every content meets: the greatest 32-bit integer

ReserveMemory = Callable[[int], Awaitable[None]]  # reserves this many bytes of the memory budget, waiting if necessary


async def delete_contents(tx: Tx, messages: Sequence[tuple[Any, ...]]) -> None:
    """Delete the contents of these messages, and shared texts that no other message uses."""
    deleted_rows = await tx.run("purge_contents", messages=messages)
    texts = [(key,) for key in sorted({text_key for (text_key,) in deleted_rows if text_key is not None})]
    if texts:
        await tx.run("lock_texts", texts=texts)
        await tx.run("purge_texts", texts=texts)
