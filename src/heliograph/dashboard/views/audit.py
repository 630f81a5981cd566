"""Audit log of a team or of the whole instance: in plain English, with filters, pages and CSV export."""

from collections.abc import AsyncGenerator
from datetime import date, datetime, timedelta, tzinfo
from urllib.parse import urlencode

from heliograph.dashboard.audit_texts import AREAS, actor_of, in_words, subject_of
from heliograph.dashboard.csv_rows import csv_lines
from heliograph.dashboard.page_request import Answer, Page, Redirect, Stream, Visit
from heliograph.domain.ids import timestamp
from heliograph.domain.text import whole_number
from heliograph.storage.audit import FOREVER, NEWEST, AuditFilter, AuditLine

PAGE = 50
PEOPLE = 200  # maximum number of people in the filter
PORTION = 1000  # lines read per batch of an export
COLUMNS = ("time", "person", "team", "action", "subject", "detail", "address")
OTHERS = (("command line", "Command line"), ("service", "Heliograph"))
FILTERS = ("by", "action", "from", "until")
WRONG_DAY = "Give a day such as 2026-11-15."


async def show(visit: Visit) -> Answer:
    wanted, errors = read(visit)
    found = await visit.store.audit.page(_team(visit), wanted, _before(visit), PAGE)
    kept = _kept(visit)
    operator, here = visit.sees("operator"), visit.request.path
    lines = [
        {
            "line": line,
            "who": actor_of(line, visit.setup),
            "what": in_words(line.action),
            "subject": subject_of(line, visit.setup, operator),
            "team": visit.setup.teams.get(line.team or ""),
        }
        for line in ([] if errors else found.lines)
    ]
    people = await _people(visit)
    values = {
        "lines": lines,
        "errors": errors,
        "query": visit.query,
        "is_filtered": bool(kept),
        "people": sorted(people, key=lambda one: one[1].lower()) + list(OTHERS),
        "areas": AREAS,
        "here": here,
        "export": f"{here}.csv?{urlencode(kept)}" if kept else f"{here}.csv",
        "newest": f"{here}?{urlencode(kept)}" if "before" in visit.query else "",
        "older": f"{here}?{urlencode(kept | {'before': str(found.after)})}" if found.after else "",
        "is_cut": found.is_cut,
        "by_line": lambda line: f"{here}?{urlencode({'by': line.by})}",
    }
    return Page("audit.html", values, 400 if errors else 200)


async def _people(visit: Visit) -> list[tuple[str, str]]:
    """Return the people for the filter. A person not listed can be selected by clicking one of their entries."""
    if team := _team(visit):
        return [(one.id, one.name or one.email) for one in await visit.store.people.members(team)]
    return [(one.id, one.name or one.email) for one in await visit.store.people.lines(limit=PEOPLE)]


async def export(visit: Visit) -> Answer:
    wanted, errors = read(visit)
    if errors:  # show the errors on the page; an unfiltered export would be misleading
        return Redirect(f"{visit.request.path.removesuffix('.csv')}?{urlencode(_kept(visit))}")
    return Stream(_file(visit, wanted), "text/csv; charset=utf-8", f"audit-{_team(visit) or 'instance'}.csv")


async def _file(visit: Visit, wanted: AuditFilter) -> AsyncGenerator[bytes, None]:
    yield csv_lines([COLUMNS])
    before: int | None = NEWEST
    while before is not None:
        found = await visit.store.audit.page(_team(visit), wanted, before, PORTION)
        yield csv_lines(map(_cells, found.lines))
        before = found.after


def _cells(line: AuditLine) -> tuple[str, ...]:
    return (timestamp(line.at), line.actor, line.team or "", line.action, line.subject, line.detail, line.address)


def read(visit: Visit) -> tuple[AuditFilter, dict[str, str]]:
    """Parse the filter from the query; return the filter and the errors by field."""
    days = {name: read_day(visit.query.get(name, ""), visit.zone, days=name == "until") for name in ("from", "until")}
    errors = {name: WRONG_DAY for name, at in days.items() if at is None and visit.query.get(name)}
    wanted = AuditFilter(
        actor=visit.query.get("by", "") or None,
        action=visit.query.get("action", ""),
        since=days["from"] or 0,
        until=days["until"] or FOREVER,
    )
    return wanted, errors


def read_day(text: str, zone: tzinfo, *, days: int) -> int | None:
    """Return the start of the day `days` after `text` in the reader's zone, in ms; None if `text` is not a date."""
    try:
        day = date.fromisoformat(text) + timedelta(days=days)
        return max(1, int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() * 1000))
    except (ValueError, OverflowError):
        return None


def _kept(visit: Visit) -> dict[str, str]:
    """Return the query parameters that links to other pages keep."""
    return {name: value for name in FILTERS if (value := visit.query.get(name, ""))}


def _team(visit: Visit) -> str | None:
    return visit.team_found.record.id if visit.team_found else None


def _before(visit: Visit) -> int:
    before = whole_number(visit.query.get("before", ""), 18)
    return NEWEST if before is None else before
