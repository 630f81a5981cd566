"""A code is in the carrier's hands and nowhere else: a whole run, then every place is searched for every code.

Searched are answers, log lines, the database (every value of every table; of SQLite the files too), the data folder and
what webhooks were told. The codes are those that the carrier's side saw, and those of magic numbers.
"""

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from tests import service as services
from tests.service import Answer, Service, until

SETUP = """
[platform]
brand = "Acme"

[[carriers]]
id = "home"
channel = "sms"
kind = "simulator"
countries = ["US"]

[[teams]]
id = "team_acme"
mode = "live"
features = ["verify"]
verify = {{ language = "de", webotp = "acme.test", min_interval_s = 0, magic = true }}

  [[teams.keys]]
  name = "server"
  token = {{ env = "ACME" }}
  scopes = ["send", "manage"]

  [[teams.webhooks]]
  url = "{outside}/hook"
  events = ["*"]
"""
CARRIER = """
[[carriers]]
id = "{country}"
channel = "sms"
kind = "http"
countries = ["{upper}"]
url = "{outside}/{country}"
body = '{{"to": "{{{{to}}}}", "text": "{{{{text}}}}"}}'
accepted = {{ status = [202], id = "$.id" }}
refused = {{ status = [422], text = "$.error" }}
"""
# Country → a phone there, and how its carrier answers; those that do not take it repeat the text.
ABROAD = {
    "gb": ("+447400123456", 202),
    "de": ("+4915112345678", 422),
    "fr": ("+33612345678", 503),
    "it": ("+393331234567", None),  # hangs up: maybe it was sent
}
MAGIC = ("+15005551042", "+15005551087")  # their codes are their last six digits


class Outside(ThreadingHTTPServer):
    """The world: carriers that keep the texts, and a webhook."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Door)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.codes: dict[str, str] = {}  # by phone
        self.told: list[bytes] = []

    def answer(self, path: str, body: bytes) -> tuple[int | None, dict[str, str]]:
        if path == "/hook":
            self.told.append(body)
            return 200, {}
        sent = json.loads(body)
        first, last = sent["text"].splitlines()
        (self.codes[sent["to"]],) = re.findall("[0-9]{6}", first)
        assert last == f"@acme.test #{self.codes[sent['to']]}"
        return ABROAD[path[1:]][1], {"id": f"id{path[1:]}", "error": f"cannot send {sent['text']!r}"}


class Door(BaseHTTPRequestHandler):
    server: Outside

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, said = self.server.answer(self.path, body)
        if status is not None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def outside() -> Iterator[Outside]:
    with Outside() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the service's processes write."""
    kept: list[str] = []

    def keep(process: Any) -> None:
        threading.Thread(target=lambda: kept.extend(process.stdout), daemon=True).start()

    monkeypatch.setattr(services, "_drain", keep)
    return kept


def verify_everything(service: Service, codes: dict[str, str]) -> list[Answer]:
    """Start, read, check in every wrong and right way; `codes` fills while it runs."""
    answers = []
    for phone in (*(phone for phone, _ in ABROAD.values()), *MAGIC):
        again = {"Idempotency-Key": f"once {phone}"}
        started = [service.post("/v1/verify", {"to": phone}, headers=again) for _ in range(2)]
        path, code = f"/v1/verify/{started[0].json['id']}", codes.get(phone, phone[-6:])
        answers += [*started, service.post("/v1/verify?dry_run=true", {"to": phone}), service.get(path)]
        wrong = [int(code), [code], {"code": code}, code + "0", f"{code[:3]} {code[3:]}"]
        answers += [service.post(f"{path}/check", {"code": each}) for each in wrong]
        answers += [service.post(f"{path}/check", body) for body in ({"cod": code}, [code], code.encode(), b'{"code"')]
        answers += [service.post(f"{path}/check", {"code": code}) for _ in range(2)]
    answers += [service.get(page) for page in ("/v1/verify", "/v1/events", "/metrics", "/v1/me")]
    return answers


async def every_value(database: str) -> Iterator[str]:
    if database.startswith("sqlite:///"):
        file = apsw.Connection(database.removeprefix("sqlite:///"))
        tables = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = [row for table in tables for row in file.execute(f'SELECT * FROM "{table}"').fetchall()]
        file.close()
    else:
        server: Any = await asyncpg.connect(database)
        named = await server.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        rows = [tuple(row) for (table,) in named for row in await server.fetch(f'SELECT * FROM "{table}"')]
        await server.close()
    return (str(value) for row in rows for value in row)


def holds(text: str, code: str) -> bool:
    """Whether the code stands there as a number of its own, outside ids, digests and the magic number itself."""
    if code not in text:
        return False
    words = re.finditer(rf"\w*(?<![0-9]){code}(?![0-9])\w*", text)
    return any(len(word[0]) < 22 for word in words)


@pytest.mark.anyio
async def test_verification_code_leaks_nowhere(
    database_url: str, tmp_path: Path, outside: Outside, lines: list[str]
) -> None:
    setup = tmp_path / "setup.toml"
    carriers = [CARRIER.format(country=each, upper=each.upper(), outside=outside.url) for each in ABROAD]
    setup.write_text(SETUP.format(outside=outside.url) + "".join(carriers))
    with Service(database_url, tmp_path / "data") as service:
        service.apply(setup)
        service.start()
        answers = verify_everything(service, outside.codes)
        files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        until(lambda: any(b"verification.failed" in told for told in outside.told))
        assert service.stop() == 0
        until(lambda: any("stopped" in line for line in lines))
    assert sum(b'"verified":true' in answer.raw for answer in answers) == 4  # gb, it, and the magic ones

    values = list(await every_value(database_url))
    assert {"verification.verified", "verification.failed", "+447400123456"} <= set(values)  # it was all there to see
    places = {
        "answer": [str(answer.headers) + answer.raw.decode() for answer in answers],
        "log": lines,
        "database": values,
        "file": [octets.decode("latin-1") for octets in files.values()],
        "webhook": [told.decode() for told in outside.told],
    }
    codes = {*outside.codes.values(), *(phone[-6:] for phone in MAGIC)}
    assert len(codes) == len(ABROAD) + len(MAGIC)
    leaks = {(place, code) for place, texts in places.items() for code in codes for text in texts if holds(text, code)}
    assert leaks == set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("your code is 551042.", True),
        ("551042", True),
        ("pending551042", True),
        ("+15005551042", False),
        ("vrf_01M7EPX2NS3N20A551042W0SHA", False),
        ("1793491551042", False),
    ],
)
def test_the_search_finds_codes_only(text: str, expected: bool) -> None:
    assert holds(text, "551042") is expected
