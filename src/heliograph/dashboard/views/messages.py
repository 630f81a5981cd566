"""List of messages of all channels: search and filters, which are all in the URL, and export."""

import re
from collections.abc import AsyncGenerator
from datetime import date, datetime, timedelta, tzinfo
from typing import Any
from urllib.parse import urlencode

import msgspec

from heliograph.dashboard.csv_rows import encode_csv
from heliograph.dashboard.page_request import Page, PageRequest, PageResponse, Redirect, Stream
from heliograph.dashboard.render import CHANNEL_NAMES
from heliograph.dashboard.states import state_label
from heliograph.dashboard.views import live
from heliograph.domain.delivery.message_states import STATES_BY_CHANNEL
from heliograph.domain.ids import PREFIXES, timestamp, ulid_ms
from heliograph.domain.mail.address import parse_address
from heliograph.domain.phones.phone import parse_phone
from heliograph.domain.refusals import Refusal
from heliograph.domain.search.trigrams import decode_searched, parse_query
from heliograph.domain.sending.send_options import decode_record, split_tag
from heliograph.manage.keys import keys_of
from heliograph.storage.messages import COUNT_MAX
from heliograph.storage.search.message_search import (
    CHANNELS,
    FAILURE_STATES,
    LATEST_TIME,
    MessageListRow,
    Row,
    Search,
    SearchPage,
)

PAGE_SIZE = 50
EXPORT_BATCH = 1000
STATUSES = tuple(dict.fromkeys(state for states in STATES_BY_CHANNEL.values() for state in states))
# filters hidden until the user opens them
COLLAPSED_FILTERS = ("template", "tag", "domain", "key", "from", "until")
COLUMNS = ("id", "channel", "status", "recipients", "to", "from", "subject", "template_id", "created_at")
_ID_START = re.compile(r"(eml|sms|wam)_[0-9A-Za-z]{1,26}")


async def show_list(request: PageRequest) -> PageResponse:
    if object_page := await find_object_page(request, search_text(request)):
        return Redirect(object_page)
    criteria, errors = parse_search(request)
    is_newest = not errors and criteria.before is None and not criteria.oldest_first
    live_url = await live.team_stream_url(request, "messages") if is_newest else ""
    messages_page = SearchPage[MessageListRow](rows=[]) if errors else await search_messages(request, criteria)
    values = {
        "live": live_url,
        "lines": await build_rows(request, messages_page.rows),
        "counted": "" if errors else await _count_text(request, criteria, messages_page),
        "figures": [] if errors else await _count_by_state(request, criteria),
        "statuses": [("", "Any status"), *((status, state_label(status).label) for status in STATUSES)],
        "channels": [("", "All channels"), *CHANNEL_NAMES.items()],
        "templates": [("", "Any template"), *_template_options(request)],
        "domains": [("", "Any domain"), *((name, name) for name in sorted(request.team.domains))],
        "keys": [("", "Any key"), *_key_options(request)] if request.has_role("developer") else [],
        "moments": {name: time_field(request.query.get(name, ""), request.time_zone) for name in ("from", "until")},
        "has_more": any(request.query.get(name) for name in COLLAPSED_FILTERS),
        "file": f"{request.team_path}/messages.csv?{urlencode(filter_params(request))}",
        **paging_values(request, messages_page),
    }
    return Page("messages.html", values | {"errors": errors}, 400 if errors else 200)


async def export(request: PageRequest) -> PageResponse:
    criteria, errors = parse_search(request)
    if errors:
        return Redirect(f"{request.team_path}/messages?{urlencode(filter_params(request))}")
    criteria = msgspec.structs.replace(criteria, limit=EXPORT_BATCH, before=None)
    return Stream(_export_rows(request, criteria), "text/csv; charset=utf-8", f"messages-{request.team.record.id}.csv")


async def _export_rows(request: PageRequest, criteria: Search) -> AsyncGenerator[bytes, None]:
    yield encode_csv([COLUMNS])
    while True:
        messages_page = await search_messages(request, criteria)
        yield encode_csv(map(_csv_row, messages_page.rows))
        if messages_page.after is None:
            break
        criteria = msgspec.structs.replace(criteria, before=messages_page.after)


def _csv_row(message: MessageListRow) -> tuple[str, ...]:
    record = decode_searched(message.record)
    recipients = [*(record.to_addresses or ([record.to] if record.to else [])), *record.cc, *record.bcc]
    return (
        message.id,
        message.channel,
        message.status,
        str(len(recipients)),
        " ".join(recipients),
        record.sender or "",
        record.subject or "",
        message.template_id or "",
        timestamp(message.created_at),
    )


# -- search and filters ------------------------------------------------------------------------------------------------


def search_text(request: PageRequest) -> str:
    return request.query.get("q", "").strip()


def filter_params(request: PageRequest) -> dict[str, str]:
    """Return the query parameters of search and filters, for links to other pages of the list."""
    return {name: value for name, value in request.query.items() if name != "before" and value}


def parse_search(request: PageRequest) -> tuple[Search, dict[str, str]]:
    criteria, errors = parse_filter(request, STATUSES)
    channel, domain = request.query.get("channel"), request.query.get("domain", "").lower()
    is_problem_status, tag_text = criteria.status in FAILURE_STATES, request.query.get("tag", "").strip()
    tag = split_tag(tag_text)
    if tag_text and tag is None:
        errors["tag"] = "Enter a name and a value, such as kind:receipt."
    changes: dict[str, Any] = {
        "address": None,
        "status": None if is_problem_status else criteria.status,
        "failure": criteria.status if is_problem_status else None,
        "channel": channel if channel in CHANNELS else None,
        "template_id": _id_param(request, "template"),
        "tag": tag,
        "key_id": _id_param(request, "key") if request.has_role("developer") else None,
        "domain": domain or None,
        "oldest_first": request.query.get("sort") == "oldest",
        **text_criteria(search_text(request)),
    }
    return msgspec.structs.replace(criteria, **changes), errors


def text_criteria(text: str) -> dict[str, Any]:
    """Return the search criteria for a text: the beginning of an id, otherwise words to search for."""
    if _ID_START.fullmatch(text):
        return {"id_start": text[:4] + text[4:].upper()}
    return {"needle": parse_query(text)}


async def search_messages(request: PageRequest, criteria: Search) -> SearchPage[MessageListRow]:
    return await request.store.messages.search(request.team.record.ref, criteria)


def _id_param(request: PageRequest, name: str) -> str | None:
    value = request.query.get(name, "")
    return value if value and may_be_id(value) else None


def may_be_id(text: str) -> bool:
    """Return whether the text can be an id; otherwise no query is needed."""
    return text.isascii() and text.replace("_", "").isalnum()


async def find_object_page(request: PageRequest, text: str) -> str | None:
    """Return the URL of the message or verification with this id; None if not found."""
    team = request.team.record.ref
    if not may_be_id(text):
        return None
    if text.startswith(PREFIXES["verification"]):
        return (
            f"{request.team_path}/verifications/{text}" if await request.store.verifications.get(team, text) else None
        )
    if text.startswith(tuple(PREFIXES[channel] for channel in CHANNELS)):
        return f"{request.team_path}/messages/{text}" if await request.store.page_versions.message(team, text) else None
    return None


def parse_filter(request: PageRequest, statuses: tuple[str, ...]) -> tuple[Search, dict[str, str]]:
    """Parse the filters that messages and verifications share; return the search, and field → error."""
    errors: dict[str, str] = {}
    times: dict[str, int] = {}
    for name in ("from", "until"):
        if text := request.query.get(name, ""):
            time_ms = parse_time(text, request.time_zone, is_end=name == "until")
            if time_ms is None:
                errors[name] = "Enter a date such as 2026-11-15."
            else:
                times[name] = time_ms
    status = request.query.get("status")
    criteria = Search(
        limit=PAGE_SIZE,
        status=status if status in statuses else None,
        address=_normalize_address(search_text(request)),
        created_after=max(0, times.get("from", 1) - 1),
        created_before=times.get("until", LATEST_TIME),
        before=before if may_be_id(before := request.query.get("before", "")) else None,
    )
    return criteria, errors


def parse_time(text: str, zone: tzinfo, is_end: bool) -> int | None:
    """Return a date or time as ms, in the reader's zone unless `text` contains a zone; None if invalid.

    `is_end`: return the end of a date, which is the start of the next day.
    """
    try:
        if len(text) == 10:
            day = date.fromisoformat(text) + timedelta(days=int(is_end))
            return int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() * 1000)
        parsed_time = datetime.fromisoformat(text)
        return max(0, int((parsed_time if parsed_time.tzinfo else parsed_time.replace(tzinfo=zone)).timestamp() * 1000))
    except (ValueError, OverflowError):
        return None


def time_field(text: str, zone: tzinfo) -> tuple[str, str]:
    """Return type (day or time) and value of a time filter's input, in the reader's zone."""
    if len(text) in (0, 10):
        return "date", text
    try:
        parsed_time = datetime.fromisoformat(text)
        return "datetime-local", (parsed_time.astimezone(zone) if parsed_time.tzinfo else parsed_time).strftime(
            "%Y-%m-%dT%H:%M"
        )
    except (ValueError, OverflowError):
        return "text", text


def _normalize_address(text: str) -> str | None:
    """Return the normalized address or phone number; None if `text` is not a complete one."""
    if address := parse_address(text):
        return address.normal
    try:
        return parse_phone("".join(text.split()))
    except Refusal:
        return None


# -- display -----------------------------------------------------------------------------------------------------------


def paging_values(request: PageRequest, results: SearchPage[Row]) -> dict[str, Any]:
    params, after = filter_params(request), results.after
    return {
        "query": request.query,
        "is_filtered": bool(params),
        "newest": f"?{urlencode(params)}" if "before" in request.query else None,
        "older": f"?{urlencode(params | {'before': after})}" if after else None,
        "reached": ulid_ms(after[4:]) if after and results.is_incomplete else None,
    }


async def build_rows(request: PageRequest, messages: Any) -> list[dict[str, Any]]:
    """Return the display values of each row; for several recipients, with the number of recipients per outcome."""
    rows = [build_row(request, row) for row in messages]
    multi_recipient_keys = [row["key"] for row in rows if row["others"] > 0]
    outcomes = (
        await request.store.messages.count_recipients_by_state(multi_recipient_keys) if multi_recipient_keys else {}
    )
    for row in rows:
        counts = outcomes.get(row["key"], {})
        total = sum(counts.values())
        row["some"] = [
            (status, f"{counts[status]} of {total} {status}")
            for status in FAILURE_STATES
            if 0 < counts.get(status, 0) < total
        ]
    return rows


async def _count_text(request: PageRequest, criteria: Search, results: SearchPage[MessageListRow]) -> str:
    """Return the number of matches as text; empty if the page shows all, or no index can count them."""
    is_partial_match = criteria.needle or criteria.key_id or criteria.domain or criteria.oldest_first
    if results.after is None:
        return "" if criteria.before else _messages_text(len(results.rows))
    if results.is_incomplete or criteria.tag or (is_partial_match and (criteria.status or criteria.failure)):
        return ""
    number, is_capped = await request.store.messages.count(request.team.record.ref, criteria)
    if is_capped:
        return f"{number:,}+ messages"
    return f"about {_messages_text(number)}" if criteria.needle else _messages_text(number)


async def _count_by_state(request: PageRequest, criteria: Search) -> list[tuple[str, str]]:
    """Return state → number of messages, if the only filter is a template or a tag."""
    other_filters = (
        criteria.status,
        criteria.failure,
        criteria.address,
        criteria.needle,
        criteria.id_start,
        criteria.key_id,
        criteria.domain,
    )
    if bool(criteria.template_id) == bool(criteria.tag) or any(other_filters):
        return []
    count_by_state = await request.store.messages.count_by_state(request.team.record.ref, criteria)
    suffix_by_state = {status: "+" for status, number in count_by_state.items() if number >= COUNT_MAX}
    return [
        (status, f"{count_by_state[status]:,}{suffix_by_state.get(status, '')} {state_label(status).label.lower()}")
        for status in STATUSES
        if count_by_state.get(status)
    ]


def _messages_text(number: int) -> str:
    return f"{number:,} message{'' if number == 1 else 's'}"


def _template_options(request: PageRequest) -> list[tuple[str, str]]:
    templates_by_name = sorted(
        (template.name.casefold(), template.id, template) for template in request.team.templates.values()
    )
    return [(id_, f"{template.name} ({CHANNEL_NAMES[template.channel]})") for _, id_, template in templates_by_name]


def _key_options(request: PageRequest) -> list[tuple[str, str]]:
    team_keys = sorted(keys_of(request.setup, request.team.record.id), key=lambda key: key.name.casefold())
    return [*((key.id, key.name) for key in team_keys), ("dashboard", "Sent from the dashboard")]


def build_row(request: PageRequest, message: MessageListRow) -> dict[str, Any]:
    record = decode_record(message.record)
    return {
        "key": message.key,
        "id": message.id,
        "channel": message.channel,
        "status": message.status,
        "created_at": message.created_at,
        "to": record.to,
        "others": record.recipient_count - 1,
        "about": record.subject or template_name(request, message.template_id) or "(no subject)",
    }


def template_name(request: PageRequest, id_: str | None) -> str:
    template = request.team.templates.get(id_ or "")
    return template.name if template else id_ or ""
