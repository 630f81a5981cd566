"""Stored events: all timeline entries, and for each published event one delivery per subscribed webhook.

A delivery is written in the transaction of the change, so that an event is neither lost nor sent before the commit.
"""

from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any

import msgspec

from heliograph.domain.delivery.lanes import WEBHOOKS
from heliograph.domain.events import SCHEDULED, StoredEvent
from heliograph.storage.engine.database import Database, Tx, note

SPAN = 5000  # maximum events scanned for one page
NEWEST = "evt_~"  # greater than every event id

NewId = Callable[[str], str]
Subscribers = Callable[[int, str, str | None], Collection[str]]  # team, event type, failure reason → webhook ids
Signer = Callable[[int, str], str | None]  # team, event type → webhook that signs per-message callbacks
OWN = "+own"  # suffix of a webhook id: separate delivery queue of the per-message callbacks that the webhook signs


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
    """Raised if the team has no event with this id, or if the event was deleted."""


class EventPage(msgspec.Struct, frozen=True):
    """A page of events, newest first, and the cursor of the next page."""

    events: list[StoredEvent]
    before: str | None


class Publisher(msgspec.Struct, frozen=True):
    new_id: NewId
    subscribers: Subscribers = lambda team, type_, reason: ()
    signer: Signer = lambda team, type_: None

    async def publish(self, tx: Tx, events: Sequence[Event]) -> None:
        if not events:
            return
        subscribers, signer = cache(self.subscribers), cache(self.signer)  # few distinct keys occur
        deliveries, own = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
        for event in events:
            if event.sequence is None and event.type != SCHEDULED:
                continue
            told = event.team, event.id, event.subject, event.created_at
            signs = signer(event.team, event.type) if event.message is not None else None
            heard = subscribers(event.team, event.type, _reason(event) if event.status == "failed" else None)
            if heard:
                deliveries += [(webhook, *told) for webhook in heard if webhook != signs]
            if signs:
                own.append((signs, *told, event.message, int(signs in heard)))
        rows = [msgspec.structs.astuple(event) for event in events]
        await tx.write({"insert_events": rows, "insert_deliveries": deliveries})
        if own:
            await tx.run("insert_own_deliveries", deliveries=own, own=OWN)
        if deliveries or own:
            note(tx, WEBHOOKS)


def _reason(event: Event) -> str | None:
    """Return the failure reason that this service has set; None if not set."""
    return msgspec.json.decode(event.detail).get("reason") if event.detail else None


class Events:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def feed(self, team: int, after: str, limit: int) -> list[StoredEvent]:
        """Return published events after the event `after` (empty: from the beginning), oldest first.

        Up to `limit` + 1 events are returned; the extra event shows that there are more. Transactions may commit in a
        different order than their keys, so the feed ends before the keys of open transactions. Raises UnknownEvent.
        """

        async def read(tx: Tx) -> list[StoredEvent]:
            ((key, end),) = await tx.run("feed_bounds", team=team, after=after)
            if after and key is None:
                raise UnknownEvent(after)
            if end is None:
                return []
            rows = await tx.run("feed", team=team, after=key or 0, end=end, limit=limit + 1)
            return [StoredEvent(*row) for row in rows]

        return await self._database.read(read)

    async def feed_end(self, team: int, limit: int) -> list[StoredEvent]:
        """Return the last `limit` + 1 published events, newest first; the extra event shows that there are more."""

        async def read(tx: Tx) -> list[StoredEvent]:
            ((_, end),) = await tx.run("feed_bounds", team=team, after="")
            rows = await tx.run("feed_end", team=team, end=end, limit=limit + 1) if end is not None else []
            return [StoredEvent(*row) for row in rows]

        return await self._database.read(read)

    async def newest(self, team: int, types: Sequence[str], before: str, limit: int) -> EventPage:
        """Return a page of the newest events of these types before the event `before`.

        One call scans at most SPAN events, so a page can be short or empty and still have a next page.
        """
        span = {"team": team, "before": before, "span": SPAN}

        async def story(tx: Tx) -> EventPage:
            rows = await tx.run("newest_events", types=[(name,) for name in types], limit=limit + 1, **span)
            events = [StoredEvent(*row) for row in rows[:limit]]
            if len(rows) > limit:
                return EventPage(events, events[-1].id)
            ((seen, last),) = await tx.run("span_of_events", **span)
            return EventPage(events, last if seen == SPAN else None)

        return await self._database.read(story)

    async def find(self, team: int, id_: str) -> StoredEvent | None:
        rows = await self._database.read(lambda tx: tx.run("told_events", events=[(team, id_)]))
        return StoredEvent(*rows[0]) if rows else None
