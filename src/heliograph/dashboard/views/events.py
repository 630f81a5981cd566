"""Event feed of the team, newest first, and a single event as its webhooks receive it."""

from collections.abc import Iterable

import msgspec

from heliograph.dashboard.page_request import Page, PageNotFound, PageRequest, PageResponse
from heliograph.dashboard.render import channel_name
from heliograph.dashboard.views import live
from heliograph.domain.events import EVENT_TYPES, SUBSCRIPTION_NAMES, StoredEvent, event_body, event_data
from heliograph.domain.ids import PREFIXES
from heliograph.storage.events import NEWEST
from heliograph.storage.search.message_search import CHANNELS
from heliograph.texts.explain import with_explanation

PAGE_SIZE = 50


async def show(request: PageRequest) -> PageResponse:
    type_filter, before = request.query.get("type", ""), request.query.get("before") or NEWEST
    type_prefix = type_filter.removesuffix("*")
    live_url = await live.team_stream_url(request, "events") if before == NEWEST else ""
    types = [
        type_name
        for type_name in EVENT_TYPES
        if type_filter in ("", "*", type_name) or (type_prefix != type_filter and type_name.startswith(type_prefix))
    ]
    events_page = await request.store.events.newest(request.team.record.ref, types, before, PAGE_SIZE)
    values = {
        "live": live_url,
        "events": events_page.events,
        "about": event_subject,
        "grouped": group_by_recipient,
        "in_words": type_text,
        "type": type_filter,
        "types": _options_by_object(await request.store.events.list_types(request.team.record.ref), type_filter),
        "more": events_page.before,
        "is_newest": before == NEWEST,
    }
    return Page("events.html", values)


async def show_event(request: PageRequest) -> PageResponse:
    event = await request.store.events.find(request.team.record.ref, request.params["event"])
    if event is None or event.sequence is None:
        raise PageNotFound
    values = {
        "event": event,
        "about": event_subject(event),
        "words": type_text(event.type),
        "json": msgspec.json.format(event_body(with_explanation(event), request.team), indent=2).decode(),
        "link": message_url(request, event),
    }
    return Page("event.html", values)


def message_url(request: PageRequest, event: StoredEvent) -> str:
    """Return the URL of the message that the event is about; empty if it is about something else."""
    id_ = str(event_data(event).get("id", ""))
    is_message = id_.startswith(tuple(PREFIXES[channel] for channel in CHANNELS))
    return f"{request.team_path}/messages/{id_}" if is_message and request.can_open("/messages") else ""


def _options_by_object(occurred: Iterable[str], selected: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return (object, options) pairs for the event filter: types that occur in the feed, and the selected type."""
    names = {*occurred, selected} - {"", "*"}
    groups: dict[str, list[tuple[str, str]]] = {}
    for name in (name for name in SUBSCRIPTION_NAMES if name in names):
        object_name, _, verb = name.partition(".")
        title = channel_name(object_name.replace("_", " "))
        group = groups.setdefault(title, [(f"{object_name}.*", f"{title}: all")])
        if verb != "*":
            group.append((name, f"{type_text(name)} ({name})"))
    return list(groups.items())


def group_by_recipient(events: Iterable[StoredEvent]) -> list[list[StoredEvent]]:
    """Group events by message and recipient; groups and their events are sorted, newest first."""
    groups: dict[tuple[str, str | None], list[StoredEvent]] = {}
    for event in events:
        groups.setdefault((str(event_data(event).get("id") or event.id), event.recipient), []).append(event)
    return list(groups.values())


def type_text(type_: str) -> str:
    """Return the text of an event type: `email.delivery_delayed` becomes 'Email delivery delayed'."""
    if type_ == "verification.verified":
        return "Code confirmed"
    if type_ == "email.complained":
        return "Spam complaint"
    object_name, _, verb = type_.partition(".")
    return f"{channel_name(object_name.replace('_', ' '))} {verb.replace('_', ' ')}"


def event_subject(event: StoredEvent) -> str:
    """Return the recipient or subject of an event; Bcc recipients are hidden, as in webhooks."""
    if event.kind == "bcc":
        return "blind copy"
    data = event_data(event)
    values = (data[name] for name in ("to", "email", "name", "url", "id") if data.get(name))
    value = next(values, "")
    return event.recipient or (", ".join(value) if isinstance(value, list) else str(value))
