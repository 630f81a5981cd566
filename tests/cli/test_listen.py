"""`heliograph listen`: an unreliable feed, a program that receives the events, and the real service."""

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
from anyio.from_thread import start_blocking_portal

from heliograph import verify_webhook
from heliograph.cli import listen
from tests.carriers.hook_receiver import Receiver
from tests.service import COMMAND, PATIENCE_S, TOKENS, Service, until

from .conftest import Run

TOKEN = "hk_e6FyJqrQy5_B0Gcb0VZXHtbKLaMqUiIawolD691iK8Ufvf9Ncn7q8d1nqgSq"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
# with white space and an escape that our encoder does not write: the bytes must be forwarded unchanged
BODY = '{"id":"%s", "type":"email.sent","created_at":"2026-11-15T09:30:00.000Z","data":{"subject":"\\u00e9"}}'


class Feed(BaseHTTPRequestHandler):
    """Two events on two pages; each response begins with the next status of the script, or 200."""

    script: ClassVar[list[int]] = []
    queries: ClassVar[list[dict[str, list[str]]]] = []

    def do_GET(self) -> None:
        assert self.headers["Authorization"] == f"Bearer {TOKEN}"
        query = parse_qs(urlsplit(self.path).query)
        self.queries.append(query)
        status = self.script.pop(0) if self.script else 200
        remaining = [id_ for id_ in ("evt_00A", "evt_00B") if id_ > query.get("after", [""])[0]]
        remaining = ["evt_00B"] if "order" in query else remaining
        page = f'{{"object":"list","has_more":{"true" if len(remaining) > 1 else "false"},"data":['
        body = page + ",".join(BODY % id_ for id_ in remaining[:1]) + "]}"
        if status != 200:
            body = '{"error":{"code":"insufficient_scope","message":"Use another key."}}'
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def url() -> Iterator[str]:
    Feed.script, Feed.queries = [], []
    with ThreadingHTTPServer(("127.0.0.1", 0), Feed) as server:
        threading.Thread(target=server.serve_forever, args=[0.01]).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(Receiver()) as running:
        yield running


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the waiting times. Ctrl-C is sent when there is nothing left to forward."""
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if seconds == listen.POLL_S and not Feed.script:
            raise KeyboardInterrupt

    monkeypatch.setattr(listen, "wait", wait)
    return waited


def test_events_are_forwarded_in_order_byte_for_byte(
    run: Run, url: str, receiver: Receiver, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    receiver.scripts[""] = ["200", "redirect"]
    forward = f"{receiver.url}/hook?a=1"
    ended = run(
        "listen", "--url", url + "/", "--key", TOKEN, "--forward", forward, "--after", "evt_", "--secret", SECRET
    )
    assert (ended.code, ended.err) == (0, "stopped\n")
    assert [got.body for got in receiver.received] == [BODY % "evt_00A", BODY % "evt_00B"]
    assert [got.path for got in receiver.received] == ["/hook?a=1"] * 2
    for got in receiver.received:
        assert verify_webhook(got.body.encode(), got.headers, SECRET)["id"] == got.headers["webhook-id"]
        assert "x-service-signature" in got.headers
        assert "authorization" not in got.headers
    assert SECRET not in ended.out
    lines = ended.out.splitlines()[1:]
    assert [line.rpartition(" in ")[0] for line in lines] == [
        "2026-11-15T09:30:00.000Z  evt_00A  email.sent → 200",
        "2026-11-15T09:30:00.000Z  evt_00B  email.sent → 302",
    ]
    assert [query["after"] for query in Feed.queries] == [["evt_"], ["evt_00A"]]


def test_service_and_key_come_from_the_environment(
    run: Run, url: str, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELIOGRAPH_URL", url)
    monkeypatch.setenv("HELIOGRAPH_KEY", TOKEN)
    assert f"events of {url} to" in run("listen", "--forward", "http://127.0.0.1:1/").out


def test_a_generated_secret_is_printed_and_the_feed_starts_now(
    run: Run, url: str, receiver: Receiver, waits: list[float]
) -> None:
    ended = run("listen", "--url", url, "--key", TOKEN, "--forward", receiver.url)
    secret = ended.out.split("Signed with ")[1].split()[0]
    assert secret.startswith("whsec_")
    first, second = Feed.queries
    assert first == {"order": ["newest"], "limit": ["1"]}
    assert second == {"limit": ["100"], "after": ["evt_00B"]}
    assert receiver.received == []


def test_an_unreachable_target_is_reported(run: Run, url: str, waits: list[float]) -> None:
    ended = run("listen", "--url", url, "--key", TOKEN, "--forward", "http://127.0.0.1:1/", "--after", "evt_")
    assert ended.code == 0
    assert ended.out.count("→ no response ([Errno 111] Connection refused) in ") == 2


def test_an_unreachable_service_is_retried(run: Run, url: str, receiver: Receiver, waits: list[float]) -> None:
    Feed.script = [503, 500, 429, 200]
    ended = run("listen", "--url", url, "--key", TOKEN, "--forward", receiver.url, "--after", "evt_")
    assert waits == [1.0, 2.0, 4.0, 1.0]
    assert ended.err.splitlines() == [
        f"{url}/v1/events cannot be reached: 503 Service Unavailable. Retrying …",
        f"{url}/v1/events is reachable again",
        "stopped",
    ]
    assert len(receiver.received) == 2


def test_retry_delay_is_limited(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(listen, "wait", wait)
    ended = run("listen", "--url", "http://127.0.0.1:1", "--key", TOKEN, "--forward", "http://127.0.0.1:1/")
    assert waited == [1, 2, 4, 8, 16, 30, 30]
    assert ended.err.count("cannot be reached: [Errno 111] Connection refused") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--key", TOKEN), "Missing option '--forward'"),
        (("--forward", "http://127.0.0.1:1/"), "Missing option '--key'"),
        (("--forward", "127.0.0.1:1", "--key", TOKEN), "--forward: expected http:// or https://"),
        (("--forward", "http://a:b@127.0.0.1/", "--key", TOKEN), "--forward: the URL has a user name"),
        (("--forward", "http://127.0.0.1:1/", "--key", "hk_cut"), "not a complete token"),
        (("--forward", "http://127.0.0.1:1/", "--key", TOKEN, "--url", "file:///etc"), "--url 'file:///etc'"),
        (("--forward", "http://127.0.0.1:1/", "--key", TOKEN, "--secret", "hush"), "--secret: expected whsec_"),
    ],
)
def test_a_mistake_is_one_line(run: Run, arguments: tuple[str, ...], message: str) -> None:
    ended = run("listen", *arguments)
    assert (ended.code in (1, 2), ended.out) == (True, "")
    assert message in ended.err
    assert ended.err.count("\n") == 1
    assert "hush" not in ended.err


def test_a_key_without_the_scope_is_an_error(run: Run, url: str, waits: list[float]) -> None:
    Feed.script = [403]
    ended = run("listen", "--url", url, "--key", TOKEN, "--forward", "http://127.0.0.1:1/")
    assert ended.code == 1
    assert ended.err == "heliograph: 403 insufficient_scope: Use another key.\n"


@pytest.fixture
def listening(
    shared_service: Service, receiver: Receiver, tmp_path: Path
) -> Iterator[Callable[[], "subprocess.Popen[str]"]]:
    """Start `heliograph listen` for the real service."""
    (tmp_path / "key").write_text(TOKENS["ACME"])
    address = f"http://127.0.0.1:{shared_service.ports[-1]}"
    options = ("--url", address, "--key", f"@{tmp_path / 'key'}", "--forward", receiver.url, "--secret", SECRET)
    process = subprocess.Popen(
        [*COMMAND, "listen", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background tests ignore the signal
    )
    yield lambda: process
    process.kill()
    process.communicate()


def test_listening_to_a_real_service_until_ctrl_c(
    shared_service: Service, receiver: Receiver, listening: Callable[[], Any]
) -> None:
    process = listening()
    assert process.stdout.readline().startswith("Forwarding events of http://127.0.0.1:")

    def received_event() -> Any:
        """Return the event received; events of earlier tests may come first."""
        shared_service.post("/v1/suppressions", {"email": f"listen-{len(attempts)}@example.com"})
        attempts.append(None)
        return next((got for got in receiver.received if '"suppression.created"' in got.body), None)

    attempts: list[None] = []
    got = until(received_event)
    event = verify_webhook(got.body.encode(), got.headers, SECRET)
    assert (event["type"], event["team_id"]) == ("suppression.created", "team_acme")
    assert json.loads(got.body) == event
    output = iter(process.stdout.readline, "")  # printed once the response was received
    assert any(f"{event['id']}  suppression.created → 200 in " in line for line in output)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (0, "stopped\n")
