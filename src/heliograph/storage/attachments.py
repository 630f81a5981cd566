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
from heliograph.storage.engine.local_files import FRESH_MS, LocalFiles
from heliograph.storage.engine.s3 import ObjectStore
from heliograph.storage.retention import BATCH, find_unused_files

CHUNK_BYTES = 256 * 1024
OWNER_OBJECT = "owner"  # name of the object with the id of the instance that uses this prefix
OBJECT_NAME = re.compile("[0-9a-f]{64}/[0-9a-f]{16}")  # hash/random number; the prefix may contain foreign objects


class BucketInUse(StoreUnavailable):
    """Raised if another instance uses this prefix of the object store: each would delete the other's files."""


class Attachments:
    def __init__(
        self,
        database: Database,
        clock: Clock,
        folder: LocalFiles,
        is_paused: Callable[[], bool],
        *,
        in_database: bool,
        objects: ObjectStore | None,
    ) -> None:
        self._database = database
        self._clock = clock
        self._folder = folder
        self._is_paused = is_paused
        self._in_database = in_database
        self._objects = objects
        self._is_owner = False

    async def claim_bucket(self) -> None:
        """Claim the prefix in the object store for this instance.

        Raises BucketInUse if another instance has claimed the prefix. A copy of the database has the same owner id, so
        this check does not detect copies.
        """
        self._is_owner = False
        if self._objects:
            ((owner_number,),) = await self._write(
                "blob_store_owner", fresh=int.from_bytes(self._clock.random_bytes(8)) >> 1
            )
            our_id = f"{owner_number:016x}".encode()
            try:
                owner_id = b"".join([chunk async for chunk in self._objects.read(OWNER_OBJECT)])
            except FileNotFoundError:
                await self._objects.put(OWNER_OBJECT, owner_id := our_id)
            if owner_id != our_id:
                raise BucketInUse(
                    f"attachments: another service has its files in {self._objects}. Name another prefix in "
                    f"HELIOGRAPH_ATTACHMENTS. If that service is gone for good, remove the object "
                    f"{OWNER_OBJECT!r} there."
                )
        self._is_owner = True

    async def put(self, content: bytes) -> str:
        """Store the content durably and return its hash."""
        hash_ = await asyncio.to_thread(self._folder.put, content)
        if self._objects:
            await self._put_object(self._objects, hash_, content)
        elif self._in_database:
            now = self._clock.now()
            await self._database.write(partial(_put_in_database, hash_=hash_, content=content, now=now))
        return hash_

    async def _put_object(self, objects: ObjectStore, hash_: str, content: bytes) -> None:
        """Upload the content under a new unique name, so that deleting an older object of the same hash is safe.

        A new object replaces one that is missing or incomplete; a later cleanup deletes the incomplete object.
        """
        if not self._is_owner:
            await self.claim_bucket()
        now, replaced_name = self._clock.now(), None
        for (replaced_name,) in await self._write("touch_blob", hash=hash_, now=now, objects=1):
            if replaced_name is None or await objects.size(replaced_name) == len(content):
                return
        name = f"{hash_}/{self._clock.random_bytes(8).hex()}"
        await objects.put(name, content)
        if not await self._write(
            "set_blob_name", hash=hash_, size=len(content), now=now, name=name, lost=replaced_name
        ):
            await objects.delete([name])

    async def fetch(self, hash_: str) -> None:
        """Copy the file into the local folder, unless it is already there or no longer stored."""
        if not self._is_durable_elsewhere or await asyncio.to_thread(self._folder.touch, hash_):
            return
        rows = await self._read("find_blob", hash=hash_)
        if not rows:
            return
        size, name = rows[0]
        digest = hashlib.sha256()
        with self._folder.write_file(hash_) as file:
            async for chunk in self._read_from_objects(name) if name else self._read_from_database(hash_, size):
                digest.update(chunk)
                await asyncio.to_thread(file.write, chunk)
            if digest.hexdigest() != hash_:
                raise StoreUnavailable(f"attachment file {hash_}: the content does not match its hash")

    async def get(self, hash_: str) -> bytes:
        """Return the content of the file; raises OSError if it is no longer stored."""
        await self.fetch(hash_)
        return await asyncio.to_thread(self._folder.get, hash_)

    async def size(self, hash_: str) -> int:
        """Return the size of the file in bytes; 0 if it no longer exists."""
        rows = await self._read("find_blob", hash=hash_) if self._is_durable_elsewhere else []
        return rows[0][0] if rows else await asyncio.to_thread(self._folder.size, hash_)

    async def delete_unused(self) -> None:
        """Delete files that no message references, including files whose transaction was never committed."""
        now = self._clock.now()
        files = await asyncio.to_thread(self._folder.list_old, now)
        for start in range(0, len(files), BATCH):
            batch = files[start : start + BATCH]
            for hash_ in await self._database.read(partial(self._find_deletable, hashes=batch)):
                await asyncio.to_thread(self._folder.delete, hash_, now)
        # A paused instance may be a copy of a running one: it must not delete objects that the original needs.
        objects = None if self._is_paused() else self._objects
        if objects:
            await self.claim_bucket()
        deleted_count = BATCH
        while deleted_count == BATCH:
            delete_batch = partial(_delete_unreferenced, before=now - FRESH_MS, objects=1 if objects else 0)
            names, deleted_count = await self._database.write(delete_batch)
            if objects:
                await objects.delete(names)
        if objects:
            await self._delete_orphan_objects(objects, now - FRESH_MS)

    async def _find_deletable(self, tx: Tx, hashes: list[str]) -> list[str]:
        """Return the hashes of files that can be deleted from the local folder."""
        if not self._objects:
            return await find_unused_files(tx, hashes)
        stored_hashes = {row[0] for row in await tx.run("find_stored_blobs", hashes=[(hash_,) for hash_ in hashes])}
        return [*stored_hashes, *await find_unused_files(tx, [hash_ for hash_ in hashes if hash_ not in stored_hashes])]

    async def _delete_orphan_objects(self, objects: ObjectStore, uploaded_before: int) -> None:
        """Delete objects that no row references, left by a crashed process or an unavailable object store."""
        async for batch in objects.list_batches():
            old_names = [
                item.name for item in batch if item.put_at <= uploaded_before and OBJECT_NAME.fullmatch(item.name)
            ]
            referenced = await self._read(
                "find_blob_names", blobs=[(name.partition("/")[0], name) for name in old_names]
            )
            await objects.delete(sorted(set(old_names).difference(name for (name,) in referenced)))

    @property
    def _is_durable_elsewhere(self) -> bool:
        return self._in_database or self._objects is not None

    async def _read_from_objects(self, name: str) -> AsyncIterator[bytes]:
        if self._objects is None:
            raise StoreUnavailable(
                f"attachment file {name}: it is in an object store, but none is configured (HELIOGRAPH_ATTACHMENTS)"
            )
        async for chunk in self._objects.read(name):
            yield chunk

    async def _read_from_database(self, hash_: str, size: int) -> AsyncIterator[bytes]:
        for part in range(-(-size // CHUNK_BYTES)):
            for (chunk,) in await self._read("blob_chunk", hash=hash_, part=part):
                yield chunk

    async def _read(self, query: str, **params: Any) -> list[Any]:
        return await self._database.read(lambda tx: tx.run(query, **params))

    async def _write(self, query: str, **params: Any) -> list[Any]:
        return await self._database.write(lambda tx: tx.run(query, **params))


async def _put_in_database(tx: Tx, hash_: str, content: bytes, now: int) -> None:
    if await tx.run("touch_blob", hash=hash_, now=now, objects=0):
        return
    await tx.run("put_blob", hash=hash_, size=len(content), now=now)
    for part, chunk in enumerate(split_chunks(content)):
        await tx.run("put_chunk", hash=hash_, part=part, content=chunk)


def split_chunks(content: bytes) -> list[bytes]:
    """Split a file's content into chunks of the size that the database stores."""
    return [content[start : start + CHUNK_BYTES] for start in range(0, len(content), CHUNK_BYTES)]


async def _delete_unreferenced(tx: Tx, before: int, objects: int) -> tuple[list[str], int]:
    """Delete a batch of unreferenced files; return their names in the object store and the number of deleted rows."""
    deleted_rows = await tx.run("delete_unused_blobs", before=before, objects=objects, limit=BATCH)
    if deleted_rows:
        await tx.run("delete_chunks", hashes=[(row[0],) for row in deleted_rows])
    return [row[1] for row in deleted_rows if row[1]], len(deleted_rows)
