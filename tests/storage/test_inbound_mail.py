"""Inbound mail in the store: stored once, published in the same transaction, deleted by the team's retention."""

import json
from typing import Any

import pytest

from heliograph.domain.limits import DAY_MS, HOUR_MS
from heliograph.domain.refusals import StorageLimitReached
from heliograph.domain.setup.records import Team, TeamRecord
from heliograph.inbound.store.inbound_mail import AUTOMATIC_MAX, NewInboundMail, StoreResult
from heliograph.storage.purge import delete_team_data
from heliograph.storage.retention import purge
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql

pytestmark = pytest.mark.anyio


def new(clock: TestClock, text: str = "Hi", **more: Any) -> NewInboundMail:
    id_ = clock.new_id("rcv_")
    record = {"object": "received", "id": id_, "subject": "S", "text": text, "html": None, "reply_text": text}
    values: dict[str, Any] = {
        "id": id_,
        "team": 1,
        "sender": "ann@example.org",
        "size": len(text),
        "automatic": False,
        "record": json.dumps(record),
        "body": None,
        "daily_octets_max": 0,
    }
    return NewInboundMail(**values | more)


async def put(store: Store, item: NewInboundMail, raw: bytes | None = None) -> StoreResult:
    return await store.inbound_mail.insert(item, await store.inbound_mail.store_raw(raw or item.id.encode()))


async def told(store: Store, clock: TestClock) -> list[Any]:
    clock.forward(1000)
    return [json.loads(item.detail or "null") for item in await store.events.feed(1, "", 1000)]


async def test_inbound_mail_received_twice_is_stored_once_per_team(store: Store, clock: TestClock) -> None:
    first = new(clock)
    fates = [await put(store, item, b"mail") for item in (first, new(clock), new(clock, team=2))]
    assert fates == ["published", "known", "published"]
    assert [item["id"] for item in await told(store, clock)] == [first.id]
    assert [line.id for line in await store.inbound_mail.list_newest(1, "rcv_~", 10)] == [first.id]


async def test_inbound_mail_counts_against_the_daily_byte_quota(store: Store, clock: TestClock) -> None:
    assert await put(store, new(clock, daily_octets_max=3, size=2)) == "published"
    late = new(clock, daily_octets_max=3, size=2)
    with pytest.raises(StorageLimitReached):
        await put(store, late)
    assert await store.inbound_mail.find_row(1, late.id) is None
    clock.forward(DAY_MS)
    assert await put(store, late) == "published"


async def test_inbound_mail_loop_is_stopped(store: Store, clock: TestClock) -> None:
    fates = [await put(store, new(clock, automatic=True)) for _ in range(AUTOMATIC_MAX + 1)]
    assert fates == ["published"] * AUTOMATIC_MAX + ["held"]
    others = [new(clock), new(clock, automatic=True, sender="bo@example.org"), new(clock, automatic=True, team=2)]
    assert [await put(store, item) for item in others] == ["published"] * 3
    clock.forward(HOUR_MS)
    assert await put(store, new(clock, automatic=True)) == "published"


async def test_inbound_mail_is_deleted_with_the_test_clock(store: Store, clock: TestClock) -> None:
    retained = new(clock, team=2)
    for item in (new(clock), retained):
        await put(store, item)
    team = Team(record=TeamRecord(ref=1, id="team_a", name="A"))
    await store.database.write(lambda tx: delete_team_data(tx, team))
    assert await store.inbound_mail.list_newest(1, "rcv_~", 10) == []
    assert [line.id for line in await store.inbound_mail.list_newest(2, "rcv_~", 10)] == [retained.id]


async def test_inbound_mail_text_is_deleted_before_its_record(store: Store, clock: TestClock, sql: Sql) -> None:
    item = new(clock, "Secret")
    await put(store, item)
    clock.forward(7 * DAY_MS)
    await purge(store.database, clock.now())
    await store.attachments.delete_unused()
    result = await store.inbound_mail.find_row(1, item.id)
    assert result and result.raw is None
    assert json.loads((await store.inbound_mail.get_records(1, [item.id]))[0]) == {
        "object": "received", "id": item.id, "subject": "S", "text": None, "html": None, "reply_text": None,
    }  # fmt: skip
    clock.forward(90 * DAY_MS)
    await purge(store.database, clock.now())
    assert await sql("SELECT count(*) FROM received") == [(0,)]


async def test_inbound_mail_file_is_kept_while_it_is_needed(store: Store, clock: TestClock) -> None:
    item = new(clock)
    await put(store, item, b"x" * 300_000)
    clock.forward(2 * HOUR_MS)
    await store.attachments.delete_unused()
    result = await store.inbound_mail.find_row(1, item.id)
    assert result

    async def room(octets: int) -> None:
        assert octets == result.size

    assert await store.inbound_mail.get_raw(result, room) == b"x" * 300_000
