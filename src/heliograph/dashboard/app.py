"""Handles page requests of the dashboard: session, role check, form and CSRF token, view, HTML response."""

import asyncio
import hmac
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import structlog
from msgspec.structs import replace
from structlog.contextvars import bind_contextvars

from heliograph.dashboard import alerts
from heliograph.dashboard.page_request import (
    PORTAL_COOKIE,
    SESSION_COOKIE,
    Download,
    Page,
    PageNotFound,
    PageRequest,
    PageResponse,
    PageTools,
    Redirect,
    Stream,
    parse_cookies,
)
from heliograph.dashboard.pages import PAGES, TEAM_PATH, PageRoute
from heliograph.dashboard.portal import PORTAL_TEAMS, dashboard_path, permits_page, portal_path
from heliograph.dashboard.render import ReaderTime, render
from heliograph.domain.accounts.portal import Portal
from heliograph.domain.limits import PARSE_IN_THREAD_MIN
from heliograph.domain.refusals import MethodNotAllowed, NotFound, Refusal, TeamSuspended
from heliograph.domain.setup.records import Team
from heliograph.manage import portals
from heliograph.runtime.threads import READ_POOL
from heliograph.storage.decisions import StoredDecision
from heliograph.storage.sessions import SignedInSession
from heliograph.storage.store import StoreUnavailable, TooManyChanges
from heliograph.texts.dashboard_links import HOME, OPERATOR, PORTAL, TEAMS
from heliograph.web.budget import ByteBudget
from heliograph.web.forms import FORM_IN_THREAD, check_content_type, read_form
from heliograph.web.request import ClientDisconnected, Headers, Request, Response, accept_quality, name_task
from heliograph.web.router import Router
from heliograph.web.status import status_of

NOTICE_COOKIE = "heliograph_notice"
PORTAL_ENDED = "Your session has ended. Go back to the app that you came from and open this page again."
NOT_FOUND = "Page not found, or you don't have access."
ERROR_TITLES = {403: "Not allowed", 404: "Not found", 500: "Something went wrong", 503: "Temporarily unavailable"}
TEAM_PREFIX = f"{TEAMS}/"
HTML_CONTENT_TYPE = b"text/html; charset=utf-8"
CSP = (
    b"default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; font-src 'self'; "
    b"connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors "
)
SECURITY_HEADERS: Headers = [
    (b"content-security-policy", CSP + b"'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]

log = structlog.get_logger()


class Dashboard:
    """Handles all page requests: routing, authentication, authorization, rendering."""

    def __init__(self, tools: PageTools, budget: ByteBudget | None = None) -> None:
        self._tools = tools
        self._store = tools.context.store
        self._router: Router[PageRoute] = Router(PAGES)
        self._body_budget = budget or ByteBudget()
        self._render_lock = asyncio.Lock()
        self._is_https = tools.context.base_url.startswith("https://")

    async def __call__(self, request: Request) -> Response:
        request.id = self._tools.context.clock.new_id("req_")
        bind_contextvars(request_id=request.id)
        setup = self._store.setup.current
        try:
            # The notice says that the user changed something, perhaps through another process: load that change first.
            if NOTICE_COOKIE in parse_cookies(request):
                await self._store.setup.refresh_if_newer(setup)
            page_response, page_request = await self._handle(request)
            is_missing = isinstance(page_response, Page) and page_response.status == 404 and request.method == "GET"
            if is_missing and await self._store.setup.refresh_if_newer(setup):
                page_response, page_request = await self._handle(request)
        finally:
            if request.body_reservation:
                self._body_budget.release(request.body_reservation)
        decisions = await self._take_unseen_decisions(page_response, page_request)
        try:
            response = await self._to_response(
                await self._add_alerts(page_response, page_request), page_request, decisions
            )
        except Exception:  # the page's template could not be rendered
            log.exception("page failed", request_id=request.id, address=request.address)
            response = await self._to_response(_internal_error_page(request), page_request)
        retry_headers: Headers = [(b"retry-after", b"2")] if response.status == 503 else []
        headers = self._allow_frames(response.headers) if _is_portal_url(request) else response.headers
        return replace(response, headers=[(b"x-request-id", request.id.encode()), *retry_headers, *headers])

    async def _handle(self, request: Request) -> tuple[PageResponse, PageRequest | None]:
        page_request: PageRequest | None = None
        try:
            route, params = self._find_route(request.method, request.path, request.raw_path)
            name_task(f"{route.method} {route.path}")
            page_request = await self._make_page_request(request, params)
            if page := _check_portal(route, page_request):
                return page, page_request
            if not (page_request.can_view if route.method == "GET" and not route.is_form else page_request.has_role)(
                route.required_role
            ):
                return await self._access_denied(page_request), page_request
            if "team" in params and page_request.team_or_none is None:
                raise PageNotFound
            if _is_blocked_by_suspension(route, page_request):
                raise TeamSuspended
            if request.method == "POST":
                page_request = await self._read_form(route, page_request)
                if page := await self._check_form(route, page_request):
                    return page, page_request
            return await route.view(page_request), page_request
        except (NotFound, MethodNotAllowed) as not_found:
            if isinstance(not_found, MethodNotAllowed) and request.method == "GET":
                return Redirect(self._nearest_parent_page(request)), None
            return _error_page(404, NOT_FOUND), page_request or await self._page_request_for_unknown_path(request)
        except PageNotFound as page_not_found:
            return _error_page(404, str(page_not_found) or NOT_FOUND), page_request
        except Refusal as refusal:
            return _error_page(status_of(type(refusal)), str(refusal)), page_request
        except ClientDisconnected:
            raise
        except StoreUnavailable as error:
            return _store_unavailable_page(request, error), page_request
        except Exception:
            log.exception("page failed", request_id=request.id, address=request.address)
            return _internal_error_page(request), page_request

    def _find_route(self, method: str, path: str, raw_path: bytes) -> tuple[PageRoute, dict[str, str]]:
        """Return the route of a request. A portal's pages have the same routes as the dashboard's."""
        raw = dashboard_path(raw_path.decode("latin-1")).encode("latin-1")
        return self._router.find(method, path if raw == raw_path else dashboard_path(path), raw)

    def _nearest_parent_page(self, request: Request) -> str:
        """Return the nearest parent path that has a GET page, for a GET of a form's URL."""
        path = request.raw_path.decode("ascii")
        while path := path.rpartition("/")[0]:
            with suppress(NotFound, MethodNotAllowed):
                self._find_route("GET", unquote(path), path.encode())
                return path
        return HOME

    async def _make_page_request(self, request: Request, params: dict[str, str]) -> PageRequest:
        """Build the page request with session, roles and team, before the body is read."""
        portal = await self._find_portal(request) if _is_portal_team_url(request) else None
        signed_in = _portal_session(portal) if portal else await self._find_session(request)
        roles = {portal.team: "owner"} if portal else {}
        if signed_in and not portal:
            roles = await self._store.people.get_roles(signed_in.person)
        return PageRequest(
            tools=self._tools,
            http=request,
            params=params,
            query=request.unchecked_query(),
            client_ip=request.address,
            signed_in=signed_in,
            roles=roles,
            team_or_none=self._team(params),
            portal=portal,
        )

    async def _page_request_for_unknown_path(self, request: Request) -> PageRequest | None:
        """Build the page request of an unknown path, so that its 404 page has the user's navigation."""
        path = dashboard_path(request.path)
        team = path.removeprefix(TEAM_PREFIX).partition("/")[0] if path.startswith(TEAM_PREFIX) else ""
        try:
            return await self._make_page_request(request, {"team": team})
        except StoreUnavailable:
            return None

    async def _read_form(self, route: PageRoute, page_request: PageRequest) -> PageRequest:
        """Read the form, after the role check. An unexpected content type is rejected before the body is read."""
        content_type = page_request.http.headers.get(b"content-type", b"").decode("latin-1")
        check_content_type(content_type, route.accepts_files)
        body = await page_request.http.read_body(route.form_max, self._body_budget, page_request.params.get("team", ""))
        is_large = len(body) > FORM_IN_THREAD
        form, files = await READ_POOL.run(read_form, content_type, body) if is_large else read_form(content_type, body)
        return replace(page_request, form=form, files=files)

    async def _check_form(self, route: PageRoute, page_request: PageRequest) -> PageResponse | None:
        """Return the page shown instead of executing the form, if its session expired or the user must confirm it."""
        if not self._has_valid_origin(page_request):
            if route.expired_view and page_request.signed_in:
                return await route.expired_view(page_request)
            return _error_page(403, "This form has expired. Go back, reload the page and try again.")
        return _confirmation_page(page_request) if page_request.form.get("ask") else None

    async def _find_session(self, request: Request) -> SignedInSession | None:
        if _is_portal_url(request):
            return None
        token = parse_cookies(request).get(SESSION_COOKIE)
        return await self._store.sessions.find(token) if token else None

    async def _find_portal(self, request: Request) -> Portal | None:
        token = parse_cookies(request).get(PORTAL_COOKIE)
        return await portals.find_session(self._store, token) if token else None

    async def _redirect_to_portal(self, page_request: PageRequest) -> PageResponse | None:
        """Redirect a visitor who has an open portal to the same page in the portal.

        Returns a 404 page if the portal does not permit the page, and None without a portal.
        """
        portal = await self._find_portal(page_request.http)
        if portal is None:
            return None
        team_prefix = f"{TEAM_PREFIX}{portal.team}/"
        path = page_request.http.raw_path.decode("latin-1")
        is_page = path.startswith(team_prefix) and permits_page(portal, f"/{path.removeprefix(team_prefix)}")
        if page_request.http.method == "GET" and is_page:
            return Redirect(portal_path(path))
        return _error_page(404, NOT_FOUND)

    def _team(self, params: dict[str, str]) -> Team | None:
        return self._store.setup.current.teams.get(params.get("team", ""))

    async def _access_denied(self, page_request: PageRequest) -> PageResponse:
        if page_request.signed_in is None:
            if page := await self._redirect_to_portal(page_request):
                return page
            return Redirect(f"/dashboard/sign-in?next={quote(page_request.http.path)}")
        if page_request.signed_in.observer:
            return _error_page(403, "You are a read-only operator and can't change anything here.")
        # The response does not reveal whether the team exists.
        if "team" in page_request.params and page_request.params["team"] not in page_request.roles:
            return _error_page(404, NOT_FOUND)
        return _error_page(403, "Your role doesn't allow this. Ask an owner of the team.")

    def _has_valid_origin(self, page_request: PageRequest) -> bool:
        """Return whether our page sent the form: checked by CSRF token, or without a session by the Origin header."""
        if page_request.signed_in is not None:
            return hmac.compare_digest(page_request.form.get("csrf", "").encode(), page_request.signed_in.csrf.encode())
        origin = page_request.http.headers.get(b"origin")
        host = page_request.http.headers.get(b"host", b"").decode("latin-1")
        return origin is None or urlsplit(origin.decode("latin-1")).netloc == host

    async def _add_alerts(self, page_response: PageResponse, page_request: PageRequest | None) -> PageResponse:
        """Add the alerts that are on every page of the team, or on every operator page."""
        if (
            not isinstance(page_response, Page)
            or page_request is None
            or page_request.signed_in is None
            or page_request.portal
            or page_response.status == 503
        ):
            return page_response
        team = page_request.team_or_none if page_request.has_role("viewer") else None
        if page_request.http.path.startswith(OPERATOR):
            team = None
        try:
            account = await self._store.ledger.get_account(team.record.ref) if team else None
            count_pending = self._store.approvals.count_pending
            held_messages = await count_pending(team.record.ref) if team and page_request.can_view("owner") else 0
        except StoreUnavailable as error:
            return _store_unavailable_page(page_request.http, error)
        now, role = self._tools.context.clock.now(), page_request.instance_role
        page_alerts = alerts.page_alerts(page_request.setup, team, account, now, role) if team or role else []
        values = {"page_alerts": page_alerts, "held_messages": held_messages}
        return replace(page_response, values=values | page_response.values)

    # -- responses ------------------------------------------------------------------------------------------

    async def _take_unseen_decisions(
        self, page_response: PageResponse, page_request: PageRequest | None
    ) -> list[StoredDecision]:
        """Return decisions on approvals that the user has not seen yet; empty unless a browser loads a page."""
        if (
            not isinstance(page_response, Page)
            or page_request is None
            or page_request.signed_in is None
            or page_request.portal
            or page_request.http.method != "GET"
        ):
            return []
        headers = page_request.http.headers  # without TLS, browsers send only Accept, not Sec-Fetch-Dest
        if headers.get(b"sec-fetch-dest", b"document") != b"document":
            return []
        if not accept_quality(headers.get(b"accept", b"text/html"), b"text/html"):
            return []
        try:
            return await self._store.decisions.take_unseen(page_request.signed_in.person)
        except StoreUnavailable:
            return []

    async def _to_response(
        self, page_response: PageResponse, page_request: PageRequest | None, decisions: Sequence[StoredDecision] = ()
    ) -> Response:
        match page_response:
            case Page(template=template, values=values, status=status, size=size):
                notice = page_request.cookies.get(NOTICE_COOKIE, "") if page_request else ""
                shared_values: dict[str, Any] = {
                    "request": page_request,
                    "notice": unquote(notice),
                    "path": page_request.http.path if page_request else "",
                    "decisions": decisions,
                }
                headers = [*SECURITY_HEADERS]
                if notice:
                    headers.append((b"set-cookie", self._cookie_header(f"{NOTICE_COOKIE}=; Max-Age=0", page_request)))
                reader_time = (
                    ReaderTime(self._current_time(page_request), page_request.time_zone) if page_request else None
                )
                return Response(
                    status,
                    await self._render_page(size, template, shared_values | values, reader_time),
                    headers,
                    HTML_CONTENT_TYPE,
                )
            case Redirect(location=location, notice=notice, cookies=cookies):
                headers = [*SECURITY_HEADERS, (b"location", location.encode("latin-1", "replace"))]
                headers += [(b"set-cookie", self._cookie_header(cookie, page_request)) for cookie in cookies]
                if notice:
                    cookie = f"{NOTICE_COOKIE}={quote(notice)}; Max-Age=60"
                    headers.append((b"set-cookie", self._cookie_header(cookie, page_request)))
                return Response(303, b"", headers, HTML_CONTENT_TYPE)
            case Download(
                body=body, content_type=content_type, filename=filename, headers=extra_headers, cookies=cookies
            ):
                headers = [*extra_headers] if extra_headers else [*SECURITY_HEADERS]
                headers += [(b"set-cookie", self._cookie_header(cookie, page_request)) for cookie in cookies]
                return Response(200, body, headers + content_disposition(filename), content_type.encode())
            case Stream(chunks=chunks, content_type=content_type, filename=filename):
                return Response(
                    200, b"", SECURITY_HEADERS + content_disposition(filename), content_type.encode(), chunks
                )
        raise AssertionError(page_response)

    def _current_time(self, page_request: PageRequest) -> int:
        """Return the current time; on a team's pages, the time of the team's clock."""
        clock, team = self._tools.context.clock, page_request.team_or_none
        return clock.team_now(team.record.ref) if team else clock.now()

    async def _render_page(
        self, size: int, template: str, values: dict[str, Any], reader_time: ReaderTime | None
    ) -> bytes:
        """Render a large page in a thread, and small ones on the event loop, which runs other tasks between them."""
        if size > PARSE_IN_THREAD_MIN:
            return await READ_POOL.run(render, template, values, reader_time)
        async with self._render_lock:
            page = render(template, values, reader_time)
            await asyncio.sleep(0)
            return page

    def _cookie_header(self, cookie: str, page_request: PageRequest | None) -> bytes:
        """Return the Set-Cookie value. In frames on other sites, browsers only send partitioned cookies."""
        attributes = "SameSite=Lax; Secure" if self._is_https else "SameSite=Lax"
        if self._is_https and page_request and _is_portal_url(page_request.http) and self._portal_origins:
            attributes = "SameSite=None; Secure; Partitioned"
        return f"{cookie}; Path=/dashboard; HttpOnly; {attributes}".encode()

    @property
    def _portal_origins(self) -> tuple[str, ...]:
        return self._store.setup.current.platform.portal_origins

    def _allow_frames(self, headers: Headers) -> Headers:
        """Return a portal page's headers, which allow frames on pages of `portal_origins`."""
        if not self._portal_origins:
            return headers
        policy = CSP + " ".join(self._portal_origins).encode()
        default_policy = (b"content-security-policy", CSP + b"'none'")
        return [(name, policy) if (name, value) == default_policy else (name, value) for name, value in headers]


def _is_portal_url(request: Request) -> bool:
    """Return whether the URL belongs to a portal or opens one: such requests ignore the dashboard's session."""
    return request.raw_path.startswith(f"{PORTAL}/".encode())


def _is_portal_team_url(request: Request) -> bool:
    return request.raw_path.startswith(PORTAL_TEAMS.encode())


def _portal_session(portal: Portal) -> SignedInSession:
    return SignedInSession(session=portal.id, csrf=portal.csrf, seen_at=0, person="", email="", name="", operator=0)


def _check_portal(route: PageRoute, page_request: PageRequest) -> PageResponse | None:
    """Return an error page if the route is not one of the portal's pages; None if it is."""
    portal = page_request.portal
    if not _is_portal_team_url(page_request.http):
        return None
    if portal is None:
        return _error_page(403, PORTAL_ENDED)
    path = route.path.removeprefix(TEAM_PATH)
    is_live_events = path == "/live" and permits_page(portal, "/events")
    if page_request.params.get("team") != portal.team or not (permits_page(portal, path) or is_live_events):
        return _error_page(404, NOT_FOUND)
    return None


def _is_blocked_by_suspension(route: PageRoute, page_request: PageRequest) -> bool:
    """Return whether the form is rejected because the team is suspended. Forms of operators are not."""
    if route.method != "POST" or route.required_role == "operator" or route.allowed_when_suspended:
        return False
    return page_request.team_or_none is not None and page_request.team_or_none.record.suspended


def _error_page(status: int, text: str) -> Page:
    return Page(
        "error.html", {"text": text, "status": status, "title": ERROR_TITLES.get(status, "Request failed")}, status
    )


def _confirmation_page(page_request: PageRequest) -> Page:
    """Return the page that asks for confirmation in browsers without JavaScript; its button sends the form again."""
    fields = {name: value for name, value in page_request.form.items() if name not in ("ask", "label", "csrf")}
    question, label = page_request.form["ask"], page_request.form.get("label", "Continue")
    return Page("confirm.html", {"question": question, "label": label, "fields": fields})


def _store_unavailable_page(request: Request, error: StoreUnavailable) -> Page:
    if isinstance(error, TooManyChanges):
        log.warning("too many setup changes queued", request_id=request.id)
        return _error_page(503, "Too many changes at once. Nothing was changed. Try again in a moment.")
    log.error("store unavailable", request_id=request.id, error=str(error))
    return _error_page(503, "The database is unavailable. Nothing was changed. Try again in a moment.")


def _internal_error_page(request: Request) -> Page:
    return _error_page(500, f"An internal error occurred. Request ID for the server log: {request.id}.")


def content_disposition(filename: str) -> Headers:
    """Return the header that saves the response as `filename`; no header if the name is empty."""
    if not filename:
        return []
    encoded = quote(filename, safe="")  # browsers percent-decode only the extended form, `filename*` (RFC 6266)
    parameter = f"filename={encoded}" if encoded == filename else f"filename*=UTF-8''{encoded}"
    return [(b"content-disposition", f"attachment; {parameter}".encode())]
