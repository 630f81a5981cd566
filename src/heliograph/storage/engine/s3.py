"""An S3-compatible store of objects, for attachment files; `obstore` is its client (the extra heliograph[s3])."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from heliograph.storage.engine.database import StoreUnavailable, T, reason_of

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Store

CONNECT_S, ANSWER_S = 3, 20  # an attachment has at most 10 MiB
RETRIES, RETRY_S = 2, 5
PART = 256 * 1024
LISTED = 1000  # as many as S3 tells at once
NO_BUCKET = "NoSuchBucket"
SAID = re.compile("<Code>(.*?)</Code>.*?<Message>(.*?)</Message>", re.DOTALL)


class S3Bucket(msgspec.Struct, frozen=True):
    """Where the objects are; without keys, those of the environment or of the machine's role are used."""

    name: str
    prefix: str = ""
    endpoint: str = ""  # empty: Amazon's
    region: str = "us-east-1"
    access_key: str = ""
    secret_key: str = ""

    def __str__(self) -> str:
        place = "/".join(part for part in (self.name, self.prefix) if part)
        return f"s3://{place}{f' at {self.endpoint}' if self.endpoint else ''}"


class StoredObject(msgspec.Struct, frozen=True):
    name: str
    put_at: int  # by the store's clock


class Objects:
    """Each raises StoreUnavailable when the store does not do it in time, whatever the reason."""

    def __init__(self, bucket: S3Bucket) -> None:
        """Raises ImportError when the extra is not installed; asks nobody yet."""
        self._bucket = bucket
        self._store = _open(bucket)

    def __str__(self) -> str:
        return str(self._bucket)

    async def put(self, name: str, content: bytes) -> None:
        """Put it in one request: one that breaks off leaves no parts behind."""
        async with self._answering():
            await self._store.put_async(name, content, use_multipart=False)

    async def size(self, name: str) -> int | None:
        """Return its size in bytes; None when it is gone."""
        try:
            async with self._answering(may_be_gone=True):
                return (await self._store.head_async(name))["size"]
        except FileNotFoundError:
            return None

    async def read(self, name: str) -> AsyncIterator[bytes]:
        """Yield its parts; raises FileNotFoundError when it is gone."""
        async with self._answering(may_be_gone=True):
            found = await self._store.get_async(name)
        parts = aiter(found.stream(min_chunk_size=PART))
        while part := await self._next(parts):
            yield bytes(part)

    async def drop(self, names: Sequence[str]) -> None:
        """Delete one by one, as not every store can delete several; one that is gone already is no failure."""
        for name in names:
            async with self._answering():
                await self._store.delete_async(name)

    async def listed(self) -> AsyncIterator[list[StoredObject]]:
        """Yield all of them, in portions."""
        portions = aiter(self._store.list(chunk_size=LISTED))
        while portion := await self._next(portions):
            yield [StoredObject(one["path"], int(one["last_modified"].timestamp() * 1000)) for one in portion]

    async def _next(self, parts: AsyncIterator[T]) -> T | None:
        async with self._answering():
            return await anext(parts, None)

    @asynccontextmanager
    async def _answering(self, *, may_be_gone: bool = False) -> AsyncIterator[None]:
        """Turn what the client raises into an outage like the database's (ADR 0018).

        The client itself repeats requests.
        """
        try:
            async with asyncio.timeout(ANSWER_S):
                yield
        except Exception as error:
            if may_be_gone and isinstance(error, FileNotFoundError) and NO_BUCKET not in str(error):
                raise
            raise StoreUnavailable(f"attachment files in {self._bucket}: {plain(reason_of(error))}") from error


def plain(text: str) -> str:
    """Return what the store said, or what came instead of an answer, without addresses, times and XML."""
    if said := SAID.search(text):
        return f"{said[2].strip(' .')} ({said[1]})"
    return text.partition(" Debug source:")[0].partition("<")[0].rpartition(" - ")[2].rstrip(" :")


def _open(bucket: S3Bucket) -> "S3Store":
    from obstore.store import S3Store

    config: S3Config = {"region": bucket.region}
    if bucket.endpoint:
        config["endpoint"] = bucket.endpoint
    if bucket.access_key:
        config |= {"access_key_id": bucket.access_key, "secret_access_key": bucket.secret_key}
    return S3Store(
        bucket.name,
        prefix=bucket.prefix or None,
        config=config,
        client_options={
            "allow_http": bucket.endpoint.startswith("http:"),
            "connect_timeout": timedelta(seconds=CONNECT_S),
            "timeout": timedelta(seconds=ANSWER_S),
        },
        retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_S)},
    )
