"""Events in the store: the feed, the deliveries written with them, and low credit."""

import json
from typing import Any

import pytest

from heliograph.domain.delivery.outcome import CarrierReport, Report
from heliograph.domain.setup.records import TeamRecord, Webhook
from heliograph.domain.setup.snapshot import to_row
from heliograph.storage.setup import NewSuppression
from heliograph.storage.store import Store
from tests.setup_helpers import set_up
from tests.storage.conftest import Sql
from tests.storage.samples import ENTRY, PHONE, check, finish, message, start

pytestmark = pytest.mark.anyio


async def subscribe(store: Store, *events: str, id_: str = "whk_1", enabled: bool = True) -> None:
    team = TeamRecord(ref=1, id="team_1", name="One")
    hook = Webhook(id=id_, team="team_1", url="https://a.test", secret="", events=events, enabled=enabled)
    rows = [to_row("team", "team_1", team, "team_1"), to_row("webhook", id_, hook, "team_1")]
    await set_up(store, rows=rows)


async def feed(store: Store, clock: Any, after: str = "", limit: int = 100) -> list[str]:
    clock.forward(1000)
    return [events.type for events in await store.events.feed(1, after, limit)]


async def happen(store: Store, clock: Any) -> None:
    """Add and remove a suppression, fail a verification, and exhaust another one."""
    await store.suppressions.add(NewSuppression(1, "a@b.test", "A@b.test", "manual"), ENTRY)
    await store.suppressions.remove(1, "a@b.test", ENTRY)
    refused, guessed = start(clock), start(clock, phone="+14155550101")
    for started in (refused, guessed):
        await store.verifications.start(started)
    await store.verifications.finish(finish(refused, clock, "failed"))
    await store.verifications.finish(finish(guessed, clock))
    for _ in range(5):
        await store.verifications.check(check(guessed, "wrong", clock.now()))


HAPPENED = ["suppression.created", "suppression.deleted", "verification.failed", "verification.exhausted"]


async def test_feed_returns_every_event_once_and_in_order(store: Store, clock: Any) -> None:
    await happen(store, clock)
    assert await feed(store, clock) == HAPPENED
    first, second, *_ = await store.events.feed(1, "", 1)
    assert [events.type for events in await store.events.feed(1, first.id, 100)] == HAPPENED[1:]
    assert second.type == HAPPENED[1]  # one more than asked for: there is more
    assert await store.events.feed(2, "", 100) == []


async def test_internal_events_are_not_in_the_feed(store: Store, clock: Any) -> None:
    await subscribe(store, "*")
    item = message(clock, PHONE, channel="sms")
    await store.messages.accept(item)
    await store.reports.store_by_carrier("c", [CarrierReport("unknown", Report(status="delivered"))])
    assert await feed(store, clock) == []


async def test_events_without_a_message_have_their_own_data(store: Store, clock: Any) -> None:
    await happen(store, clock)
    clock.forward(1000)
    created, deleted, failed, exhausted = [
        json.loads(events.detail or "") for events in await store.events.feed(1, "", 9)
    ]
    assert (created["email"], created["reason"]) == ("A@b.test", "manual")
    assert deleted["email"] == "A@b.test"
    assert (failed["to"], failed["status"], failed["error_message"]) == (PHONE, "failed", "refused")
    assert (exhausted["status"], exhausted["previous_status"]) == ("exhausted", "pending")
    assert not {"salt", "digest", "code"} & (failed.keys() | exhausted.keys())


@pytest.mark.parametrize(
    ("events", "heard"),
    [(["*"], HAPPENED), (["verification.*"], HAPPENED[2:]), (["suppression.created"], HAPPENED[:1])],
)
async def test_event_is_stored_together_with_its_deliveries(
    store: Store, clock: Any, sql: Sql, events: list[str], heard: list[str]
) -> None:
    await subscribe(store, *events)
    await subscribe(store, "*", id_="whk_off", enabled=False)
    await happen(store, clock)
    rows = await sql("SELECT d.webhook, e.type FROM delivery d JOIN event e ON e.id = d.event ORDER BY d.key")
    assert rows == [("whk_1", type_) for type_ in heard]


async def test_low_credit_event_is_published_when_credit_falls_below_the_threshold(store: Store, clock: Any) -> None:
    for _ in range(4):  # 1,000,000 at first
        await store.messages.accept(message(clock, price=200_000, credit_low=500_000))
    await store.verifications.start(start(clock, price=100_000, credit_low=500_000))
    assert await feed(store, clock) == ["credit.low"]
    (events,) = await store.events.feed(1, "", 9)
    assert json.loads(events.detail or "") == {"credit": "0.4000", "held": "0.6000", "threshold": "0.5000"}


async def test_low_credit_event_is_published_after_a_verification(store: Store, clock: Any) -> None:
    await store.verifications.start(start(clock, price=600_000, credit_low=500_000))
    assert await feed(store, clock) == ["credit.low"]


async def test_low_credit_without_a_threshold_publishes_nothing(store: Store, clock: Any) -> None:
    await store.messages.accept(message(clock, price=1_000_000))
    assert await feed(store, clock) == []
