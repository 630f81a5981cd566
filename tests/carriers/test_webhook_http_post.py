"""One webhook attempt with a real receiver: the request, the result of each response, and what never happens."""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from heliograph.webhooks.client.http_post import RESPONSE_BODY_MAX, WebhookHttpClient
from heliograph.webhooks.client.ssrf_guard import SsrfGuard
from heliograph.webhooks.policy.retry import NoResponseReason
from tests.carriers.hook_receiver import Receiver
from tests.carriers.smtp_peer import Authority

pytestmark = pytest.mark.anyio

LOOPBACK = ("127.0.0.0/8",)
BODY = '{"id":"evt_1","name":"Zürich"}'


async def to_loopback(host: str) -> list[str]:
    return ["127.0.0.1"]


@pytest.fixture
async def poster() -> AsyncIterator[WebhookHttpClient]:
    poster = WebhookHttpClient(SsrfGuard(LOOPBACK, to_loopback))
    yield poster
    await poster.close()


@pytest.fixture
async def hasty() -> AsyncIterator[WebhookHttpClient]:
    poster = WebhookHttpClient(SsrfGuard(LOOPBACK, to_loopback), total_s=1)
    yield poster
    await poster.close()


async def test_post_sends_the_body_and_headers(poster: WebhookHttpClient) -> None:
    async with Receiver() as receiver:
        answer = await poster.post(f"{receiver.url}/hook?a=%20b", {"webhook-id": "evt_1"}, BODY.encode())
    assert (answer.status, answer.error, answer.answer, answer.retry_after_s) == (200, None, b"status 200", None)
    (received,) = receiver.received
    assert (received.path, received.body) == ("/hook?a=%20b", BODY)
    assert received.headers == {
        "host": receiver.url.removeprefix("http://"),
        "user-agent": "Heliograph-Webhooks/1",
        "content-length": str(len(BODY.encode())),
        "accept": "*/*",
        "accept-encoding": "identity",
        "webhook-id": "evt_1",
    }


@pytest.mark.parametrize(
    ("word", "status", "reason", "error", "retry_after_s"),
    [
        ("204", 204, None, None, None),
        ("500", 500, None, None, None),
        ("410", 410, None, None, None),
        ("429", 429, None, None, None),
        ("429:7", 429, None, None, 7),
        ("503:120", 503, None, None, 120),
        ("500:7", 500, None, None, None),
        ("redirect", 302, None, None, None),
        ("hang", None, "too_slow", "no response within 1 s", None),
        ("reset", None, "broke_off", "the connection was closed before a response", None),
        ("garbage", None, "not_http", "the response is not valid HTTP", None),
    ],
)
async def test_post_returns_the_response(
    word: str,
    status: int | None,
    reason: NoResponseReason | None,
    error: str | None,
    retry_after_s: int | None,
    poster: WebhookHttpClient,
    hasty: WebhookHttpClient,
) -> None:
    async with Receiver([word]) as receiver:
        answer = await (hasty if word == "hang" else poster).post(f"{receiver.url}/hook", {}, BODY.encode())
    assert (answer.status, answer.reason, answer.error) == (status, reason, error)
    assert answer.retry_after_s == retry_after_s
    assert [received.path for received in receiver.received] == ["/hook"]  # once, and nowhere else


async def test_post_to_a_closed_port_fails(poster: WebhookHttpClient) -> None:
    async with Receiver() as receiver:
        pass
    assert (await poster.post(receiver.url, {}, b"{}")).error == "no connection: Connection refused"


async def test_post_timeout_includes_name_resolution() -> None:
    async def resolve(host: str) -> list[str]:
        await asyncio.sleep(60)
        return []

    poster = WebhookHttpClient(SsrfGuard((), resolve), total_s=0.05)
    answer = await poster.post("http://example.com/", {}, b"{}")
    await poster.close()
    assert (answer.status, answer.reason, answer.error) == (None, "no_connection", "no connection within 0.05 s")


async def test_post_reuses_connections(poster: WebhookHttpClient) -> None:
    async with Receiver(["200", "500", "410", "redirect", "429:1"]) as receiver:
        for _ in range(20):
            await poster.post(receiver.url, {}, BODY.encode())
        assert (len(receiver.received), receiver.accepted) == (20, 1)


@pytest.mark.parametrize("stray", [b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n", b"", b"\r\n"])
async def test_unsolicited_data_is_not_read_as_the_next_response(stray: bytes, poster: WebhookHttpClient) -> None:
    """Data that arrives after a response, or a lost connection, is unread when the connection would be reused."""
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as peers:
        server.settimeout(2.0)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"

        def answer() -> socket.socket:
            peer = peers.enter_context(server.accept()[0])
            while not peer.recv(65536).endswith(BODY.encode()):
                pass
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            return peer

        for _ in range(2):
            answering = asyncio.create_task(asyncio.to_thread(answer))
            posted = await poster.post(url, {}, BODY.encode())
            assert (posted.status, posted.error) == (200, None)
            peer = await answering
            # Runs on the event loop's thread, which reads nothing meanwhile.
            peer.sendall(stray) if stray else peer.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(("word", "connections"), [("long", 1), ("huge", 2), ("trickle", 2)])
async def test_long_response_is_truncated_and_an_endless_one_closes_its_connection(
    word: str, connections: int, hasty: WebhookHttpClient
) -> None:
    async with Receiver([word, "200"]) as receiver:
        answer = (await hasty.post(receiver.url, {}, BODY.encode())).answer
        assert answer == b"x" * len(answer)
        assert 0 < len(answer) <= RESPONSE_BODY_MAX
        assert (len(answer) == RESPONSE_BODY_MAX) == (word != "trickle")
        assert (await hasty.post(receiver.url, {}, BODY.encode())).status == 200
        assert receiver.accepted == connections


@asynccontextmanager
async def says(*answers: bytes) -> AsyncIterator[tuple[str, list[int]]]:
    """Run a server that answers each request with the next byte string; one that ends in `|` closes the connection.

    Yields its URL, and the number of requests on each connection.
    """
    left, counts = iter(answers), list[int]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        counts.append(0)
        number = len(counts) - 1
        while await reader.readline():
            while (await reader.readline()).strip():
                pass
            await reader.readexactly(len(BODY.encode()))
            counts[number] += 1
            octets = next(left)
            writer.write(octets.rstrip(b"|"))
            if octets.endswith(b"|"):
                writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", counts


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.mark.parametrize(
    ("octets", "status", "text", "kept"),
    [
        (OK, 200, b"ok", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n1\r\n!\r\n0\r\n\r\n", 200, b"ok!", True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + OK, 200, b"ok", True),
        (b"HTTP/1.1 304 Not Modified\r\n\r\n", 304, b"", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", 200, b"ok", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", False),
        (b"HTTP/1.1 200 OK\r\n\r\nto the end|", 200, b"to the end", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut|", 200, b"cut", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno length", 200, b"", False),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n\0\0", 101, b"", False),
        (OK + b"HTTP/1.1 500 Two\r\nContent-Length: 0\r\n\r\n", 200, b"ok", False),  # the second is unsolicited
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok", None, b"", False),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, None, b"", False),  # headers without an end
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\nContent-Length: 2\r\n\r\nok", None, b"", False),
        # Mistakes of simple receivers:
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", 200, b"ok", True),
        (b"HTTP/1.1 200 OK\r\nX: folded\r\n here\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2  \r\nok\r\n0\r\n\r\n", 200, b"ok", True),
    ],
)
async def test_post_accepts_unusual_responses(
    octets: bytes, status: int | None, text: bytes, kept: bool, poster: WebhookHttpClient
) -> None:
    async with says(octets, OK) as (url, requests):
        answer = await poster.post(url, {}, BODY.encode())
        assert (answer.status, answer.answer) == (status, text)
        assert answer.error == (None if status else "the response is not valid HTTP")
        assert (await poster.post(url, {}, BODY.encode())).answer == b"ok"
        assert requests == ([2] if kept else [1, 1])


async def test_post_uses_no_redirect_proxy_or_cookie(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Receiver() as trap, Receiver([f"redirect:{trap.url}/", "cookie", "200"]) as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, trap.url)
        poster = WebhookHttpClient(SsrfGuard(LOOPBACK, to_loopback))
        host = f"http://hooks.example.com:{receiver.port}/"
        assert [(await poster.post(host, {}, b"{}")).status for _ in range(3)] == [302, 200, 200]
        await poster.close()
        assert trap.accepted == 0
        assert not any("cookie" in received.headers for received in receiver.received)


@pytest.mark.parametrize(
    ("certificate", "host", "error"),
    [
        ("hooks.example.com", "hooks.example.com", None),
        ("127.0.0.1", "127.0.0.1", None),
        ("other.example.com", "hooks.example.com", "Hostname mismatch"),
        ("hooks.example.com", "127.0.0.1", "IP address mismatch"),
    ],
)
async def test_post_requires_a_certificate_for_the_name(certificate: str, host: str, error: str | None) -> None:
    authority = Authority()
    async with Receiver(tls=authority.server(certificate)[0]) as receiver:
        poster = WebhookHttpClient(SsrfGuard(LOOPBACK, to_loopback), roots=authority.trusted())
        answer = await poster.post(f"https://{host}:{receiver.port}/", {}, b"{}")
        await poster.close()
    if error is None:
        assert (answer.status, answer.error) == (200, None)
    else:
        assert answer.status is None
        assert "TLS failed" in (answer.error or "") and error in (answer.error or "")
        assert receiver.received == []


async def test_post_to_an_untrusted_or_plain_server_fails(poster: WebhookHttpClient) -> None:
    async with Receiver(tls=Authority().server("hooks.example.com")[0]) as secure, Receiver() as plain:
        for receiver, text in ((secure, "unable to get local issuer"), (plain, "WRONG_VERSION_NUMBER")):
            answer = await poster.post(f"https://hooks.example.com:{receiver.port}/", {}, b"{}")
            assert "TLS failed" in (answer.error or "") and text in (answer.error or "")


async def test_hanging_endpoint_delays_no_other(poster: WebhookHttpClient) -> None:
    async with Receiver({"/slow": ["hang"]}) as receiver:
        slow = [asyncio.create_task(poster.post(f"{receiver.url}/slow", {}, b"{}")) for _ in range(50)]
        while len(receiver.received) < 50:
            await asyncio.sleep(0.001)
        assert (await poster.post(f"{receiver.url}/quick", {}, b"{}")).status == 200
        assert not any(task.done() for task in slow)
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)


async def test_receiver_runs_as_a_process(poster: WebhookHttpClient, tmp_path: Path) -> None:
    log = tmp_path / "got.jsonl"
    arguments = ["-m", "tests.carriers.hook_receiver", "--log", str(log), "--script", "500,200", "--script", "/x=410"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    try:
        assert process.stdout
        url = (await process.stdout.readline()).decode().strip()
        answers = [(await poster.post(url + path, {}, BODY.encode())).status for path in ("/a", "/a", "/a", "/x")]
    finally:
        process.kill()
        await process.wait()
    assert answers == [500, 200, 200, 410]
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert [(line["path"], line["action"]) for line in lines] == [
        ("/a", "500"),
        ("/a", "200"),
        ("/a", "200"),
        ("/x", "410"),
    ]
    assert {line["body"] for line in lines} == {BODY}
