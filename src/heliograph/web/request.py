"""An HTTP request (headers, query, body read within limits) and its response."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from urllib.parse import parse_qsl

import msgspec

from heliograph.domain.refusals import InvalidRequest, PayloadTooLarge, UnsupportedMediaType
from heliograph.domain.setup.records import Caller
from heliograph.web.budget import ByteBudget, Reservation

Headers = list[tuple[bytes, bytes]]

_Q_VALUE = re.compile(rb"[01](?:\.[0-9]{0,3})?")
BUDGETED_MIN = 64 * 1024  # larger bodies count against the memory budget


class ClientDisconnected(Exception):
    """The client closed the connection before its request was answered."""


class Response(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    headers: Headers = []  # except content-type, content-length and transfer-encoding
    content_type: bytes = b"application/json"
    chunks: AsyncGenerator[bytes, None] | None = None  # streamed instead of `body`; closed if the client disconnects
    record_id: str = ""  # id of the record created or returned, for the request log


def name_task(route: str) -> None:
    """Name the current task after its route, so that the loop watchdog can report which route blocked the loop."""
    if task := asyncio.current_task():
        task.set_name(route)


def accept_quality(accept: bytes, media_type: bytes) -> float:
    """Return the quality value (q, 0 to 1) of a media type in an Accept header; 0 if the header does not list it."""
    for part in accept.lower().split(b","):
        name, *parameters = (item.strip() for item in part.split(b";"))
        if name == media_type:
            quality = next((item[2:] for item in parameters if item.startswith(b"q=")), b"1")
            return float(quality) if _Q_VALUE.fullmatch(quality) else 1.0
    return 0.0


class Request:
    """A request whose body may still be arriving. `feed`, `end` and `hang_up` are for the connection only."""

    __slots__ = (
        "_body",
        "_consumed",
        "_ended",
        "_need_more",
        "_waiting",
        "address",
        "body_reservation",
        "caller",
        "gone",
        "headers",
        "id",
        "keep_alive",
        "method",
        "path",
        "query_string",
        "raw_headers",
        "raw_path",
        "response_reservation",
        "version",
    )

    def __init__(
        self,
        method: str,
        path: str,
        headers: Headers,
        *,
        raw_path: bytes = b"",
        query_string: bytes = b"",
        address: str = "",
        version: str = "1.1",
        keep_alive: bool = True,
        need_more: Callable[[], None] = lambda: None,  # called when more bytes of the body are needed
    ) -> None:
        self.id = ""
        self.caller: Caller | None = None  # set after authentication
        self.method = method
        self.path = path
        self.raw_path = raw_path
        self.query_string = query_string
        self.address = address
        self.version = version
        self.keep_alive = keep_alive
        self.raw_headers = headers
        self.headers = dict(headers)
        self.body_reservation: Reservation | None = None  # memory reserved for the body
        # Memory reserved for the response, until it is written
        self.response_reservation: tuple[ByteBudget, Reservation] | None = None
        # Not a list of parts: many small parts would need more memory than their content
        self._body: bytes | bytearray = b""
        self._consumed = 0  # bytes of _body already read
        self._ended = False
        self.gone = False  # the client has disconnected
        self._need_more = need_more
        self._waiting: asyncio.Future[None] | None = None

    def feed(self, part: bytes) -> int:
        """Add a part of the body; return the number of unread bytes."""
        if not self._body:
            self._body = part
        else:
            self._body = self._body if isinstance(self._body, bytearray) else bytearray(self._body)
            self._body += part
        if self._waiting is not None:
            self._wake()
        return len(self._body) - self._consumed

    def end(self) -> None:
        """Mark the body as complete."""
        self._ended = True
        if self._waiting is not None:
            self._wake()

    def hang_up(self) -> None:
        """Mark the client as disconnected."""
        self.gone = True
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def values(self, name: bytes) -> list[bytes]:
        """Return all values of a header, which may have been sent more than once."""
        return [value for key, value in self.raw_headers if key == name] if name in self.headers else []

    def decoded_headers(self) -> dict[str, str]:
        """Return all headers as text, with the last value of each repeated header."""
        return {name.decode("latin-1"): value.decode("latin-1") for name, value in self.headers.items()}

    def query(self, known: tuple[str, ...]) -> dict[str, str]:
        """Return the query parameters; refuse unknown and repeated parameters."""
        if not self.query_string:
            return {}
        params: dict[str, str] = {}
        try:
            pairs = parse_qsl(self.query_string.decode("ascii"), keep_blank_values=True, errors="strict")
        except ValueError:
            raise InvalidRequest("The query string is not valid percent-encoded UTF-8.") from None
        for name, value in pairs:
            if name not in known:
                hint = f"Known: {', '.join(known)}." if known else "This endpoint has no query parameters."
                raise InvalidRequest(f"There is no query parameter {name[:80]!r}. {hint}", param=name[:80])
            if name in params or "\0" in value:
                raise InvalidRequest(f"The query parameter {name} must be given once, as text.", param=name)
            params[name] = value
        return params

    def unchecked_query(self) -> dict[str, str]:
        """Return all query parameters, unvalidated but without null characters, which PostgreSQL cannot store."""
        pairs = parse_qsl(self.query_string.decode("latin-1"), keep_blank_values=True)
        return {name: value.replace("\0", "") for name, value in pairs}

    @property
    def has_body(self) -> bool:
        return self.headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in self.headers

    def check_media_type(self) -> None:
        media_type = self.headers.get(b"content-type", b"")
        if media_type != b"application/json" and media_type.split(b";")[0].strip().lower() != b"application/json":
            raise UnsupportedMediaType()
        if self.headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise UnsupportedMediaType(f"The body has a Content-Encoding. {UnsupportedMediaType.fix}")

    async def read_body(self, limit: int, budget: ByteBudget, team: str) -> bytes:
        """Return the complete body. A body larger than `limit` is refused as soon as its size is known.

        The bytes are reserved in the team's share of the memory budget for request bodies.
        """
        limit = min(limit, budget.share)
        declared = self.headers.get(b"content-length")
        length = int(declared) if declared and declared.isdigit() else limit
        if length > limit:
            raise _too_large(limit)
        while self._consumed < len(self._body) or not self._ended:
            if self._consumed == len(self._body):
                await self._wait_for_data()
                continue
            self._consumed = size = len(self._body)
            if size > limit:
                raise _too_large(limit)
            if size > BUDGETED_MIN:
                if self.body_reservation is None:
                    self.body_reservation = Reservation(team, length)
                await budget.reserve(self.body_reservation, size - self.body_reservation.reserved)
        body, self._body, self._consumed = self._body, b"", 0
        return bytes(body)

    def shrink_reservation(self, size: int) -> None:
        """Reduce the response's reservation to the `size` bytes that are still to be sent."""
        if self.response_reservation:
            budget, reservation = self.response_reservation
            budget.shrink(reservation, size)

    def release_reservation(self) -> None:
        """Release the response's reservation."""
        if self.response_reservation:
            budget, reservation = self.response_reservation
            self.response_reservation = None
            budget.release(reservation)

    async def _wait_for_data(self) -> None:
        if self.gone:
            raise ClientDisconnected
        self._waiting = asyncio.get_running_loop().create_future()
        self._need_more()
        await self._waiting


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The body is larger than {limit} bytes. {PayloadTooLarge.fix}")
