"""The API application: runs the checks of every request in the order of contract 2, then calls its endpoint."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import structlog
from msgspec.structs import replace
from structlog.contextvars import bind_contextvars

from heliograph.accept.admission import Admission
from heliograph.accept.context import Context
from heliograph.accept.rate import Turn
from heliograph.api.routes import ROUTES
from heliograph.domain.limits import IN_THREAD, SECOND_MS
from heliograph.domain.operations.request_log import subject_of
from heliograph.domain.refusals import InternalError, NotFound, Refusal, ServiceUnavailable
from heliograph.domain.sending.fault_injection import HEADER, Trouble, read_trouble, refused
from heliograph.domain.setup.records import Caller
from heliograph.manage.management import Management
from heliograph.runtime import metrics, tracing
from heliograph.storage.store import StoreUnavailable, TooManyChanges
from heliograph.web.adapter import Surface, own
from heliograph.web.bodies import NoFields, to_request
from heliograph.web.budget import ByteBudget
from heliograph.web.errors import error_body, error_headers
from heliograph.web.read_budget import Reads
from heliograph.web.request import BUDGETED, ClientGone, Headers, Request, Response, call_task
from heliograph.web.route import REPLAYED, Call, Route
from heliograph.web.router import Router
from heliograph.web.status import status_of

SIMULATE = HEADER.lower().encode()
SILENCE_S = 60.0  # duration of a simulated timeout, longer than clients wait
LOOK_S = 0.1  # interval of checks whether the client is still connected

log = structlog.get_logger()

OWN = "/v1/"
PRIVATE = ("/v1", "/compat/")  # responses that proxies must not cache
NO_STORE = (b"cache-control", b"no-store")
ACTIVE_MAX = 512  # concurrent requests; further requests get 503 with Retry-After (P12)
TOO_MANY_CHANGES = "Too many changes of the setup wait. Try again after the seconds in Retry-After."


class Api:
    def __init__(
        self,
        context: Context,
        management: Management,
        door: Admission,
        budget: ByteBudget,
        others: Sequence[Surface] = (),
        reads: Reads | None = None,
    ) -> None:
        self.context = context
        self._management = management
        self._own = own(ROUTES)
        self._others = {other.prefix: other for other in others}
        self._router = Router([route for surface in (self._own, *others) for route in surface.routes])
        self._door = door
        self._budget = budget
        self._reads = reads or Reads()
        self._active = 0

    async def __call__(self, request: Request) -> Response:
        request.id = self.context.clock.new_id("req_")
        bind_contextvars(request_id=request.id)
        traced = tracing.receive(request.headers.get(b"traceparent"))
        extra: Headers = [(b"x-request-id", request.id.encode())]
        if request.path.startswith(PRIVATE):
            extra.append(NO_STORE)
        time = asyncio.get_running_loop().time
        name, keyed, began = "none", False, time()
        labels = counted = ("none", "other")
        surface = self._surface(request.path)
        try:
            route, params = self._router.find(request.method, request.path, request.raw_path)
            name, keyed, labels = route.name, route.scopes is not None, (route.path, route.method)
            # One metric series per method for all routes of a compatible API, because these have many routes.
            counted = labels if surface is self._own else (surface.prefix, route.method)
            call_task(name)
            if keyed:
                response = await self._keyed(route, surface, request, params, extra)
            else:
                response = await self._open(route, request, params)
        except ClientGone:
            raise
        except Exception as error:
            response = self._refused(_refusal(error, request), surface, request, name)
            # Refused before authentication set rate-limit headers: unauthenticated clients create no series.
            if keyed and len(extra) == 2 and isinstance(error, Refusal):
                keyed, counted = False, ("none", "other")
        finally:
            if request.holder:
                self._budget.give_back(request.holder)
        if not keyed:  # unknown route, or a route that needs no key
            self._tell_limits(surface, request, extra)
        if traced:
            _end_trace(traced, request, response, *labels)
        # One series for all 4xx responses of a route; refusals_total counts them by error code.
        status = "4xx" if 400 <= response.status < 500 else response.status
        metrics.answered[*counted, status].observe(time() - began)
        return Response(response.status, response.body, extra + response.headers, response.content_type)

    async def no_room(self, request: Request) -> Response:
        """Return 503 for a connection above the limit.

        A small body is read first, because closing with unread data would reset the connection.
        """
        request.id = self.context.clock.new_id("req_")
        request.keep_alive = False
        extra: Headers = [(b"x-request-id", request.id.encode()), NO_STORE]
        surface = self._surface(request.path)
        self._tell_limits(surface, request, extra)
        with suppress(Refusal):
            await request.read_body(BUDGETED, self._budget, "")
        refusal = ServiceUnavailable("Too many connections. Try again later.", retry_after=1)
        response = surface.error(refusal, request, self.context.base_url)
        return Response(response.status, response.body, extra + response.headers, response.content_type)

    def _surface(self, path: str) -> Surface:
        if path.startswith(OWN):
            return self._own
        return self._others.get("/".join(path.split("/", 3)[:3]), self._own)

    async def _open(self, route: Route, request: Request, params: dict[str, str]) -> Response:
        """Call the endpoint of a route that needs no API key."""
        read = partial(request.read_body, route.body_max, self._budget, request.path)
        return await route.call(
            Call(self.context, self._management, route, request, params, None, read=read, reads=self._reads)
        )

    async def _keyed(
        self, route: Route, surface: Surface, request: Request, params: dict[str, str], extra: Headers
    ) -> Response:
        """Check key, team, scope, rate limit, media type, size, JSON and
        unexpected query parameters, then call the endpoint.
        """
        seen, token, raw = self.context.store.setup.current, b"", None
        if route.fresh:
            await self.context.store.setup.learned_since(seen)
        if surface.signed:
            caller, turn, raw = await self._signed(route, request, params)
        else:
            token = self._token(surface, request)
            caller, turn = await self._door.enter(token, route.scopes or (), request.address)
        if surface.prefix:
            caller = caller.catching()
        extra += turn.headers
        if self.context.state.draining or self._active >= ACTIVE_MAX:
            raise ServiceUnavailable(retry_after=1)
        trouble = (
            await self._wait_simulated(header)
            if caller.team.sandbox and (header := request.headers.get(SIMULATE))
            else None
        )
        value, size = (
            await self._body(route, surface, request, caller.team.record.id, raw) if route.takes_body else ({}, 0)
        )
        if request.query_string and not route.query and not surface.any_query:
            request.query(())
        call = Call(self.context, self._management, route, request, params, caller, value, size, reads=self._reads)
        trouble = trouble and _refuse_simulated(trouble)
        self._active += 1
        try:
            response = await route.call(call)
        except Refusal as refusal:
            if not await self._door.learned(refusal, token, seen):
                raise
            # Look the key up again: it may have been revoked too.
            caller = self._door.newest(caller) if surface.signed else self._door.find(token)
            response = await route.call(replace(call, who=caller.catching() if surface.prefix else caller))
        finally:
            self._active -= 1
        if response.headers is REPLAYED:
            metrics.replayed.inc()
        if self._door.keeps(caller):
            self._note(request, caller, route, response, params)
        if trouble and trouble.silent:
            await self._keep_silent(request)
        return response

    def _note(self, request: Request, caller: Caller, route: Route, response: Response, params: dict[str, str]) -> None:
        subject, replayed = subject_of(response.made or params.get("id", "")), response.headers is REPLAYED
        self._door.note(request.id, caller, route.name, response.status, subject=subject, replayed=replayed)

    async def _signed(self, route: Route, request: Request, params: dict[str, str]) -> tuple[Caller, Turn, bytes]:
        """Read the body and verify its signature; return the caller, the rate-limit decision and the body."""
        raw = await request.read_body(route.body_max, self._budget, request.path)
        request.caller = caller = await self._door.signer(params["team"], request.texts(), raw)
        turn = self._door.admit(caller, route.scopes or (), request.address)
        return caller, await self._door.agreed(turn, caller, route.scopes or (), request.address), raw

    async def _wait_simulated(self, header: bytes) -> Trouble:
        """Parse `X-Heliograph-Simulate` and sleep for its latency, before the body takes memory."""
        trouble = read_trouble(header.decode("latin-1"))
        await asyncio.sleep(trouble.latency_ms / SECOND_MS)
        return trouble

    async def _keep_silent(self, request: Request) -> None:
        """Simulate a timeout: send nothing until the client disconnects, the service drains or SILENCE_S has passed."""
        end = asyncio.get_running_loop().time() + SILENCE_S
        while not (request.gone or self.context.state.draining) and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(LOOK_S)
        raise ClientGone if request.gone else ServiceUnavailable(retry_after=1)

    async def _body(
        self, route: Route, surface: Surface, request: Request, team: str, raw: bytes | None
    ) -> tuple[Any, int]:
        """Return the parsed request body and its size. A POST without
        fields may have no body or an empty object.
        """
        if route.body is None and not request.has_body:
            return {}, 0
        surface.check_media_type(request)
        raw = await request.read_body(route.body_max, self._budget, team) if raw is None else raw
        value = await asyncio.to_thread(surface.parse, raw) if len(raw) > IN_THREAD else surface.parse(raw)
        if route.body is None:
            value = {} if value is None else value
            to_request(value, NoFields)
        return value, len(raw)

    def _token(self, surface: Surface, request: Request) -> bytes:
        given = surface.token(request)
        return self.context.test_token or given if given and given == surface.test_token else given

    def _tell_limits(self, surface: Surface, request: Request, extra: Headers) -> None:
        """Add the key's current rate-limit headers to `extra` without taking tokens."""
        with suppress(Refusal):
            caller = request.caller or self._door.find(self._token(surface, request))
            extra += self._door.look(caller).headers

    def _refused(self, refusal: Refusal, surface: Surface, request: Request, route: str) -> Response:
        """Return the error response; add it to the team's request log if the API key is known."""
        if route == "none" and surface.prefix and isinstance(refusal, NotFound):
            told = f"There is no such call here: {self.context.base_url}/docs/guides/compat lists those there are."
            refusal = NotFound(told)
        metrics.refused[refusal.code].inc()
        response = surface.error(refusal, request, self.context.base_url)
        with suppress(Refusal):
            caller = request.caller or self._door.find(self._token(surface, request))
            named = f"{request.method} (no such route)" if route == "none" else route
            # The response to a signed hook may report an error with status 200.
            status = response.status if response.status >= 400 else status_of(type(refusal))
            self._door.note(request.id, caller, named, status, refusal=refusal)
        return response

    def refused(self, refusal: Refusal, request: Request | None = None) -> Response:
        """Return the error response to a malformed request, or to a request whose body is incomplete."""
        id_ = self.context.clock.new_id("req_")
        body = error_body(refusal, id_, self.context.base_url, problem=False)
        headers = [*error_headers(refusal), (b"x-request-id", id_.encode()), NO_STORE]
        if request:
            self._tell_limits(self._surface(request.path), request, headers)
        return Response(status_of(type(refusal)), body, headers)


def _refuse_simulated(trouble: Trouble) -> Trouble:
    """Raise the simulated refusal if there is one, else return `trouble`."""
    if trouble.refusal:
        raise refused(trouble.refusal)
    return trouble


def _refusal(error: Exception, request: Request) -> Refusal:
    """Convert an exception to the refusal sent to the client; log it unless it already is a refusal."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, TooManyChanges):
        log.warning("too many changes wait for their turn", request_id=request.id)
        return ServiceUnavailable(TOO_MANY_CHANGES, retry_after=error.retry_after)
    if isinstance(error, StoreUnavailable):
        log.error("store unavailable", request_id=request.id, error=str(error))
        return ServiceUnavailable(retry_after=2)
    log.exception("internal error", request_id=request.id, address=request.address)
    return InternalError()


def _end_trace(span: tracing.Span, request: Request, response: Response, path: str, method: str) -> None:
    span.note(http_request_method=request.method, http_route=path)
    span.note(http_response_status__code=response.status, heliograph_request__id=request.id)
    span.end(f"{method} {path}", failed=response.status >= 500)
