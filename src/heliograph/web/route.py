"""What a route is: the one record that the router, the checks, the OpenAPI document and the docs page read."""

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
OCTETS = b"application/octet-stream"  # whatever it says that it is: a browser must not show it as a page of ours
AS_FILE = [(b"content-disposition", b"attachment"), (b"x-content-type-options", b"nosniff")]


class Query(msgspec.Struct, frozen=True):
    """A query parameter, for the documents."""

    name: str
    meaning: str
    schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "string"})


class Route(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str  # with {names}
    call: Callable[["Call[Any, Any]"], Awaitable[Response]]
    summary: str
    scopes: tuple[str, ...] | None = None  # the key needs one of these; None: no key needed
    body: Any = None  # type of the request body
    body_max: int = BODY_MAX
    example: dict[str, Any] | None = None  # of the body
    status: int = 200
    answer: Any = None  # type of the answer
    shows: dict[str, Any] = {}  # what its example has that is not on the fields
    several: Any = None  # another type of answer, where the query or the key asks for it
    query: tuple[Query, ...] = ()
    idempotent: bool = False  # takes an Idempotency-Key
    preview: Any = None  # type of the answer to ?dry_run=true
    fresh: bool = False  # reads what other processes may have just changed: the newest is asked for first
    refusals: tuple[type[Refusal], ...] = ()  # beyond those that every route has
    name: str = ""  # method and path, in counters
    takes_body: bool = False  # a POST that takes no fields may come with an empty object

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "takes_body", self.body is not None or self.method == "POST")
        msgspec.structs.force_setattr(self, "name", f"{self.method} {self.path}")

    @property
    def query_names(self) -> tuple[str, ...]:
        return tuple(query.name for query in self.query)


class Call(msgspec.Struct, Generic[C, M], frozen=True):
    """A request on its route, made by a caller (None where no key is needed).

    The edges say what the use cases work with, which this floor does not know.
    """

    context: C
    management: M
    route: Route
    request: Request
    params: dict[str, str]
    who: Caller | None
    json: Any = None  # the decoded body
    size: int = 0  # bytes of it, as sent
    read: Callable[[], Awaitable[bytes]] | None = None  # the body, on routes without a key: who is it from?
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
        """Wait until so much may be read."""
        await self.reads.hold(self.request, self.caller.team.record.id, octets)

    def query(self) -> dict[str, str]:
        return self.request.query(self.route.query_names)

    def retry(self, most: int = IDEMPOTENCY_KEY_MAX) -> Retry | None:
        """Return what its Idempotency-Key stands for; None when it has none. `most` is the most characters of one."""
        key = read_key(self.request.values(b"idempotency-key"), most)
        return None if key is None else Retry(key, self.request.path, self.json, self.size)


def answer(value: Any, status: int = 200) -> Response:
    return Response(status, msgspec.json.encode(value), made=id_of(value))


def answer_file(content: bytes) -> Response:
    return Response(200, content, AS_FILE, OCTETS)


def id_of(value: Any) -> str:
    """Return the id that a record has, if it has one."""
    id_ = value.get("id") if isinstance(value, dict) else getattr(value, "id", None)
    return id_ if isinstance(id_, str) else ""


def answer_once(sent: Sent[Any], status: int = 202, body: bytes | None = None) -> Response:
    """Return the first answer, or the same again, which says so; `body` stands in place of the record."""
    own = sent.body if body is None else body
    return Response(status, own, REPLAYED if sent.replayed else [], made=sent.id)


async def answer_of(octets: int, make: Callable[[], Any], status: int = 200) -> Response:
    """Return what is made of so much: off the event loop when that is large."""
    return await work(octets, lambda: answer(make(), status))
