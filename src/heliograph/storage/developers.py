"""Reads for the developers' pages: events newest first, one event, and which endpoints fail."""

from collections.abc import Iterable, Sequence

import msgspec

from heliograph.rules.event import PublishedEvent
from heliograph.storage.engine.database import Tx

SPAN = 5000  # events that one page looks through
NEWEST = "evt_~"  # after every id


class EventPage(msgspec.Struct, frozen=True):
    """Events, newest first, and where the next page begins."""

    events: list[PublishedEvent]
    before: str | None


async def newest_events(tx: Tx, team: int, types: Sequence[str], before: str, limit: int) -> EventPage:
    """A page may be short, even empty, and yet have a next one: rare types are looked for span by span."""
    place = {"team": team, "before": before, "span": SPAN}
    rows = await tx.run("newest_events", types=[(name,) for name in types], limit=limit + 1, **place)
    events = [PublishedEvent(*row) for row in rows[:limit]]
    if len(rows) > limit:
        return EventPage(events, events[-1].id)
    ((seen, last),) = await tx.run("span_of_events", **place)
    return EventPage(events, last if seen == SPAN else None)


async def one_event(tx: Tx, team: int, id_: str) -> PublishedEvent | None:
    rows = await tx.run("told_events", events=[(team, id_)])
    return PublishedEvent(*rows[0]) if rows else None


async def failing_since(tx: Tx, webhooks: Iterable[str]) -> dict[str, int]:
    """Of these webhooks, those whose last tries failed."""
    return dict(await tx.run("failing_endpoints", webhooks=[(id_,) for id_ in webhooks]))
