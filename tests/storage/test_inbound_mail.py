"""Mail for teams in the store: once, told with it, and gone when its team says so."""

import json
from typing import Any

import pytest

from heliograph.domain.limits import DAY_MS, HOUR_MS
from heliograph.domain.refusals import StorageLimitReached
from heliograph.domain.setup.records import Team, TeamRecord
from heliograph.inbound.store.inbound_mail import AUTOMATIC_MAX, Fate, NewReceived
from heliograph.storage.purge import forget_team
from heliograph.storage.retention import purge
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql

pytestmark = pytest.mark.anyio


def new(clock: TestClock, text: str = "Hi", **more: Any) -> NewReceived:
    id_ = clock.new_id("rcv_")
    record = {"object": "received", "id": id_, "subject": "S", "text": text, "html": None, "reply_text": text}
    given: dict[str, Any] = {
        "id": id_,
        "team": 1,
        "sender": "ann@example.org",
        "size": len(text),
        "automatic": False,
        "record": json.dumps(record),
        "body": None,
        "octets_most": 0,
    }
    return NewReceived(**given | more)


async def put(store: Store, one: NewReceived, raw: bytes | None = None) -> Fate:
    return await store.received.put(one, await store.received.keep(raw or one.id.encode()))


async def told(store: Store, clock: TestClock) -> list[Any]:
    clock.forward(1000)
    return [json.loads(one.detail or "null") for one in await store.events.feed(1, "", 1000)]


async def test_the_same_mail_is_there_once_for_each_team(store: Store, clock: TestClock) -> None:
    first = new(clock)
    fates = [await put(store, one, b"mail") for one in (first, new(clock), new(clock, team=2))]
    assert fates == ["told", "known", "told"]
    assert [one["id"] for one in await told(store, clock)] == [first.id]
    assert [line.id for line in await store.received.newest(1, "rcv_~", 10)] == [first.id]


async def test_what_a_team_may_store_in_a_day_bounds_its_mail(store: Store, clock: TestClock) -> None:
    assert await put(store, new(clock, octets_most=3, size=2)) == "told"
    late = new(clock, octets_most=3, size=2)
    with pytest.raises(StorageLimitReached):
        await put(store, late)
    assert await store.received.find(1, late.id) is None
    clock.forward(DAY_MS)
    assert await put(store, late) == "told"


async def test_a_loop_is_held(store: Store, clock: TestClock) -> None:
    fates = [await put(store, new(clock, automatic=True)) for _ in range(AUTOMATIC_MAX + 1)]
    assert fates == ["told"] * AUTOMATIC_MAX + ["held"]
    others = [new(clock), new(clock, automatic=True, sender="bo@example.org"), new(clock, automatic=True, team=2)]
    assert [await put(store, one) for one in others] == ["told"] * 3
    clock.forward(HOUR_MS)
    assert await put(store, new(clock, automatic=True)) == "told"


async def test_it_goes_with_the_teams_test_clock(store: Store, clock: TestClock) -> None:
    kept = new(clock, team=2)
    for one in (new(clock), kept):
        await put(store, one)
    team = Team(record=TeamRecord(ref=1, id="team_a", name="A"))
    await store.database.write(lambda tx: forget_team(tx, team))
    assert await store.received.newest(1, "rcv_~", 10) == []
    assert [line.id for line in await store.received.newest(2, "rcv_~", 10)] == [kept.id]


async def test_texts_go_before_the_record(store: Store, clock: TestClock, sql: Sql) -> None:
    one = new(clock, "Secret")
    await put(store, one)
    clock.forward(7 * DAY_MS)
    await purge(store.database, clock.now())
    await store.attachments.sweep()
    found = await store.received.find(1, one.id)
    assert found and found.raw is None
    assert json.loads((await store.received.records(1, [one.id]))[0]) == {
        "object": "received", "id": one.id, "subject": "S", "text": None, "html": None, "reply_text": None,
    }  # fmt: skip
    clock.forward(90 * DAY_MS)
    await purge(store.database, clock.now())
    assert await sql("SELECT count(*) FROM received") == [(0,)]


async def test_its_file_stays_as_long_as_it_is_needed(store: Store, clock: TestClock) -> None:
    one = new(clock)
    await put(store, one, b"x" * 300_000)
    clock.forward(2 * HOUR_MS)
    await store.attachments.sweep()
    found = await store.received.find(1, one.id)
    assert found

    async def room(octets: int) -> None:
        assert octets == found.size

    assert await store.received.raw(found, room) == b"x" * 300_000
