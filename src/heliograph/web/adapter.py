"""API adapters: under a path prefix, the API format of another service (authentication, bodies, errors)."""

from collections.abc import Callable
from typing import Any

import msgspec

from heliograph.domain.refusals import MissingApiKey, Refusal
from heliograph.web.bodies import parse_json
from heliograph.web.errors import JSON, PROBLEM, error_body, error_headers
from heliograph.web.request import Request, Response, liking
from heliograph.web.route import Route
from heliograph.web.status import status_of


class Surface(msgspec.Struct, frozen=True, kw_only=True):
    prefix: str  # two segments, such as /compat/resend; all route paths begin with it
    routes: tuple[Route, ...]
    token: Callable[[Request], bytes]  # returns the API key as sent, or raises MissingApiKey
    check_media_type: Callable[[Request], None]  # called before the body is read
    parse: Callable[[bytes], Any]
    error: Callable[[Refusal, Request, str], Response]  # the str is our base URL
    test_token: bytes = b""  # the service's public test key: the sandbox key in the demo, invalid elsewhere
    signed: bool = False  # the body is signed with a hook secret of the team in the path
    any_query: bool = True  # ignore unknown query parameters; our own API refuses them


def bearer(request: Request) -> bytes:
    header = request.headers.get(b"authorization", b"")
    if header[:7].lower() != b"bearer ":
        raise MissingApiKey()
    return header[7:]


def _error(refusal: Refusal, request: Request, base_url: str) -> Response:
    accept = b",".join(request.values(b"accept"))
    problem = 0 < liking(accept, PROBLEM) >= liking(accept, JSON)
    body = error_body(refusal, request.id, base_url, problem=problem)
    return Response(status_of(type(refusal)), body, error_headers(refusal), PROBLEM if problem else JSON)


def own(routes: list[Route]) -> Surface:
    """Return the adapter of our own API, which serves all paths without another adapter's prefix."""
    return Surface(
        prefix="",
        routes=tuple(routes),
        token=bearer,
        check_media_type=Request.check_media_type,
        parse=parse_json,
        error=_error,
        any_query=False,
    )
