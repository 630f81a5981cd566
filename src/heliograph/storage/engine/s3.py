"""S3-compatible object store for attachment files; the client is `obstore` (extra heliograph[s3])."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from heliograph.storage.engine.database import StoreUnavailable, T, error_text

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Store

CONNECT_S, TIMEOUT_S = 3, 20  # seconds; enough to transfer the largest attachment (10 MiB)
RETRIES, RETRY_S = 2, 5
CHUNK_BYTES = 256 * 1024
LIST_PAGE = 1000  # maximum per page of an S3 listing
NO_BUCKET = "NoSuchBucket"
ERROR_XML = re.compile("<Code>(.*?)</Code>.*?<Message>(.*?)</Message>", re.DOTALL)


class S3Bucket(msgspec.Struct, frozen=True):
    """Location and credentials of the bucket. Without keys, credentials come from the environment or machine role."""

    name: str
    prefix: str = ""
    endpoint: str = ""  # empty for Amazon S3
    region: str = "us-east-1"
    access_key: str = ""
    secret_key: str = ""

    def __str__(self) -> str:
        path = "/".join(part for part in (self.name, self.prefix) if part)
        return f"s3://{path}{f' at {self.endpoint}' if self.endpoint else ''}"


class StoredObject(msgspec.Struct, frozen=True):
    name: str
    put_at: int  # by the store's clock


class ObjectStore:
    """Client of one bucket. Every method raises StoreUnavailable if the store fails or times out."""

    def __init__(self, bucket: S3Bucket) -> None:
        """Create the client without contacting the store. Raises ImportError if the extra is not installed."""
        self._bucket = bucket
        self._store = _open_store(bucket)

    def __str__(self) -> str:
        return str(self._bucket)

    async def put(self, name: str, content: bytes) -> None:
        """Store an object with a single request, so that an interrupted upload leaves no parts behind."""
        async with self._raising_unavailable():
            await self._store.put_async(name, content, use_multipart=False)

    async def size(self, name: str) -> int | None:
        """Return the size of an object in bytes. None if not found."""
        try:
            async with self._raising_unavailable(may_be_missing=True):
                return (await self._store.head_async(name))["size"]
        except FileNotFoundError:
            return None

    async def read(self, name: str) -> AsyncIterator[bytes]:
        """Yield the content of an object in chunks; raises FileNotFoundError if it does not exist."""
        async with self._raising_unavailable(may_be_missing=True):
            response = await self._store.get_async(name)
        chunks = aiter(response.stream(min_chunk_size=CHUNK_BYTES))
        while chunk := await self._next_item(chunks):
            yield bytes(chunk)

    async def delete(self, names: Sequence[str]) -> None:
        """Delete objects one at a time, because not every store supports bulk deletion; missing objects are ignored."""
        for name in names:
            async with self._raising_unavailable():
                await self._store.delete_async(name)

    async def list_batches(self) -> AsyncIterator[list[StoredObject]]:
        """Yield all objects, in batches."""
        batches = aiter(self._store.list(chunk_size=LIST_PAGE))
        while batch := await self._next_item(batches):
            yield [StoredObject(item["path"], int(item["last_modified"].timestamp() * 1000)) for item in batch]

    async def _next_item(self, parts: AsyncIterator[T]) -> T | None:
        async with self._raising_unavailable():
            return await anext(parts, None)

    @asynccontextmanager
    async def _raising_unavailable(self, *, may_be_missing: bool = False) -> AsyncIterator[None]:
        """Raise errors of the client as StoreUnavailable, like database outages (ADR 0018).

        The client itself retries requests. With `may_be_missing`, a missing object raises FileNotFoundError.
        """
        try:
            async with asyncio.timeout(TIMEOUT_S):
                yield
        except Exception as error:
            if may_be_missing and isinstance(error, FileNotFoundError) and NO_BUCKET not in str(error):
                raise
            raise StoreUnavailable(f"attachment files in {self._bucket}: {plain_error(error_text(error))}") from error


def plain_error(text: str) -> str:
    """Return the object store's error message, or the text of another failure, without addresses, times and XML."""
    if match := ERROR_XML.search(text):
        return f"{match[2].strip(' .')} ({match[1]})"
    return text.partition(" Debug source:")[0].partition("<")[0].rpartition(" - ")[2].rstrip(" :")


def _open_store(bucket: S3Bucket) -> "S3Store":
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
            "timeout": timedelta(seconds=TIMEOUT_S),
        },
        retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_S)},
    )
