"""`heliograph api`: any request to a running service from a shell."""

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from heliograph.api.routes import ROUTES
from tests.service import TOKENS, Service

from .conftest import Run

ROOT = Path(__file__).parents[2]
TOKEN = "hk_e6FyJqrQy5_B0Gcb0VZXHtbKLaMqUiIawolD691iK8Ufvf9Ncn7q8d1nqgSq"
ANSWERS = {"/missing": 404, "/broken": 503, "/moved": 302}


class Echo(BaseHTTPRequestHandler):
    """A server that responds with the request. /raw is not JSON, /list has three pages, ANSWERS has other statuses."""

    def answer(self) -> None:
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        status = ANSWERS.get(path, 200)
        content: Any = {"method": self.command, "path": self.path, "body": body, "key": self.headers["Authorization"]}
        if status >= 400:
            content = {"error": {"code": "no", "message": "Not here."}}
        elif path == "/list":
            number = int(query.get("after", ["0"])[0])
            content = {"object": "list", "has_more": number < 2, "data": [{"id": str(number + 1), "q": query}]}
        self.send_response(status)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()
        self.wfile.write(b"a\x00b" if path == "/raw" else json.dumps(content).encode())

    do_GET = do_POST = do_PATCH = do_DELETE = answer

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def url(run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("HELIOGRAPH_KEY", TOKEN)
    with HTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, args=[0.01]).start()
        monkeypatch.setenv("HELIOGRAPH_URL", url := f"http://127.0.0.1:{server.server_port}")
        yield url
        server.shutdown()


def test_fields_are_the_body(run: Run, url: str, tmp_path: Path) -> None:
    (tmp_path / "mail.html").write_text("<p>é</p>")
    ended = run(
        *("api", "post", "/v1/x", "-f", "name=a=b", "-f", "events[]=email.*", "-f", "events[]=sms.sent"),
        *("-F", "enabled=false", "-F", "html=@mail.html", "-f", "variables[name]=5", "-F", "variables[count]=5"),
    )
    answer = json.loads(ended.out)
    assert (ended.code, answer["method"], answer["path"], answer["key"]) == (0, "POST", "/v1/x", f"Bearer {TOKEN}")
    assert json.loads(answer["body"]) == {
        "name": "a=b",
        "events": ["email.*", "sms.sent"],
        "enabled": False,
        "html": "<p>é</p>",
        "variables": {"name": "5", "count": 5},
    }
    assert ended.out.startswith('{\n  "method": "POST",\n')


def test_fields_of_a_get_are_its_query(run: Run, url: str) -> None:
    answer = json.loads(run("api", "GET", "/v1/x?limit=2", "-f", "to=a+b@c.test").out)
    assert (answer["path"], answer["body"]) == ("/v1/x?limit=2&to=a%2Bb%40c.test", "")


def test_a_file_is_the_body(run: Run, url: str, tmp_path: Path) -> None:
    (tmp_path / "body.json").write_text('{"a": 1}')
    assert json.loads(run("api", "PATCH", "/v1/x", "--input", "body.json").out)["body"] == '{"a": 1}'


def test_all_pages_are_one_list(run: Run, url: str) -> None:
    ended = run("api", "GET", "/list", "-f", "to=x", "--paginate")
    assert json.loads(ended.out) == {
        "object": "list",
        "data": [
            {"id": "1", "q": {"limit": ["100"], "to": ["x"]}},
            {"id": "2", "q": {"limit": ["100"], "to": ["x"], "after": ["1"]}},
            {"id": "3", "q": {"limit": ["100"], "to": ["x"], "after": ["2"]}},
        ],
    }
    assert "--paginate: /v1/x is not a list" in run("api", "GET", "/v1/x", "--paginate").err


def test_other_content_is_unchanged(run: Run, url: str) -> None:
    assert run("api", "GET", "/raw").out == "a\x00b"


@pytest.mark.parametrize(("path", "code"), [("/missing", 4), ("/broken", 5), ("/moved", 5)])
def test_the_exit_code_is_that_of_the_status(run: Run, url: str, path: str, code: int) -> None:
    ended = run("api", "DELETE", path)
    assert ended.code == code
    assert ended.err.startswith(f"heliograph: {ANSWERS[path]} ") and ended.err.count("\n") == 1


def test_a_profile_names_service_and_key(run: Run, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HELIOGRAPH_URL", "http://127.0.0.1:1")
    (tmp_path / "heliograph").mkdir()
    profiles = tmp_path / "heliograph" / "profiles.toml"
    profiles.write_text(f'[shop]\nurl = "{url}/"\nkey = "{TOKENS["ACME"]}"\n')
    assert json.loads(run("api", "GET", "/v1/x", "--profile", "shop").out)["key"] == f"Bearer {TOKENS['ACME']}"
    answer = json.loads(run("api", "GET", "/v1/x", "--profile", "shop", "--key", TOKEN).out)
    assert answer["key"] == f"Bearer {TOKEN}"
    assert f"{profiles} has no table [other]" in run("api", "GET", "/", "--profile", "other").err
    profiles.unlink()
    assert f"{profiles} cannot be read" in run("send", "sms", "--to", "x", "--profile", "shop").err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("GET", "v1/emails"), "expected a path such as /v1/emails"),
        (("GET", "https://example.com/v1/emails"), "expected a path such as /v1/emails"),
        (("LOOK", "/v1/emails"), "'LOOK' is not one of"),
        (("POST", "/v1/x", "-f", "name"), "expected NAME=VALUE"),
        (("POST", "/v1/x", "-f", "a[b=1"), "expected NAME=VALUE"),
        (("POST", "/v1/x", "-f", "a=1", "-f", "a[b]=2"), "does not fit the fields before it"),
        (("POST", "/v1/x", "-f", "a[]=1", "-f", "a[b]=2"), "does not fit the fields before it"),
        (("POST", "/v1/x", "-F", "a=x"), "is not JSON"),
        (("POST", "/v1/x", "-F", "a=@none"), "none cannot be read: No such file or directory."),
        (("POST", "/v1/x", "--paginate"), "--paginate is for GET"),
        (("POST", "/v1/x", "--input", "-", "-f", "a=1"), "--input cannot be combined with -f and -F"),
        (("GET", "/v1/x", "--url", "http://127.0.0.1:1"), "Is the service running?"),
        (("GET", "/v1/x", "--key", "hk_cut"), "not a complete token"),
    ],
)
def test_a_mistake_is_one_line(run: Run, url: str, arguments: tuple[str, ...], message: str) -> None:
    ended = run("api", *arguments)
    assert (ended.code in (1, 2), ended.out, ended.err.count("\n")) == (True, "", 1)
    assert message in ended.err


def test_documented_requests_exist() -> None:
    """Requests in docs and help texts exist as routes."""
    files = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "src/heliograph/cli/api.py"]
    requests = [
        match for file in files for match in re.findall(r"heliograph api ([A-Z]+) (/[^\s`]+)", file.read_text("utf-8"))
    ]
    routes = [(route.method, re.sub(r"{\w+}", "[^/]+", route.path)) for route in ROUTES]
    unknown = [
        request
        for request in requests
        if not any(method == request[0] and re.fullmatch(path, request[1]) for method, path in routes)
    ]
    assert len(requests) > 20 and unknown == []


def url_of(service: Service) -> str:
    return f"http://127.0.0.1:{service.ports[-1]}"


def test_a_webhook_from_creation_to_removal(run: Run, shared_service: Service) -> None:
    def api(*arguments: str) -> Any:
        ended = run("api", *arguments, "--url", url_of(shared_service), "--key", TOKENS["ACME"])
        assert ended.code == 0, ended.err
        return json.loads(ended.out)

    hook = api("POST", "/v1/webhooks", "-f", "url=http://127.0.0.1:9/api", "-f", "events[]=email.*")
    path = f"/v1/webhooks/{hook['id']}"
    assert hook["secret"].startswith("whsec_") and hook["events"] == ["email.*"]
    assert api("PATCH", path, "-F", "enabled=false")["enabled"] is False
    assert hook["id"] in [item["id"] for item in api("GET", "/v1/webhooks", "--paginate")["data"]]
    assert api("DELETE", path)["deleted"]
    ended = run("api", "GET", path, "--url", url_of(shared_service), "--key", TOKENS["ACME"])
    assert (ended.code, json.loads(ended.out)["error"]["code"]) == (4, "webhook_not_found")
