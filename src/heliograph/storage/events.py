"""Stored events: all timeline entries, and for each published event one delivery per subscribed webhook.

A delivery is written in the transaction of the change, so that an event is neither lost nor sent before the commit.
"""

from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any

import msgspec

from heliograph.domain.delivery.lanes import WEBHOOKS
from heliograph.domain.events import SCHEDULED, StoredEvent
from heliograph.storage.engine.database import Database, Tx, schedule_wakeup

SCAN_MAX = 5000  # maximum events scanned for one page
FILTER_SCAN_MAX = 2_000  # number of newest events whose types the page offers as filters
NEWEST = "evt_~"  # greater than every event id

MakeId = Callable[[str], str]
SubscriberLookup = Callable[[int, str, str | None], Collection[str]]  # team, event type, failure reason → webhook ids
SignerLookup = Callable[[int, str], str | None]  # team, event type → webhook that signs per-message callbacks
# Suffix of a webhook id, for the separate delivery queue of per-message callbacks that this webhook signs
CALLBACK_SUFFIX = "+own"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table `event`; the fields have the order of the columns in `insert_events`."""

    id: str
    team: int
    subject: str  # public id of the message or verification, address, domain …
    message: int | None = None
    recipient: str | None = None
    sequence: int | None = 1  # None: only in the timeline, not in the feed
    type: str
    status: str | None = None
    previous_status: str | None = None
    message_status: str | None = None
    detail: str | None = None  # message events: the carrier's reply; other events: the event's data
    created_at: int


class UnknownEvent(Exception):
    """Raised if the team has no event with this id, or its event was already deleted."""


class EventPage(msgspec.Struct, frozen=True):
    """A page of events, newest first, and the cursor of the next page."""

    events: list[StoredEvent]
    before: str | None


class Publisher(msgspec.Struct, frozen=True):
    new_id: MakeId
    subscribers: SubscriberLookup = lambda team, type_, reason: ()
    signer: SignerLookup = lambda team, type_: None

    async def publish(self, tx: Tx, events: Sequence[Event]) -> None:
        if not events:
            return
        find_subscribers, find_signer = cache(self.subscribers), cache(self.signer)  # few distinct keys occur
        delivery_rows, callback_rows = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
        for event in events:
            if event.sequence is None and event.type != SCHEDULED:
                continue
            event_columns = event.team, event.id, event.subject, event.created_at
            signing_webhook = find_signer(event.team, event.type) if event.message is not None else None
            subscribed = find_subscribers(
                event.team, event.type, _failure_reason(event) if event.status == "failed" else None
            )
            if subscribed:
                delivery_rows += [(webhook, *event_columns) for webhook in subscribed if webhook != signing_webhook]
            if signing_webhook:
                callback_rows.append(
                    (signing_webhook, *event_columns, event.message, int(signing_webhook in subscribed))
                )
        rows = [msgspec.structs.astuple(event) for event in events]
        await tx.write_many({"insert_events": rows, "insert_deliveries": delivery_rows})
        if callback_rows:
            await tx.run("insert_own_deliveries", deliveries=callback_rows, own=CALLBACK_SUFFIX)
        if delivery_rows or callback_rows:
            schedule_wakeup(tx, WEBHOOKS)


def _failure_reason(event: Event) -> str | None:
    """Return the reason that this service has set for a failure; None if a carrier reported the failure."""
    return msgspec.json.decode(event.detail).get("reason") if event.detail else None


class Events:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def feed(self, team: int, after: str, limit: int) -> list[StoredEvent]:
        """Return published events after the event `after` (empty: from the beginning), oldest first.

        Up to `limit` + 1 events are returned; the extra event shows that there are more. Raises UnknownEvent if `after`
        does not exist. The feed ends before the events of open transactions, because transactions may commit in
        another order than that of their events' keys. The feed is read on the primary, where the locks of open
        transactions are visible.
        """

        async def read_feed(tx: Tx) -> list[StoredEvent]:
            ((key, end),) = await tx.run("feed_bounds", team=team, after=after)
            if after and key is None:
                raise UnknownEvent(after)
            if end is None:
                return []
            rows = await tx.run("feed", team=team, after=key or 0, end=end, limit=limit + 1)
            return [StoredEvent(*row) for row in rows]

        return await self._database.read(read_feed)

    async def feed_end(self, team: int, limit: int) -> list[StoredEvent]:
        """Return the last `limit` + 1 published events, newest first; the extra event shows that there are more."""

        async def read_feed_end(tx: Tx) -> list[StoredEvent]:
            ((_, end),) = await tx.run("feed_bounds", team=team, after="")
            rows = await tx.run("feed_end", team=team, end=end, limit=limit + 1) if end is not None else []
            return [StoredEvent(*row) for row in rows]

        return await self._database.read(read_feed_end)

    async def newest(self, team: int, types: Sequence[str], before: str, limit: int) -> EventPage:
        """Return a page with the newest events of these types before the event `before`.

        One call scans at most SCAN_MAX events, so a page can be short or empty and still have a next page.
        """
        scan = {"team": team, "before": before, "span": SCAN_MAX}

        async def read_page(tx: Tx) -> EventPage:
            rows = await tx.run("newest_events", types=[(name,) for name in types], limit=limit + 1, **scan)
            events = [StoredEvent(*row) for row in rows[:limit]]
            if len(rows) > limit:
                return EventPage(events, events[-1].id)
            ((scanned, last_id),) = await tx.run("scanned_event_range", **scan)
            return EventPage(events, last_id if scanned == SCAN_MAX else None)

        return await self._database.read_standby(read_page)

    async def list_types(self, team: int) -> frozenset[str]:
        """Return the types of a team's newest events."""
        query = {"team": team, "before": NEWEST, "most": FILTER_SCAN_MAX}
        rows = await self._database.read_standby(lambda tx: tx.run("event_filter_types", **query))
        return frozenset(type_ for (type_,) in rows)

    async def find(self, team: int, id_: str) -> StoredEvent | None:
        rows = await self._database.read(lambda tx: tx.run("events_by_id", events=[(team, id_)]))
        return StoredEvent(*rows[0]) if rows else None
