"""Request pipeline of the dashboard: session, role check, form and CSRF token, view, HTML response."""

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
    COOKIE,
    Answer,
    Download,
    Gone,
    Page,
    PageTools,
    Redirect,
    Stream,
    Visit,
    read_cookies,
)
from heliograph.dashboard.pages import PAGES, PageRoute
from heliograph.dashboard.render import Reader, render
from heliograph.domain.limits import IN_THREAD
from heliograph.domain.refusals import MethodNotAllowed, NotFound, Refusal, TeamSuspended
from heliograph.domain.setup.records import Team
from heliograph.runtime.threads import LOOKING
from heliograph.storage.decisions import ToldDecision
from heliograph.storage.sessions import SignedIn
from heliograph.storage.store import StoreUnavailable, TooManyChanges
from heliograph.texts.dashboard_links import HOME, OPERATOR, TEAMS
from heliograph.web.budget import ByteBudget
from heliograph.web.forms import FORM_IN_THREAD, check_kind, read_form
from heliograph.web.request import ClientGone, Headers, Request, Response, call_task, liking
from heliograph.web.router import Router
from heliograph.web.status import status_of

FLASH = "heliograph_notice"
NOT_FOUND = "There is no such page, or it is not for you."
TITLES = {403: "Not allowed", 404: "Not found", 500: "Something broke", 503: "Try again in a moment"}
IN_TEAM = f"{TEAMS}/"
HTML = b"text/html; charset=utf-8"
CSP = (
    b"default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; font-src 'self'; "
    b"connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Headers = [
    (b"content-security-policy", CSP),
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
        self._budget = budget or ByteBudget()
        self._turn = asyncio.Lock()
        self._secure = tools.context.base_url.startswith("https://")

    async def __call__(self, request: Request) -> Response:
        request.id = self._tools.context.clock.new_id("req_")
        bind_contextvars(request_id=request.id)
        seen = self._store.setup.current
        try:
            if FLASH in read_cookies(request):  # the page shows a change just made, possibly by another process
                await self._store.setup.learned_since(seen)
            answer, visit = await self._visit(request)
            is_missing = isinstance(answer, Page) and answer.status == 404 and request.method == "GET"
            if is_missing and await self._store.setup.learned_since(seen):
                answer, visit = await self._visit(request)
        finally:
            if request.holder:
                self._budget.give_back(request.holder)
        told = await self._told(answer, visit)
        try:
            response = await self._response(await self._noticed(answer, visit), visit, told)
        except Exception:  # a template fails on its values
            log.exception("page failed", request_id=request.id, address=request.address)
            response = await self._response(_broken(request), visit)
        again: Headers = [(b"retry-after", b"2")] if response.status == 503 else []
        return replace(response, headers=[(b"x-request-id", request.id.encode()), *again, *response.headers])

    async def _visit(self, request: Request) -> tuple[Answer, Visit | None]:
        visit: Visit | None = None
        try:
            route, params = self._router.find(request.method, request.path, request.raw_path)
            call_task(f"{route.method} {route.path}")
            visit = await self._arrive(request, params)
            if not (visit.sees if route.method == "GET" and not route.form else visit.may)(route.need):
                return self._turned_away(visit), visit
            if "team" in params and visit.team_found is None:
                raise Gone
            if _is_suspended(route, visit):
                raise TeamSuspended
            if request.method == "POST":
                visit = await self._with_form(route, visit)
                if not self._is_own_form(visit):
                    if route.expired and visit.who:
                        return await route.expired(visit), visit
                    return _error(403, "This form has expired. Go back, reload the page and send it again."), visit
            return await route.view(visit), visit
        except (NotFound, MethodNotAllowed) as missing:
            if isinstance(missing, MethodNotAllowed) and request.method == "GET":
                return Redirect(self._page_above(request)), None
            return _error(404, NOT_FOUND), visit or await self._lost(request)
        except Gone as gone:
            return _error(404, str(gone) or NOT_FOUND), visit
        except Refusal as refusal:
            return _error(status_of(type(refusal)), str(refusal)), visit
        except ClientGone:
            raise
        except StoreUnavailable as error:
            return _away(request, error), visit
        except Exception:
            log.exception("page failed", request_id=request.id, address=request.address)
            return _broken(request), visit

    def _page_above(self, request: Request) -> str:
        """Return the nearest parent path that has a GET page, for a form URL that is opened with GET."""
        path = request.raw_path.decode("ascii")
        while path := path.rpartition("/")[0]:
            with suppress(NotFound, MethodNotAllowed):
                self._router.find("GET", unquote(path), path.encode())
                return path
        return HOME

    async def _arrive(self, request: Request, params: dict[str, str]) -> Visit:
        """Build the page request with session, roles and team; the body is not read yet."""
        who = await self._signed_in(request)
        return Visit(
            tools=self._tools,
            request=request,
            params=params,
            query=request.loose_query(),
            address=request.address,
            who=who,
            roles=await self._store.people.roles(who.person) if who else {},
            team_found=self._team(params),
        )

    async def _lost(self, request: Request) -> Visit | None:
        """Build the page request for an unknown path, so that the 404 page keeps its (team) navigation."""
        team = request.path.removeprefix(IN_TEAM).partition("/")[0] if request.path.startswith(IN_TEAM) else ""
        try:
            return await self._arrive(request, {"team": team})
        except StoreUnavailable:
            return None

    async def _with_form(self, route: PageRoute, visit: Visit) -> Visit:
        """Read the form, after the role check. Unexpected content types are rejected before reading."""
        kind = visit.request.headers.get(b"content-type", b"").decode("latin-1")
        check_kind(kind, route.files)
        body = await visit.request.read_body(route.form_max, self._budget, visit.params.get("team", ""))
        large = len(body) > FORM_IN_THREAD
        form, files = await LOOKING.run(read_form, kind, body) if large else read_form(kind, body)
        return replace(visit, form=form, files=files)

    async def _signed_in(self, request: Request) -> SignedIn | None:
        token = read_cookies(request).get(COOKIE)
        return await self._store.sessions.find(token) if token else None

    def _team(self, params: dict[str, str]) -> Team | None:
        return self._store.setup.current.teams.get(params.get("team", ""))

    def _turned_away(self, visit: Visit) -> Answer:
        if visit.who is None:
            return Redirect(f"/dashboard/sign-in?next={quote(visit.request.path)}")
        if visit.who.observer:
            return _error(403, "You are a read-only operator: you see everything here and change nothing.")
        # the same response whether or not the team exists
        if "team" in visit.params and visit.params["team"] not in visit.roles:
            return _error(404, NOT_FOUND)
        return _error(403, "Your role does not allow this. Ask an owner of the team.")

    def _is_own_form(self, visit: Visit) -> bool:
        """Return whether the form came from our pages: by CSRF token, or without a session by the Origin header."""
        if visit.who is not None:
            return hmac.compare_digest(visit.form.get("csrf", "").encode(), visit.who.csrf.encode())
        origin = visit.request.headers.get(b"origin")
        host = visit.request.headers.get(b"host", b"").decode("latin-1")
        return origin is None or urlsplit(origin.decode("latin-1")).netloc == host

    async def _noticed(self, answer: Answer, visit: Visit | None) -> Answer:
        """Add the alerts for every page of the team, or of the operator, to the page."""
        if not isinstance(answer, Page) or visit is None or visit.who is None or answer.status == 503:
            return answer
        team = visit.team_found if visit.may("viewer") else None
        if visit.request.path.startswith(OPERATOR):
            team = None
        try:
            account = await self._store.ledger.account(team.record.ref) if team else None
        except StoreUnavailable as error:
            return _away(visit.request, error)
        now, role = self._tools.context.clock.now(), visit.instance_role
        notices = alerts.notices(visit.setup, team, account, now, role) if team or role else []
        return replace(answer, values={"notices": notices} | answer.values)

    # -- responses ------------------------------------------------------------------------------------------

    async def _told(self, answer: Answer, visit: Visit | None) -> list[ToldDecision]:
        """Return approval decisions not yet shown to the user; empty unless a browser loads a page."""
        if not isinstance(answer, Page) or visit is None or visit.who is None or visit.request.method != "GET":
            return []
        headers = visit.request.headers  # on plain http, browsers send only Accept
        if headers.get(b"sec-fetch-dest", b"document") != b"document":
            return []
        if not liking(headers.get(b"accept", b"text/html"), b"text/html"):
            return []
        try:
            return await self._store.decisions.take(visit.who.person)
        except StoreUnavailable:
            return []

    async def _response(self, answer: Answer, visit: Visit | None, told: Sequence[ToldDecision] = ()) -> Response:
        match answer:
            case Page(template=template, values=values, status=status, size=size):
                notice = visit.cookies.get(FLASH, "") if visit else ""
                shared: dict[str, Any] = {
                    "visit": visit,
                    "notice": unquote(notice),
                    "path": visit.request.path if visit else "",
                }
                shared["decisions"] = told
                headers = [*HEADERS]
                if notice:
                    headers.append((b"set-cookie", f"{FLASH}=; Path=/dashboard; Max-Age=0".encode()))
                reader = Reader(self._now(visit), visit.zone) if visit else None
                return Response(status, await self._rendered(size, template, shared | values, reader), headers, HTML)
            case Redirect(to=to, notice=notice, cookies=given):
                headers = [*HEADERS, (b"location", to.encode("latin-1", "replace"))]
                headers += [(b"set-cookie", self._cookie(cookie)) for cookie in given]
                if notice:
                    headers.append((b"set-cookie", self._cookie(f"{FLASH}={quote(notice)}; Max-Age=60")))
                return Response(303, b"", headers, HTML)
            case Download(body=body, content_type=kind, filename=name, headers=more, cookies=given):
                headers = [*more] if more else [*HEADERS]
                headers += [(b"set-cookie", self._cookie(cookie)) for cookie in given]
                return Response(200, body, headers + saved_as(name), kind.encode())
            case Stream(chunks=chunks, content_type=kind, filename=name):
                return Response(200, b"", HEADERS + saved_as(name), kind.encode(), chunks)
        raise AssertionError(answer)

    def _now(self, visit: Visit) -> int:
        """Return the current time; for a team's pages, the time of the team's clock."""
        clock, team = self._tools.context.clock, visit.team_found
        return clock.of(team.record.ref) if team else clock.now()

    async def _rendered(self, size: int, template: str, values: dict[str, Any], reader: Reader | None) -> bytes:
        """Render the page. Small pages render one at a time and yield to the event loop; large ones use a thread."""
        if size > IN_THREAD:
            return await LOOKING.run(render, template, values, reader)
        async with self._turn:
            page = render(template, values, reader)
            await asyncio.sleep(0)
            return page

    def _cookie(self, cookie: str) -> bytes:
        secure = "; Secure" if self._secure else ""
        return f"{cookie}; Path=/dashboard; HttpOnly; SameSite=Lax{secure}".encode()


def _is_suspended(route: PageRoute, visit: Visit) -> bool:
    """Return whether to reject the form because the team is suspended. Operator forms stay allowed."""
    if route.method != "POST" or route.need == "operator" or route.suspended:
        return False
    return visit.team_found is not None and visit.team_found.record.suspended


def _error(status: int, text: str) -> Page:
    return Page(
        "error.html", {"text": text, "status": status, "title": TITLES.get(status, "That did not work")}, status
    )


def _away(request: Request, error: StoreUnavailable) -> Page:
    if isinstance(error, TooManyChanges):
        log.warning("too many changes wait for their turn", request_id=request.id)
        return _error(503, "Too many changes were made at once. Try again in a moment: nothing was changed.")
    log.error("store unavailable", request_id=request.id, error=str(error))
    return _error(503, "The database is away. Try again in a moment: nothing was changed.")


def _broken(request: Request) -> Page:
    return _error(500, f"Something went wrong here. The log has it as {request.id}.")


def saved_as(filename: str) -> Headers:
    """Return the Content-Disposition header to save the response as `filename`; no header if the name is empty."""
    if not filename:
        return []
    name = quote(filename, safe="")  # browsers percent-decode only the extended form, `filename*` (RFC 6266)
    said = f"filename={name}" if name == filename else f"filename*=UTF-8''{name}"
    return [(b"content-disposition", f"attachment; {said}".encode())]
