"""The feed as a page: every published event of the team, newest first, as its webhooks are told it."""

import msgspec

from heliograph.dashboard.views import live
from heliograph.dashboard.visit import Answer, Page, Visit
from heliograph.rules.ids import PREFIXES
from heliograph.rules.webhooks.event import NAMES, TYPES, StoredEvent, event_body, event_data
from heliograph.storage.events import NEWEST
from heliograph.storage.search import CHANNELS
from heliograph.words.explain import explained

PAGE = 50


class EventLine(msgspec.Struct, frozen=True):
    event: StoredEvent
    about: str
    json: str
    link: str


async def show(visit: Visit) -> Answer:
    name, before = visit.query.get("type", ""), visit.query.get("before") or NEWEST
    group = name.removesuffix("*")
    stream = await live.team_stream_address(visit, "events") if before == NEWEST else ""
    types = [one for one in TYPES if name in ("", "*", one) or (group != name and one.startswith(group))]
    found = await visit.store.events.newest(visit.team.record.ref, types, before, PAGE)
    values = {
        "live": stream,
        "lines": [_line(visit, event) for event in found.events],
        "type": name,
        "names": [("", "All types"), *((one, one) for one in NAMES[1:])],
        "more": found.before,
        "is_newest": before == NEWEST,
    }
    return Page("events.html", values)


def _line(visit: Visit, event: StoredEvent) -> EventLine:
    told = explained(event)
    data, body = event_data(told), event_body(told, visit.team)
    about = event.recipient or next(
        (str(data[name]) for name in ("to", "email", "name", "url", "id") if data.get(name)), ""
    )
    id_ = str(data.get("id", ""))
    is_message = id_.startswith(tuple(PREFIXES[channel] for channel in CHANNELS))
    return EventLine(
        event,
        "blind copy" if event.kind == "bcc" else about,  # it stays blind here as it does for webhooks
        msgspec.json.format(body, indent=2).decode(),
        f"{visit.base}/messages/{id_}" if is_message else "",
    )
