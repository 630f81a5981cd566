"""Requests to the dashboard without processes and browsers: its application on a store, with fake users."""

import re
from collections.abc import Mapping
from html import unescape
from urllib.parse import unquote, urlencode

import msgspec
from msgspec.structs import replace

from heliograph.accept.context import Context
from heliograph.dashboard.app import Dashboard
from heliograph.dashboard.page_request import SESSION_COOKIE, PageTools
from heliograph.domain.setup.records import SetupRecord, TeamRecord
from heliograph.domain.setup.snapshot import Setup, to_row
from heliograph.storage.people import People
from heliograph.storage.sessions import Sessions, SignedInSession
from heliograph.storage.setup import NewTeam, SetupChange
from heliograph.storage.store import Store
from tests.make_request import body_of, make_request, no_eml
from tests.setup_helpers import SET_UP
from tests.storage.test_idempotency import make_management

OPERATOR = "operator"  # user name of an operator; any other name is a role in every team
OBSERVER = "observer"  # user name of a read-only operator without teams


class _FakeSessions(Sessions):
    """Session store in which the cookie's value is the user name."""

    async def find(self, token: str) -> SignedInSession | None:
        who = SignedInSession("ses_1", "csrf", 0, f"usr_{token}", f"{token}@example.com", token, token == OPERATOR)
        return replace(who, observer=token == OBSERVER)


class _FakePeople(People):
    """Roles that follow the user name: the user `owner` is owner of every team."""

    teams: tuple[str, ...] = ()

    async def get_roles(self, person: str) -> dict[str, str]:
        return {} if person == f"usr_{OBSERVER}" else dict.fromkeys(self.teams, person.removeprefix("usr_"))


class PageResult(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    text: str  # the HTML without tags
    html: str

    @property
    def notice(self) -> str:
        """Return the notice that the next page shows once."""
        return unquote(self.headers.get("set-cookie", "").partition("=")[2].partition(";")[0])


class Pages:
    def __init__(self, context: Context) -> None:
        self._store = context.store
        people = _FakePeople(context.store.database, context.clock)
        sessions = _FakeSessions(context.store.database, context.clock)
        people.teams = tuple(context.store.setup.current.teams)
        tools = PageTools(
            context=replace(context, store=replace(context.store, people=people, sessions=sessions)),
            management=make_management(context),
            encrypt=lambda plain, _: plain.decode(),
            decrypt=lambda text, _: text.encode(),
            render_eml=no_eml,
        )
        self._app = Dashboard(tools)
        self.domains = tools.management.domains

    @property
    def setup(self) -> Setup:
        return self._store.setup.current

    async def get(self, path: str, who: str = "owner", more: Mapping[str, str] = {}) -> PageResult:
        return await self._request("GET", path, b"", who, more)

    async def post(self, path: str, form: Mapping[str, str] | None = None, who: str = "owner") -> PageResult:
        return await self._request("POST", path, urlencode({"csrf": "csrf", **(form or {})}).encode(), who)

    async def _request(
        self, method: str, path: str, body: bytes, who: str, extra_headers: Mapping[str, str] = {}
    ) -> PageResult:
        headers = {
            **extra_headers,
            "cookie": f"{SESSION_COOKIE}={who}",
            "content-type": "application/x-www-form-urlencoded",
            "content-length": str(len(body)),
        }
        page_response = await self._app(make_request(method, path, headers, body))
        response = {name.decode(): value.decode() for name, value in page_response.headers}
        html = (await body_of(page_response)).decode()
        text = " ".join(unescape(re.sub("<[^>]*>", " ", html)).split())
        return PageResult(page_response.status, response, text, html)


async def write_records(store: Store, *records: tuple[str, str, SetupRecord, str | None]) -> None:
    """Write records: kind, id, record, team; a new team has credit for ten thousand."""
    rows = [to_row(*record) for record in records]
    teams = [NewTeam(r[2].ref, 10**10) for r in records if isinstance(r[2], TeamRecord)]
    await store.setup.change(
        lambda current, _: SetupChange(
            rows=rows, new_teams=[t for t in teams if t.ref not in current.teams_by_ref], audit=SET_UP
        )
    )
