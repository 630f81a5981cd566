"""Reads the stored contents of messages: JSON with subject, body, attachments and so on.

Before a large content is read, memory is reserved for it. The body of a large email can be stored as a file, like an
attachment (`contents_in_s3`, ADR 0045). The JSON in the database then ends with the hash and the size of the file.
"""

import asyncio
import re
from typing import Protocol

import msgspec
import structlog
from msgspec.structs import replace

from heliograph.domain.sending.acceptance import Acceptance, BatchAcceptance
from heliograph.storage.contents import SMALL_BYTES, ReserveMemory
from heliograph.storage.engine.database import Database, StoreUnavailable, error_text

log = structlog.get_logger()

# JSON members that are moved to the file. The sender is one of them, so that an older version of this service rejects
# the content without its body instead of sending it.
BODY_MEMBERS = ("from_name", "from_address", "html", "text")
# Start of the last member, which names the file. It cannot occur in a caller's text, whose quotes are escaped; and a
# nested object would end with one brace more.
BODY_FILE_START = ',"body_file":["'
_FILE = re.compile(re.escape(BODY_FILE_START) + r'([0-9a-f]{64})",(\d+)\]\}\Z')
BODY_FILE_MAX = 128  # maximum length of the JSON member `body_file`
PUT_S = 5.0  # timeout of storing a body


def has_body_file(content: str) -> bool:
    return _FILE.search(content, max(0, len(content) - BODY_FILE_MAX)) is not None


async def reserve_nothing(_: int) -> None:
    """Reserve no memory, for callers that limit their memory in another way."""


class FileStore(Protocol):
    """Stores files durably by hash; implemented in attachments.py, which cannot be imported here without a cycle."""

    async def put(self, content: bytes) -> str: ...

    async def get(self, hash_: str) -> bytes: ...


class Contents:
    def __init__(self, database: Database, attachments: FileStore, files_above: int) -> None:
        """`files_above`: store bodies of more bytes as files; 0: never."""
        self._database = database
        self._attachments = attachments
        self.stores_files = files_above > 0
        self._files_above = files_above

    async def read(
        self, message: int, small_content: str | None, size: int, reserve_memory: ReserveMemory
    ) -> str | None:
        """Return a message's content: `small_content` if `size` is small, else from the database; None if deleted."""
        content = small_content
        if size > SMALL_BYTES:
            await reserve_memory(size)
            rows = await self._database.read(lambda tx: tx.run("inbox_contents", messages=[(message,)]))
            content = rows[0][1] if rows else None
        return content and await self.load_body(content, reserve_memory)

    async def load_body(self, content: str, reserve_memory: ReserveMemory = reserve_nothing) -> str:
        """Return the content, completed with its body if that is stored as a file.

        Raises StoreUnavailable if the file cannot be read now, or no longer exists.
        """
        file = _FILE.search(content, max(0, len(content) - BODY_FILE_MAX))
        if file is None:
            return content
        await reserve_memory(int(file[2]))
        try:
            body = (await self._attachments.get(file[1])).decode()
        except OSError as error:
            raise StoreUnavailable(f"body file {file[1]}: {error_text(error)}") from error
        return f"{content[: file.start()]},{body[1:]}"

    async def load_bytes(self, content: bytes) -> bytes:
        """Return the content like `load_body`, as bytes."""
        if BODY_FILE_START.encode() not in content[-BODY_FILE_MAX:]:
            return content
        return (await self.load_body(content.decode())).encode()

    async def store_bodies(self, item: Acceptance | BatchAcceptance) -> Acceptance | BatchAcceptance:
        """Store large bodies as files, durably before the transaction that refers to them.

        If a file cannot be stored now, the body stays in the database.
        """
        if isinstance(item, Acceptance):
            return await self._store_body(item)
        sends = [await self._store_body(send) if isinstance(send, Acceptance) else send for send in item.sends]
        return replace(item, sends=sends)

    async def _store_body(self, item: Acceptance) -> Acceptance:
        """Store a large body as a file, except for messages of a sandbox, whose test inbox searches their contents."""
        is_searched = item.sandbox or item.captured or item.shared is not None
        if item.channel != "email" or is_searched or len(item.content) <= self._files_above:
            return item
        members = msgspec.json.decode(item.content, type=dict[str, msgspec.Raw])
        body = msgspec.json.encode({name: members.pop(name) for name in BODY_MEMBERS if name in members})
        if len(body) <= self._files_above:
            return item
        try:
            async with asyncio.timeout(PUT_S):
                hash_ = await self._attachments.put(body)
        except (StoreUnavailable, TimeoutError) as error:
            log.warning("body stored in the database instead of the object store", error=error_text(error))
            return item
        rest = msgspec.json.encode(members).removesuffix(b"}")
        return replace(
            item,
            content=rest + f'{BODY_FILE_START}{hash_}",{len(body)}]}}'.encode(),
            blobs=sorted({*item.blobs, hash_}),
            file_bytes=item.file_bytes + len(body),
        )
