"""A page request (user, team, form), and the responses that a view may return."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from datetime import UTC, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from heliograph.accept.context import Context
from heliograph.dashboard.live import Live
from heliograph.dashboard.navigation import NavItem, RequiredRole
from heliograph.dashboard.oidc import Provider
from heliograph.dashboard.portal import first_page, permits_page, portal_menu, portal_path
from heliograph.dashboard.render import CHANNEL_NAMES
from heliograph.domain.accounts.idp_groups import OPERATOR, READ_ONLY, ROLES
from heliograph.domain.accounts.portal import Portal
from heliograph.domain.audit.actor import Actor, AuditEntry
from heliograph.domain.delivery.routing import simulated_channels
from heliograph.domain.refusals import Refusal
from heliograph.domain.setup.records import Caller, Key, Team
from heliograph.domain.setup.sender_approvals import pending_senders
from heliograph.domain.setup.snapshot import Setup
from heliograph.manage.management import Management
from heliograph.manage.portals import portal_actor
from heliograph.storage.sessions import SignedInSession
from heliograph.storage.store import Store
from heliograph.templates.policy import layout_drafts
from heliograph.templates.policy.template_approvals import list_pending, revision_of
from heliograph.texts import dashboard_links
from heliograph.web.read_budget import ReadBudget
from heliograph.web.request import Headers, Request


class PageTools(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies shared by all pages."""

    context: Context
    management: Management
    encrypt: Callable[[bytes, str], str]
    decrypt: Callable[[str, str], bytes]
    # (message id, content, callback that reserves memory) → MIME message without signatures
    render_eml: Callable[[str, str, Callable[[int], Awaitable[None]]], Awaitable[bytes]]
    live: Live = msgspec.field(default_factory=Live)
    read_budget: ReadBudget = msgspec.field(default_factory=ReadBudget)
    api_routes: tuple[str, ...] = ()  # routes of the API that need a key, named as in the request log
    provider: Provider | None = None  # identity provider for sign-in
    password_sign_in: bool = True  # whether password sign-in is enabled
    smtp_listeners: tuple[str, ...] = ()  # port and encryption of each SMTP submission listener


class PageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One page request with its session, roles, team, query and form."""

    tools: PageTools
    http: Request  # the HTTP request
    params: dict[str, str]
    query: dict[str, str]
    form: dict[str, str] = {}  # fields of a POST, with the last value of a repeated field
    files: dict[str, bytes] = {}  # files of a multipart POST
    client_ip: str  # IP address of the client
    signed_in: SignedInSession | None  # None if the user is not signed in
    roles: dict[str, str]  # team → the user's role
    team_or_none: Team | None  # team in the path
    portal: Portal | None = None  # the open portal, if the page is one of a portal

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
    def is_clock_moving(self) -> bool:
        """Return whether the team's test clock is moving at the moment."""
        return any(team.record.ref == self.team.record.ref for team in self.setup.advancing_teams)

    @property
    def user(self) -> SignedInSession:
        """Return the signed-in user; only for pages that require one."""
        assert self.signed_in is not None, "this page does not require a signed-in user"
        return self.signed_in

    @property
    def team(self) -> Team:
        """Return the team in the path; only for team pages."""
        assert self.team_or_none is not None, "this page has no team"
        return self.team_or_none

    @property
    def caller(self) -> Caller:
        """Return the team as caller of the API's use cases, so that pages can send without an API key."""
        key = Key(id="dashboard", team=self.team.record.id, name="Dashboard", hash="")
        return Caller(team=self.team, key=key)

    @property
    def cookies(self) -> dict[str, str]:
        return parse_cookies(self.http)

    @property
    def time_zone(self) -> tzinfo:
        """Return the reader's time zone from the cookie that page.js sets; UTC without the cookie."""
        return time_zone_of(self.cookies.get(TIME_ZONE_COOKIE, ""))

    @property
    def teams(self) -> list[Team]:
        """Return the teams that this user may open, sorted by name."""
        all_teams = self.setup.teams.items()
        visible_teams = [team for id_, team in all_teams if self.can_view("operator") or id_ in self.roles]
        return sorted(visible_teams, key=lambda team: team.record.name.casefold())

    @property
    def pending_approvals(self) -> int:
        """Return the number of requests that wait for an operator's approval."""
        return len(pending_approval_ids(self.setup))

    @property
    def simulated_channel_names(self) -> list[str]:
        """Return the display names of the simulated channels, whose messages never leave this instance."""
        return [CHANNEL_NAMES[channel] for channel in simulated_channels(self.setup.carriers)]

    @property
    def team_path(self) -> str:
        """Return the path prefix of the team's pages; in a portal, the prefix below `/dashboard/portal`."""
        if self.portal:
            return portal_path(f"{dashboard_links.TEAMS}/{self.portal.team}")
        assert self.team_or_none is not None, "this page has no team"
        # `self.team` would be slower, and a list of fifty rows builds this path fifty times.
        return f"{dashboard_links.TEAMS}/{self.team_or_none.record.id}"

    def can_open(self, path: str) -> bool:
        """Return whether this page of the team may be opened. A portal permits only some pages."""
        return self.portal is None or permits_page(self.portal, path)

    @property
    def home(self) -> str:
        """Return the path of the first page: the list of teams, or the first page of the portal."""
        return first_page(self.portal) if self.portal else dashboard_links.HOME

    @property
    def portal_menu(self) -> list[NavItem]:
        return portal_menu(self.portal) if self.portal else []

    async def reserve_memory(self, octets: int) -> None:
        """Wait until the memory budget has `octets` bytes for a read, and reserve them."""
        await self.tools.read_budget.reserve(self.http, self.params.get("team", ""), octets)

    def has_role(self, role: RequiredRole) -> bool:
        """Return whether the user has the required role, and may submit the forms of its pages."""
        return is_role_allowed(role, self.signed_in, self.roles, self.team_or_none)

    def can_view(self, role: RequiredRole) -> bool:
        """Return whether this user may view pages that require `role`."""
        return is_view_allowed(role, self.signed_in, self.roles, self.team_or_none)

    @property
    def instance_role(self) -> str:
        """Return the user's instance role: operator, read-only operator, or empty."""
        return OPERATOR if self.has_role("operator") else READ_ONLY if self.can_view("operator") else ""

    @property
    def is_read_only(self) -> bool:
        """Return whether the user may open this page only as read-only operator; the page then has no forms."""
        if self.instance_role != READ_ONLY:
            return False
        team = self.team_or_none
        return self.http.path.startswith(dashboard_links.OPERATOR) or (
            team is not None and team.record.id not in self.roles
        )

    @property
    def actor(self) -> Actor:
        if self.portal:
            return portal_actor(self.portal, self.client_ip)
        return Actor(kind="person", id=self.user.person, address=self.client_ip)

    def audit_entry(self, action: str, subject: str, detail: str = "") -> AuditEntry:
        team = self.team_or_none.record.id if self.team_or_none else None
        return self.actor.audit_entry(self.context.clock.now(), action, subject, detail, team=team)


def is_role_allowed(
    required_role: RequiredRole, signed_in: SignedInSession | None, roles: dict[str, str], team: Team | None
) -> bool:
    if required_role == "anyone":
        return True
    if signed_in is None:
        return False
    if required_role == "person" or signed_in.operator:
        return True
    if required_role == "viewer" and signed_in.observer:
        return True
    team_role = roles.get(team.record.id) if team else None
    return required_role in ROLES and team_role in ROLES and ROLES.index(team_role) >= ROLES.index(required_role)


def is_view_allowed(
    required_role: RequiredRole, signed_in: SignedInSession | None, roles: dict[str, str], team: Team | None
) -> bool:
    return bool(signed_in and signed_in.observer) or is_role_allowed(required_role, signed_in, roles, team)


class Page(msgspec.Struct, frozen=True):
    """A template and its values. The value `errors` maps a form field to its error message."""

    template: str
    values: dict[str, Any] = {}
    status: int = 200
    size: int = 0  # approximate bytes of content; 0 if small

    @staticmethod
    def form(template: str, values: dict[str, Any], errors: Mapping[str, str] | None) -> "Page":
        """Return a page with a form. `errors`: form field → error message; with any, the status is 400."""
        return Page(template, values | {"errors": errors or {}}, 400 if errors else 200)


class Redirect(msgspec.Struct, frozen=True):
    """A 303 redirect. `notice` is shown once on the next page."""

    location: str
    notice: str = ""
    cookies: tuple[str, ...] = ()


class Download(msgspec.Struct, frozen=True):
    """A file or another complete body, such as JSON."""

    body: bytes
    content_type: str
    filename: str = ""  # empty: shown by the browser instead of saved
    headers: Headers = []
    cookies: tuple[str, ...] = ()


class Stream(msgspec.Struct, frozen=True):
    """Server-sent events or a large file, sent in chunks until the client disconnects."""

    chunks: AsyncGenerator[bytes, None]
    content_type: str = "text/event-stream"
    filename: str = ""  # empty: shown by the browser instead of saved


PageResponse = Page | Redirect | Download | Stream
View = Callable[[PageRequest], Awaitable[PageResponse]]


# (newest setup, ids of its pending requests); cached, because every operator page shows the number of requests
_pending_ids_cache: list[tuple[Setup, list[str]]] = []


def pending_approval_ids(setup: Setup) -> list[str]:
    """Return an id for each request that waits for an operator's approval; it changes with the request."""
    if not _pending_ids_cache or _pending_ids_cache[0][0] is not setup:
        ids = [f"{item.kind} {item.id} {item.text}" for item in pending_senders(setup)]
        ids += [f"template {item.template.id} {item.revision}" for item in list_pending(setup)]
        ids += [f"layout {item.id} {revision_of(item)}" for item in layout_drafts.list_pending(setup)]
        _pending_ids_cache[:] = [(setup, ids)]
    return _pending_ids_cache[0][1]


SESSION_COOKIE = "heliograph_session"
PORTAL_COOKIE = "heliograph_portal"
TIME_ZONE_COOKIE = "heliograph_zone"


def time_zone_of(name: str) -> tzinfo:
    """Return the time zone with this name, such as Europe/Vienna; UTC if invalid or unknown."""
    try:
        return ZoneInfo(name)
    except (ValueError, KeyError, OSError):  # invalid file name, unknown zone, or a folder
        return UTC


def parse_cookies(request: Request) -> dict[str, str]:
    pairs = request.headers.get(b"cookie", b"").decode("latin-1").split(";")
    return {name.strip(): value.strip() for name, _, value in (pair.partition("=") for pair in pairs)}


def session_cookie(token: str) -> str:
    """Return the Set-Cookie value of a session for a Redirect; an empty token deletes the cookie."""
    return f"{SESSION_COOKIE}={token}" if token else f"{SESSION_COOKIE}=; Max-Age=0"


def field_errors(refusal: Refusal) -> dict[str, str]:
    """Map each invalid form field to its error message."""
    errors_by_field: dict[str, str] | None = (refusal.details or {}).get("fields")
    return errors_by_field or {refusal.param or "": refusal.message}


class PageNotFound(Exception):
    """The object does not exist, or this user must not see it: 404."""
