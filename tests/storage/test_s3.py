"""Attachment files in an S3-compatible store: a real server on loopback, and machines without a shared folder."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from heliograph.app import fetch_attachment
from heliograph.bootstrap import claim_attachments, make_objects, open_store
from heliograph.carriers.contract import NotReady
from heliograph.domain.setup.records import Platform
from heliograph.domain.setup.snapshot import PLATFORM_ID, to_row
from heliograph.settings import BadSetting, Settings
from heliograph.storage.attachments import OWNER_OBJECT, BucketInUse
from heliograph.storage.engine import s3 as engine
from heliograph.storage.engine.database import StoreUnavailable
from heliograph.storage.engine.local_files import FRESH_MS
from heliograph.storage.engine.s3 import ObjectStore
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.s3 import S3Server
from tests.setup_helpers import set_up
from tests.storage.conftest import Sql
from tests.storage.samples import message

pytestmark = pytest.mark.anyio

FILE = bytes(range(256)) * 4096 + b"and a part"
ROWS = "SELECT hash, size FROM blob_file"
NAMES = "SELECT name FROM blob_file"


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def settings(settings: Settings, server: S3Server, tmp_path: Path) -> Settings:
    where = server.settings | {"attachments": f"{server.settings['attachments']}/{tmp_path.name}"}
    return msgspec.structs.replace(settings, **where)


@pytest.fixture
def objects(settings: Settings) -> ObjectStore:
    objects = make_objects(settings)
    assert objects
    return objects


@pytest.fixture
async def elsewhere(store: Store, settings: Settings, clock: TestClock, tmp_path: Path) -> AsyncIterator[Store]:
    """Return the store of a process on another machine."""
    there = msgspec.structs.replace(settings, data=tmp_path / "elsewhere")
    async with open_store(there, clock, "seat/1") as other:
        yield other


async def names(objects: ObjectStore) -> list[str]:
    return [item.name async for portion in objects.list_batches() for item in portion if item.name != OWNER_OBJECT]


async def test_s3_file_stored_by_one_machine_is_readable_by_another(
    store: Store, elsewhere: Store, objects: ObjectStore, sql: Sql
) -> None:
    hash_ = await store.attachments.put(FILE)
    assert await elsewhere.attachments.size(hash_) == len(FILE)
    await asyncio.gather(*(elsewhere.attachments.fetch(hash_) for _ in range(3)))
    with elsewhere.local_files.open(hash_) as file:
        assert file.read() == FILE
    assert await elsewhere.attachments.get(hash_) == FILE
    assert await sql(ROWS) == [(hash_, len(FILE))]
    assert await sql("SELECT count(*) FROM blob_chunk") == [(0,)]
    assert [name.partition("/")[0] for name in await names(objects)] == [hash_]


async def test_s3_file_with_same_content_is_stored_once(store: Store, elsewhere: Store, objects: ObjectStore) -> None:
    puts = [place.attachments.put(FILE) for place in (store, elsewhere) for _ in range(3)]
    assert len(set(await asyncio.gather(*puts))) == 1
    assert len(await names(objects)) == 1


async def test_s3_file_that_is_not_stored_raises_an_error(elsewhere: Store, objects: ObjectStore) -> None:
    assert await elsewhere.attachments.size("00" * 32) == 0
    with pytest.raises(FileNotFoundError):
        await elsewhere.attachments.get("00" * 32)


async def test_s3_file_removed_by_others_raises_an_error(store: Store, elsewhere: Store, objects: ObjectStore) -> None:
    hash_ = await store.attachments.put(FILE)
    await objects.delete(await names(objects))
    with pytest.raises(FileNotFoundError):
        await elsewhere.attachments.get(hash_)


async def test_s3_file_that_was_damaged_is_not_sent(
    store: Store, elsewhere: Store, objects: ObjectStore, tmp_path: Path
) -> None:
    hash_ = await store.attachments.put(FILE)
    (name,) = await names(objects)
    await objects.put(name, FILE[:-1])
    with pytest.raises(StoreUnavailable, match="does not match its hash"):
        await elsewhere.attachments.fetch(hash_)
    assert elsewhere.local_files.size(hash_) == 0


async def lose(objects: ObjectStore, left: bytes | None) -> str:
    """Delete the only object, and store `left` in its place if not None; return its name."""
    (lost,) = await names(objects)
    await objects.delete([lost])
    if left is not None:
        await objects.put(lost, left)
    return lost


@pytest.mark.parametrize("left", [None, b"", FILE[:-1], FILE + b"x"])
async def test_s3_file_that_was_lost_is_uploaded_with_the_next_message(
    store: Store, elsewhere: Store, objects: ObjectStore, sql: Sql, left: bytes | None
) -> None:
    hash_ = await store.attachments.put(FILE)
    lost = await lose(objects, left)
    puts = [place.attachments.put(FILE) for place in (store, elsewhere) for _ in range(2)]
    assert set(await asyncio.gather(*puts)) == {hash_}
    elsewhere.local_files.delete(hash_, elsewhere.clock.now() + 2 * FRESH_MS)
    assert await elsewhere.attachments.get(hash_) == FILE
    assert await sql(ROWS) == [(hash_, len(FILE))]
    assert [name for name in await names(objects) if name != lost] == [name for (name,) in await sql(NAMES)]


async def test_s3_file_that_exists_is_not_uploaded_again(
    store: Store, elsewhere: Store, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.attachments.put(FILE)
    monkeypatch.setattr(ObjectStore, "put", None)
    await elsewhere.attachments.put(FILE)


@pytest.mark.parametrize("left", [None, FILE[:-1]])
async def test_s3_file_that_was_lost_defers_its_message_without_carrier_failure(
    store: Store, elsewhere: Store, objects: ObjectStore, left: bytes | None
) -> None:
    hash_ = await store.attachments.put(FILE)
    await lose(objects, left)
    with pytest.raises(NotReady, match="attachment"):
        await fetch_attachment(elsewhere, hash_)


# -- what goes -----------------------------------------------------------------------------------------------------


async def test_s3_file_is_deleted_with_the_last_message_that_uses_it(
    store: Store, elsewhere: Store, clock: TestClock, objects: ObjectStore, sql: Sql
) -> None:
    hash_ = await store.attachments.put(FILE)
    await store.messages.accept(message(clock, blobs=[hash_]))
    clock.forwarded_ms += FRESH_MS + 1
    await store.attachments.delete_unused()
    assert store.local_files.size(hash_) == 0  # this machine needs no disk space for all files
    assert await elsewhere.attachments.get(hash_) == FILE
    await sql("DELETE FROM blob")
    await elsewhere.attachments.put(FILE)  # again, by a message that is about to be written
    await store.attachments.delete_unused()
    assert len(await names(objects)) == 1
    clock.forwarded_ms += FRESH_MS + 1
    await store.attachments.delete_unused()
    assert (await sql(ROWS), await names(objects)) == ([], [])


async def test_s3_file_uploaded_again_during_its_removal_is_kept(
    store: Store, elsewhere: Store, clock: TestClock, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hash_ = await store.attachments.put(FILE)
    clock.forwarded_ms += FRESH_MS + 1
    drop = ObjectStore.delete

    async def late(self: ObjectStore, gone: list[str]) -> None:
        if gone:
            await elsewhere.attachments.put(FILE)
        await drop(self, gone)

    monkeypatch.setattr(ObjectStore, "delete", late)
    await store.attachments.delete_unused()
    monkeypatch.undo()
    elsewhere.local_files.delete(hash_, clock.now() + 2 * FRESH_MS)
    assert await elsewhere.attachments.get(hash_) == FILE


async def test_s3_cleanup_deletes_unused_files_and_keeps_foreign_objects(
    store: Store, clock: TestClock, objects: ObjectStore
) -> None:
    """A process died between the upload and the commit; other programs use the same bucket."""
    hash_ = await store.attachments.put(FILE)
    await store.messages.accept(message(clock, blobs=[hash_]))
    stray, foreign = f"{hashlib.sha256(b'x').hexdigest()}/{'0' * 16}", "others/photo.jpg"
    for name in (stray, foreign):
        await objects.put(name, b"x")
    await store.attachments.delete_unused()
    assert len(await names(objects)) == 3  # it may belong to a message that is about to be written
    clock.forwarded_ms += FRESH_MS + 60_000
    await store.attachments.delete_unused()
    left = await names(objects)
    assert stray not in left and foreign in left and len(left) == 2


async def test_s3_cleanup_of_a_paused_copy_deletes_nothing(
    store: Store, clock: TestClock, objects: ObjectStore, sql: Sql
) -> None:
    """A backup restored next to the service has the same settings, and starts paused."""
    await store.attachments.put(FILE)
    await objects.put(f"{hashlib.sha256(b'newer').hexdigest()}/{'0' * 16}", b"newer")
    await set_up(store, rows=[to_row("platform", PLATFORM_ID, Platform(paused=True), None)])
    clock.forwarded_ms += FRESH_MS + 60_000
    await store.attachments.delete_unused()
    assert (len(await sql(ROWS)), len(await names(objects))) == (1, 2)


# -- two services --------------------------------------------------------------------------------------------------


@pytest.fixture
async def other_service(settings: Settings, clock: TestClock, tmp_path: Path) -> AsyncIterator[Store]:
    """Return another service with the same object store."""
    database = f"sqlite:///{tmp_path / 'stranger.db'}"
    other = msgspec.structs.replace(settings, database=database, data=tmp_path / "stranger")
    async with open_store(other, clock, "seat/0") as other_service:
        yield other_service


async def test_s3_prefix_of_another_instance_keeps_its_files(
    store: Store, elsewhere: Store, other_service: Store, clock: TestClock, objects: ObjectStore
) -> None:
    hash_ = await store.attachments.put(FILE)
    await store.messages.accept(message(clock, blobs=[hash_]))
    with pytest.raises(BucketInUse):
        await other_service.attachments.put(b"another's")
    with pytest.raises(BadSetting, match=r"s3://.*another prefix.*remove the object 'owner'"):
        await claim_attachments(other_service)
    clock.forwarded_ms += FRESH_MS + 60_000
    with pytest.raises(BucketInUse):
        await other_service.attachments.delete_unused()
    assert [name.partition("/")[0] for name in await names(objects)] == [hash_]
    for place in (store, elsewhere):  # of one service
        await claim_attachments(place)
        await place.attachments.delete_unused()
    assert len(await names(objects)) == 1


async def test_s3_prefix_taken_over_by_another_instance_is_left_unchanged(
    store: Store, other_service: Store, clock: TestClock, objects: ObjectStore
) -> None:
    await store.attachments.put(FILE)
    await objects.delete([OWNER_OBJECT])
    await other_service.attachments.put(b"another's")
    clock.forwarded_ms += FRESH_MS + 60_000
    with pytest.raises(BucketInUse):
        await store.attachments.delete_unused()
    assert len(await names(objects)) == 2
    with pytest.raises(BucketInUse):
        await store.attachments.put(b"more")


async def test_s3_unavailable_does_not_block_the_start(store: Store, server: S3Server) -> None:
    server.stop()
    try:
        await claim_attachments(store)
    finally:
        server.start()
    await store.attachments.put(FILE)


# -- outages -------------------------------------------------------------------------------------------------------


async def test_s3_unavailable_refuses_attachments_and_loses_nothing(
    store: Store, elsewhere: Store, server: S3Server, sql: Sql
) -> None:
    retained = await store.attachments.put(FILE)
    server.stop()
    try:
        with pytest.raises(StoreUnavailable, match="s3://"):
            await store.attachments.put(b"other")
        with pytest.raises(NotReady):  # not the carrier's fault: its circuit stays closed
            await fetch_attachment(elsewhere, retained)
        assert await sql(ROWS) == [(retained, len(FILE))]
    finally:
        server.start()
    await fetch_attachment(elsewhere, retained)
    assert await elsewhere.attachments.get(await store.attachments.put(b"other")) == b"other"


async def test_s3_that_hangs_is_unavailable(
    store: Store, settings: Settings, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "TIMEOUT_S", 0.3)
    hanging = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    where = f"http://127.0.0.1:{hanging.sockets[0].getsockname()[1]}"
    async with open_store(msgspec.structs.replace(settings, s3_endpoint=where), clock, "seat/2") as there:
        with pytest.raises(StoreUnavailable):
            async with asyncio.timeout(10):
                await there.attachments.put(FILE)
    hanging.close()


AT = "Generic S3 error: Error performing PUT http://s3/b/x in 262ms, after 2 retries, max_retries: 2"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (f"{AT} - HTTP error: error sending request", "HTTP error: error sending request"),
        (
            f"{AT} - Server returned non-2xx status code: 403 Forbidden: ",
            "Server returned non-2xx status code: 403 Forbidden",
        ),
        (
            f"{AT} - Server returned non-2xx status code: 502 Bad Gateway: <html><title>502 - Bad</title></html>",
            "Server returned non-2xx status code: 502 Bad Gateway",
        ),
        (
            f"{AT} - 403: <Error><Code>AccessDenied</Code>\n<Message>Access Denied.</Message></Error> Debug source: x",
            "Access Denied (AccessDenied)",
        ),
        ("TimeoutError", "TimeoutError"),
    ],
)
def test_s3_error_response_is_reported_as_a_sentence(said: str, told: str) -> None:
    assert engine.plain_error(said) == told


async def test_s3_missing_bucket_is_an_outage(store: Store, settings: Settings, clock: TestClock) -> None:
    hash_ = await store.attachments.put(FILE)
    no_bucket = msgspec.structs.replace(settings, attachments="s3://no-such-bucket", data=settings.data / "x")
    async with open_store(no_bucket, clock, "seat/2") as there:
        with pytest.raises(StoreUnavailable):
            await there.attachments.put(b"other")
        with pytest.raises(StoreUnavailable):
            await there.attachments.fetch(hash_)


# -- another setting -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_files_stay_readable_after_the_storage_setting_changes(
    store: Store, settings: Settings, clock: TestClock, sql: Sql, tmp_path: Path
) -> None:
    in_objects = await store.attachments.put(FILE)
    without = msgspec.structs.replace(settings, attachments="", data=tmp_path / "without")
    async with open_store(without, clock, "seat/2") as there:
        in_database = await there.attachments.put(b"in the database")
        store.local_files.delete(in_database, clock.now() + 2 * FRESH_MS)
        assert await store.attachments.get(in_database) == b"in the database"
        with pytest.raises(StoreUnavailable, match="none is configured"):
            await there.attachments.fetch(in_objects)
        clock.forwarded_ms += FRESH_MS + 1
        await there.attachments.delete_unused()
        assert await sql(ROWS) == [(in_objects, len(FILE))]  # the object store cannot delete the object
        await there.attachments.put(FILE)
        assert await sql("SELECT count(*) FROM blob_chunk") == [(5,)]
        assert await there.attachments.get(in_objects) == FILE
