"""Route definitions: the record that the router, the request checks, the OpenAPI document and the docs page share."""

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import msgspec

from heliograph.domain.audit.actor import Actor
from heliograph.domain.limits import BODY_MAX, IDEMPOTENCY_KEY_MAX
from heliograph.domain.refusals import Refusal
from heliograph.domain.sending.acceptance import Sent
from heliograph.domain.sending.idempotency import Retry, read_key
from heliograph.domain.setup.records import Caller
from heliograph.web.read_budget import Reads, work
from heliograph.web.request import Request, Response

C = TypeVar("C")
M = TypeVar("M")

REPLAYED = [(b"idempotency-replayed", b"true")]
NOBODY = "the route has no scopes, so it has no caller"
OCTETS = b"application/octet-stream"  # for every file: a browser must not render it as one of our pages
AS_FILE = [(b"content-disposition", b"attachment"), (b"x-content-type-options", b"nosniff")]


class Query(msgspec.Struct, frozen=True):
    """A query parameter as documented."""

    name: str
    meaning: str
    schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "string"})


class Route(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str  # with {name} parameters
    call: Callable[["Call[Any, Any]"], Awaitable[Response]]
    summary: str
    scopes: tuple[str, ...] | None = None  # the API key needs one of these; None if the route needs no key
    body: Any = None  # type of the request body
    body_max: int = BODY_MAX
    example: dict[str, Any] | None = None  # example body
    status: int = 200
    answer: Any = None  # response type
    shows: dict[str, Any] = {}  # values of the response example that the fields do not define
    several: Any = None  # alternative response type, selected by the query or the key
    query: tuple[Query, ...] = ()
    idempotent: bool = False  # accepts an Idempotency-Key
    preview: Any = None  # response type of ?dry_run=true
    fresh: bool = False  # refresh the setup before the call, because other processes may just have changed it
    refusals: tuple[type[Refusal], ...] = ()  # in addition to those of every route
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
    who: Caller | None
    json: Any = None  # the decoded body
    size: int = 0  # size of the encoded body in bytes
    read: Callable[[], Awaitable[bytes]] | None = None  # reads the body, on routes that need no key
    reads: Reads = msgspec.field(default_factory=Reads)

    @property
    def caller(self) -> Caller:
        assert self.who is not None, NOBODY
        return self.who

    @property
    def actor(self) -> Actor:
        return Actor(kind="key", id=self.caller.key.id, address=self.request.address)

    @property
    def team(self) -> int:
        assert self.who is not None, NOBODY
        return self.who.team.record.ref

    async def hold(self, octets: int) -> None:
        """Wait until the read budget has memory for reading `octets` bytes."""
        await self.reads.hold(self.request, self.caller.team.record.id, octets)

    def query(self) -> dict[str, str]:
        return self.request.query(self.route.query_names)

    def retry(self, most: int = IDEMPOTENCY_KEY_MAX) -> Retry | None:
        """Return the request's idempotency data; None without an Idempotency-Key. `most`: maximum key length."""
        key = read_key(self.request.values(b"idempotency-key"), most)
        return None if key is None else Retry(key, self.request.path, self.json, self.size)


def answer(value: Any, status: int = 200) -> Response:
    return Response(status, msgspec.json.encode(value), made=id_of(value))


def answer_file(content: bytes) -> Response:
    return Response(200, content, AS_FILE, OCTETS)


def id_of(value: Any) -> str:
    """Return the id of a record; empty if it has none."""
    id_ = value.get("id") if isinstance(value, dict) else getattr(value, "id", None)
    return id_ if isinstance(id_, str) else ""


def answer_once(sent: Sent[Any], status: int = 202, body: bytes | None = None) -> Response:
    """Return the response to a send. A replayed one carries Idempotency-Replayed. `body` replaces the stored body."""
    own = sent.body if body is None else body
    return Response(status, own, REPLAYED if sent.replayed else [], made=sent.id)


async def answer_of(octets: int, make: Callable[[], Any], status: int = 200) -> Response:
    """Return the response with the value that `make` returns; runs in a thread if `octets` is large."""
    return await work(octets, lambda: answer(make(), status))
