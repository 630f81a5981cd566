"""Event feed of the team, newest first, and a single event as its webhooks receive it."""

from collections.abc import Iterable

import msgspec

from heliograph.dashboard.page_request import Answer, Gone, Page, Visit
from heliograph.dashboard.render import channel_name
from heliograph.dashboard.views import live
from heliograph.domain.events import NAMES, TYPES, StoredEvent, event_body, event_data
from heliograph.domain.ids import PREFIXES
from heliograph.storage.events import NEWEST
from heliograph.storage.search.message_search import CHANNELS
from heliograph.texts.explain import explained

PAGE = 50


async def show(visit: Visit) -> Answer:
    name, before = visit.query.get("type", ""), visit.query.get("before") or NEWEST
    group = name.removesuffix("*")
    stream = await live.team_stream_address(visit, "events") if before == NEWEST else ""
    types = [one for one in TYPES if name in ("", "*", one) or (group != name and one.startswith(group))]
    found = await visit.store.events.newest(visit.team.record.ref, types, before, PAGE)
    values = {
        "live": stream,
        "events": found.events,
        "about": about,
        "grouped": grouped,
        "in_words": in_words,
        "type": name,
        "names": [("", "All types"), *((one, one) for one in NAMES[1:])],
        "more": found.before,
        "is_newest": before == NEWEST,
    }
    return Page("events.html", values)


async def show_one(visit: Visit) -> Answer:
    event = await visit.store.events.find(visit.team.record.ref, visit.params["event"])
    if event is None or event.sequence is None:
        raise Gone
    id_ = str(event_data(event).get("id", ""))
    is_message = id_.startswith(tuple(PREFIXES[channel] for channel in CHANNELS))
    values = {
        "event": event,
        "about": about(event),
        "words": in_words(event.type),
        "json": msgspec.json.format(event_body(explained(event), visit.team), indent=2).decode(),
        "link": f"{visit.base}/messages/{id_}" if is_message else "",
    }
    return Page("event.html", values)


def grouped(events: Iterable[StoredEvent]) -> list[list[StoredEvent]]:
    """Group events by message and recipient; groups and events are sorted newest first."""
    groups: dict[tuple[str, str | None], list[StoredEvent]] = {}
    for event in events:
        groups.setdefault((str(event_data(event).get("id") or event.id), event.recipient), []).append(event)
    return list(groups.values())


def in_words(type_: str) -> str:
    """Return the text of an event type: `email.delivery_delayed` becomes 'Email delivery delayed'."""
    if type_ == "verification.verified":
        return "Code confirmed"
    thing, _, rest = type_.partition(".")
    return f"{channel_name(thing.replace('_', ' '))} {rest.replace('_', ' ')}"


def about(event: StoredEvent) -> str:
    """Return the recipient or subject of an event; a Bcc recipient is hidden, as in webhooks."""
    if event.kind == "bcc":
        return "blind copy"
    data = event_data(event)
    named = (str(data[name]) for name in ("to", "email", "name", "url", "id") if data.get(name))
    return event.recipient or next(named, "")
