"""Request log: all API calls with the team's keys; for refused calls, meaning and fix of the error."""

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlencode

from heliograph.dashboard.live import Subscription
from heliograph.dashboard.page_request import Page, PageNotFound, PageRequest, PageResponse, Redirect
from heliograph.dashboard.views.live import make_subscription, open_stream, stream_url
from heliograph.domain.limits import DAY_MS, HOUR_MS
from heliograph.domain.refusals import NOT_PERMITTED, KeyLimitReached, all_refusals
from heliograph.storage.requests import NEWEST, TEAM_SHARE_MAX, LoggedRequest, RequestFilter
from heliograph.web.errors import error_list

PAGE_SIZE = 50
EXPLANATION_BY_CODE = {refusal.code: {"meaning": refusal.meaning(), "fix": refusal.fix} for refusal in all_refusals()}
# error codes of refusals because of a key's restrictions
RESTRICTION_CODES = {refusal.code for refusal in (*NOT_PERMITTED, KeyLimitReached)}
STATUS_BY_ERROR_CODE = {error["code"]: error["status"] for error in error_list()}
STATUS_CLASS_OPTIONS = (("", "Any status"), ("2", "Succeeded (2xx)"), ("4", "Refused (4xx)"), ("5", "Failed (5xx)"))
DURATION_BY_SPAN = {"hour": HOUR_MS, "day": DAY_MS}
TIME_OPTIONS = (("", "Last 7 days"), ("day", "Last 24 hours"), ("hour", "Last hour"))
# prefix of an id → path of the page about the object that a request created or read
PAGE_BY_ID_PREFIX = {
    **dict.fromkeys(("eml", "sms", "wam"), "messages"),
    "vrf": "verifications",
    "dom": "senders/domains",
    "whk": "webhooks",
    "tpl": "templates",
}
OBJECT_NAME_BY_PAGE = {
    "messages": "Message",
    "verifications": "Verification",
    "senders/domains": "Domain",
    "webhooks": "Webhook",
    "templates": "Template",
}
FILTERS = ("class", "code", "key", "route", "time")


async def show(request: PageRequest) -> PageResponse:
    request_id = request.query.get("id", "").strip()
    store, team = request.store.requests, request.team.record.ref
    # Write this process's entries now; those of other processes may be a second late.
    await request.context.state.request_log.write(store)
    if request_id and await store.find(team, request_id):
        return Redirect(f"{_log_url(request)}/{request_id}")
    filters = {name: request.query.get(name, "").strip() for name in FILTERS}
    before = request.query.get("before", "")
    live_url = await log_stream_url(request)
    request_filter = _parse_filters(filters, request.context.clock.now())
    rows = [] if request_id else await store.list_page(team, request_filter, before or NEWEST, PAGE_SIZE)
    name_by_key = _name_by_key(request)
    filter_values = await store.list_filter_values(team)
    active_filters = {name: value for name, value in filters.items() if value}
    return Page(
        "requests.html",
        {
            "requests": rows[:PAGE_SIZE],
            "wanted": request_id,
            "filters": filters,
            "active_filters": active_filters,
            "newest": f"{_log_url(request)}?{urlencode(active_filters)}" if before else "",
            "older": f"?{urlencode(active_filters | {'before': rows[PAGE_SIZE - 1].id})}"
            if len(rows) > PAGE_SIZE
            else "",
            "live": "" if before or request_id else live_url,
            "classes": STATUS_CLASS_OPTIONS,
            "times": TIME_OPTIONS,
            "codes": _options_by_group(
                filter_values.codes, lambda code: str(STATUS_BY_ERROR_CODE.get(code, "Other")), filters["code"]
            ),
            "routes": _options_by_group(filter_values.routes, _route_group, filters["route"]),
            "keys": [("", "Any key"), *name_by_key.items()],
            "names": name_by_key,
            "share": TEAM_SHARE_MAX,
            "logged_per_second": request.setup.platform.log_requests_per_second,
        },
    )


async def show_logged_request(request: PageRequest) -> PageResponse:
    store, team = request.store.requests, request.team.record.ref
    await request.context.state.request_log.write(store)
    logged = await store.find(team, request.params["id"])
    if logged is None:
        raise PageNotFound("This request is not in the log. Requests are kept for a week.")
    explanation = EXPLANATION_BY_CODE.get(logged.code)
    values: dict[str, Any] = {
        "logged": logged,
        # The fix is removed from the message, because the page shows it separately.
        "answer": logged.message.removesuffix(explanation["fix"]).strip() if explanation else "",
        "place": _object_page(request, logged),
        "object_name": OBJECT_NAME_BY_PAGE.get(_page_path(logged), "Object"),
        "explained": explanation,
        "key": _name_by_key(request).get(logged.key, ""),
        "restriction_codes": RESTRICTION_CODES,
        "docs": f"{request.context.base_url}/docs/errors#{logged.code}",
    }
    return Page("request.html", values)


async def live(request: PageRequest) -> PageResponse:
    return open_stream(request, _log_subscription(request))


async def log_stream_url(request: PageRequest) -> str:
    """Return the live stream's URL, for a page with the newest requests."""
    return await stream_url(request, f"{_log_url(request)}/live", _log_subscription(request))


async def list_newest_requests(request: PageRequest, count: int) -> list[tuple[LoggedRequest, str]]:
    """Return the newest requests, each with the URL of the object that it created or read."""
    store = request.store.requests
    await request.context.state.request_log.write(store)
    return [
        (logged, _object_page(request, logged))
        for logged in (await store.list_page(request.team.record.ref, limit=count))[:count]
    ]


def _log_url(request: PageRequest) -> str:
    return f"{request.team_path}/requests"


def _log_subscription(request: PageRequest) -> Subscription:
    ref = request.team.record.ref
    return make_subscription(
        request, "requests", str(ref), lambda: request.store.requests.list_version(ref), ("requests",)
    )


def _parse_filters(filters: dict[str, str], now: int) -> RequestFilter:
    return RequestFilter(
        status_class=int(filters["class"]) if filters["class"] in ("2", "4", "5") else None,
        code=filters["code"],
        key=filters["key"],
        route=filters["route"],
        since=now - DURATION_BY_SPAN[filters["time"]] if filters["time"] in DURATION_BY_SPAN else 0,
    )


def _options_by_group(
    names: Iterable[str], group_of: Callable[[str], str], selected: str
) -> list[tuple[str, list[str]]]:
    """Return (group, names) pairs for a filter: all names in the request log, and the selected name."""
    groups: dict[str, list[str]] = {}
    for name in sorted({*names, selected} - {""}):
        groups.setdefault(group_of(name), []).append(name)
    return sorted(groups.items())


def _route_group(route: str) -> str:
    """Return the group of a route in the filter: its resource, or the service that its compatibility API imitates."""
    _, _, path = route.partition(" ")
    first, _, rest = path.strip("/").partition("/")
    return (rest.partition("/")[0] if first in ("v1", "compat") else first).replace("-", " ").capitalize() or "Other"


def _name_by_key(request: PageRequest) -> dict[str, str]:
    """Return public id → name of the team's API keys."""
    team_keys = (
        caller.key for caller in request.setup.callers.values() if caller.team.record.id == request.team.record.id
    )
    return {key.id: key.name for key in team_keys}


def _object_page(request: PageRequest, logged: LoggedRequest) -> str:
    """Return the URL of the object that the request created or read; empty if it has no page."""
    page_path = _page_path(logged)
    return f"{request.team_path}/{page_path}/{logged.subject}" if page_path else ""


def _page_path(logged: LoggedRequest) -> str:
    return PAGE_BY_ID_PREFIX.get(logged.subject.partition("_")[0], "")
