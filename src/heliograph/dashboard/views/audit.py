"""The audit log of a team, and of the whole instance: read by pages, taken home as CSV."""

from collections.abc import AsyncGenerator

from heliograph.dashboard.csv_lines import csv_lines
from heliograph.dashboard.visit import Answer, Page, Stream, Visit
from heliograph.rules.ids import timestamp
from heliograph.storage.audit import NEWEST, AuditLine

PAGE = 50
PORTION = 1000  # lines read at once for a file
COLUMNS = ("time", "person", "team", "action", "subject", "detail", "address")


async def show(visit: Visit) -> Answer:
    lines = await visit.context.store.audit.lines(_team(visit), _before(visit), PAGE)
    older = lines[PAGE - 1].key if len(lines) > PAGE else None
    is_first = "before" not in visit.query
    return Page("audit.html", {"lines": lines[:PAGE], "older": older, "here": visit.request.path, "is_first": is_first})


async def export(visit: Visit) -> Answer:
    return Stream(_file(visit), "text/csv; charset=utf-8", f"audit-{_team(visit) or 'instance'}.csv")


async def _file(visit: Visit) -> AsyncGenerator[bytes, None]:
    yield csv_lines([COLUMNS])
    before = NEWEST
    while lines := await visit.context.store.audit.lines(_team(visit), before, PORTION):
        yield csv_lines(map(_cells, lines))
        before = lines[-1].key


def _cells(line: AuditLine) -> tuple[str, ...]:
    return (timestamp(line.at), line.actor, line.team or "", line.action, line.subject, line.detail, line.address)


def _team(visit: Visit) -> str | None:
    return visit.team_found.record.id if visit.team_found else None


def _before(visit: Visit) -> int:
    given = visit.query.get("before", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 19 else NEWEST
