"""Under a prefix we speak as another service does: where its key is, how its bodies and its errors look."""

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
    prefix: str  # two parts, such as /compat/resend; paths of its routes begin with it
    routes: tuple[Route, ...]
    token: Callable[[Request], bytes]  # the API key as given, or MissingApiKey
    check_media_type: Callable[[Request], None]  # before the body is read
    parse: Callable[[bytes], Any]
    error: Callable[[Refusal, Request, str], Response]  # str: our base URL
    test_token: bytes = b""  # of the service, known to everybody: the demo's sandbox key, and nobody's elsewhere
    signed: bool = False  # the body is signed by a hook's key of the team that the path names
    any_query: bool = True  # what clients add to the query string is theirs; our own API refuses what it does not know


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
    """Make the surface of our own API: whatever has no other prefix."""
    return Surface(
        prefix="",
        routes=tuple(routes),
        token=bearer,
        check_media_type=Request.check_media_type,
        parse=parse_json,
        error=_error,
        any_query=False,
    )
