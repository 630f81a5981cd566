"""Message list of all channels: search and filters, all of them in the URL, and export."""

import re
from collections.abc import AsyncGenerator
from datetime import date, datetime, timedelta, tzinfo
from typing import Any
from urllib.parse import urlencode

import msgspec

from heliograph.dashboard.csv_rows import csv_lines
from heliograph.dashboard.page_request import Answer, Page, Redirect, Stream, Visit
from heliograph.dashboard.render import CHANNEL_NAMES
from heliograph.dashboard.states import state_of
from heliograph.dashboard.views import live
from heliograph.domain.delivery.message_states import STATES
from heliograph.domain.ids import PREFIXES, timestamp, ulid_ms
from heliograph.domain.mail.address import parse_address
from heliograph.domain.phones.phone import read_phone
from heliograph.domain.refusals import Refusal
from heliograph.domain.search.trigrams import read_search_text, read_searched
from heliograph.domain.sending.send_options import read_record, split_tag
from heliograph.manage.keys import keys_of
from heliograph.storage.messages import COUNT_MOST
from heliograph.storage.search.message_search import (
    CHANNELS,
    FOREVER,
    WRONG,
    MessageLine,
    Row,
    Search,
    SearchPage,
)

PAGE = 50
EXPORT_PORTION = 1000
STATUSES = tuple(dict.fromkeys(state for states in STATES.values() for state in states))
MORE = ("template", "tag", "domain", "key", "from", "until", "sort")  # filters that are collapsed by default
COLUMNS = ("id", "channel", "status", "recipients", "to", "from", "subject", "template_id", "created_at")
_ID_START = re.compile(r"(eml|sms|wam)_[0-9A-Za-z]{1,26}")


async def show_list(visit: Visit) -> Answer:
    if page := await page_of(visit, typed(visit)):
        return Redirect(page)
    wanted, errors = read_search(visit)
    is_newest = not errors and wanted.before is None and not wanted.oldest_first
    stream = await live.team_stream_address(visit, "messages") if is_newest else ""
    found = SearchPage[MessageLine](lines=[]) if errors else await search(visit, wanted)
    values = {
        "live": stream,
        "lines": await lines_of(visit, found.lines),
        "counted": "" if errors else await _counted(visit, wanted, found),
        "figures": [] if errors else await _figures(visit, wanted),
        "statuses": [("", "Any status"), *((one, state_of(one).label) for one in STATUSES)],
        "channels": [("", "All channels"), *CHANNEL_NAMES.items()],
        "templates": [("", "Any template"), *_templates(visit)],
        "domains": [("", "Any domain"), *((name, name) for name in sorted(visit.team.domains))],
        "keys": [("", "Any key"), *_keys(visit)] if visit.may("developer") else [],
        "moments": {name: moment_field(visit.query.get(name, ""), visit.zone) for name in ("from", "until")},
        "has_more": any(visit.query.get(name) for name in MORE),
        "file": f"{visit.base}/messages.csv?{urlencode(kept(visit))}",
        **paging(visit, found),
    }
    return Page("messages.html", values | {"errors": errors}, 400 if errors else 200)


async def export(visit: Visit) -> Answer:
    wanted, errors = read_search(visit)
    if errors:
        return Redirect(f"{visit.base}/messages?{urlencode(kept(visit))}")
    wanted = msgspec.structs.replace(wanted, limit=EXPORT_PORTION, before=None)
    return Stream(_file(visit, wanted), "text/csv; charset=utf-8", f"messages-{visit.team.record.id}.csv")


async def _file(visit: Visit, wanted: Search) -> AsyncGenerator[bytes, None]:
    yield csv_lines([COLUMNS])
    while True:
        found = await search(visit, wanted)
        yield csv_lines(map(_cells, found.lines))
        if found.after is None:
            break
        wanted = msgspec.structs.replace(wanted, before=found.after)


def _cells(line: MessageLine) -> tuple[str, ...]:
    said = read_searched(line.record)
    to = [*(said.to_addresses or ([said.to] if said.to else [])), *said.cc, *said.bcc]
    return (
        *(line.id, line.channel, line.status, str(len(to)), " ".join(to), said.sender or "", said.subject or ""),
        *(line.template_id or "", timestamp(line.created_at)),
    )


# -- search and filters ------------------------------------------------------------------------------------------------


def typed(visit: Visit) -> str:
    """Return the search text."""
    return visit.query.get("q", "").strip()


def kept(visit: Visit) -> dict[str, str]:
    """Return the query parameters that links to other pages keep."""
    return {name: value for name, value in visit.query.items() if name != "before" and value}


def read_search(visit: Visit) -> tuple[Search, dict[str, str]]:
    wanted, errors = read_filter(visit, STATUSES)
    channel, domain = visit.query.get("channel"), visit.query.get("domain", "").lower()
    is_wrong, given = wanted.status in WRONG, visit.query.get("tag", "").strip()
    tag = split_tag(given)
    if given and tag is None:
        errors["tag"] = "Give a name and a value, such as kind:receipt."
    more: dict[str, Any] = {
        "address": None,
        "status": None if is_wrong else wanted.status,
        "wrong": wanted.status if is_wrong else None,
        "channel": channel if channel in CHANNELS else None,
        "template_id": _id(visit, "template"),
        "tag": tag,
        "key_id": _id(visit, "key") if visit.may("developer") else None,
        "domain": domain or None,
        "oldest_first": visit.query.get("sort") == "oldest",
        **looked_for(typed(visit)),
    }
    return msgspec.structs.replace(wanted, **more), errors


def looked_for(text: str) -> dict[str, Any]:
    """Return the search criteria for a text: the prefix of an id, or a substring."""
    if _ID_START.fullmatch(text):
        return {"id_start": text[:4] + text[4:].upper()}
    return {"needle": read_search_text(text)}


async def search(visit: Visit, wanted: Search) -> SearchPage[MessageLine]:
    return await visit.store.messages.search(visit.team.record.ref, wanted)


def _id(visit: Visit, name: str) -> str | None:
    given = visit.query.get(name, "")
    return given if given and is_id(given) else None


def is_id(text: str) -> bool:
    """Return whether the text could be an id; otherwise no database query is needed."""
    return text.isascii() and text.replace("_", "").isalnum()


async def page_of(visit: Visit, text: str) -> str | None:
    """Return the page of the message or verification with this id; None if not found."""
    team = visit.team.record.ref
    if not is_id(text):
        return None
    if text.startswith(PREFIXES["verification"]):
        return f"{visit.base}/verifications/{text}" if await visit.store.verifications.get(team, text) else None
    if text.startswith(tuple(PREFIXES[channel] for channel in CHANNELS)):
        return f"{visit.base}/messages/{text}" if await visit.store.pulses.message(team, text) else None
    return None


def read_filter(visit: Visit, statuses: tuple[str, ...]) -> tuple[Search, dict[str, str]]:
    """Parse the filters shared by messages and verifications; return the search and the errors by field."""
    errors: dict[str, str] = {}
    times: dict[str, int] = {}
    for name in ("from", "until"):
        if given := visit.query.get(name, ""):
            at = read_moment(given, visit.zone, is_end=name == "until")
            if at is None:
                errors[name] = "Give a day such as 2026-11-15."
            else:
                times[name] = at
    status = visit.query.get("status")
    wanted = Search(
        limit=PAGE,
        status=status if status in statuses else None,
        address=_address(typed(visit)),
        created_after=max(0, times.get("from", 1) - 1),
        created_before=times.get("until", FOREVER),
        before=before if is_id(before := visit.query.get("before", "")) else None,
    )
    return wanted, errors


def read_moment(text: str, zone: tzinfo, is_end: bool) -> int | None:
    """Parse a day in the reader's zone or a time with or without a zone, in ms; None if invalid.

    The end of a day is the start of the next day.
    """
    try:
        if len(text) == 10:
            day = date.fromisoformat(text) + timedelta(days=int(is_end))
            return int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() * 1000)
        at = datetime.fromisoformat(text)
        return max(0, int((at if at.tzinfo else at.replace(tzinfo=zone)).timestamp() * 1000))
    except (ValueError, OverflowError):
        return None


def moment_field(text: str, zone: tzinfo) -> tuple[str, str]:
    """Return the type and value of the input field for a time filter: a day, or a time in the reader's zone."""
    if len(text) in (0, 10):
        return "date", text
    try:
        at = datetime.fromisoformat(text)
        return "datetime-local", (at.astimezone(zone) if at.tzinfo else at).strftime("%Y-%m-%dT%H:%M")
    except (ValueError, OverflowError):
        return "text", text


def _address(text: str) -> str | None:
    """Return the normalized form of a complete email address or phone number; None if `text` is neither."""
    if address := parse_address(text):
        return address.normal
    try:
        return read_phone("".join(text.split()))
    except Refusal:
        return None


# -- display -----------------------------------------------------------------------------------------------------------


def paging(visit: Visit, found: SearchPage[Row]) -> dict[str, Any]:
    same, after = kept(visit), found.after
    return {
        "query": visit.query,
        "is_filtered": bool(same),
        "newest": f"?{urlencode(same)}" if "before" in visit.query else None,
        "older": f"?{urlencode(same | {'before': after})}" if after else None,
        "reached": ulid_ms(after[4:]) if after and found.is_cut else None,
    }


async def lines_of(visit: Visit, lines: Any) -> list[dict[str, Any]]:
    """Return the display values of each row, with outcome counts for messages to several recipients."""
    shown = [line_of(visit, line) for line in lines]
    several = [line["key"] for line in shown if line["others"] > 0]
    outcomes = await visit.store.messages.outcomes(several) if several else {}
    for line in shown:
        counts = outcomes.get(line["key"], {})
        total = sum(counts.values())
        line["some"] = [
            (status, f"{counts[status]} of {total} {status}") for status in WRONG if 0 < counts.get(status, 0) < total
        ]
    return shown


async def _counted(visit: Visit, wanted: Search, found: SearchPage[MessageLine]) -> str:
    """Return the number of matches as text; empty if the page shows all matches or an index cannot count them."""
    is_by_parts = wanted.needle or wanted.key_id or wanted.domain or wanted.oldest_first
    if found.after is None:
        return "" if wanted.before else _plural(len(found.lines))
    if found.is_cut or wanted.tag or (is_by_parts and (wanted.status or wanted.wrong)):
        return ""
    number, more = await visit.store.messages.count(visit.team.record.ref, wanted)
    if more:
        return f"{number:,}+ messages"
    return f"about {_plural(number)}" if wanted.needle else _plural(number)


async def _figures(visit: Visit, wanted: Search) -> list[tuple[str, str]]:
    """Return the number of messages per state, if the only filter is one template or one tag."""
    others = (wanted.status, wanted.wrong, wanted.address, wanted.needle, wanted.id_start, wanted.key_id, wanted.domain)
    if bool(wanted.template_id) == bool(wanted.tag) or any(others):
        return []
    found = await visit.store.messages.states(visit.team.record.ref, wanted)
    more = {status: "+" for status, number in found.items() if number >= COUNT_MOST}
    return [
        (status, f"{found[status]:,}{more.get(status, '')} {state_of(status).label.lower()}")
        for status in STATUSES
        if found.get(status)
    ]


def _plural(number: int) -> str:
    return f"{number:,} message{'' if number == 1 else 's'}"


def _templates(visit: Visit) -> list[tuple[str, str]]:
    known = sorted((one.name.casefold(), one.id, one) for one in visit.team.templates.values())
    return [(id_, f"{one.name} ({CHANNEL_NAMES[one.channel]})") for _, id_, one in known]


def _keys(visit: Visit) -> list[tuple[str, str]]:
    mine = sorted(keys_of(visit.setup, visit.team.record.id), key=lambda key: key.name.casefold())
    return [*((key.id, key.name) for key in mine), ("dashboard", "Sent from the dashboard")]


def line_of(visit: Visit, line: MessageLine) -> dict[str, Any]:
    record = read_record(line.record)
    return {
        "key": line.key,
        "id": line.id,
        "channel": line.channel,
        "status": line.status,
        "created_at": line.created_at,
        "to": record.to,
        "others": record.recipient_count - 1,
        "about": record.subject or template_name(visit, line.template_id) or "(no subject)",
    }


def template_name(visit: Visit, id_: str | None) -> str:
    template = visit.team.templates.get(id_ or "")
    return template.name if template else id_ or ""
