"""One attempt to deliver an event: a POST to a checked address within 15 s, and its answer."""

import asyncio
import os
import socket
import ssl
from collections.abc import Mapping
from contextvars import ContextVar

import aiohttp
import msgspec
from yarl import URL

from heliograph.channels.web import CheckedAddresses
from heliograph.channels.webhook.guard import Denied, Guard, Unresolved
from heliograph.rules.webhook_request import HEADERS
from heliograph.rules.webhook_retry import retry_after_s

TOTAL_S = 15.0
ANSWER_MAX = 1024  # bytes kept
KEEP_ALIVE_S = 4.0  # below the usual 5 s of receivers, so that we close first

# The addresses allowed for this task's attempt. A name is not resolved again between check and connection.
_CHECKED: ContextVar[tuple[str, ...]] = ContextVar("checked")


class Posted(msgspec.Struct, frozen=True, kw_only=True):
    status: int | None = None  # None: no answer
    error: str | None = None  # why there was none
    duration_ms: int
    answer: bytes = b""  # its beginning
    retry_after_s: int | None = None


class Poster:
    """Create it inside the event loop; connections are reused."""

    def __init__(self, guard: Guard, roots: ssl.SSLContext | None = None, total_s: float = TOTAL_S) -> None:
        self._guard = guard
        self._total_s = total_s
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,  # callers limit how many are in flight
                resolver=CheckedAddresses(_checked_addresses),
                use_dns_cache=False,
                socket_factory=_checked_socket,
                ssl=roots or ssl.create_default_context(),
                keepalive_timeout=KEEP_ALIVE_S,
            ),
            headers=HEADERS | {"Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None),  # our own covers DNS as well
        )

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Posted:
        loop = asyncio.get_running_loop()
        start = loop.time()
        status, wish, answer, error = None, None, bytearray(), None
        try:
            async with asyncio.timeout(self._total_s):
                checked = await self._guard.check(url)
                _CHECKED.set(checked.addresses)
                async with self._session.post(
                    URL(checked.target.url, encoded=True), data=body, headers=headers, allow_redirects=False
                ) as response:
                    status = response.status
                    wish = retry_after_s(status, response.headers.get("Retry-After"), response.headers.get("Date"))
                    # aiohttp closes a connection with an unread rest of the answer.
                    while len(answer) < ANSWER_MAX and (some := await response.content.read(ANSWER_MAX - len(answer))):
                        answer += some
        except (Denied, Unresolved, TimeoutError, aiohttp.ClientError, OSError) as failure:
            # An answer counts once its status is there: what breaks later is only missing from its text.
            error = _in_words(failure, self._total_s) if status is None else None
        return Posted(
            status=status,
            error=error,
            duration_ms=round((loop.time() - start) * 1000),
            answer=bytes(answer),
            retry_after_s=wish,
        )

    async def close(self) -> None:
        await self._session.close()


async def _checked_addresses(_: str) -> tuple[str, ...]:
    return _CHECKED.get()


def _checked_socket(found: aiohttp.AddrInfoType) -> socket.socket:
    """The last check, also for IP addresses in URLs, for which aiohttp calls no resolver."""
    family, kind, protocol, _, address = found
    if address[0] not in _CHECKED.get():
        raise OSError("not a checked address")
    return socket.socket(family, kind, protocol)


def _in_words(failure: Exception, total_s: float) -> str:
    match failure:
        case Denied() | Unresolved():
            return str(failure)
        case TimeoutError():
            return f"no answer within {total_s:g} s"
        case aiohttp.ClientConnectorCertificateError():
            return f"TLS failed: {getattr(failure.certificate_error, 'verify_message', 'the certificate is not valid')}"
        case aiohttp.ClientSSLError():
            return f"TLS failed: {getattr(failure.os_error, 'reason', None) or 'no common ground'}"
        case aiohttp.ClientConnectorError():
            return f"no connection: {_reason(failure.os_error)}"
        case aiohttp.ServerDisconnectedError():
            return "the connection was closed before an answer came"
        case aiohttp.ClientResponseError():
            return "the answer is not HTTP"
        case _:
            return f"the connection broke: {_reason(failure)}"


def _reason(failure: Exception) -> str:
    number = failure.errno if isinstance(failure, OSError) else None
    return os.strerror(number) if number else str(failure) or type(failure).__name__
