"""An API with its own prefix, key format, bodies and errors, but with the checks of /v1."""

from urllib.parse import parse_qs

import pytest

from heliograph.accept.admission import Admission
from heliograph.accept.rate import RateLimits
from heliograph.api.app import Api
from heliograph.compat.call import Call
from heliograph.domain.refusals import MissingApiKey, Refusal
from heliograph.storage.store import Store
from heliograph.web.adapter import ApiAdapter
from heliograph.web.budget import ByteBudget
from heliograph.web.request import Request, Response
from heliograph.web.route import Route, json_response
from heliograph.web.status import status_of
from tests.api.test_request_log import TOKEN, Calls, calls  # noqa: F401
from tests.clocks import TestClock
from tests.make_request import make_request
from tests.service import Service
from tests.storage.test_idempotency import make_context, make_management

pytestmark = pytest.mark.anyio

FORM = {"content-type": "application/x-www-form-urlencoded"}


async def echo(call: Call) -> Response:
    return json_response({"team": call.caller.team.record.id, "form": call.json})


def token(request: Request) -> bytes:
    if (key := request.headers.get(b"x-token")) is None:
        raise MissingApiKey()
    return key


def error(refusal: Refusal, request: Request, base_url: str) -> Response:
    return Response(status_of(type(refusal)), refusal.code.encode(), content_type=b"text/plain")


OTHER = ApiAdapter(
    prefix="/compat/other",
    routes=(
        Route(method="POST", path="/compat/other/send", call=echo, summary="Echo", scopes=("send",), body=dict),
        Route(method="GET", path="/compat/other/keys", call=echo, summary="Manage", scopes=("manage",)),
    ),
    read_token=token,
    check_media_type=lambda request: None,
    parse_body=lambda raw: parse_qs(raw.decode()),
    error_response=error,
)


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "body"),
    [
        ("POST", "/send", {"x-token": TOKEN}, 200, b'{"team":"team_a","form":{"to":["a"]}}'),
        ("POST", "/send?more=1", {"x-token": TOKEN}, 200, b'{"team":"team_a","form":{"to":["a"]}}'),
        ("POST", "/send", {"authorization": f"Bearer {TOKEN}"}, 401, b"missing_api_key"),
        ("POST", "/send", {"x-token": "hk_no"}, 401, b"invalid_api_key"),
        ("GET", "/send", {"x-token": TOKEN}, 405, b"method_not_allowed"),
        ("GET", "/keys", {"x-token": TOKEN}, 403, b"insufficient_scope"),
        ("GET", "/nothing", {}, 404, b"not_found"),
        ("GET", "", {}, 404, b"not_found"),
    ],
)
async def test_an_adapter_with_another_format(
    store: Store, clock: TestClock, method: str, path: str, headers: dict[str, str], status: int, body: bytes
) -> None:
    context = make_context(store, clock)
    api = Api(context, make_management(context), Admission(context, RateLimits()), ByteBudget(), [OTHER])
    response = await api(make_request(method, f"/compat/other{path}", {**FORM, **headers}, b"to=a"))
    assert (response.status, response.body) == (status, body)
    assert any(name == b"x-request-id" for name, _ in response.headers)


async def test_an_unknown_prefix_gets_our_error_format(store: Store, clock: TestClock) -> None:
    context = make_context(store, clock)
    api = Api(context, make_management(context), Admission(context, RateLimits()), ByteBudget(), [OTHER])
    response = await api(make_request("GET", "/compat/others/send", {}))
    assert response.status == 404 and b'"code":"not_found"' in response.body


@pytest.mark.parametrize(
    "path",
    ["postal/api/v1/send/nothing", "postmark/nothing", "resend/nothing", "twilio/2010-04-01/Nothing.json"],
)
def test_an_unknown_call_links_to_the_list_of_calls(shared_service: Service, path: str) -> None:
    response = shared_service.get(f"/compat/{path}")
    assert response.status == 404 and b"/docs/guides/compat" in response.raw
