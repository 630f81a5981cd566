"""Request log: all API calls with the team's keys; for rejected calls, the meaning of the error and its fix."""

from typing import Any
from urllib.parse import urlencode

from heliograph.dashboard.live import Watch
from heliograph.dashboard.page_request import Answer, Gone, Page, Redirect, Visit
from heliograph.dashboard.views.live import stream, stream_address, watch
from heliograph.domain.limits import DAY_MS, HOUR_MS
from heliograph.domain.refusals import all_refusals
from heliograph.storage.requests import NEWEST, SHARE_MAX, LoggedRequest, WantedRequests

PAGE = 50
EXPLAINED = {refusal.code: {"meaning": refusal.meaning(), "fix": refusal.fix} for refusal in all_refusals()}
CLASSES = (("", "Any status"), ("2", "Succeeded (2xx)"), ("4", "Refused (4xx)"), ("5", "Failed (5xx)"))
SPANS = {"hour": HOUR_MS, "day": DAY_MS}
TIMES = (("", "Last 7 days"), ("day", "Last 24 hours"), ("hour", "Last hour"))
# Prefix of an id → path of the page that shows the object which a request created or read.
PLACES = {
    **dict.fromkeys(("eml", "sms", "wam"), "messages"),
    "vrf": "verifications",
    "dom": "senders/domains",
    "whk": "webhooks",
    "tpl": "templates",
}
FILTERS = ("class", "code", "key", "route", "time")


async def show(visit: Visit) -> Answer:
    wanted = visit.query.get("id", "").strip()
    store, team = visit.store.requests, visit.team.record.ref
    # flush this process; entries of other processes may lag by a second
    await visit.context.state.requests.write(store)
    if wanted and await store.find(team, wanted):
        return Redirect(f"{_here(visit)}/{wanted}")
    given = {name: visit.query.get(name, "").strip() for name in FILTERS}
    before = visit.query.get("before", "")
    live = await live_address(visit)
    found = [] if wanted else await store.page(team, _wanted(given, visit.context.clock.now()), before or NEWEST, PAGE)
    chosen = {name: value for name, value in given.items() if value}
    return Page(
        "requests.html",
        {
            "requests": [(one, _place(visit, one)) for one in found[:PAGE]],
            "wanted": wanted,
            "given": given,
            "chosen": chosen,
            "newest": f"{_here(visit)}?{urlencode(chosen)}" if before else "",
            "older": f"?{urlencode(chosen | {'before': found[PAGE - 1].id})}" if len(found) > PAGE else "",
            "live": "" if before or wanted else live,
            "classes": CLASSES,
            "times": TIMES,
            "codes": _choices("Any error", EXPLAINED, given["code"]),
            "routes": _choices("Any endpoint", visit.tools.routes, given["route"]),
            "keys": [("", "Any key"), *((id_, name) for id_, name in _keys(visit).items())],
            "names": _keys(visit),
            "share": SHARE_MAX,
            "most": visit.setup.platform.log_requests_per_second,
        },
    )


async def show_one(visit: Visit) -> Answer:
    store, team = visit.store.requests, visit.team.record.ref
    await visit.context.state.requests.write(store)
    one = await store.find(team, visit.params["id"])
    if one is None:
        raise Gone("This request is not in the log. The log keeps a week.")
    explained = EXPLAINED.get(one.code)
    values: dict[str, Any] = {
        "one": one,
        # the fix is shown separately
        "answer": one.message.removesuffix(explained["fix"]).strip() if explained else "",
        "place": _place(visit, one),
        "explained": explained,
        "key": _keys(visit).get(one.key, ""),
        "docs": f"{visit.context.base_url}/docs/errors#{one.code}",
    }
    return Page("request.html", values)


async def live(visit: Visit) -> Answer:
    return stream(visit, _watch(visit))


async def live_address(visit: Visit) -> str:
    """Return the URL of the live stream for a page that shows the newest requests."""
    return await stream_address(visit, f"{_here(visit)}/live", _watch(visit))


async def newest_requests(visit: Visit, count: int) -> list[tuple[LoggedRequest, str]]:
    """Return the newest requests, each with the page of the object that it created or read."""
    store = visit.store.requests
    await visit.context.state.requests.write(store)
    return [(one, _place(visit, one)) for one in (await store.page(visit.team.record.ref, limit=count))[:count]]


def _here(visit: Visit) -> str:
    return f"{visit.base}/requests"


def _watch(visit: Visit) -> Watch:
    ref = visit.team.record.ref
    return watch(visit, "requests", str(ref), lambda: visit.store.requests.pulse(ref), ("requests",))


def _wanted(given: dict[str, str], now: int) -> WantedRequests:
    return WantedRequests(
        class_=int(given["class"]) if given["class"] in ("2", "4", "5") else None,
        code=given["code"],
        key=given["key"],
        route=given["route"],
        since=now - SPANS[given["time"]] if given["time"] in SPANS else 0,
    )


def _choices(anything: str, names: Any, chosen: str) -> list[tuple[str, str]]:
    """Return the options of a filter, including the selected value even if it is unknown."""
    return [("", anything), *((name, name) for name in sorted({*names, chosen} - {""}))]


def _keys(visit: Visit) -> dict[str, str]:
    """Return the public id and name of each API key of the team."""
    own = (caller.key for caller in visit.setup.callers.values() if caller.team.record.id == visit.team.record.id)
    return {key.id: key.name for key in own}


def _place(visit: Visit, one: LoggedRequest) -> str:
    """Return the page of the object that the request created or read; empty if it has no page."""
    kind = PLACES.get(one.subject.partition("_")[0])
    return f"{visit.base}/{kind}/{one.subject}" if kind and one.subject else ""
