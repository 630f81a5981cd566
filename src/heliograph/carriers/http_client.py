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

from heliograph.carriers.connection_queue import PrioritySemaphore
from heliograph.carriers.contract import NO_HOOKS, CallbackResult, CallbackTooLarge, OutboundMessage
from heliograph.domain.delivery.outcome import Deferred, Refused
from heliograph.domain.limits import CALLBACK_VALUES_MAX, SECOND_MS
from heliograph.domain.text import CONTROL_CHARACTER

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.abc import ResolveResult

RESPONSE_TIMEOUT_S = 10.0  # timeout for connecting and the complete response
CONNECT_TIMEOUT_S = 3.0  # share of RESPONSE_TIMEOUT_S for connecting; leaves time to try another carrier
CONNECTIONS_PER_HOST = 64  # concurrent connections per host
KEEP_ALIVE_S = 10.0  # shorter than most servers' keep-alive, so that servers rarely close a connection while we write
RESPONSE_BYTES_MAX = 64 * 1024  # bytes of a response; longer ones are truncated
CARRIER_TEXT_MAX = 300  # maximum stored characters of a carrier's text
FORM_FIELDS_MAX = 200  # fields of a form
MASKED_LENGTH_MIN = 4  # minimum length of a secret to mask; masking shorter ones would damage ordinary words

FORBIDDEN_CALLBACK = CallbackResult(status=403)
UNSIGNED_CALLBACK = CallbackResult(status=401)

Verdict = Literal["refused", "deferred", "unreachable"]

_PATH_STEP = re.compile(r"\.([A-Za-z0-9_-]+)|\[([0-9]{1,6})\]")
_RETRY_AFTER_SECONDS = re.compile("[0-9]{1,6}")
_ALPHANUMERIC_WORD = re.compile("[A-Za-z0-9]+")


class Unreachable(Exception):
    """Raised if no connection was made, so that nothing was sent. The text states the reason."""


class NoResponse(Exception):
    """Raised if the request was sent but no complete response arrived; the message may have been sent."""


class HttpResponse(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    headers: Mapping[str, str] = {}  # keyed by lower-case name
    body: bytes = b""  # at most RESPONSE_BYTES_MAX

    @property
    def json(self) -> Any:
        return decode_json(self.body)

    @property
    def retry_after_ms(self) -> int | None:
        value = self.headers.get("retry-after", "")
        return int(value) * SECOND_MS if _RETRY_AFTER_SECONDS.fullmatch(value) else None


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


class CarrierHttp:
    """HTTP client without cookies, redirects and proxies; its aiohttp session is created on first use."""

    def __init__(
        self,
        roots: ssl.SSLContext | None = None,
        connect_s: float = CONNECT_TIMEOUT_S,
        per_host: int = CONNECTIONS_PER_HOST,
        resolver: CheckedAddresses | None = None,
    ) -> None:
        """Create the client.

        `roots`: trusted root certificates, by default those of the system. `resolver` restricts the addresses to which
        names resolve; None allows all.
        """
        # Keyed by scheme, host and port
        self._host_slots: defaultdict[str, PrioritySemaphore] = defaultdict(lambda: PrioritySemaphore(per_host))
        self._resolver = resolver
        self._roots = roots
        self._connect_s = connect_s
        self._session: aiohttp.ClientSession | None = None

    async def request_for(
        self, message: OutboundMessage, method: str, url: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> HttpResponse:
        """Wait in the host's priority queue, then send the HTTP request that delivers `message`.

        Raises SendCancelled if the message must no longer be sent once the connection exists.
        """
        slots = self._host_slots["/".join(url.split("/", 3)[:3])]
        await slots.acquire(message)
        try:
            return await self.request(method, url, headers=headers, body=body, before_send=message.hooks.before_send)
        finally:
            slots.release()

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes = b"",
        timeout_s: float = RESPONSE_TIMEOUT_S,
        before_send: Callable[[], Awaitable[None]] = NO_HOOKS.before_send,
    ) -> HttpResponse:
        """Send a request and return the response. `url` must be percent-encoded.

        `before_send` is awaited just before the first byte is sent. Raises Unreachable if no connection was made,
        NoResponse if no complete response arrived.
        """
        session = self._session or await self._open_session()
        request_state = SimpleNamespace(has_begun=False, before_send=before_send)
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
                trace_request_ctx=request_state,
            ) as response:
                content = await _read_body(response)
                response_headers = {name.lower(): value for name, value in response.headers.items()}
                return HttpResponse(status=response.status, headers=response_headers, body=content)
        # TimeoutError is an OSError. ValueError: invalid URL.
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if request_state.has_begun:
                raise NoResponse from None
            raise Unreachable(_describe_error(error)) from None

    async def close(self) -> None:
        if self._session:
            await self._session.close()

    async def _open_session(self) -> "aiohttp.ClientSession":
        """Create the HTTP session. aiohttp is imported in a thread because the import takes 0.2 s and 8 MB."""
        if not hasattr(sys.modules.get("aiohttp"), "ClientSession"):
            try:
                await asyncio.to_thread(import_module, "aiohttp")
            except (RuntimeError, ImportError, OSError) as error:  # no thread can be started, or no file opened
                raise Unreachable(f"{type(error).__name__} before the request was sent") from error
        import aiohttp

        if self._session is None:
            trace = aiohttp.TraceConfig()
            trace.on_request_headers_sent.append(_run_before_send)
            resolver: Any = self._resolver
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, keepalive_timeout=KEEP_ALIVE_S, ssl=self._roots or True, resolver=resolver
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "Heliograph"},
                trace_configs=[trace],
                trust_env=False,
            )
        return self._session


async def _run_before_send(_: "aiohttp.ClientSession", context: SimpleNamespace, __: Any) -> None:
    """Call the request's `before_send` just before the first byte is sent.

    Raises NoResponse at a second call: aiohttp would otherwise automatically retry a GET or PUT without a response.
    """
    if context.trace_request_ctx.has_begun:
        raise NoResponse
    await context.trace_request_ctx.before_send()
    context.trace_request_ctx.has_begun = True


async def _read_body(response: "aiohttp.ClientResponse") -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > RESPONSE_BYTES_MAX:
            response.close()
            break
    return bytes(body[:RESPONSE_BYTES_MAX])


def _describe_error(error: Exception) -> str:
    """Describe an error without the exception's text, which may contain a URL with a secret."""
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


def build_detail(carrier: str, code: object, text: str, **extra: Any) -> dict[str, Any]:
    """Build the `detail` of an outcome or report."""
    return {"carrier": carrier, "code": None if code is None else str(code), "text": text, **extra}


def deferred_without_response(carrier: str, error: Unreachable | NoResponse) -> Deferred:
    """Return the Deferred outcome of a request without a response."""
    if isinstance(error, Unreachable):
        detail = build_detail(carrier, None, f"the carrier cannot be reached: {error}", reason="out_of_reach")
        return Deferred(detail=detail, unreachable=True)
    detail = build_detail(
        carrier, None, "the carrier did not respond: the message may have been sent", reason="no_answer"
    )
    return Deferred(detail=detail, uncertain=True)


def refused_after_uncertain(carrier: str) -> Refused:
    """Return the outcome of a message that is not retried because an earlier attempt may have succeeded."""
    return Refused(
        detail=build_detail(
            carrier,
            None,
            "an earlier attempt got no response, so the message may have been sent; it is not sent again, "
            'because this carrier is set to uncertain = "stop"',
            reason="uncertain",
        )
    )


def verdict_for_status(status: int) -> Verdict:
    """Return the verdict for an HTTP error status.

    401, 403 and 404 mean that this carrier rejects every message, so that another carrier should be tried.
    """
    if status in (401, 403, 404):
        return "unreachable"
    return "refused" if 400 <= status < 500 and status not in (408, 425, 429) else "deferred"


def outcome_for_verdict(verdict: Verdict, detail: dict[str, Any], response: HttpResponse) -> Refused | Deferred:
    """Return the outcome of a message for a verdict on the carrier's response."""
    if verdict == "refused":
        return Refused(detail=detail)
    return Deferred(
        detail=detail,
        retry_after_ms=response.retry_after_ms,
        unreachable=verdict == "unreachable",
        uncertain=response.status == 504,  # the gateway's upstream may have received the message
    )


def outcome_for_unknown_status(detail: dict[str, Any], response: HttpResponse) -> Refused | Deferred:
    """Return the outcome for a status that no rule of the carrier classifies.

    It is never Refused, because only a rule can say that a failure is permanent.
    """
    verdict = verdict_for_status(response.status)
    return outcome_for_verdict("deferred" if verdict == "refused" else verdict, detail, response)


# -- reading -----------------------------------------------------------------------------------------------


def decode_json(data: bytes) -> Any:
    """Decode JSON; None if it is invalid. Raises CallbackTooLarge if the document has too many values."""
    if len(data) > CALLBACK_VALUES_MAX and sum(map(data.count, b",[{")) > CALLBACK_VALUES_MAX:
        raise CallbackTooLarge
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def decode_form(data: bytes) -> list[tuple[str, str]]:
    """Decode an urlencoded form; empty if it has more than FORM_FIELDS_MAX fields."""
    try:
        return parse_qsl(data.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX)
    except ValueError:  # more than FORM_FIELDS_MAX fields
        return []


def value_at(document: Any, path: str) -> Any:
    """Return the value in a JSON document at a path such as `$.a.b[0].c`; None if not found."""
    for name, index in _PATH_STEP.findall(path):
        if name:
            document = document.get(name) if isinstance(document, dict) else None
        else:
            document = document[int(index)] if isinstance(document, list) and int(index) < len(document) else None
    return document


def clean_text(value: object, secrets: Iterable[str]) -> str:
    """Return a carrier's text for the timeline as one line, truncated, and with the values in `secrets` masked."""
    text = str(value) if isinstance(value, str | int) else ""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= MASKED_LENGTH_MIN:
            text = text.replace(secret, "…")
    return CONTROL_CHARACTER.sub(" ", text).strip()[:CARRIER_TEXT_MAX]


def possible_codes(body: str) -> list[str]:
    """Return the message body and every word with a digit, which may be a code, for `clean_text` to mask."""
    return [body, *(word for word in _ALPHANUMERIC_WORD.findall(body) if not word.isalpha())]


def is_signed(signature: str, key: str, body: bytes) -> bool:
    """Return whether `signature` is the hex HMAC-SHA256 of the body."""
    expected = hmac.new(key.encode(), body, hashlib.sha256).hexdigest()
    return equal_constant_time(signature.lower(), expected)


def equal_constant_time(actual: str, expected: str) -> bool:
    """Compare two strings in a time that does not depend on where they differ."""
    return hmac.compare_digest(actual.encode(), expected.encode())
