"""A prefix with a shape of its own: its key, its bodies and its errors, and the checks that /v1 has."""

from urllib.parse import parse_qs

import pytest

from heliograph.accept.admission import Admission
from heliograph.accept.rate import RateLimits
from heliograph.api.app import Api
from heliograph.compat.call import Call
from heliograph.domain.refusals import MissingApiKey, Refusal
from heliograph.storage.store import Store
from heliograph.web.adapter import Surface
from heliograph.web.budget import ByteBudget
from heliograph.web.request import Request, Response
from heliograph.web.route import Route, answer
from heliograph.web.status import status_of
from tests.api.test_request_log import TOKEN, Calls, calls  # noqa: F401
from tests.clocks import TestClock
from tests.make_request import asked
from tests.service import Service
from tests.storage.test_idempotency import make_context, make_management

pytestmark = pytest.mark.anyio

FORM = {"content-type": "application/x-www-form-urlencoded"}


async def echo(call: Call) -> Response:
    return answer({"team": call.caller.team.record.id, "form": call.json})


def token(request: Request) -> bytes:
    if (given := request.headers.get(b"x-token")) is None:
        raise MissingApiKey()
    return given


def error(refusal: Refusal, request: Request, base_url: str) -> Response:
    return Response(status_of(type(refusal)), refusal.code.encode(), content_type=b"text/plain")


OTHER = Surface(
    prefix="/compat/other",
    routes=(
        Route(method="POST", path="/compat/other/send", call=echo, summary="Echo", scopes=("send",), body=dict),
        Route(method="GET", path="/compat/other/keys", call=echo, summary="Manage", scopes=("manage",)),
    ),
    token=token,
    check_media_type=lambda request: None,
    parse=lambda raw: parse_qs(raw.decode()),
    error=error,
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
async def test_a_foreign_shape(
    store: Store, clock: TestClock, method: str, path: str, headers: dict[str, str], status: int, body: bytes
) -> None:
    context = make_context(store, clock)
    api = Api(context, make_management(context), Admission(context, RateLimits()), ByteBudget(), [OTHER])
    told = await api(asked(method, f"/compat/other{path}", {**FORM, **headers}, b"to=a"))
    assert (told.status, told.body) == (status, body)
    assert any(name == b"x-request-id" for name, _ in told.headers)


async def test_no_such_prefix_is_answered_as_our_own(store: Store, clock: TestClock) -> None:
    context = make_context(store, clock)
    api = Api(context, make_management(context), Admission(context, RateLimits()), ByteBudget(), [OTHER])
    told = await api(asked("GET", "/compat/others/send", {}))
    assert told.status == 404 and b'"code":"not_found"' in told.body


@pytest.mark.parametrize(
    "path",
    ["postal/api/v1/send/nothing", "postmark/nothing", "resend/nothing", "twilio/2010-04-01/Nothing.json"],
)
def test_a_call_that_is_not_there_says_where_the_list_is(shared_service: Service, path: str) -> None:
    told = shared_service.get(f"/compat/{path}")
    assert told.status == 404 and b"/docs/guides/compat" in told.raw
