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
from heliograph.accept.rate import RateDecision
from heliograph.api.call import Call as ApiCall
from heliograph.api.mcp import PATH as MCP_PATH
from heliograph.api.mcp import Mcp
from heliograph.api.mcp_tools import RouteCall, make_tools
from heliograph.api.routes import ROUTES, V1
from heliograph.domain.limits import PARSE_IN_THREAD_MIN, SECOND_MS
from heliograph.domain.operations.request_log import client_name, subject_id, unknown_path
from heliograph.domain.refusals import InternalError, NotFound, Refusal, ServiceUnavailable
from heliograph.domain.sending.fault_injection import HEADER, InjectedFault, parse_fault, simulated_refusal
from heliograph.domain.setup.key_restrictions import check_action
from heliograph.domain.setup.records import Caller
from heliograph.manage.management import Management
from heliograph.runtime import metrics, tracing
from heliograph.storage.store import StoreUnavailable, TooManyChanges
from heliograph.web.adapter import ApiAdapter, own_api
from heliograph.web.bodies import NoFields, to_request
from heliograph.web.budget import ByteBudget
from heliograph.web.errors import error_body, error_headers
from heliograph.web.read_budget import ReadBudget
from heliograph.web.request import BUDGETED_MIN, ClientDisconnected, Headers, Request, Response, name_task
from heliograph.web.route import REPLAYED_HEADERS, Call, Route
from heliograph.web.router import Router
from heliograph.web.status import status_of

SIMULATE_HEADER = HEADER.lower().encode()
SIMULATED_TIMEOUT_S = 60.0  # duration of a simulated timeout, longer than clients wait
POLL_S = 0.1  # interval of checks whether the client is still connected

log = structlog.get_logger()

API_PREFIX, COMPAT_PREFIX = "/v1/", "/compat/"
UNCACHED_PREFIXES = ("/v1", "/compat/", "/mcp")  # paths whose responses proxies must not cache
NO_STORE_HEADER = (b"cache-control", b"no-store")
ACTIVE_MAX = 512  # concurrent requests; further requests get 503 with Retry-After (P12)
TOO_MANY_CHANGES = "Too many setup changes are queued. Retry after the number of seconds in Retry-After."


class Api:
    def __init__(
        self,
        context: Context,
        management: Management,
        admission: Admission,
        budget: ByteBudget,
        adapters: Sequence[ApiAdapter] = (),
        reads: ReadBudget | None = None,
    ) -> None:
        self.context = context
        self._management = management
        mcp_routes = [Mcp(self._call_inner, self._readmit, make_tools(V1)).route()] if context.mcp else []
        self._own_api = own_api([*ROUTES, *mcp_routes])
        self._adapters = {adapter.prefix: adapter for adapter in adapters}
        self._router = Router([route for adapter in (self._own_api, *adapters) for route in adapter.routes])
        self._admission = admission
        self._budget = budget
        self._reads = reads or ReadBudget()
        self._active = 0

    async def __call__(self, request: Request) -> Response:
        request.id = self.context.clock.new_id("req_")
        bind_contextvars(request_id=request.id)
        span = tracing.begin_request(request.headers.get(b"traceparent"))
        extra_headers: Headers = [(b"x-request-id", request.id.encode())]
        if request.path.startswith(UNCACHED_PREFIXES):
            extra_headers.append(NO_STORE_HEADER)
        loop_time = asyncio.get_running_loop().time
        name, needs_key, started_at = "none", False, loop_time()
        labels = metric_labels = ("none", "other")
        adapter = self._adapter_for(request.path)
        try:
            route, params = self._router.find(request.method, request.path, request.raw_path)
            name, needs_key, labels = route.name, route.scopes is not None, (route.path, route.method)
            # The many routes of a compatibility API share one metric series per HTTP method.
            metric_labels = labels if adapter is self._own_api else (adapter.prefix, route.method)
            name_task(name)
            if needs_key:
                response = await self._call_with_key(route, adapter, request, params, extra_headers)
            else:
                response = await self._call_public(route, request, params)
        except ClientDisconnected:
            raise
        except Exception as error:
            response = self._error_response(_to_refusal(error, request), adapter, request, name)
            # Without rate-limit headers, the request failed before its key was identified. An unknown client must not
            # create metric series.
            if needs_key and len(extra_headers) == 2 and isinstance(error, Refusal):
                needs_key, metric_labels = False, ("none", "other")
        finally:
            if request.body_reservation:
                self._budget.release(request.body_reservation)
        # The route is unknown or needs no key, or an MCP batch took more tokens than the headers say.
        if not needs_key or labels[0] == MCP_PATH:
            del extra_headers[2:]
            self._add_rate_limit_headers(adapter, request, extra_headers)
        if span:
            _end_trace(span, request, response, *labels)
        # A route's 4xx responses share one series; refusals_total counts them by error code.
        status = "4xx" if 400 <= response.status < 500 else response.status
        metrics.http_duration_s[*metric_labels, status].observe(loop_time() - started_at)
        return Response(response.status, response.body, extra_headers + response.headers, response.content_type)

    async def reject_overload(self, request: Request) -> Response:
        """Return 503 for a connection above the limit.

        A small body is read first, because closing with unread data would reset the connection.
        """
        request.id = self.context.clock.new_id("req_")
        request.keep_alive = False
        extra_headers: Headers = [(b"x-request-id", request.id.encode()), NO_STORE_HEADER]
        adapter = self._adapter_for(request.path)
        self._add_rate_limit_headers(adapter, request, extra_headers)
        with suppress(Refusal):
            await request.read_body(BUDGETED_MIN, self._budget, "")
        refusal = ServiceUnavailable("Too many connections. Try again later.", retry_after=1)
        response = adapter.error_response(refusal, request, self.context.base_url)
        return Response(response.status, response.body, extra_headers + response.headers, response.content_type)

    def _adapter_for(self, path: str) -> ApiAdapter:
        if path.startswith(API_PREFIX):
            return self._own_api
        return self._adapters.get("/".join(path.split("/", 3)[:3]), self._own_api)

    async def _call_public(self, route: Route, request: Request, params: dict[str, str]) -> Response:
        """Call the endpoint of a route that needs no API key."""
        read = partial(request.read_body, route.body_max, self._budget, request.path)
        return await route.call(
            Call(self.context, self._management, route, request, params, None, read_body=read, read_budget=self._reads)
        )

    async def _call_with_key(
        self, route: Route, adapter: ApiAdapter, request: Request, params: dict[str, str], extra_headers: Headers
    ) -> Response:
        """Check the request, then call the endpoint.

        The checks are: key, team, scope, rate limit, media type, size, JSON, and unknown query parameters.
        """
        setup_before, api_key, raw = self.context.store.setup.current, b"", None
        if route.needs_fresh_setup:
            await self.context.store.setup.refresh_if_newer(setup_before)
        if adapter.has_signed_body:
            caller, decision, raw = await self._authenticate_signed(route, request, params)
        else:
            api_key = self._api_key(adapter, request)
            caller, decision = await self._admission.authenticate_and_admit(
                api_key, route.scopes or (), request.address, route.action
            )
        if adapter.prefix:
            caller = caller.with_capture()
        extra_headers += decision.headers
        if self.context.state.draining or self._active >= ACTIVE_MAX:
            raise ServiceUnavailable(retry_after=1)
        fault = (
            await self._wait_simulated(header)
            if caller.team.sandbox and (header := request.headers.get(SIMULATE_HEADER))
            else None
        )
        body, size = await self._parse_body(route, adapter, request, caller, raw) if route.takes_body else ({}, 0)
        if request.query_string and not route.query and not adapter.ignores_unknown_query:
            request.query(())
        call = Call(self.context, self._management, route, request, params, caller, body, size, read_budget=self._reads)
        fault = fault and _raise_simulated(fault)
        self._active += 1
        try:
            response = await route.call(call)
        except Refusal as refusal:
            if not await self._admission.refresh_setup(refusal, api_key, setup_before):
                raise
            # The key may have been revoked too, so it is looked up again.
            caller = self._admission.newest_caller(caller) if adapter.has_signed_body else self._admission.find(api_key)
            response = await route.call(
                replace(call, caller_or_none=caller.with_capture() if adapter.prefix else caller)
            )
        finally:
            self._active -= 1
        if response.headers is REPLAYED_HEADERS:
            metrics.idempotent_replays.inc()
        if not route.logs_inner_calls and self._admission.should_log(caller):
            self._log_request(request, caller, route, response, params)
        if fault and fault.drops_response:
            await self._simulate_timeout(request)
        return response

    async def _readmit(self, call: ApiCall, request_id: str) -> ApiCall:
        """Admit a further request of an MCP batch, with the key's current settings. A refusal is logged and raised."""
        route, request = call.route, call.request
        try:
            if self.context.state.draining:
                raise ServiceUnavailable(retry_after=1)
            caller = await self._admission.readmit(call.caller, route.scopes or (), request.address)
            if route.check_key is not None:
                route.check_key(caller.key)
        except Refusal as refusal:
            self._record_refusal(refusal, request_id, call.caller, route)
            raise
        return replace(call, caller_or_none=caller)

    def _record_refusal(self, refusal: Refusal, request_id: str, caller: Caller, route: Route) -> None:
        metrics.refusals[refusal.code].inc()
        self._admission.log_request(request_id, caller, route.name, status_of(type(refusal)), refusal=refusal)

    async def _call_inner(self, outer: ApiCall, inner: RouteCall, request_id: str) -> Response:
        """Run `inner` for the caller of `outer`: check its scope, apply its idempotency, log it; raise its refusal.

        An MCP batch makes several calls from one HTTP body; each must have its own `request_id`.
        """
        route, caller, setup_before = inner.route, outer.caller, self.context.store.setup.current
        request = Request(route.method, inner.path, inner.headers, query_string=inner.query_string)
        request.id, request.address = request_id, outer.request.address
        request.response_reservation = outer.request.response_reservation
        call = replace(outer, route=route, request=request, params=inner.params, json=inner.body)
        try:
            self._admission.check_scope(caller, route.scopes or caller.key.scopes)
            check_action(caller.key, route.action)
            if route.needs_fresh_setup:
                await self.context.store.setup.refresh_if_newer(setup_before)
            try:
                response = await route.call(call)
            except Refusal as refusal:
                if not await self._admission.refresh_setup(refusal, b"", setup_before):
                    raise
                response = await route.call(replace(call, caller_or_none=self._admission.newest_caller(caller)))
        except ClientDisconnected:
            raise
        except Exception as error:
            fault = _to_refusal(error, request)
            self._record_refusal(fault, request.id, caller, route)
            raise fault from None
        finally:
            outer.request.response_reservation = request.response_reservation
        if response.headers is REPLAYED_HEADERS:
            metrics.idempotent_replays.inc()
        if self._admission.should_log(caller):
            self._log_request(request, caller, route, response, inner.params)
        return response

    def _log_request(
        self, request: Request, caller: Caller, route: Route, response: Response, params: dict[str, str]
    ) -> None:
        subject, replayed = subject_id(response.record_id or params.get("id", "")), response.headers is REPLAYED_HEADERS
        client = client_name(request.headers.get(b"user-agent", b"")) if route.path.startswith(COMPAT_PREFIX) else ""
        self._admission.log_request(
            request.id, caller, route.name, response.status, subject=subject, replayed=replayed, client=client
        )

    async def _authenticate_signed(
        self, route: Route, request: Request, params: dict[str, str]
    ) -> tuple[Caller, RateDecision, bytes]:
        """Read the body and verify its signature; return the caller, the rate-limit decision and the body."""
        raw = await request.read_body(route.body_max, self._budget, request.path)
        request.caller = caller = await self._admission.authenticate_hook(
            params["team"], request.decoded_headers(), raw
        )
        decision = self._admission.admit(caller, route.scopes or (), request.address, route.action)
        return caller, await self._admission.wait_for_sync(decision, caller, route.scopes or (), request.address), raw

    async def _wait_simulated(self, header: bytes) -> InjectedFault:
        """Return the fault requested by `X-Heliograph-Simulate`, after waiting for its latency."""
        fault = parse_fault(header.decode("latin-1"))
        await asyncio.sleep(fault.latency_ms / SECOND_MS)
        return fault

    async def _simulate_timeout(self, request: Request) -> None:
        """Send nothing until the client disconnects, the service shuts down or SIMULATED_TIMEOUT_S has passed."""
        deadline = asyncio.get_running_loop().time() + SIMULATED_TIMEOUT_S
        while not (request.gone or self.context.state.draining) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(POLL_S)
        raise ClientDisconnected if request.gone else ServiceUnavailable(retry_after=1)

    async def _parse_body(
        self, route: Route, adapter: ApiAdapter, request: Request, caller: Caller, raw: bytes | None
    ) -> tuple[Any, int]:
        """Return the parsed request body and its size. A route without fields accepts no body or `{}`."""
        if route.check_key is not None:  # checked here, so that the key is refused before the body is read into memory
            route.check_key(caller.key)
        if route.body is None and not request.has_body:
            return {}, 0
        adapter.check_media_type(request)
        raw = await request.read_body(route.body_max, self._budget, caller.team.record.id) if raw is None else raw
        body = (
            await asyncio.to_thread(adapter.parse_body, raw)
            if len(raw) > PARSE_IN_THREAD_MIN
            else adapter.parse_body(raw)
        )
        if route.body is None:
            body = {} if body is None else body
            to_request(body, NoFields)
        return body, len(raw)

    def _api_key(self, adapter: ApiAdapter, request: Request) -> bytes:
        key = adapter.read_token(request)
        return self.context.test_token or key if key and key == adapter.test_token else key

    def _add_rate_limit_headers(self, adapter: ApiAdapter, request: Request, headers: Headers) -> None:
        """Add the key's current rate-limit headers, without taking tokens."""
        with suppress(Refusal):
            caller = request.caller or self._admission.find(self._api_key(adapter, request))
            headers += self._admission.peek(caller).headers

    def _error_response(self, refusal: Refusal, adapter: ApiAdapter, request: Request, route: str) -> Response:
        """Return the error response; add it to the team's request log if the API key is known."""
        if route == "none" and adapter.prefix and isinstance(refusal, NotFound):
            url = f"{self.context.base_url}/docs/guides/compat"
            reason = adapter.unsupported_reason(request.path)
            refusal = NotFound(reason or f"This call is not supported: {url} lists the supported calls.")
        metrics.refusals[refusal.code].inc()
        response = adapter.error_response(refusal, request, self.context.base_url)
        with suppress(Refusal):
            caller = request.caller or self._admission.find(self._api_key(adapter, request))
            unknown_label = unknown_path(request.path) if adapter.prefix else "(no such route)"
            route_name = f"{request.method} {unknown_label}" if route == "none" else route
            client = client_name(request.headers.get(b"user-agent", b"")) if adapter.prefix else ""
            # The adapter may turn an error into status 200, as clients of its API expect.
            status = response.status if response.status >= 400 else status_of(type(refusal))
            self._admission.log_request(request.id, caller, route_name, status, refusal=refusal, client=client)
        return response

    def refusal_response(self, refusal: Refusal, request: Request | None = None) -> Response:
        """Return the error response to a malformed request, or to a request whose body is incomplete."""
        id_ = self.context.clock.new_id("req_")
        body = error_body(refusal, id_, self.context.base_url, problem=False)
        headers = [*error_headers(refusal), (b"x-request-id", id_.encode()), NO_STORE_HEADER]
        if request:
            self._add_rate_limit_headers(self._adapter_for(request.path), request, headers)
        return Response(status_of(type(refusal)), body, headers)


def _raise_simulated(fault: InjectedFault) -> InjectedFault:
    """Raise the simulated refusal of `fault`, if any; return `fault`."""
    if fault.refusal:
        raise simulated_refusal(fault.refusal)
    return fault


def _to_refusal(error: Exception, request: Request) -> Refusal:
    """Convert an exception to the refusal that the client receives. Exceptions that are not refusals are logged."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, TooManyChanges):
        log.warning("too many setup changes queued", request_id=request.id)
        return ServiceUnavailable(TOO_MANY_CHANGES, retry_after=error.retry_after)
    if isinstance(error, StoreUnavailable):
        log.error("store unavailable", request_id=request.id, error=str(error))
        return ServiceUnavailable(retry_after=2)
    log.exception("internal error", request_id=request.id, address=request.address)
    return InternalError()


def _end_trace(span: tracing.Span, request: Request, response: Response, path: str, method: str) -> None:
    span.set_attributes(http_request_method=request.method, http_route=path)
    span.set_attributes(http_response_status__code=response.status, heliograph_request__id=request.id)
    span.end(f"{method} {path}", failed=response.status >= 500)
