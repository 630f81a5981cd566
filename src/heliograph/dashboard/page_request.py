"""A dashboard page request (user, team, form) and the responses that a view can return."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from heliograph.accept.context import Context
from heliograph.dashboard.live import Live
from heliograph.dashboard.navigation import Need
from heliograph.dashboard.oidc import Provider
from heliograph.dashboard.render import CHANNEL_NAMES
from heliograph.domain.accounts.idp_groups import OPERATOR, READ_ONLY, ROLES
from heliograph.domain.audit.actor import Actor, AuditEntry
from heliograph.domain.delivery.routing import simulated_channels
from heliograph.domain.refusals import Refusal
from heliograph.domain.setup.records import Caller, Key, Team
from heliograph.domain.setup.sender_approvals import pending
from heliograph.domain.setup.snapshot import Setup
from heliograph.manage.management import Management
from heliograph.storage.sessions import SignedIn
from heliograph.storage.store import Store
from heliograph.templates.policy import layout_drafts
from heliograph.templates.policy.template_approvals import list_pending, mark_of
from heliograph.texts import dashboard_links
from heliograph.web.read_budget import Reads
from heliograph.web.request import Headers, Request

# Role required for a page. Each role includes the previous one; an operator counts as owner of every team. A
# read-only operator may open every operator page, but submit no forms.


class PageTools(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies shared by all pages."""

    context: Context
    management: Management
    seal: Callable[[bytes, str], str]
    unseal: Callable[[str, str], bytes]
    # (message id, content, callback that reserves memory) → the MIME message, unsigned
    eml: Callable[[str, str, Callable[[int], Awaitable[None]]], Awaitable[bytes]]
    live: Live = msgspec.field(default_factory=Live)
    reads: Reads = msgspec.field(default_factory=Reads)
    routes: tuple[str, ...] = ()  # API routes that need a key, named as in the request log
    provider: Provider | None = None  # identity provider for sign-in
    passwords: bool = True  # whether password sign-in is enabled
    smtp: tuple[str, ...] = ()  # SMTP submission listeners: port and encryption


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """One page request with its session, roles, team, query and form."""

    tools: PageTools
    request: Request
    params: dict[str, str]
    query: dict[str, str]
    form: dict[str, str] = {}  # fields of a POST; the last value of a repeated field
    files: dict[str, bytes] = {}  # files of a multipart POST
    address: str  # IP address of the client
    who: SignedIn | None
    roles: dict[str, str]  # team → role of this user
    team_found: Team | None  # team named in the path

    @property
    def context(self) -> Context:
        return self.tools.context

    @property
    def store(self) -> Store:
        return self.tools.context.store

    @property
    def setup(self) -> Setup:
        return self.store.setup.current

    @property
    def person(self) -> SignedIn:
        assert self.who is not None, "the page needs nobody, so it has nobody"
        return self.who

    @property
    def team(self) -> Team:
        assert self.team_found is not None, "the page is about no team"
        return self.team_found

    @property
    def caller(self) -> Caller:
        """Return the team as an API caller, so that pages can send without an API key."""
        key = Key(id="dashboard", team=self.team.record.id, name="Dashboard", hash="")
        return Caller(team=self.team, key=key)

    @property
    def cookies(self) -> dict[str, str]:
        return read_cookies(self.request)

    @property
    def zone(self) -> tzinfo:
        """Return the reader's time zone from the cookie set by the page script; UTC without the cookie."""
        return zone_of(self.cookies.get(ZONE, ""))

    @property
    def teams(self) -> list[Team]:
        """Return the teams that this user may open, sorted by name."""
        known = self.setup.teams.items()
        mine = [team for id_, team in known if self.sees("operator") or id_ in self.roles]
        return sorted(mine, key=lambda team: team.record.name.casefold())

    @property
    def approvals(self) -> int:
        """Return the number of items waiting for an operator's approval."""
        return len(waiting_ids(self.setup))

    @property
    def simulated(self) -> list[str]:
        """Return the display names of simulated channels, whose messages never leave this instance."""
        return [CHANNEL_NAMES[channel] for channel in simulated_channels(self.setup.carriers)]

    @property
    def base(self) -> str:
        """Return the path prefix of this team's pages."""
        assert self.team_found is not None, "the page is about no team"
        return f"{dashboard_links.TEAMS}/{self.team_found.record.id}"

    async def hold(self, octets: int) -> None:
        """Wait until `octets` bytes may be read within the memory budget."""
        await self.tools.reads.hold(self.request, self.params.get("team", ""), octets)

    def may(self, need: Need) -> bool:
        return is_allowed(need, self.who, self.roles, self.team_found)

    def sees(self, need: Need) -> bool:
        """Return whether this user may view pages that require `need`."""
        return is_seen(need, self.who, self.roles, self.team_found)

    @property
    def instance_role(self) -> str:
        """Return the user's instance role: operator, read-only operator, or empty."""
        return OPERATOR if self.may("operator") else READ_ONLY if self.sees("operator") else ""

    @property
    def is_watched(self) -> bool:
        """Return whether the user sees this page only as a read-only operator, so that the page offers no forms."""
        if self.instance_role != READ_ONLY:
            return False
        team = self.team_found
        return self.request.path.startswith(dashboard_links.OPERATOR) or (
            team is not None and team.record.id not in self.roles
        )

    @property
    def actor(self) -> Actor:
        return Actor(kind="person", id=self.person.person, address=self.address)

    def entry(self, action: str, subject: str, detail: str = "") -> AuditEntry:
        team = self.team_found.record.id if self.team_found else None
        return self.actor.did(self.context.clock.now(), action, subject, detail, team=team)


def is_allowed(need: Need, who: SignedIn | None, roles: dict[str, str], team: Team | None) -> bool:
    if need == "anyone":
        return True
    if who is None:
        return False
    if need == "person" or who.operator:
        return True
    if need == "viewer" and who.observer:
        return True
    role = roles.get(team.record.id) if team else None
    return need in ROLES and role in ROLES and ROLES.index(role) >= ROLES.index(need)


def is_seen(need: Need, who: SignedIn | None, roles: dict[str, str], team: Team | None) -> bool:
    return bool(who and who.observer) or is_allowed(need, who, roles, team)


class Page(msgspec.Struct, frozen=True):
    """A template with its values. `errors` in the values maps a field to its error message."""

    template: str
    values: dict[str, Any] = {}
    status: int = 200
    size: int = 0  # approximate bytes of content, set where it can be large


class Redirect(msgspec.Struct, frozen=True):
    """A 303 redirect; `notice` is shown once on the next page."""

    to: str
    notice: str = ""
    cookies: tuple[str, ...] = ()


class Download(msgspec.Struct, frozen=True):
    body: bytes
    content_type: str
    filename: str = ""  # empty to show the file instead of saving it
    headers: Headers = []
    cookies: tuple[str, ...] = ()


class Stream(msgspec.Struct, frozen=True):
    """Server-sent events or a large file, sent in chunks until the client disconnects."""

    chunks: AsyncGenerator[bytes, None]
    content_type: str = "text/event-stream"
    filename: str = ""  # empty to show the content instead of saving it


Answer = Page | Redirect | Download | Stream
View = Callable[[Visit], Awaitable[Answer]]


_waiting: list[tuple[Setup, list[str]]] = []  # cache for the newest setup: every operator page needs the list


def waiting_ids(setup: Setup) -> list[str]:
    """Return a key for each item that waits for an operator's approval."""
    if not _waiting or _waiting[0][0] is not setup:
        found = [f"{one.kind} {one.id} {one.text}" for one in pending(setup)]
        found += [f"template {one.template.id} {one.mark}" for one in list_pending(setup)]
        found += [f"layout {one.id} {mark_of(one)}" for one in layout_drafts.list_pending(setup)]
        _waiting[:] = [(setup, found)]
    return _waiting[0][1]


COOKIE = "heliograph_session"
ZONE = "heliograph_zone"


def zone_of(name: str) -> tzinfo:
    """Return the time zone with this name, such as Europe/Vienna; UTC if invalid or unknown."""
    try:
        return ZoneInfo(name)
    except (ValueError, KeyError, OSError):  # invalid file name, unknown zone, or a folder
        return UTC


def read_cookies(request: Request) -> dict[str, str]:
    pairs = request.headers.get(b"cookie", b"").decode("latin-1").split(";")
    return {name.strip(): value.strip() for name, _, value in (pair.partition("=") for pair in pairs)}


def session_cookie(token: str) -> str:
    """Return the session cookie for a Redirect; an empty token deletes the cookie."""
    return f"{COOKIE}={token}" if token else f"{COOKIE}=; Max-Age=0"


def errors_of(refusal: Refusal) -> dict[str, str]:
    """Map each invalid form field to its error message."""
    fields: dict[str, str] | None = (refusal.details or {}).get("fields")
    return fields or {refusal.param or "": refusal.message}


class Gone(Exception):
    """The object does not exist or this user may not see it: 404."""
