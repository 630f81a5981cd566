"""API adapters: each serves our API or a compatibility API below a path prefix, with its authentication and errors."""

from collections.abc import Callable
from typing import Any

import msgspec

from heliograph.domain.refusals import MissingApiKey, Refusal
from heliograph.web.bodies import parse_json
from heliograph.web.errors import JSON, PROBLEM, error_body, error_headers
from heliograph.web.request import Request, Response, accept_quality
from heliograph.web.route import Route
from heliograph.web.status import status_of


class ApiAdapter(msgspec.Struct, frozen=True, kw_only=True):
    """The format of our API or of a compatibility API, and its routes."""

    prefix: str  # begins every route's path; two segments, such as /compat/resend
    routes: tuple[Route, ...]
    read_token: Callable[[Request], bytes]  # returns the API key from the request, or raises MissingApiKey
    check_media_type: Callable[[Request], None]  # called before the body is read
    parse_body: Callable[[bytes], Any]
    # (refusal, request, base URL of this service) → response
    error_response: Callable[[Refusal, Request, str], Response]
    test_token: bytes = b""  # the imitated service's public test key; in the demo, the sandbox team's key
    has_signed_body: bool = False  # bodies are signed with a hook secret of the team in the path
    unsupported_reason: Callable[[str], str | None] = lambda path: None  # path → why it is not supported
    ignores_unknown_query: bool = True  # our own API refuses unknown query parameters


def read_bearer_token(request: Request) -> bytes:
    """Return the Bearer token of the Authorization header; raise MissingApiKey if absent."""
    header = request.headers.get(b"authorization", b"")
    if header[:7].lower() != b"bearer ":
        raise MissingApiKey()
    return header[7:]


def _error_response(refusal: Refusal, request: Request, base_url: str) -> Response:
    accept = b",".join(request.values(b"accept"))
    problem = 0 < accept_quality(accept, PROBLEM) >= accept_quality(accept, JSON)
    body = error_body(refusal, request.id, base_url, problem=problem)
    return Response(status_of(type(refusal)), body, error_headers(refusal), PROBLEM if problem else JSON)


def own_api(routes: list[Route]) -> ApiAdapter:
    """Return the adapter of our own API, which serves all paths outside the other adapters' prefixes."""
    return ApiAdapter(
        prefix="",
        routes=tuple(routes),
        read_token=read_bearer_token,
        check_media_type=Request.check_media_type,
        parse_body=parse_json,
        error_response=_error_response,
        ignores_unknown_query=False,
    )
