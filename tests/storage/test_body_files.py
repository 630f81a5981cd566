"""Bodies of large emails in the object store: read, sent, exported, erased and purged like the others."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from heliograph.domain.delivery.content import EmailContent
from heliograph.domain.limits import HOUR_MS
from heliograph.domain.operations.erasure import address_variants
from heliograph.domain.sending.acceptance import BatchAcceptance
from heliograph.settings import BadSetting, Settings, read_settings
from heliograph.storage.body_files import BODY_FILE_START, has_body_file, reserve_nothing
from heliograph.storage.engine.database import StoreUnavailable
from heliograph.storage.erase import ErasureTarget
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.s3 import S3Server
from tests.storage.conftest import Sql
from tests.storage.samples import ENTRY, message
from tests.storage.test_reputation import deliver

pytestmark = pytest.mark.anyio

HASH = "0" * 64
LARGE = EmailContent(
    from_name="A",
    from_address="a@acme.test",
    to=["ada@example.com"],
    subject="Größe",
    html="<p>" + "x" * 5000 + "</p> zoe@example.com",
    text='quote " and brace }',
    variables={"name": "Zoë"},
)
ENCODED = msgspec.json.encode(LARGE)
TARGET = ErasureTarget(
    ref=1,
    team="team_a",
    variants=address_variants("zoe@example.com", "zoe@example.com"),
    address_hash="",
    webhooks=(),
    keys=(),
)


@pytest.fixture
def server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def settings(settings: Settings, server: S3Server) -> Settings:
    return msgspec.structs.replace(settings, contents_in_s3=4, **server.settings)


async def send(store: Store, clock: TestClock, content: bytes = ENCODED, **more: Any) -> str:
    clock.forward(1)
    item = message(clock, content=content, **more)
    await store.messages.accept(item)
    return item.id


async def read(store: Store, id_: str) -> EmailContent:
    row = await store.messages.get_row(1, id_, reserve_nothing)
    assert row is not None
    assert row.content is not None
    return msgspec.json.decode(row.content, type=EmailContent)


async def test_large_body_is_stored_as_a_file_and_read_back(store: Store, clock: TestClock, sql: Sql) -> None:
    id_ = await send(store, clock)
    ((stored,),) = await sql("SELECT body FROM content")
    assert has_body_file(stored)
    assert len(stored) < 300
    assert await read(store, id_) == LARGE
    details = await store.messages.get_details(1, id_, [], reserve_nothing)
    assert details is not None
    assert details.row.size > 5000
    assert await sql("SELECT count(*) FROM blob_file WHERE name IS NOT NULL") == [(1,)]


@pytest.mark.parametrize(
    ("content", "more"),
    [
        (msgspec.json.encode(msgspec.structs.replace(LARGE, html="short")), {}),
        (ENCODED, {"sandbox": True}),
        (ENCODED, {"captured": True}),
        (msgspec.json.encode({"body": "x" * 5000}), {"channel": "sms"}),
    ],
)
async def test_small_and_test_messages_stay_in_the_database(
    store: Store, clock: TestClock, sql: Sql, content: bytes, more: dict[str, Any]
) -> None:
    await send(store, clock, content, **more)
    assert await sql("SELECT body FROM content") == [(content.decode(),)]
    assert await sql("SELECT count(*) FROM blob") == [(0,)]


async def test_equal_bodies_of_a_batch_are_one_file(store: Store, clock: TestClock, sql: Sql) -> None:
    sends = [message(clock, content=ENCODED) for _ in range(3)]
    batch = BatchAcceptance(
        id="bat_1", team=1, key_id="key", created_at=clock.now(), sends=sends, strict=True, respond=lambda _: b"{}"
    )
    await store.messages.accept(batch)
    assert [await read(store, item.id) for item in sends] == [LARGE] * 3
    assert await sql("SELECT count(*), count(DISTINCT hash) FROM blob") == [(3, 1)]


async def test_text_of_a_caller_is_not_taken_for_a_file(store: Store, clock: TestClock) -> None:
    fake = f'{BODY_FILE_START}{HASH}",5]}}'
    mail = msgspec.structs.replace(LARGE, html="short", subject=fake, variables={"body_file": [HASH, 5]})
    assert await read(store, await send(store, clock, msgspec.json.encode(mail))) == mail
    assert not has_body_file(msgspec.json.encode(mail).decode())


async def test_worker_sends_the_whole_content(store: Store, clock: TestClock) -> None:
    await send(store, clock)
    (claimed,) = await store.outbox.claim("email", 10)
    assert msgspec.json.decode(await store.contents.load_bytes(claimed.content), type=EmailContent) == LARGE
    with pytest.raises(StoreUnavailable):
        await store.contents.load_bytes(f'{{"to":[]{BODY_FILE_START}{HASH}",5]}}'.encode())


async def test_body_stays_in_the_database_while_the_object_store_is_unavailable(
    store: Store, clock: TestClock, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: bytes) -> str:
        raise StoreUnavailable("no object store")

    monkeypatch.setattr(store.attachments, "put", fail)
    assert await read(store, await send(store, clock)) == LARGE
    assert await sql("SELECT body FROM content") == [(ENCODED.decode(),)]


async def test_file_is_deleted_with_the_content(store: Store, clock: TestClock, sql: Sql, server: S3Server) -> None:
    before = set(server.names())
    id_ = await send(store, clock, msgspec.json.encode(msgspec.structs.replace(LARGE, html="y" * 5000)))
    assert len(set(server.names()) - before - {"blobs/owner"}) == 1
    await deliver(store, clock, "delivered")
    assert await store.messages.purge_early(1, id_, ENTRY, whole_message=False)
    clock.forward(2 * HOUR_MS)
    await store.attachments.delete_unused()
    assert set(server.names()) - before - {"blobs/owner"} == set()
    row = await store.messages.get_row(1, id_, reserve_nothing)
    assert row is not None
    assert row.content is None


async def test_export_has_the_body_of_a_file(store: Store, clock: TestClock) -> None:
    await send(store, clock)
    await send(store, clock, msgspec.json.encode(msgspec.structs.replace(LARGE, html="z" * 5000)))
    sections = await store.exports.export(TARGET, clock.now(), lambda *_: None)
    assert len(sections["messages"]) == 1
    assert "zoe@example.com" in str(sections["messages"][0]["content"])


async def test_erasure_finds_the_address_in_a_file(store: Store, clock: TestClock, sql: Sql) -> None:
    with_address = await send(store, clock)
    without = await send(store, clock, msgspec.json.encode(msgspec.structs.replace(LARGE, html="z" * 5000)))
    await deliver(store, clock, "delivered", "delivered")
    assert await store.erasures.erase(TARGET, clock.now(), lambda *_: None) == 1
    assert await sql("SELECT id FROM message WHERE has_body = 1") == [(without,)]
    assert await sql("SELECT count(*) FROM content") == [(1,)]
    assert await sql("SELECT count(*) FROM blob") == [(1,)]
    row = await store.messages.get_row(1, with_address, reserve_nothing)
    assert row is not None
    assert row.content is None


def test_setting_needs_an_object_store() -> None:
    with pytest.raises(BadSetting, match="contents_in_s3 needs an object store"):
        read_settings({}, {"HELIOGRAPH_CONTENTS_IN_S3": "64"})
