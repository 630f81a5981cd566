"""Live streams of pages: the data to which each page subscribes, and the check that the user may still read it."""

from collections.abc import Awaitable, Callable
from urllib.parse import urlencode

from msgspec.structs import replace

from heliograph.dashboard.live import PageVersion, Subscriber, Subscription
from heliograph.dashboard.page_request import (
    PORTAL_COOKIE,
    PageNotFound,
    PageRequest,
    PageResponse,
    Stream,
    is_view_allowed,
)
from heliograph.manage import portals

ReadTokens = Callable[[], Awaitable[dict[str, str]]]

# team page → version tokens on which it depends
TOKENS_BY_TEAM_PAGE = {
    "overview": ("accepted", "events", "account", "setup"),
    "messages": ("accepted", "events", "account", "setup"),
    "inbox": ("events", "cleared", "verifications"),
    "verifications": ("verifications",),
    "events": ("events", "verifications"),
}


async def stream_team(request: PageRequest) -> PageResponse:
    page = request.query.get("of", "")
    if page not in TOKENS_BY_TEAM_PAGE or not request.can_open(f"/{page}"):
        raise PageNotFound
    return open_stream(request, _team_subscription(request, page))


async def team_stream_url(request: PageRequest, page: str) -> str:
    return await stream_url(request, f"{request.team_path}/live", _team_subscription(request, page), of=page)


def _team_subscription(request: PageRequest, page: str) -> Subscription:
    ref = request.team.record.ref
    return make_subscription(
        request, "team", str(ref), lambda: request.store.page_versions.team_lists(ref), TOKENS_BY_TEAM_PAGE[page]
    )


def make_subscription(
    request: PageRequest, kind: str, id_: str, read_tokens: ReadTokens, parts: tuple[str, ...]
) -> Subscription:
    """Return a subscription to the version tokens from `read_tokens`, and to setup changes."""

    async def read_version() -> PageVersion:
        store = request.store
        shared_tokens = [request.setup.version, store.reputations.version, *sorted(store.circuits.current)]
        return PageVersion(await read_tokens() | {"setup": " ".join(map(str, shared_tokens))})

    return Subscription(key=(kind, id_), read_version=read_version, parts=parts)


async def stream_url(request: PageRequest, path: str, subscription: Subscription, **query: str) -> str:
    """Return the URL of the live stream, with the page's current version; call it before reading the page's data.

    Empty in the response to a submitted form, because the script cannot reload such a page by GET.
    """
    if request.http.method != "GET":
        return ""
    return f"{path}?{urlencode(query | {'seen': await request.tools.live.version(subscription)})}"


def open_stream(request: PageRequest, subscription: Subscription) -> PageResponse:
    team_id = request.team_or_none.record.id if request.team_or_none else ""
    subscriber = Subscriber(
        key=("who", request.user.session, team_id),
        person=request.user.person or request.user.session,
        team=team_id,
        may_read=lambda: _may_still_read(request),
        is_draining=lambda: request.context.state.draining,
    )
    return Stream(request.tools.live.stream_changes(subscription, subscriber, request.query.get("seen", "")))


async def _may_still_read(request: PageRequest) -> bool:
    """Return whether the user is still signed in, with a role that may read the page."""
    if request.portal:
        return await portals.find_session(request.store, request.cookies.get(PORTAL_COOKIE, "")) is not None
    person_id = request.user.person
    person = await request.store.people.get(person_id)
    if person is None or all(
        session.id != request.user.session for session in await request.store.sessions.list_sessions(person_id)
    ):
        return False
    user, team = replace(request.user, operator=person.operator, observer=person.observer), request.team_or_none
    return is_view_allowed(
        "viewer" if team else "operator", user, await request.store.people.get_roles(person_id), team
    )
