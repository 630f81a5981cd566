"""All calls of Twilio's that we take, and how its clients speak."""

from collections.abc import Awaitable, Callable

from heliograph.api.route import Call, Route
from heliograph.api.surface import Surface
from heliograph.compat.twilio import verify
from heliograph.compat.twilio.shape import PREFIX, check_media_type, error, parse, token
from heliograph.web.request import Response


def _route(line: str, call: Callable[[Call], Awaitable[Response]]) -> Route:
    method, path = line.split()
    body = dict if method == "POST" else None
    return Route(method=method, path=PREFIX + path, call=call, summary=line, scopes=("send",), body=body)


ROUTES = (
    _route("GET /v2/Services/{service}", verify.service),
    _route("POST /v2/Services/{service}/Verifications", verify.start),
    _route("GET /v2/Services/{service}/Verifications/{sid}", verify.read),
    _route("POST /v2/Services/{service}/Verifications/{sid}", verify.update),
    _route("POST /v2/Services/{service}/VerificationCheck", verify.check),
)

TWILIO = Surface(prefix=PREFIX, routes=ROUTES, token=token, check_media_type=check_media_type, parse=parse, error=error)
