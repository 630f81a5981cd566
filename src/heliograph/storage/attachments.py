"""Attachment files above 256 KB: durable where every process finds them, and at hand in this machine's folder.

On SQLite that is one place. On PostgreSQL they are in the database, in chunks and once for each hash, and the folder
has those that this machine has handled (ADR 0034).
"""

import asyncio
from functools import partial
from typing import Any

from heliograph.clock import Clock
from heliograph.storage.engine.blobs import FRESH_MS, Blobs
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.retention import PORTION, unused

CHUNK = 256 * 1024


class Attachments:
    def __init__(self, database: Database, clock: Clock, folder: Blobs, in_database: bool) -> None:
        self._database = database
        self._clock = clock
        self._folder = folder
        self._in_database = in_database

    async def put(self, content: bytes) -> str:
        """Durably; returns its hash."""
        hash_ = await asyncio.to_thread(self._folder.put, content)
        if self._in_database:
            now = self._clock.now()
            await self._database.write(partial(_put, hash_=hash_, content=content, now=now))
        return hash_

    async def bring(self, hash_: str) -> None:
        """Into the folder, if it is kept at all."""
        if not self._in_database or await asyncio.to_thread(self._folder.size, hash_) > 0:
            return
        if not (size := await self.size(hash_)):
            return
        with self._folder.coming(hash_) as file:
            for part in range(-(-size // CHUNK)):
                ((chunk,),) = await self._read("blob_chunk", hash=hash_, part=part)
                await asyncio.to_thread(file.write, chunk)

    async def get(self, hash_: str) -> bytes:
        """Raises OSError when it is not kept any more."""
        await self.bring(hash_)
        return await asyncio.to_thread(self._folder.get, hash_)

    async def size(self, hash_: str) -> int:
        """In bytes; 0 when it is gone."""
        found = await self._read("blob_size", hash=hash_) if self._in_database else []
        return found[0][0] if found else await asyncio.to_thread(self._folder.size, hash_)

    async def sweep(self) -> None:
        """Remove those that no message needs, also those whose transaction never came."""
        now = self._clock.now()
        files = await asyncio.to_thread(self._folder.old, now)
        for start in range(0, len(files), PORTION):
            some = files[start : start + PORTION]
            for hash_ in await self._database.read(partial(unused, hashes=some)):
                await asyncio.to_thread(self._folder.drop, hash_, now)
        while await self._database.write(partial(_drop, before=now - FRESH_MS)) == PORTION:
            continue

    async def _read(self, query: str, **given: Any) -> list[Any]:
        return await self._database.read(lambda tx: tx.run(query, **given))


async def _put(tx: Tx, hash_: str, content: bytes, now: int) -> None:
    if await tx.run("touch_blob", hash=hash_, now=now):
        return
    await tx.run("put_blob", hash=hash_, size=len(content), now=now)
    for part, start in enumerate(range(0, len(content), CHUNK)):
        await tx.run("put_chunk", hash=hash_, part=part, content=content[start : start + CHUNK])


async def _drop(tx: Tx, before: int) -> int:
    gone = [tuple(row) for row in await tx.run("drop_blobs", before=before, limit=PORTION)]
    if gone:
        await tx.run("drop_chunks", hashes=gone)
    return len(gone)
