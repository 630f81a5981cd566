"""Attachment files above 256 KB: durable storage shared by all processes, and a local folder of this machine.

On SQLite, the folder is the durable storage. On PostgreSQL, files are stored in the database, in chunks and once per
hash, and the folder caches the files that this machine has handled (ADR 0034). With an object store, files are stored
there, and the folder caches the files of the last hour (ADR 0036).
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from heliograph.runtime.clock import Clock
from heliograph.storage.engine.database import Database, StoreUnavailable, Tx
from heliograph.storage.engine.local_files import FRESH_MS, Blobs
from heliograph.storage.engine.s3 import Objects
from heliograph.storage.retention import PORTION, unused

CHUNK = 256 * 1024
OWNER = "owner"  # object that contains the id of the instance that uses this prefix
OURS = re.compile("[0-9a-f]{64}/[0-9a-f]{16}")  # hash/random number; the prefix may contain foreign objects


class OtherOwner(StoreUnavailable):
    """Raised if another instance uses this prefix of the object store: each would delete the other's files."""


class Attachments:
    def __init__(
        self,
        database: Database,
        clock: Clock,
        folder: Blobs,
        is_paused: Callable[[], bool],
        *,
        in_database: bool,
        objects: Objects | None,
    ) -> None:
        self._database = database
        self._clock = clock
        self._folder = folder
        self._is_paused = is_paused
        self._in_database = in_database
        self._objects = objects
        self._is_owner = False

    async def own(self) -> None:
        """Claim the prefix in the object store for this instance; raises OtherOwner.

        A copy of the database has the same owner id, so this check does not detect copies.
        """
        self._is_owner = False
        if self._objects:
            ((number,),) = await self._write("own_blobs", fresh=int.from_bytes(self._clock.entropy(8)) >> 1)
            ours = f"{number:016x}".encode()
            try:
                found = b"".join([part async for part in self._objects.read(OWNER)])
            except FileNotFoundError:
                await self._objects.put(OWNER, found := ours)
            if found != ours:
                raise OtherOwner(
                    f"attachments: another service has its files in {self._objects}. Name another prefix in "
                    f"HELIOGRAPH_ATTACHMENTS. If that service is gone for good, remove the object {OWNER!r} there."
                )
        self._is_owner = True

    async def put(self, content: bytes) -> str:
        """Store the content durably and return its hash."""
        hash_ = await asyncio.to_thread(self._folder.put, content)
        if self._objects:
            await self._put_object(self._objects, hash_, content)
        elif self._in_database:
            now = self._clock.now()
            await self._database.write(partial(_put, hash_=hash_, content=content, now=now))
        return hash_

    async def _put_object(self, objects: Objects, hash_: str, content: bytes) -> None:
        """Upload the content under a new unique name, so that deleting an older object of the same hash is safe.

        An object that is missing or incomplete in the store is uploaded again; its remains become an orphan.
        """
        if not self._is_owner:
            await self.own()
        now, lost = self._clock.now(), None
        for (lost,) in await self._write("touch_blob", hash=hash_, now=now, objects=1):
            if lost is None or await objects.size(lost) == len(content):
                return
        name = f"{hash_}/{self._clock.entropy(8).hex()}"
        await objects.put(name, content)
        if not await self._write("name_blob", hash=hash_, size=len(content), now=now, name=name, lost=lost):
            await objects.drop([name])

    async def bring(self, hash_: str) -> None:
        """Copy the file into the local folder; do nothing if it is already there or no longer stored."""
        if not self._is_elsewhere or await asyncio.to_thread(self._folder.touch, hash_):
            return
        found = await self._read("find_blob", hash=hash_)
        if not found:
            return
        size, name = found[0]
        digest = hashlib.sha256()
        with self._folder.coming(hash_) as file:
            async for part in self._from_objects(name) if name else self._from_database(hash_, size):
                digest.update(part)
                await asyncio.to_thread(file.write, part)
            if digest.hexdigest() != hash_:
                raise StoreUnavailable(f"attachment file {hash_}: what was read is not what was put")

    async def get(self, hash_: str) -> bytes:
        """Return the content of the file; raises OSError if it is no longer stored."""
        await self.bring(hash_)
        return await asyncio.to_thread(self._folder.get, hash_)

    async def size(self, hash_: str) -> int:
        """Return the size of the file in bytes; 0 if it no longer exists."""
        found = await self._read("find_blob", hash=hash_) if self._is_elsewhere else []
        return found[0][0] if found else await asyncio.to_thread(self._folder.size, hash_)

    async def sweep(self) -> None:
        """Delete files that no message references, including files whose transaction was never committed."""
        now = self._clock.now()
        files = await asyncio.to_thread(self._folder.old, now)
        for start in range(0, len(files), PORTION):
            some = files[start : start + PORTION]
            for hash_ in await self._database.read(partial(self._is_needless, hashes=some)):
                await asyncio.to_thread(self._folder.drop, hash_, now)
        # A paused instance may be a copy of a running one: it must not delete objects that the original needs.
        objects = None if self._is_paused() else self._objects
        if objects:
            await self.own()
        gone = PORTION
        while gone == PORTION:
            drop = partial(_drop, before=now - FRESH_MS, objects=1 if objects else 0)
            names, gone = await self._database.write(drop)
            if objects:
                await objects.drop(names)
        if objects:
            await self._drop_strays(objects, now - FRESH_MS)

    async def _is_needless(self, tx: Tx, hashes: list[str]) -> list[str]:
        """Return the hashes of files that can be deleted from the local folder."""
        if not self._objects:
            return await unused(tx, hashes)
        kept = {row[0] for row in await tx.run("blobs_kept", hashes=[(hash_,) for hash_ in hashes])}
        return [*kept, *await unused(tx, [hash_ for hash_ in hashes if hash_ not in kept])]

    async def _drop_strays(self, objects: Objects, before: int) -> None:
        """Delete objects that no row references, left by a crashed process or an unavailable object store."""
        async for portion in objects.listed():
            old = [one.name for one in portion if one.put_at <= before and OURS.fullmatch(one.name)]
            named = await self._read("named_blobs", blobs=[(name.partition("/")[0], name) for name in old])
            await objects.drop(sorted(set(old).difference(name for (name,) in named)))

    @property
    def _is_elsewhere(self) -> bool:
        return self._in_database or self._objects is not None

    async def _from_objects(self, name: str) -> AsyncIterator[bytes]:
        if self._objects is None:
            raise StoreUnavailable(f"attachment file {name}: it is in an object store, and the settings name none")
        async for part in self._objects.read(name):
            yield part

    async def _from_database(self, hash_: str, size: int) -> AsyncIterator[bytes]:
        for part in range(-(-size // CHUNK)):
            for (chunk,) in await self._read("blob_chunk", hash=hash_, part=part):
                yield chunk

    async def _read(self, query: str, **given: Any) -> list[Any]:
        return await self._database.read(lambda tx: tx.run(query, **given))

    async def _write(self, query: str, **given: Any) -> list[Any]:
        return await self._database.write(lambda tx: tx.run(query, **given))


async def _put(tx: Tx, hash_: str, content: bytes, now: int) -> None:
    if await tx.run("touch_blob", hash=hash_, now=now, objects=0):
        return
    await tx.run("put_blob", hash=hash_, size=len(content), now=now)
    for part, start in enumerate(range(0, len(content), CHUNK)):
        await tx.run("put_chunk", hash=hash_, part=part, content=content[start : start + CHUNK])


async def _drop(tx: Tx, before: int, objects: int) -> tuple[list[str], int]:
    """Delete a batch of unreferenced files; return their names in the object store and the number of deleted rows."""
    gone = await tx.run("drop_blobs", before=before, objects=objects, limit=PORTION)
    if gone:
        await tx.run("drop_chunks", hashes=[(row[0],) for row in gone])
    return [row[1] for row in gone if row[1]], len(gone)
