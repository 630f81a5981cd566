"""Attachment files between machines that share no folder: on PostgreSQL they are in the database."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from heliograph.bootstrap import open_store
from heliograph.settings import Settings
from heliograph.storage.attachments import CHUNK_BYTES
from heliograph.storage.engine.local_files import FRESH_MS
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql
from tests.storage.samples import message

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("database_url", ["postgres"], indirect=True)]

FILE = bytes(range(256)) * (2 * CHUNK_BYTES // 256) + b"and a part of a chunk"
COUNTED = "SELECT (SELECT count(*) FROM blob_file), (SELECT count(*) FROM blob_chunk)"


@pytest.fixture
async def elsewhere(store: Store, settings: Settings, clock: TestClock, tmp_path: Path) -> AsyncIterator[Store]:
    """Return the store of a process on another machine."""
    there = msgspec.structs.replace(settings, data=tmp_path / "elsewhere")
    async with open_store(there, clock, "seat/1") as other:
        yield other


async def test_attachment_stored_by_one_process_is_readable_by_another(
    store: Store, elsewhere: Store, sql: Sql
) -> None:
    hash_ = await store.attachments.put(FILE)
    assert await elsewhere.attachments.size(hash_) == len(FILE)
    await asyncio.gather(*(elsewhere.attachments.fetch(hash_) for _ in range(3)))
    with elsewhere.local_files.open(hash_) as file:
        assert file.read() == FILE
    assert await elsewhere.attachments.get(hash_) == FILE
    assert await sql(COUNTED) == [(1, 3)]


async def test_attachment_with_same_content_is_stored_once(store: Store, elsewhere: Store, sql: Sql) -> None:
    puts = [place.attachments.put(FILE) for place in (store, elsewhere) for _ in range(3)]
    assert len(set(await asyncio.gather(*puts))) == 1
    assert await sql(COUNTED) == [(1, 3)]


async def test_attachment_that_is_not_stored_raises_an_error(elsewhere: Store) -> None:
    assert await elsewhere.attachments.size("00" * 32) == 0
    with pytest.raises(FileNotFoundError):
        await elsewhere.attachments.get("00" * 32)


async def test_attachment_is_deleted_with_the_last_message_that_uses_it(
    store: Store, elsewhere: Store, clock: TestClock, sql: Sql
) -> None:
    hash_ = await store.attachments.put(FILE)
    await store.messages.accept(message(clock, blobs=[hash_]))
    clock.forwarded_ms += FRESH_MS + 1
    await store.attachments.delete_unused()
    assert await elsewhere.attachments.get(hash_) == FILE
    await sql("DELETE FROM blob")
    await elsewhere.attachments.put(FILE)  # again, by a message that is about to be written
    await store.attachments.delete_unused()
    assert await sql(COUNTED) == [(1, 3)]
    clock.forwarded_ms += FRESH_MS + 1
    await store.attachments.delete_unused()
    assert await sql(COUNTED) == [(0, 0)]
