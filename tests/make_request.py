"""Builds requests as a connection would, for tests that call a request handler directly."""

from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from heliograph.storage.contents import ReserveMemory
from heliograph.web.request import Request, Response


def make_request(
    method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b"", address: str = "127.0.0.1"
) -> Request:
    """Return a request whose body has been received completely."""
    parts = urlsplit(target)
    request = Request(
        method,
        parts.path,
        [(name.encode(), value.encode()) for name, value in (headers or {}).items()],
        raw_path=quote(parts.path, safe="/@:").encode(),
        query_string=parts.query.encode(),
        address=address,
    )
    request.feed(body)
    request.end()
    return request


async def no_eml(_id: str, _content: str, _room: ReserveMemory) -> bytes:
    return b""


async def body_of(answer: Response) -> bytes:
    return answer.body if answer.chunks is None else b"".join([chunk async for chunk in answer.chunks])
