"""The pages without processes and browsers: the dashboard's own application on a store, asked by people of a test's."""

import re
from collections.abc import Mapping
from html import unescape
from urllib.parse import unquote, urlencode

import msgspec
from msgspec.structs import replace

from heliograph.accept.context import Context
from heliograph.dashboard.app import Dashboard
from heliograph.dashboard.page_request import COOKIE, PageTools
from heliograph.domain.setup.records import Setting, TeamRecord
from heliograph.domain.setup.snapshot import Setup, to_row
from heliograph.storage.people import People
from heliograph.storage.sessions import Sessions, SignedIn
from heliograph.storage.setup import NewTeam, SetupChange
from heliograph.storage.store import Store
from tests.make_request import asked, body_of, no_eml
from tests.setup_helpers import SET_UP
from tests.storage.test_idempotency import make_management

OPERATOR = "operator"  # who asks; any other word is a role in every team
OBSERVER = "observer"  # a read-only operator, who is in no team


class _Cookies(Sessions):
    """Whoever has a cookie is signed in …"""

    async def find(self, token: str) -> SignedIn | None:
        who = SignedIn("ses_1", "csrf", 0, f"usr_{token}", f"{token}@example.com", token, token == OPERATOR)
        return replace(who, observer=token == OBSERVER)


class _Everybody(People):
    """… in the role that it names."""

    teams: tuple[str, ...] = ()

    async def roles(self, person: str) -> dict[str, str]:
        return {} if person == f"usr_{OBSERVER}" else dict.fromkeys(self.teams, person.removeprefix("usr_"))


class Shown(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    text: str  # without its tags
    html: str

    @property
    def notice(self) -> str:
        """What the next page says once."""
        return unquote(self.headers.get("set-cookie", "").partition("=")[2].partition(";")[0])


class Pages:
    def __init__(self, context: Context) -> None:
        self._store = context.store
        people = _Everybody(context.store.database, context.clock)
        sessions = _Cookies(context.store.database, context.clock)
        people.teams = tuple(context.store.setup.current.teams)
        tools = PageTools(
            context=replace(context, store=replace(context.store, people=people, sessions=sessions)),
            management=make_management(context),
            seal=lambda plain, _: plain.decode(),
            unseal=lambda text, _: text.encode(),
            eml=no_eml,
        )
        self._app = Dashboard(tools)
        self.domains = tools.management.domains

    @property
    def setup(self) -> Setup:
        return self._store.setup.current

    async def get(self, path: str, who: str = "owner", more: Mapping[str, str] = {}) -> Shown:
        return await self._ask("GET", path, b"", who, more)

    async def post(self, path: str, form: Mapping[str, str] | None = None, who: str = "owner") -> Shown:
        return await self._ask("POST", path, urlencode({"csrf": "csrf", **(form or {})}).encode(), who)

    async def _ask(self, method: str, path: str, body: bytes, who: str, more: Mapping[str, str] = {}) -> Shown:
        headers = {
            **more,
            "cookie": f"{COOKIE}={who}",
            "content-type": "application/x-www-form-urlencoded",
            "content-length": str(len(body)),
        }
        answer = await self._app(asked(method, path, headers, body))
        answered = {name.decode(): value.decode() for name, value in answer.headers}
        html = (await body_of(answer)).decode()
        text = " ".join(unescape(re.sub("<[^>]*>", " ", html)).split())
        return Shown(answer.status, answered, text, html)


async def set_up(store: Store, *records: tuple[str, str, Setting, str | None]) -> None:
    """Write records: kind, id, record, team; a new team has credit for ten thousand."""
    rows = [to_row(*record) for record in records]
    teams = [NewTeam(r[2].ref, 10**10) for r in records if isinstance(r[2], TeamRecord)]
    await store.setup.change(
        lambda current, _: SetupChange(
            rows=rows, new_teams=[t for t in teams if t.ref not in current.teams_by_ref], audit=SET_UP
        )
    )
