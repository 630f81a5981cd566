"""One HTTP request: its headers, its query, its body read within limits, and the answer to it."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from heliograph.rules.refusals import InvalidRequest, PayloadTooLarge, UnsupportedMediaType
from heliograph.web.budget import ByteBudget, Holder

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

WRITE = "heliograph.write"  # in a scope's state: writes a whole answer at once, or returns False
CLOSE = (b"connection", b"close")
BUDGETED = 64 * 1024  # bodies above this count against the byte budget


class ClientGone(Exception):
    """The connection ended before the body did; there is nobody to answer."""


class Response(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    headers: Headers = []
    content_type: bytes = b"application/json"


async def respond(scope: Scope, send: Send, response: Response, headers: Headers) -> None:
    """In one write where the connection can do that; `headers` are all but those of the body."""
    write = scope.get("state", {}).get(WRITE)
    if write and write(scope, response, headers):
        return
    headers = [
        (b"content-type", response.content_type),
        (b"content-length", b"%d" % len(response.body)),
        *headers,
    ]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


def call_task(route: str) -> None:
    """So that the watch on the event loop can say which route held it."""
    if task := asyncio.current_task():
        task.set_name(route)


class Request:
    __slots__ = ("_receive", "address", "headers", "holder", "id", "method", "path", "query_string", "raw_headers")

    def __init__(self, scope: Scope, receive: Receive, id_: str) -> None:
        self.id = id_
        client = scope.get("client")
        self.address: str = client[0] if client else ""
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query_string: bytes = scope["query_string"]
        self._receive = receive
        self.holder: Holder | None = None  # of its body in the byte budget
        self.raw_headers: Headers = scope["headers"]
        self.headers: dict[bytes, bytes] = dict(self.raw_headers)

    def values(self, name: bytes) -> list[bytes]:
        """Every value of a header that may have been sent more than once."""
        return [value for key, value in self.raw_headers if key == name] if name in self.headers else []

    def query(self, known: tuple[str, ...]) -> dict[str, str]:
        """The query parameters; an unknown or repeated one is refused."""
        if not self.query_string:
            return {}
        found: dict[str, str] = {}
        try:
            pairs = parse_qsl(self.query_string.decode("ascii"), keep_blank_values=True, errors="strict")
        except ValueError:
            raise InvalidRequest("The query string is not valid percent-encoded UTF-8.") from None
        for name, value in pairs:
            if name not in known:
                wanted = f"Known: {', '.join(known)}." if known else "This endpoint takes none."
                raise InvalidRequest(f"There is no query parameter {name[:80]!r}. {wanted}", param=name[:80])
            if name in found or "\0" in value:
                raise InvalidRequest(f"The query parameter {name} must be given once, as text.", param=name)
            found[name] = value
        return found

    def loose_query(self) -> dict[str, str]:
        """All query parameters, whatever they are."""
        return dict(parse_qsl(self.query_string.decode("latin-1"), keep_blank_values=True))

    async def gone(self) -> None:
        """Until the client hangs up; only after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def check_media_type(self) -> None:
        given = self.headers.get(b"content-type", b"")
        if given != b"application/json" and given.split(b";")[0].strip().lower() != b"application/json":
            raise UnsupportedMediaType()
        if self.headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise UnsupportedMediaType(f"The body has a Content-Encoding. {UnsupportedMediaType.fix}")

    async def read_body(self, most: int, budget: ByteBudget, team: str) -> bytes:
        """The whole body, refused as soon as it is known to be larger than `most`; the team's share pays for it."""
        declared = self.headers.get(b"content-length")
        length = int(declared) if declared and declared.isdigit() else most
        if length > most:
            raise _too_large(most)
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await self._next()
            part, more = message.get("body", b""), message.get("more_body", False)
            parts.append(part)
            size += len(part)
            if size > most:
                raise _too_large(most)
            if size > BUDGETED:
                if self.holder is None:
                    self.holder = Holder(team, length)
                await budget.take(self.holder, size - self.holder.held)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _next(self) -> MutableMapping[str, Any]:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        return message


def _too_large(most: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The body is larger than {most} bytes. {PayloadTooLarge.fix}")
