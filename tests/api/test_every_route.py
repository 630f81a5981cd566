"""Rules for every route of every API, derived from the routes, so that new routes are tested too."""

import re
from base64 import b64encode

import pytest

from heliograph.accept.admission import Admission
from heliograph.accept.rate import RateLimits
from heliograph.api.app import Api
from heliograph.api.routes import ROUTES
from heliograph.compat.adapters import ADAPTERS
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.keys import make_token, parse_token, token_hash
from heliograph.domain.setup.records import Key, TeamRecord
from heliograph.storage.store import Store
from heliograph.web.budget import ByteBudget
from heliograph.web.paging import ListPage
from heliograph.web.request import Response
from heliograph.web.route import Route
from heliograph.web.router import Router
from tests.clocks import TestClock
from tests.dashboard.inside import write_records
from tests.make_request import make_request
from tests.storage.test_idempotency import make_context, make_management

pytestmark = pytest.mark.anyio

TOKEN = make_token(bytes(range(64)))
PUBLIC = parse_token(TOKEN) or ""
# where each adapter reads the key
KEYED = {"authorization": f"Bearer {TOKEN}", "x-postmark-server-token": TOKEN, "x-server-api-key": TOKEN}
BASIC = {"authorization": "Basic " + b64encode(f"AC1:{TOKEN}".encode()).decode()}

# a hook is identified by its signature instead of a key
FOREIGN = [route for adapter in ADAPTERS if not adapter.has_signed_body for route in adapter.routes]
ALL_ROUTES = [*ROUTES, *FOREIGN]
LIMITS = {b"ratelimit-limit", b"ratelimit-remaining", b"ratelimit-reset"}
CURSORS = {"/v1/inbox": {"before"}}  # where `after` means newer


@pytest.fixture
async def api(store: Store, clock: TestClock) -> Api:
    team = TeamRecord(ref=1, id="team_a", name="A", mode="live", rate_limit=100_000)
    key = Key(id=PUBLIC, team="team_a", name="k", hash=token_hash(TOKEN), scopes=("send", "manage"))
    await write_records(store, ("team", "team_a", team, "team_a"), ("key", PUBLIC, key, "team_a"))
    context = make_context(store, clock)
    return Api(context, make_management(context), Admission(context, RateLimits()), ByteBudget(), ADAPTERS)


async def send_request(api: Api, method: str, path: str, body: bytes = b"{}") -> Response:
    headers = {"content-type": "application/json", **KEYED, **(BASIC if path.startswith("/compat/twilio") else {})}
    return await api(make_request(method, path, headers, b"" if method in ("GET", "HEAD") else body))


def path_of(route: Route) -> str:
    return re.sub(r"{\w+}", "none", route.path)


async def test_every_response_has_the_common_headers(api: Api) -> None:
    """For a GET, for a refused body, and for an unknown path."""
    calls = [(route.method, path_of(route)) for route in ALL_ROUTES] + [("GET", "/v1/none"), ("PUT", "/v1/emails")]
    for method, path in calls:
        answer = await send_request(api, method, path, b"[]")
        names = dict(answer.headers)
        assert names.keys() >= LIMITS, (method, path, answer.status)
        if path.startswith(("/v1/", "/compat/")):
            assert names.get(b"cache-control") == b"no-store", (method, path, answer.status)


async def test_an_incomplete_body_gets_the_headers_too(api: Api) -> None:
    request = make_request("POST", "/v1/emails", KEYED)
    assert dict(api.refusal_response(InvalidRequest("Broken."), request).headers).keys() >= {*LIMITS, b"cache-control"}
    assert not dict(api.refusal_response(InvalidRequest("Broken.")).headers).keys() & LIMITS


async def test_head_is_served_for_every_get_route(api: Api) -> None:
    for route in ALL_ROUTES:
        if route.method == "GET":
            got, head = [await send_request(api, method, path_of(route)) for method in ("GET", "HEAD")]
            assert head.status == got.status, route.name


async def test_allow_lists_head_for_get_routes(api: Api) -> None:
    answer = await send_request(api, "PUT", "/v1/suppressions")
    assert dict(answer.headers)[b"allow"] == b"GET, HEAD, POST"
    assert (await send_request(api, "HEAD", "/v1/sms/batch")).status == 405


@pytest.mark.parametrize(
    "route", [route for route in ROUTES if isinstance(route.answer, type)], ids=lambda one: one.name
)
def test_every_list_is_paginated(route: Route) -> None:
    is_list = issubclass(route.answer, ListPage) or "has_more" in getattr(route.answer, "__struct_fields__", ())
    if is_list:
        assert {"limit", "after"} | CURSORS.get(route.path, set()) <= set(route.query_names)


def test_an_explicit_head_route_has_precedence() -> None:
    async def call(_: object) -> Response:
        return Response(200, b"")

    head_route = Route(method="HEAD", path="/a", call=call, summary="")
    get = Route(method="GET", path="/a", call=call, summary="")
    for order in ((head_route, get), (get, head_route)):
        assert Router(order).find("HEAD", "/a", b"/a")[0] is head_route
