"""Page about one key's calls to compatibility APIs: which calls work or differ, and what the team should change."""

from typing import Literal

import msgspec

from heliograph.dashboard.page_request import Page, PageNotFound, PageRequest
from heliograph.manage.keys import keys_of
from heliograph.storage.requests import CompatCalls
from heliograph.texts.compat_differences import DIFFERENCES

GROUPS_MAX = 200  # maximum groups of calls with equal route, client and result, for accepted and for refused calls
SERVICE_NAMES = {
    "resend": "Resend",
    "postmark": "Postmark",
    "twilio": "Twilio",
    "postal": "Postal",
    "supabase": "Supabase",
}
CLIENTS_MAX = 3  # maximum clients shown per call

Outcome = Literal["refused", "differs", "works"]
ORDER: tuple[Outcome, ...] = ("refused", "differs", "works")


class CallRow(msgspec.Struct, frozen=True, kw_only=True):
    """All logged calls to a route."""

    service: str
    name: str  # method and path below the service's prefix
    outcome: Outcome
    advice: str  # what differs, or why it was refused
    latest: CompatCalls
    refusal: CompatCalls | None  # the newest refusal
    accepted_count: int
    refused_count: int
    clients: list[str]


async def show(request: PageRequest) -> Page:
    key = next((key for key in keys_of(request.setup, request.team.record.id) if key.id == request.params["key"]), None)
    if key is None:
        raise PageNotFound
    await request.context.state.request_log.write(request.store.requests)
    calls = await request.store.requests.list_compat_calls(request.team.record.ref, key.id, GROUPS_MAX)
    rows = summarize_calls(calls)
    working_count = sum(row.outcome != "refused" for row in rows)
    values = {
        "key": key,
        "rows": rows,
        "working": working_count,
        "percent": 100 * working_count // len(rows) if rows else 0,
        "counts": {outcome: sum(row.outcome == outcome for row in rows) for outcome in ORDER},
    }
    return Page("compatibility.html", values)


def summarize_calls(calls: list[CompatCalls]) -> list[CallRow]:
    """Return one row per route, refused ones first. `calls` are sorted, newest first."""
    calls_by_route: dict[str, list[CompatCalls]] = {}
    for call in calls:
        calls_by_route.setdefault(call.route, []).append(call)
    rows = [_row(route, route_calls) for route, route_calls in calls_by_route.items()]
    return sorted(rows, key=lambda row: ORDER.index(row.outcome))


def _row(route: str, calls: list[CompatCalls]) -> CallRow:
    method, _, path = route.partition(" ")
    service, _, below = path.removeprefix("/compat/").partition("/")
    accepted_count = sum(call.count for call in calls if not call.refused)
    refusal = next((call for call in calls if call.refused), None)
    outcome: Outcome = "refused" if not accepted_count else "differs" if route in DIFFERENCES else "works"
    advice = (DIFFERENCES.get(route) if accepted_count else None, refusal.message if refusal else None)
    return CallRow(
        service=SERVICE_NAMES.get(service, service),
        name=f"{method} /{below}",
        outcome=outcome,
        advice=" ".join(filter(None, advice)),
        latest=calls[0],
        refusal=refusal,
        accepted_count=accepted_count,
        refused_count=sum(call.count for call in calls if call.refused),
        clients=list(dict.fromkeys(call.client for call in calls if call.client))[:CLIENTS_MAX],
    )
