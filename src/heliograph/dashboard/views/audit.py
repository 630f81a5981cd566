"""Audit log of a team or of the whole instance: in plain English, with filters, pages and CSV export."""

from collections.abc import AsyncGenerator, Iterable
from datetime import date, datetime, timedelta, tzinfo
from urllib.parse import urlencode

from heliograph.dashboard.audit_texts import AREA_NAMES, action_text, actor_name, find_subject
from heliograph.dashboard.csv_rows import encode_csv
from heliograph.dashboard.page_request import Page, PageRequest, PageResponse, Redirect, Stream
from heliograph.domain.ids import timestamp
from heliograph.domain.text import parse_int
from heliograph.storage.audit import LATEST_TIME, NEWEST, AuditFilter, AuditRow

PAGE_SIZE = 50
PEOPLE_MAX = 200  # maximum people in the filter
EXPORT_BATCH = 1000  # entries read at once by an export
COLUMNS = ("time", "person", "team", "action", "subject", "detail", "address")
OTHER_ACTORS = (("command line", "Command line"), ("service", "Heliograph"))
FILTERS = ("by", "action", "from", "until")
INVALID_DAY = "Enter a date such as 2026-11-15."


async def show(request: PageRequest) -> PageResponse:
    audit_filter, errors = parse_filter(request)
    audit_page = await request.store.audit.list_page(_team_id(request), audit_filter, _parse_cursor(request), PAGE_SIZE)
    params = _filter_params(request)
    is_operator, path = request.can_view("operator"), request.http.path
    rows = [
        {
            "line": entry,
            "created_at": entry.at,
            "who": actor_name(entry, request.setup),
            "what": action_text(entry.action),
            "subject": find_subject(entry, request.setup, is_operator),
            "team": request.setup.teams.get(entry.team or ""),
        }
        for entry in ([] if errors else audit_page.rows)
    ]
    people = await _list_people(request)
    values = {
        "lines": rows,
        "errors": errors,
        "query": request.query,
        "is_filtered": bool(params),
        "people": sorted(people, key=lambda person: person[1].lower()) + list(OTHER_ACTORS),
        "actions": _options_by_area(await request.store.audit.list_actions(_team_id(request)), audit_filter.action),
        "here": path,
        "export": f"{path}.csv?{urlencode(params)}" if params else f"{path}.csv",
        "newest": f"{path}?{urlencode(params)}" if "before" in request.query else "",
        "older": f"{path}?{urlencode(params | {'before': str(audit_page.after)})}" if audit_page.after else "",
        "is_cut": audit_page.is_incomplete,
        "by_line": lambda entry: f"{path}?{urlencode({'by': entry.actor_name})}",
    }
    return Page("audit.html", values, 400 if errors else 200)


def _options_by_area(occurred: Iterable[str], selected: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return (area, options) pairs for the action filter: actions that occur in the log, and the selected action."""
    actions = sorted({*occurred, selected} - {""}, key=action_text)
    groups: dict[str, list[tuple[str, str]]] = {}
    for area, verb in (action.partition(".")[::2] for action in actions):
        title = AREA_NAMES.get(area) or area.replace("_", " ").capitalize()
        group = groups.setdefault(title, [(f"{area}.", f"{title}: all")])
        if verb:
            group.append((f"{area}.{verb}", action_text(f"{area}.{verb}")))
    return sorted(groups.items())


async def _list_people(request: PageRequest) -> list[tuple[str, str]]:
    """Return (id, name) of the people in the filter. Others are selected by a click on one of their entries."""
    if team := _team_id(request):
        return [(person.id, person.name or person.email) for person in await request.store.people.list_members(team)]
    return [
        (person.id, person.name or person.email) for person in await request.store.people.list_rows(limit=PEOPLE_MAX)
    ]


async def export(request: PageRequest) -> PageResponse:
    audit_filter, errors = parse_filter(request)
    if errors:  # an export without the invalid filter would be misleading
        return Redirect(f"{request.http.path.removesuffix('.csv')}?{urlencode(_filter_params(request))}")
    return Stream(
        _export_rows(request, audit_filter), "text/csv; charset=utf-8", f"audit-{_team_id(request) or 'instance'}.csv"
    )


async def _export_rows(request: PageRequest, audit_filter: AuditFilter) -> AsyncGenerator[bytes, None]:
    yield encode_csv([COLUMNS])
    before: int | None = NEWEST
    while before is not None:
        audit_page = await request.store.audit.list_page(_team_id(request), audit_filter, before, EXPORT_BATCH)
        yield encode_csv(map(_csv_row, audit_page.rows))
        before = audit_page.after


def _csv_row(entry: AuditRow) -> tuple[str, ...]:
    return (
        timestamp(entry.at),
        entry.actor,
        entry.team or "",
        entry.action,
        entry.subject,
        entry.detail,
        entry.address,
    )


def parse_filter(request: PageRequest) -> tuple[AuditFilter, dict[str, str]]:
    """Parse the filter from the query; return the filter and the errors by field."""
    days = {
        name: parse_day(request.query.get(name, ""), request.time_zone, offset_days=name == "until")
        for name in ("from", "until")
    }
    errors = {name: INVALID_DAY for name, time_ms in days.items() if time_ms is None and request.query.get(name)}
    audit_filter = AuditFilter(
        actor=request.query.get("by", "") or None,
        action=request.query.get("action", ""),
        since=days["from"] or 0,
        until=days["until"] or LATEST_TIME,
    )
    return audit_filter, errors


def parse_day(text: str, zone: tzinfo, *, offset_days: int) -> int | None:
    """Return the start of the day `offset_days` after the date `text` in the reader's zone, in ms; None if invalid."""
    try:
        day = date.fromisoformat(text) + timedelta(days=offset_days)
        return max(1, int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() * 1000))
    except (ValueError, OverflowError):
        return None


def _filter_params(request: PageRequest) -> dict[str, str]:
    """Return the query parameters of the filter, for links to other pages of the list."""
    return {name: value for name in FILTERS if (value := request.query.get(name, ""))}


def _team_id(request: PageRequest) -> str | None:
    return request.team_or_none.record.id if request.team_or_none else None


def _parse_cursor(request: PageRequest) -> int:
    before = parse_int(request.query.get("before", ""), 18)
    return NEWEST if before is None else before
