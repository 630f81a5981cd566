"""What the channels share: an HTTP client, reading of answers, errors and callbacks."""

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

ANSWER_S = 10.0  # for the connection and the whole answer
CONNECT_S = 3.0  # part of it, for connecting: leaves time to ask another carrier
PER_HOST = 64  # connections
IDLE_S = 10.0  # shorter than most servers keep a connection, so that few close while we write
ANSWER_MAX = 64 * 1024  # octets
WORDS_MAX = 300  # characters of a carrier's text
FIELDS_MAX = 200  # of a form
HIDDEN_MIN = 4  # characters: hiding less would leave holes in ordinary words

FORBIDDEN = CallbackAnswer(status=403)
UNSIGNED = CallbackAnswer(status=401)

Verdict = Literal["refused", "deferred", "unreachable"]

_STEP = re.compile(r"\.([A-Za-z0-9_-]+)|\[([0-9]{1,6})\]")
_SECONDS = re.compile("[0-9]{1,6}")
_WORD = re.compile("[A-Za-z0-9]+")


class Unreachable(Exception):
    """No connection was made: certainly not sent. The text says why."""


class NoAnswer(Exception):
    """The request was written and no complete answer came: maybe sent."""


class WebAnswer(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    headers: Mapping[str, str] = {}  # names in lower case
    body: bytes = b""  # at most ANSWER_MAX

    @property
    def json(self) -> Any:
        return read_json(self.body)

    @property
    def retry_after_ms(self) -> int | None:
        wish = self.headers.get("retry-after", "")
        return int(wish) * SECOND_MS if _SECONDS.fullmatch(wish) else None


class CheckedAddresses:
    """Makes aiohttp connect only to these addresses of a name: one of its resolvers."""

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
    """One session for all carriers, created when first needed: no cookies, no redirects, no proxies."""

    def __init__(
        self,
        roots: ssl.SSLContext | None = None,
        connect_s: float = CONNECT_S,
        per_host: int = PER_HOST,
        resolver: CheckedAddresses | None = None,
    ) -> None:
        """Trust `roots`, by default the system's certificates.

        `resolver` says where names may lead; with None they may lead anywhere.
        """
        self._lines: defaultdict[str, Line] = defaultdict(lambda: Line(per_host))  # by scheme, host and port
        self._resolver = resolver
        self._roots = roots
        self._connect_s = connect_s
        self._session: aiohttp.ClientSession | None = None

    async def ask_in_turn(
        self, parcel: Parcel, method: str, url: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> WebAnswer:
        """Ask as `ask` does, in turn, and if the parcel is still to be handed over when the connection is there."""
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
        """Ask and return the answer; raises Unreachable or NoAnswer. `url` is percent-encoded already."""
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
        except (aiohttp.ClientError, OSError, ValueError) as error:  # an OSError: TimeoutError; a ValueError: no URL
            if written.begun:
                raise NoAnswer from None
            raise Unreachable(_why(error)) from None

    async def close(self) -> None:
        if self._session:
            await self._session.close()

    async def _open(self) -> "aiohttp.ClientSession":
        """Open the session. The loop does not wait while aiohttp is loaded, which takes 0.2 s and 8 MB."""
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
    """Admit it just before the first octet, and only once.

    aiohttp repeats a GET or PUT without an answer by itself: that is prevented.
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
    """Say why in our own words: an exception's text may contain the address with a key in it."""
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
    """Make an outcome's or a report's detail."""
    return {"carrier": carrier, "code": None if code is None else str(code), "text": text, **more}


def silent(carrier: str, error: Unreachable | NoAnswer) -> Deferred:
    if isinstance(error, Unreachable):
        detail = reply(carrier, None, f"the carrier cannot be reached: {error}", reason="out_of_reach")
        return Deferred(detail=detail, unreachable=True)
    detail = reply(carrier, None, "the carrier gave no answer: maybe it was sent", reason="no_answer")
    return Deferred(detail=detail, uncertain=True)


def stopped(carrier: str) -> Refused:
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
    """Say what an HTTP status means by itself. Without access this carrier serves nobody, but another one may."""
    if status in (401, 403, 404):
        return "unreachable"
    return "refused" if 400 <= status < 500 and status not in (408, 425, 429) else "deferred"


def judged(verdict: Verdict, detail: dict[str, Any], answer: WebAnswer) -> Refused | Deferred:
    if verdict == "refused":
        return Refused(detail=detail)
    return Deferred(
        detail=detail,
        retry_after_ms=answer.retry_after_ms,
        unreachable=verdict == "unreachable",
        uncertain=answer.status == 504,  # a gateway whose upstream did not answer
    )


def put_off(detail: dict[str, Any], answer: WebAnswer) -> Refused | Deferred:
    """Judge a status that none of the carrier's rules calls a refusal."""
    verdict = verdict_of(answer.status)
    return judged("deferred" if verdict == "refused" else verdict, detail, answer)


# -- reading -----------------------------------------------------------------------------------------------


def read_json(octets: bytes) -> Any:
    """Decode JSON; None if it is not JSON. Raises CallbackTooLarge if it has too many values."""
    if len(octets) > CALLBACK_VALUES_MAX and sum(map(octets.count, b",[{")) > CALLBACK_VALUES_MAX:
        raise CallbackTooLarge
    try:
        return msgspec.json.decode(octets)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_form(octets: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(octets.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:  # too many
        return []


def pick(document: Any, path: str) -> Any:
    """Return what `$.a.b[0].c` leads to, or None."""
    for name, index in _STEP.findall(path):
        if name:
            document = document.get(name) if isinstance(document, dict) else None
        else:
            document = document[int(index)] if isinstance(document, list) and int(index) < len(document) else None
    return document


def said(words: object, hidden: Iterable[str]) -> str:
    """Return a carrier's text for the timeline: one line, truncated, without the `hidden` values."""
    text = str(words) if isinstance(words, str | int) else ""
    for secret in sorted(hidden, key=len, reverse=True):
        if len(secret) >= HIDDEN_MIN:
            text = text.replace(secret, "…")
    return CONTROLS.sub(" ", text).strip()[:WORDS_MAX]


def codes_in(body: str) -> list[str]:
    """Return the message and anything in it that may be a code, for `said` to hide."""
    return [body, *(word for word in _WORD.findall(body) if not word.isalpha())]


def is_signed(signature: str, key: str, body: bytes) -> bool:
    """Tell whether the signature is HMAC-SHA256 of the body, in hex."""
    expected = hmac.new(key.encode(), body, hashlib.sha256).hexdigest()
    return same(signature.lower(), expected)


def same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())
