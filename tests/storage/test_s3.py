"""Attachment files in an S3-compatible store: a real server on loopback, both databases, machines without a shared
folder."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from heliograph.app import bring_attachment
from heliograph.bootstrap import make_objects, open_store, own_attachments
from heliograph.carriers.contract import NotReady
from heliograph.domain.setup.records import Platform
from heliograph.domain.setup.snapshot import PLATFORM_ID, to_row
from heliograph.settings import BadSetting, Settings
from heliograph.storage.attachments import OWNER, OtherOwner
from heliograph.storage.engine import s3 as engine
from heliograph.storage.engine.database import StoreUnavailable
from heliograph.storage.engine.local_files import FRESH_MS
from heliograph.storage.engine.s3 import Objects
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
def objects(settings: Settings) -> Objects:
    objects = make_objects(settings)
    assert objects
    return objects


@pytest.fixture
async def elsewhere(store: Store, settings: Settings, clock: TestClock, tmp_path: Path) -> AsyncIterator[Store]:
    """A process of another machine."""
    there = msgspec.structs.replace(settings, data=tmp_path / "elsewhere")
    async with open_store(there, clock, "seat/1") as other:
        yield other


async def names(objects: Objects) -> list[str]:
    return [one.name async for portion in objects.listed() for one in portion if one.name != OWNER]


async def test_another_machine_reads_what_one_has_taken(
    store: Store, elsewhere: Store, objects: Objects, sql: Sql
) -> None:
    hash_ = await store.attachments.put(FILE)
    assert await elsewhere.attachments.size(hash_) == len(FILE)
    await asyncio.gather(*(elsewhere.attachments.bring(hash_) for _ in range(3)))
    with elsewhere.blobs.open(hash_) as file:
        assert file.read() == FILE
    assert await elsewhere.attachments.get(hash_) == FILE
    assert await sql(ROWS) == [(hash_, len(FILE))]
    assert await sql("SELECT count(*) FROM blob_chunk") == [(0,)]
    assert [name.partition("/")[0] for name in await names(objects)] == [hash_]


async def test_each_is_stored_once(store: Store, elsewhere: Store, objects: Objects) -> None:
    puts = [place.attachments.put(FILE) for place in (store, elsewhere) for _ in range(3)]
    assert len(set(await asyncio.gather(*puts))) == 1
    assert len(await names(objects)) == 1


async def test_one_that_is_not_kept(elsewhere: Store, objects: Objects) -> None:
    assert await elsewhere.attachments.size("00" * 32) == 0
    with pytest.raises(FileNotFoundError):
        await elsewhere.attachments.get("00" * 32)


async def test_one_that_others_removed_from_the_store(store: Store, elsewhere: Store, objects: Objects) -> None:
    hash_ = await store.attachments.put(FILE)
    await objects.drop(await names(objects))
    with pytest.raises(FileNotFoundError):
        await elsewhere.attachments.get(hash_)


async def test_what_was_damaged_there_is_not_sent(
    store: Store, elsewhere: Store, objects: Objects, tmp_path: Path
) -> None:
    hash_ = await store.attachments.put(FILE)
    (name,) = await names(objects)
    await objects.put(name, FILE[:-1])
    with pytest.raises(StoreUnavailable, match="not what was put"):
        await elsewhere.attachments.bring(hash_)
    assert elsewhere.blobs.size(hash_) == 0


async def lose(objects: Objects, left: bytes | None) -> str:
    """The name of the one object, of which the store has only this left."""
    (lost,) = await names(objects)
    await objects.drop([lost])
    if left is not None:
        await objects.put(lost, left)
    return lost


@pytest.mark.parametrize("left", [None, b"", FILE[:-1], FILE + b"x"])
async def test_one_that_the_store_lost_is_put_again_with_its_next_message(
    store: Store, elsewhere: Store, objects: Objects, sql: Sql, left: bytes | None
) -> None:
    hash_ = await store.attachments.put(FILE)
    lost = await lose(objects, left)
    puts = [place.attachments.put(FILE) for place in (store, elsewhere) for _ in range(2)]
    assert set(await asyncio.gather(*puts)) == {hash_}
    elsewhere.blobs.drop(hash_, elsewhere.clock.now() + 2 * FRESH_MS)
    assert await elsewhere.attachments.get(hash_) == FILE
    assert await sql(ROWS) == [(hash_, len(FILE))]
    assert [name for name in await names(objects) if name != lost] == [name for (name,) in await sql(NAMES)]


async def test_one_that_is_there_is_not_put_again(
    store: Store, elsewhere: Store, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.attachments.put(FILE)
    monkeypatch.setattr(Objects, "put", None)
    await elsewhere.attachments.put(FILE)


@pytest.mark.parametrize("left", [None, FILE[:-1]])
async def test_a_lost_one_defers_its_message_and_no_carrier_is_blamed(
    store: Store, elsewhere: Store, objects: Objects, left: bytes | None
) -> None:
    hash_ = await store.attachments.put(FILE)
    await lose(objects, left)
    with pytest.raises(NotReady, match="attachment"):
        await bring_attachment(elsewhere, hash_)


# -- what goes -----------------------------------------------------------------------------------------------------


async def test_it_goes_with_the_last_message_that_needs_it(
    store: Store, elsewhere: Store, clock: TestClock, objects: Objects, sql: Sql
) -> None:
    hash_ = await store.attachments.put(FILE)
    await store.messages.accept(message(clock, blobs=[hash_]))
    clock.later += FRESH_MS + 1
    await store.attachments.sweep()
    assert store.blobs.size(hash_) == 0  # this machine needs no disk for all of them
    assert await elsewhere.attachments.get(hash_) == FILE
    await sql("DELETE FROM blob")
    await elsewhere.attachments.put(FILE)  # again, by a message that is about to be written
    await store.attachments.sweep()
    assert len(await names(objects)) == 1
    clock.later += FRESH_MS + 1
    await store.attachments.sweep()
    assert (await sql(ROWS), await names(objects)) == ([], [])


async def test_one_that_is_put_again_while_it_is_removed_stays(
    store: Store, elsewhere: Store, clock: TestClock, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    hash_ = await store.attachments.put(FILE)
    clock.later += FRESH_MS + 1
    drop = Objects.drop

    async def late(self: Objects, gone: list[str]) -> None:
        if gone:
            await elsewhere.attachments.put(FILE)
        await drop(self, gone)

    monkeypatch.setattr(Objects, "drop", late)
    await store.attachments.sweep()
    monkeypatch.undo()
    elsewhere.blobs.drop(hash_, clock.now() + 2 * FRESH_MS)
    assert await elsewhere.attachments.get(hash_) == FILE


async def test_strays_go_and_what_is_not_ours_stays(store: Store, clock: TestClock, objects: Objects) -> None:
    """A process ended between the store and the database; others use the same bucket."""
    hash_ = await store.attachments.put(FILE)
    await store.messages.accept(message(clock, blobs=[hash_]))
    stray, foreign = f"{hashlib.sha256(b'x').hexdigest()}/{'0' * 16}", "others/photo.jpg"
    for name in (stray, foreign):
        await objects.put(name, b"x")
    await store.attachments.sweep()
    assert len(await names(objects)) == 3  # it may belong to a message that is about to be written
    clock.later += FRESH_MS + 60_000
    await store.attachments.sweep()
    left = await names(objects)
    assert stray not in left and foreign in left and len(left) == 2


async def test_a_paused_copy_removes_nothing(store: Store, clock: TestClock, objects: Objects, sql: Sql) -> None:
    """A backup that was restored beside the service has its settings, and starts paused."""
    await store.attachments.put(FILE)
    await objects.put(f"{hashlib.sha256(b'newer').hexdigest()}/{'0' * 16}", b"newer")
    await set_up(store, rows=[to_row("platform", PLATFORM_ID, Platform(paused=True), None)])
    clock.later += FRESH_MS + 60_000
    await store.attachments.sweep()
    assert (len(await sql(ROWS)), len(await names(objects))) == (1, 2)


# -- two services --------------------------------------------------------------------------------------------------


@pytest.fixture
async def stranger(settings: Settings, clock: TestClock, tmp_path: Path) -> AsyncIterator[Store]:
    """Another service with the same object store."""
    database = f"sqlite:///{tmp_path / 'stranger.db'}"
    other = msgspec.structs.replace(settings, database=database, data=tmp_path / "stranger")
    async with open_store(other, clock, "seat/0") as stranger:
        yield stranger


async def test_two_services_in_one_place_do_not_remove_each_others_files(
    store: Store, elsewhere: Store, stranger: Store, clock: TestClock, objects: Objects
) -> None:
    hash_ = await store.attachments.put(FILE)
    await store.messages.accept(message(clock, blobs=[hash_]))
    with pytest.raises(OtherOwner):
        await stranger.attachments.put(b"another's")
    with pytest.raises(BadSetting, match=r"s3://.*another prefix.*remove the object 'owner'"):
        await own_attachments(stranger)
    clock.later += FRESH_MS + 60_000
    with pytest.raises(OtherOwner):
        await stranger.attachments.sweep()
    assert [name.partition("/")[0] for name in await names(objects)] == [hash_]
    for place in (store, elsewhere):  # of one service
        await own_attachments(place)
        await place.attachments.sweep()
    assert len(await names(objects)) == 1


async def test_a_place_that_was_taken_over_is_left_alone(
    store: Store, stranger: Store, clock: TestClock, objects: Objects
) -> None:
    await store.attachments.put(FILE)
    await objects.drop([OWNER])
    await stranger.attachments.put(b"another's")
    clock.later += FRESH_MS + 60_000
    with pytest.raises(OtherOwner):
        await store.attachments.sweep()
    assert len(await names(objects)) == 2
    with pytest.raises(OtherOwner):
        await store.attachments.put(b"more")


async def test_a_store_that_is_away_holds_up_no_start(store: Store, server: S3Server) -> None:
    server.stop()
    try:
        await own_attachments(store)
    finally:
        server.start()
    await store.attachments.put(FILE)


# -- outages -------------------------------------------------------------------------------------------------------


async def test_while_the_store_is_away_nothing_is_taken_and_nothing_lost(
    store: Store, elsewhere: Store, server: S3Server, sql: Sql
) -> None:
    kept = await store.attachments.put(FILE)
    server.stop()
    try:
        with pytest.raises(StoreUnavailable, match="s3://"):
            await store.attachments.put(b"other")
        with pytest.raises(NotReady):  # not the carrier's fault: its circuit stays closed
            await bring_attachment(elsewhere, kept)
        assert await sql(ROWS) == [(kept, len(FILE))]
    finally:
        server.start()
    await bring_attachment(elsewhere, kept)
    assert await elsewhere.attachments.get(await store.attachments.put(b"other")) == b"other"


async def test_a_store_that_hangs_is_away(
    store: Store, settings: Settings, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "ANSWER_S", 0.3)
    hanging = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    where = f"http://127.0.0.1:{hanging.sockets[0].getsockname()[1]}"
    async with open_store(msgspec.structs.replace(settings, s3_endpoint=where), clock, "seat/2") as there:
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(there.attachments.put(FILE), 10)
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
def test_what_a_store_says_is_told_in_a_sentence(said: str, told: str) -> None:
    assert engine.plain(said) == told


async def test_a_bucket_that_is_not_there_is_an_outage(store: Store, settings: Settings, clock: TestClock) -> None:
    hash_ = await store.attachments.put(FILE)
    no_bucket = msgspec.structs.replace(settings, attachments="s3://no-such-bucket", data=settings.data / "x")
    async with open_store(no_bucket, clock, "seat/2") as there:
        with pytest.raises(StoreUnavailable):
            await there.attachments.put(b"other")
        with pytest.raises(StoreUnavailable):
            await there.attachments.bring(hash_)


# -- another setting -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_files_stay_where_they_are_when_the_setting_changes(
    store: Store, settings: Settings, clock: TestClock, sql: Sql, tmp_path: Path
) -> None:
    in_objects = await store.attachments.put(FILE)
    without = msgspec.structs.replace(settings, attachments="", data=tmp_path / "without")
    async with open_store(without, clock, "seat/2") as there:
        in_database = await there.attachments.put(b"in the database")
        store.blobs.drop(in_database, clock.now() + 2 * FRESH_MS)
        assert await store.attachments.get(in_database) == b"in the database"
        with pytest.raises(StoreUnavailable, match="name none"):
            await there.attachments.bring(in_objects)
        clock.later += FRESH_MS + 1
        await there.attachments.sweep()
        assert await sql(ROWS) == [(in_objects, len(FILE))]  # it cannot remove the object
        await there.attachments.put(FILE)
        assert await sql("SELECT count(*) FROM blob_chunk") == [(5,)]
        assert await there.attachments.get(in_objects) == FILE
