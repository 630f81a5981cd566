"""Live streams of pages: the data that each page subscribes to, and the check that the user may still read it."""

from collections.abc import Awaitable, Callable
from urllib.parse import urlencode

from msgspec.structs import replace

from heliograph.dashboard.live import Follower, Pulse, Watch
from heliograph.dashboard.page_request import Answer, Gone, Stream, Visit, is_seen

Words = Callable[[], Awaitable[dict[str, str]]]

# Team page → the version tokens of the team that the page depends on.
TEAM = {
    "overview": ("accepted", "events", "account", "setup"),
    "messages": ("accepted", "events", "account", "setup"),
    "inbox": ("events", "cleared", "verifications"),
    "verifications": ("verifications",),
    "events": ("events", "verifications"),
}


async def team(visit: Visit) -> Answer:
    page = visit.query.get("of", "")
    if page not in TEAM:
        raise Gone
    return stream(visit, _of_team(visit, page))


async def team_stream_address(visit: Visit, page: str) -> str:
    return await stream_address(visit, f"{visit.base}/live", _of_team(visit, page), of=page)


def _of_team(visit: Visit, page: str) -> Watch:
    ref = visit.team.record.ref
    return watch(visit, "team", str(ref), lambda: visit.store.pulses.team(ref), TEAM[page])


def watch(visit: Visit, kind: str, id_: str, words: Words, parts: tuple[str, ...]) -> Watch:
    """Return a subscription to the version tokens of `words`, and to `setup`: setup, circuits and reputations."""

    async def read() -> Pulse:
        store = visit.store
        shared = [visit.setup.version, store.reputation.version, *sorted(store.circuits.current)]
        return Pulse(await words() | {"setup": " ".join(map(str, shared))})

    return Watch(key=(kind, id_), read=read, parts=parts)


async def stream_address(visit: Visit, path: str, followed: Watch, **query: str) -> str:
    """Return the URL of the live stream, with the page's current version. Call before reading the page's data.

    Empty for the response to a form: its URL cannot be fetched again with GET.
    """
    if visit.request.method != "GET":
        return ""
    return f"{path}?{urlencode(query | {'seen': await visit.tools.live.word(followed)})}"


def stream(visit: Visit, followed: Watch) -> Answer:
    team = visit.team_found.record.id if visit.team_found else ""
    follower = Follower(
        key=("who", visit.person.session, team),
        person=visit.person.person,
        team=team,
        may=lambda: _may_listen(visit),
        draining=lambda: visit.context.state.draining,
    )
    return Stream(visit.tools.live.changes(followed, follower, visit.query.get("seen", "")))


async def _may_listen(visit: Visit) -> bool:
    """Return whether the user is still signed in with a role that may read the page."""
    id_ = visit.person.person
    person = await visit.store.people.get(id_)
    if person is None or all(one.id != visit.person.session for one in await visit.store.sessions.of(id_)):
        return False
    who, team = replace(visit.person, operator=person.operator, observer=person.observer), visit.team_found
    return is_seen("viewer" if team else "operator", who, await visit.store.people.roles(id_), team)
