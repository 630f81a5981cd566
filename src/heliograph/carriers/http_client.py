"""The HTTP client of carriers, and helpers that parse responses and callbacks and build outcomes."""

import asyncio
import hashlib
import hmac
import re
import socket
import ssl
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qsl

import msgspec

from heliograph.carriers.connection_queue import Line
from heliograph.carriers.contract import FREE, CallbackAnswer, CallbackTooLarge, Parcel
from heliograph.domain.delivery.outcome import Deferred, Refused
from heliograph.domain.limits import CALLBACK_VALUES_MAX, SECOND_MS
from heliograph.domain.text import CONTROLS

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.abc import ResolveResult

ANSWER_S = 10.0  # timeout for connecting and the complete response
CONNECT_S = 3.0  # share of ANSWER_S for connecting; leaves time to try another carrier
PER_HOST = 64  # concurrent connections per host
IDLE_S = 10.0  # shorter than most servers' keep-alive, so that servers rarely close a connection while we write
ANSWER_MAX = 64 * 1024  # bytes of a response; longer ones are truncated
WORDS_MAX = 300  # characters of a carrier's text that are kept
FIELDS_MAX = 200  # fields of a form
HIDDEN_MIN = 4  # minimum length of a secret to mask; masking shorter ones would damage ordinary words

FORBIDDEN = CallbackAnswer(status=403)
UNSIGNED = CallbackAnswer(status=401)

Verdict = Literal["refused", "deferred", "unreachable"]

_STEP = re.compile(r"\.([A-Za-z0-9_-]+)|\[([0-9]{1,6})\]")
_SECONDS = re.compile("[0-9]{1,6}")
_WORD = re.compile("[A-Za-z0-9]+")


class Unreachable(Exception):
    """Raised if no connection was made, so nothing was sent. The text states the reason."""


class NoAnswer(Exception):
    """Raised if the request was sent but no complete response arrived; the message may have been sent."""


class WebAnswer(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    headers: Mapping[str, str] = {}  # keyed by lower-case name
    body: bytes = b""  # at most ANSWER_MAX

    @property
    def json(self) -> Any:
        return read_json(self.body)

    @property
    def retry_after_ms(self) -> int | None:
        wish = self.headers.get("retry-after", "")
        return int(wish) * SECOND_MS if _SECONDS.fullmatch(wish) else None


class CheckedAddresses:
    """An aiohttp resolver that returns only the addresses supplied by `addresses`."""

    def __init__(self, addresses: Callable[[str], Awaitable[Sequence[str]]]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> "list[ResolveResult]":
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "family": socket.AF_INET6 if ":" in address else socket.AF_INET,
                "proto": socket.IPPROTO_TCP,
                "flags": socket.AI_NUMERICHOST,
            }
            for address in await self._addresses(host)
        ]

    async def close(self) -> None: ...


class Web:
    """HTTP client with one aiohttp session, created on first use; no cookies, redirects or proxies."""

    def __init__(
        self,
        roots: ssl.SSLContext | None = None,
        connect_s: float = CONNECT_S,
        per_host: int = PER_HOST,
        resolver: CheckedAddresses | None = None,
    ) -> None:
        """Create the client.

        `roots` verifies certificates, by default with the system's roots. `resolver` restricts the addresses that
        names resolve to; None allows all.
        """
        self._lines: defaultdict[str, Line] = defaultdict(lambda: Line(per_host))  # keyed by scheme, host and port
        self._resolver = resolver
        self._roots = roots
        self._connect_s = connect_s
        self._session: aiohttp.ClientSession | None = None

    async def ask_in_turn(
        self, parcel: Parcel, method: str, url: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> WebAnswer:
        """Send the parcel's request as `ask` does, after waiting in the host's priority queue.

        Raises Barred if the parcel must no longer be sent once the connection exists.
        """
        line = self._lines["/".join(url.split("/", 3)[:3])]
        await line.take(parcel)
        try:
            return await self.ask(method, url, headers=headers, body=body, admit=parcel.passage.admit)
        finally:
            line.give_back()

    async def ask(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes = b"",
        timeout_s: float = ANSWER_S,
        admit: Callable[[], Awaitable[None]] = FREE.admit,
    ) -> WebAnswer:
        """Send a request and return the response. `url` must be percent-encoded.

        `admit` is awaited just before the first byte is sent. Raises Unreachable or NoAnswer.
        """
        session, written = self._session or await self._open(), SimpleNamespace(begun=False, admit=admit)
        import aiohttp
        from yarl import URL

        try:
            async with session.request(
                method,
                URL(url, encoded=True),
                headers=headers,
                data=body or None,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=timeout_s, connect=self._connect_s),
                trace_request_ctx=written,
            ) as response:
                octets = await _read(response)
                names = {name.lower(): value for name, value in response.headers.items()}
                return WebAnswer(status=response.status, headers=names, body=octets)
        # TimeoutError is an OSError. ValueError: invalid URL.
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if written.begun:
                raise NoAnswer from None
            raise Unreachable(_why(error)) from None

    async def close(self) -> None:
        if self._session:
            await self._session.close()

    async def _open(self) -> "aiohttp.ClientSession":
        """Create the session. aiohttp is imported in a thread because the import takes 0.2 s and 8 MB."""
        if not hasattr(sys.modules.get("aiohttp"), "ClientSession"):
            try:
                await asyncio.to_thread(import_module, "aiohttp")
            except (RuntimeError, ImportError, OSError) as error:  # no thread can be started, or no file opened
                raise Unreachable(f"{type(error).__name__} before anybody was asked") from error
        import aiohttp

        if self._session is None:
            trace = aiohttp.TraceConfig()
            trace.on_request_headers_sent.append(_begin)
            resolver: Any = self._resolver
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, keepalive_timeout=IDLE_S, ssl=self._roots or True, resolver=resolver
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "Heliograph"},
                trace_configs=[trace],
                trust_env=False,
            )
        return self._session


async def _begin(_: "aiohttp.ClientSession", context: SimpleNamespace, __: Any) -> None:
    """Call the request's `admit` just before the first byte is sent.

    Raises NoAnswer at a second call: aiohttp would otherwise automatically retry a GET or PUT without a response.
    """
    if context.trace_request_ctx.begun:
        raise NoAnswer
    await context.trace_request_ctx.admit()
    context.trace_request_ctx.begun = True


async def _read(response: "aiohttp.ClientResponse") -> bytes:
    octets = bytearray()
    async for chunk in response.content.iter_any():
        octets += chunk
        if len(octets) > ANSWER_MAX:
            response.close()
            break
    return bytes(octets[:ANSWER_MAX])


def _why(error: Exception) -> str:
    """Describe the error without its own text, which may contain a URL with a secret."""
    import aiohttp

    match error:
        case aiohttp.ClientConnectorDNSError():
            return "its name is not in DNS"
        case aiohttp.ClientConnectorCertificateError():
            return "its certificate is not trusted"
        case aiohttp.ClientConnectorSSLError():
            return "it does not speak TLS"
        case TimeoutError():
            return "no connection in time"
        case ValueError():
            return "its address is not valid"
        case _:
            return "the connection was refused"


# -- outcomes ----------------------------------------------------------------------------------------------


def reply(carrier: str, code: object, text: str, **more: Any) -> dict[str, Any]:
    """Build the `detail` of an outcome or report."""
    return {"carrier": carrier, "code": None if code is None else str(code), "text": text, **more}


def silent(carrier: str, error: Unreachable | NoAnswer) -> Deferred:
    """Return the outcome of a request without a response."""
    if isinstance(error, Unreachable):
        detail = reply(carrier, None, f"the carrier cannot be reached: {error}", reason="out_of_reach")
        return Deferred(detail=detail, unreachable=True)
    detail = reply(carrier, None, "the carrier gave no answer: maybe it was sent", reason="no_answer")
    return Deferred(detail=detail, uncertain=True)


def stopped(carrier: str) -> Refused:
    """Return the outcome of a message that is not retried because an earlier attempt may have succeeded."""
    return Refused(
        detail=reply(
            carrier,
            None,
            "an earlier hand-over got no answer, so the message may have been sent; it is not sent again, "
            'because this carrier is set to uncertain = "stop"',
            reason="uncertain",
        )
    )


def verdict_of(status: int) -> Verdict:
    """Return the verdict for an HTTP error status.

    401, 403 and 404 mean that this carrier rejects every message, so that another carrier should be tried.
    """
    if status in (401, 403, 404):
        return "unreachable"
    return "refused" if 400 <= status < 500 and status not in (408, 425, 429) else "deferred"


def judged(verdict: Verdict, detail: dict[str, Any], answer: WebAnswer) -> Refused | Deferred:
    """Return the outcome for a verdict on a carrier's response."""
    if verdict == "refused":
        return Refused(detail=detail)
    return Deferred(
        detail=detail,
        retry_after_ms=answer.retry_after_ms,
        unreachable=verdict == "unreachable",
        uncertain=answer.status == 504,  # the gateway's upstream may have received the message
    )


def put_off(detail: dict[str, Any], answer: WebAnswer) -> Refused | Deferred:
    """Return the outcome for a status that no rule of the carrier classifies; never Refused."""
    verdict = verdict_of(answer.status)
    return judged("deferred" if verdict == "refused" else verdict, detail, answer)


# -- reading -----------------------------------------------------------------------------------------------


def read_json(octets: bytes) -> Any:
    """Decode JSON; None if invalid. Raises CallbackTooLarge if the document has too many values."""
    if len(octets) > CALLBACK_VALUES_MAX and sum(map(octets.count, b",[{")) > CALLBACK_VALUES_MAX:
        raise CallbackTooLarge
    try:
        return msgspec.json.decode(octets)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_form(octets: bytes) -> list[tuple[str, str]]:
    """Decode an urlencoded form; empty if it has more than FIELDS_MAX fields."""
    try:
        return parse_qsl(octets.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:  # more than FIELDS_MAX fields
        return []


def pick(document: Any, path: str) -> Any:
    """Return the value at a path such as `$.a.b[0].c`; None if not found."""
    for name, index in _STEP.findall(path):
        if name:
            document = document.get(name) if isinstance(document, dict) else None
        else:
            document = document[int(index)] if isinstance(document, list) and int(index) < len(document) else None
    return document


def said(words: object, hidden: Iterable[str]) -> str:
    """Return a carrier's text for the timeline: on one line, truncated, with the `hidden` values masked."""
    text = str(words) if isinstance(words, str | int) else ""
    for secret in sorted(hidden, key=len, reverse=True):
        if len(secret) >= HIDDEN_MIN:
            text = text.replace(secret, "…")
    return CONTROLS.sub(" ", text).strip()[:WORDS_MAX]


def codes_in(body: str) -> list[str]:
    """Return the message body and every word with a digit, which may be a code, for `said` to mask."""
    return [body, *(word for word in _WORD.findall(body) if not word.isalpha())]


def is_signed(signature: str, key: str, body: bytes) -> bool:
    """Return whether `signature` is the hex HMAC-SHA256 of the body."""
    expected = hmac.new(key.encode(), body, hashlib.sha256).hexdigest()
    return same(signature.lower(), expected)


def same(given: str, expected: str) -> bool:
    """Compare two strings in constant time."""
    return hmac.compare_digest(given.encode(), expected.encode())
