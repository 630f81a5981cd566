"""The carriers' HTTP client: requests that were not sent, requests that may have been sent, and malicious responses."""

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from socket import socket

import pytest
from aiohttp import web as server

from heliograph.carriers.http_client import (
    RESPONSE_BYTES_MAX,
    CarrierHttp,
    HttpResponse,
    NoResponse,
    Unreachable,
    Verdict,
    clean_text,
    decode_form,
    decode_json,
    outcome_for_verdict,
    possible_codes,
    value_at,
    verdict_for_status,
)
from heliograph.domain.delivery.outcome import Deferred, Refused
from tests.carriers.fakes import HttpFake
from tests.carriers.smtp_peer import Authority

pytestmark = pytest.mark.anyio

CA = Authority()
Handle = Callable[[server.Request], Awaitable[server.StreamResponse]]


@pytest.fixture
async def web() -> AsyncIterator[CarrierHttp]:
    async with opened() as web:
        yield web


@asynccontextmanager
async def opened(roots: ssl.SSLContext | None = None, connect_s: float = 5.0) -> AsyncIterator[CarrierHttp]:
    web = CarrierHttp(roots, connect_s)
    try:
        yield web
    finally:
        await web.close()


@asynccontextmanager
async def serving(handle: Handle, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    app = server.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = server.AppRunner(app, access_log=None)
    await runner.setup()
    await server.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def post(
    web: CarrierHttp, url: str, method: str = "POST", body: bytes = b"{}", timeout_s: float = 10.0
) -> HttpResponse:
    return await web.request(method, url, headers={"Content-Type": "application/json"}, body=body, timeout_s=timeout_s)


async def test_request_is_sent_unchanged_and_its_response_returned(web: CarrierHttp) -> None:
    observed: list[tuple[str, str, bytes, str | None]] = []

    async def handle(request: server.Request) -> server.Response:
        observed.append((request.method, request.raw_path, await request.read(), request.headers.get("cookie")))
        return server.Response(status=418, body=b"tea", headers={"Retry-After": "7", "Set-Cookie": "a=b; Path=/"})

    async with serving(handle) as url:
        localhost_url = url.replace("127.0.0.1", "localhost")  # cookies of bare addresses are never kept
        answers = [await post(web, f"{localhost_url}/a%2Fb?to=%2B49", body=b"\xffraw") for _ in range(2)]
    assert observed == [("POST", "/a%2Fb?to=%2B49", b"\xffraw", None)] * 2
    assert [(a.status, a.body, a.headers["retry-after"], a.retry_after_ms) for a in answers] == [
        (418, b"tea", "7", 7000)
    ] * 2


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:1/", "the connection was refused"),
        ("http://nowhere.invalid/", "its name is not in DNS"),
        ("http://127.0.0.1:99999/", "its address is not valid"),
    ],
)
async def test_request_without_a_connection_is_certainly_not_sent(web: CarrierHttp, url: str, why: str) -> None:
    with pytest.raises(Unreachable, match=why):
        await post(web, url)


async def test_request_without_a_thread_to_load_the_library_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.delitem(sys.modules, "aiohttp")
    monkeypatch.setattr(asyncio, "to_thread", fail)
    with pytest.raises(Unreachable, match="RuntimeError before the request was sent"):
        await CarrierHttp().request("GET", "http://127.0.0.1:9/", headers={})


async def test_request_with_the_library_loaded_uses_no_thread(
    web: CarrierHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow DNS lookups could otherwise occupy all threads of the pool."""
    monkeypatch.delattr(asyncio, "to_thread")
    with pytest.raises(Unreachable, match="refused"):
        await post(web, "http://127.0.0.1:1/")


@pytest.mark.parametrize("step", ["hang", "swallow", "drop", "cut"])
@pytest.mark.parametrize("method", ["POST", "GET", "PUT"])
async def test_request_without_a_response_is_maybe_sent_and_not_repeated(
    web: CarrierHttp, step: str, method: str
) -> None:
    body = b"" if method == "GET" else b'{"to": "+1", "text": "x"}'
    async with HttpFake(f"accept,{step}") as fake:
        url = f"{fake.url}/send?to=%2B1&text=x"
        assert (await post(web, url, method, body)).status == 202  # the next one finds a connection that is open
        with pytest.raises(NoResponse):
            await post(web, url, method, body, timeout_s=0.3 if step in ("hang", "swallow") else 10.0)
        assert len(fake.requests) == 2


async def test_request_without_a_tls_handshake_is_not_sent() -> None:
    with closing(socket()) as dumb:
        dumb.bind(("127.0.0.1", 0))
        dumb.listen()
        async with opened(CA.trusted(), connect_s=0.2) as web:
            with pytest.raises(Unreachable, match="no connection in time"):
                await post(web, f"https://127.0.0.1:{dumb.getsockname()[1]}/")


async def ok(_: server.Request) -> server.Response:
    return server.Response(body=b"ok")


async def test_request_to_an_untrusted_certificate_is_refused() -> None:
    tls, _ = CA.server("127.0.0.1")
    async with serving(ok, tls) as url:
        async with opened(CA.trusted()) as trusting:
            assert (await post(trusting, url)).body == b"ok"
        for roots in (None, Authority().trusted()):
            async with opened(roots) as web:
                with pytest.raises(Unreachable, match="its certificate is not trusted"):
                    await post(web, url)


async def test_request_to_a_plain_http_server_over_tls_fails() -> None:
    async with serving(ok) as url, opened(CA.trusted()) as web:
        with pytest.raises(Unreachable, match="it does not speak TLS"):
            await post(web, url.replace("http:", "https:"))


async def test_request_follows_no_redirect_or_proxy(web: CarrierHttp, monkeypatch: pytest.MonkeyPatch) -> None:
    async def elsewhere(_: server.Request) -> server.Response:
        return server.Response(status=307, headers={"Location": "http://127.0.0.1:1/"})

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with serving(elsewhere) as url:
        assert (await post(web, url)).status == 307


async def test_endless_response_is_truncated(web: CarrierHttp) -> None:
    async def endless(request: server.Request) -> server.StreamResponse:
        response = server.StreamResponse(status=500)
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 4096)
        except ConnectionError:
            return response

    async with serving(endless) as url:
        answer = await post(web, url)
    assert (answer.status, len(answer.body)) == (500, RESPONSE_BYTES_MAX)


async def test_request_error_does_not_contain_the_url(web: CarrierHttp) -> None:
    with pytest.raises(Unreachable) as caught:
        await post(web, "http://127.0.0.1:1/?key=hidden-key")
    assert "hidden-key" not in str(caught.value) and caught.value.__cause__ is None


# -- reading -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        *((status, "refused") for status in (400, 402, 405, 409, 413, 422)),
        *((status, "unreachable") for status in (401, 403, 404)),
        *((status, "deferred") for status in (204, 302, 408, 425, 429, 500, 502, 503, 504)),
    ],
)
def test_response_status_gives_the_expected_verdict(status: int, verdict: Verdict) -> None:
    assert verdict_for_status(status) == verdict


def test_verdict_gives_the_expected_outcome() -> None:
    def outcome(verdict: Verdict, status: int, **headers: str) -> Refused | Deferred:
        return outcome_for_verdict(
            verdict, {}, HttpResponse(status=status, headers={n.replace("_", "-"): v for n, v in headers.items()})
        )

    assert outcome("refused", 400) == Refused()
    assert outcome("unreachable", 401) == Deferred(unreachable=True)
    assert outcome("deferred", 503, retry_after="2") == Deferred(retry_after_ms=2000)
    assert outcome("deferred", 503, retry_after="Wed, 21 Oct 2026 07:28:00 GMT") == Deferred()
    assert outcome("deferred", 504) == Deferred(uncertain=True)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$", {"a": {"b-c": [{"d": 5}, 6]}}),
        ("$.a.b-c[0].d", 5),
        ("$.a.b-c[1]", 6),
        ("$.a.b-c[2]", None),
        ("$.a.b-c.d", None),
        ("$.a[0]", None),
        ("$.x.y.z", None),
    ],
)
def test_json_path_returns_the_expected_value(path: str, found: object) -> None:
    assert value_at({"a": {"b-c": [{"d": 5}, 6]}}, path) == found


@pytest.mark.parametrize("octets", [b"", b"{", b"<html>", b"\xff", b"[" * 100_000, b'{"a": NaN}'])
def test_invalid_json_response_is_none(octets: bytes) -> None:
    assert decode_json(octets) is None


def test_form_with_too_many_fields_is_none() -> None:
    assert decode_form(b"a=1&b=&c=%C3%A9&d=%FF") == [("a", "1"), ("b", ""), ("c", "é"), ("d", "�")]
    assert decode_form(b"&".join(b"a=1" for _ in range(1000))) == []


def test_response_text_hides_codes_and_secrets() -> None:
    body = "Acme: your code is 123456."
    text = f"bad text '{body}' or 123456, token s3cr3t!\r\nX-Evil: 1"
    assert clean_text(text, ["s3cr3t", *reversed(possible_codes(body))]) == "bad text '…' or …, token …!  X-Evil: 1"
    assert clean_text(["no", "text"], ()) == ""
    assert len(clean_text("x" * 1000, ())) == 300
