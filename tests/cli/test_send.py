import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from .conftest import Run

TOKEN = "hk_e6FyJqrQy5_B0Gcb0VZXHtbKLaMqUiIawolD691iK8Ufvf9Ncn7q8d1nqgSq"


class Echo(BaseHTTPRequestHandler):
    """Responds 202 with the request; other paths refuse, redirect, or respond with something invalid."""

    def do_POST(self) -> None:
        got = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {"path": self.path, "key": self.headers["Authorization"], "body": got}
        status = 202
        if self.path.startswith("/refuse"):
            status, answer = 403, {"error": {"code": "recipient_suppressed", "message": "Suppressed."}}
        elif self.path.startswith("/away"):
            status = 302
        self.send_response(status)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()
        self.wfile.write(b"<html>" if self.path.startswith("/away") else json.dumps(answer).encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, args=[0.01]).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_service_and_key_come_from_the_environment(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOGRAPH_URL", url)
    monkeypatch.setenv("HELIOGRAPH_KEY", TOKEN)
    request = json.loads(run("send", "sms", "--to", "+15005550006", "--template", "tpl_a").out)
    assert (request["path"], request["key"]) == ("/v1/sms", f"Bearer {TOKEN}")


def test_email_options_become_the_request(run: Run, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    (tmp_path / "key.txt").write_text(TOKEN + "\n")
    ended = run(
        *("send", "email", "--url", url, "--key", "@key.txt", "--to", "a@b.test", "--to", "c@d.test"),
        *("--from", "e@f.test", "--subject", "S", "--text", "T"),
    )
    assert ended.code == 0
    assert json.loads(ended.out) == {
        "path": "/v1/emails",
        "key": f"Bearer {TOKEN}",
        "body": {"to": ["a@b.test", "c@d.test"], "from": "e@f.test", "subject": "S", "text": "T"},
    }


@pytest.mark.parametrize("channel", ["sms", "whatsapp"])
def test_template_options_become_the_request(run: Run, url: str, channel: str) -> None:
    template = ("--template", "tpl_a", "--var", "code=1=2", "--var", "name=")
    ended = run("send", channel, "--url", url + "/", "--key", TOKEN, "--to", "+15005550006", *template)
    answer = json.loads(ended.out)
    assert answer["path"] == f"/v1/{channel}"
    variables = {"code": "1=2", "name": ""}
    assert answer["body"] == {"to": "+15005550006", "template_id": "tpl_a", "variables": variables}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "--key: key.txt cannot be read: No such file or directory."),
        (b"\xff", "--key: key.txt is not a text file."),
    ],
)
def test_an_invalid_key_file_is_reported(
    run: Run, url: str, tmp_path: Path, content: bytes | None, message: str
) -> None:
    if content:
        (tmp_path / "key.txt").write_bytes(content)
    ended = run("send", "sms", "--url", url, "--key", "@key.txt", "--to", "+15005550006")
    assert (ended.code, ended.err) == (1, f"heliograph: {message}\n")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/refuse", "heliograph: 403 recipient_suppressed: Suppressed.\n"),
        ("/away", "is not a Heliograph service\n"),
    ],
)
def test_a_refusal_is_one_line(run: Run, url: str, path: str, message: str) -> None:
    ended = run("send", "sms", "--url", url + path, "--key", TOKEN, "--to", "+15005550006")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.endswith(message)
    assert ended.err.count("\n") == 1
