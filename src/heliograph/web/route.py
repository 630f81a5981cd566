"""Definition of a route, as used by the router, the request checks, the OpenAPI document and the docs page."""

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import msgspec

from heliograph.domain.audit.actor import Actor
from heliograph.domain.limits import BODY_MAX, IDEMPOTENCY_KEY_MAX
from heliograph.domain.refusals import Refusal
from heliograph.domain.sending.acceptance import SendResult
from heliograph.domain.sending.idempotency import KeyedRequest, parse_key
from heliograph.domain.setup.key_restrictions import Action
from heliograph.domain.setup.records import Caller, Key
from heliograph.web.read_budget import ReadBudget, run_large
from heliograph.web.request import Request, Response

C = TypeVar("C")
M = TypeVar("M")

REPLAYED_HEADERS = [(b"idempotency-replayed", b"true")]
NO_CALLER = "the route has no scopes, so it has no caller"
# Content type of every file, so that browsers do not render a file as one of our pages.
OCTET_STREAM = b"application/octet-stream"
FILE_HEADERS = [(b"content-disposition", b"attachment"), (b"x-content-type-options", b"nosniff")]


class QueryParam(msgspec.Struct, frozen=True):
    """A query parameter as documented."""

    name: str
    meaning: str
    schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "string"})


class Route(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str  # with {name} parameters
    call: Callable[["Call[Any, Any]"], Awaitable[Response]]
    summary: str
    scopes: tuple[str, ...] | None = None  # the API key needs one of these scopes; None if the route needs no key
    action: Action = ""  # what the route does; checked against the restrictions of keys
    body: Any = None  # type of the request body
    body_max: int = BODY_MAX
    example: dict[str, Any] | None = None  # example body
    status: int = 200
    answer: Any = None  # response type
    example_values: dict[str, Any] = {}  # example values for response fields without an example
    alternative_answer: Any = None  # alternative response type, selected by the query or the key
    query: tuple[QueryParam, ...] = ()
    idempotent: bool = False  # accepts an Idempotency-Key
    preview: Any = None  # response type of ?dry_run=true
    # Refresh the setup before the call, because another process may just have changed it.
    needs_fresh_setup: bool = False
    refusals: tuple[type[Refusal], ...] = ()  # refusals besides those that every route may raise
    check_key: Callable[[Key], None] | None = None  # further check of the API key, which raises a Refusal
    logs_inner_calls: bool = False  # the route runs other routes, and the request log has those instead of this one
    name: str = ""  # method and path, as the metrics label
    takes_body: bool = False  # also True for a POST without fields: its body may be an empty object

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "takes_body", self.body is not None or self.method == "POST")
        msgspec.structs.force_setattr(self, "name", f"{self.method} {self.path}")

    @property
    def query_names(self) -> tuple[str, ...]:
        return tuple(query.name for query in self.query)


class Call(msgspec.Struct, Generic[C, M], frozen=True):
    """A request matched to its route, with its caller (None on routes without a key).

    The type parameters are the context and management types, which this layer must not import.
    """

    context: C
    management: M
    route: Route
    request: Request
    params: dict[str, str]
    caller_or_none: Caller | None
    json: Any = None  # the decoded body
    size: int = 0  # size of the encoded body in bytes
    read_body: Callable[[], Awaitable[bytes]] | None = None  # reads the body, on routes that need no key
    read_budget: ReadBudget = msgspec.field(default_factory=ReadBudget)

    @property
    def caller(self) -> Caller:
        assert self.caller_or_none is not None, NO_CALLER
        return self.caller_or_none

    @property
    def actor(self) -> Actor:
        return Actor(kind="key", id=self.caller.key.id, address=self.request.address)

    @property
    def team(self) -> int:
        assert self.caller_or_none is not None, NO_CALLER
        return self.caller_or_none.team.record.ref

    @property
    def team_id(self) -> str:
        return self.caller.team.record.id

    async def reserve_memory(self, octets: int) -> None:
        """Reserve memory for reading `octets` bytes, waiting until it is available."""
        await self.read_budget.reserve(self.request, self.team_id, octets)

    def query(self) -> dict[str, str]:
        return self.request.query(self.route.query_names)

    def keyed_request(self, key_length_max: int = IDEMPOTENCY_KEY_MAX) -> KeyedRequest | None:
        """Return the request with its Idempotency-Key; None if it has no key. `key_length_max`: maximum key length."""
        key = parse_key(self.request.values(b"idempotency-key"), key_length_max)
        return None if key is None else KeyedRequest(key, self.request.path, self.json, self.size)


def json_response(value: Any, status: int = 200) -> Response:
    return Response(status, msgspec.json.encode(value), record_id=record_id(value))


def file_response(content: bytes) -> Response:
    return Response(200, content, FILE_HEADERS, OCTET_STREAM)


def record_id(value: Any) -> str:
    """Return the id of a record; empty if it has none."""
    id_ = value.get("id") if isinstance(value, dict) else getattr(value, "id", None)
    return id_ if isinstance(id_, str) else ""


def send_response(sent: SendResult[Any], status: int = 202, body: bytes | None = None) -> Response:
    """Return the response to a send; if replayed, with Idempotency-Replayed. `body` replaces the stored body."""
    content = sent.body if body is None else body
    return Response(status, content, REPLAYED_HEADERS if sent.replayed else [], record_id=sent.id)


async def large_json_response(octets: int, make: Callable[[], Any], status: int = 200) -> Response:
    """Return the JSON response with the value that `make` returns; runs in a thread if `octets` is large."""
    return await run_large(octets, lambda: json_response(make(), status))
