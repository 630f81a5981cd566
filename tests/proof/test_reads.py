"""P29: reading is bounded as writing is. Every route and page that reads, with a mail and a template of 5 MiB, and
with a mail and words just too small for what is copied in a thread, many at once by one key or person: the event loop
computes for nobody so long that others wait, and memory stays flat.
"""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from heliograph.api.routes import ROUTES
from heliograph.compat.adapters import ADAPTERS
from heliograph.dashboard.pages import PAGES
from heliograph.domain.limits import PARSE_IN_THREAD_MIN
from tests.api.sends import settled
from tests.people import let_in
from tests.proof.size import DATABASES, FULL, database_name, report, size
from tests.proof.test_hostile import LATE_S, Probe
from tests.service import SETUP, Service

MIB = 1 << 20
PATIENCE_S = 300.0
GROWN_MAX = 400 * MIB  # with what Python and malloc keep; 50 mails of 5 MiB in all their forms would take 1.5 GB
# What is in a mail: of each kind of character, and markup that is to be escaped.
PIECE = '<p title="é">Hello &amp; good day, <a href="https://example.com/?a=1&b=2">Ada</a> 😀</p>\n'
HTML = PIECE * ((5 * MIB - 1000) // len(PIECE.encode()))
MIDDLE = PIECE * ((PARSE_IN_THREAD_MIN - 6_000) // len(PIECE.encode()))
WORDS = "<p>{{ customer.name }}</p>\n" * 9_000
SLOTS = 1_250  # each with an example of 4,096 characters

MORE = f"""
[[teams]]
id = "team_sandbox"
  [[teams.templates]]
  id = "tpl_large"
  channel = "email"
  name = "Large"
  subject = "x"
  html = "<p>{"{{customer.name}}" * SLOTS}</p>"
  variables = ["name"]
  examples = {{ name = "{"<" + "x" * 4_000}" }}

  [[teams.layouts]]
  id = "lay_large"
  name = "Large"
  html = "<p>{{{{content}}}}</p>"
"""


class Read(NamedTuple):
    method: str
    path: str
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()


class Reader:
    """One key and one person, who reads everything."""

    def __init__(self, service: Service, token: str, mails: list[str], cookie: str, csrf: str) -> None:
        self._port, self._token, self._mails, self._cookie, self._csrf = service.ports[0], token, mails, cookie, csrf

    def reads(self) -> Iterator[Read]:
        key = (("Authorization", f"Bearer {self._token}"), ("X-Postmark-Server-Token", self._token))
        typed = ("Content-Type", "application/json")
        for route in [*ROUTES, *(route for adapter in ADAPTERS for route in adapter.routes)]:
            if route.method == "GET" and route.path not in ("/metrics", "/readyz"):
                yield from (Read("GET", path, None, key) for path in self._filled(route.path))
        variables = {"variables": {"name": "<" + "y" * 4_000}}
        yield Read("POST", "/v1/templates/tpl_large/render", json.dumps(variables).encode(), (*key, typed))
        mail = {"to": "delivered@simulator.test", "template_id": "tpl_large", **variables}
        yield Read("POST", "/v1/emails?dry_run=true", json.dumps(mail).encode(), (*key, typed))
        for path, words in (
            ("/v1/templates/tpl_large", WORDS),
            ("/compat/resend/templates/tpl_large", WORDS.replace("customer.name", "name")),
            ("/v1/layouts/lay_large", "<p>{{content}}</p>" + WORDS.replace("customer", "brand")),
        ):
            yield Read("PATCH", path, json.dumps({"html": words}).encode(), (*key, typed))
            yield Read("GET", path, None, key)
        person = (("Cookie", f"heliograph_session={self._cookie}"),)
        for page in PAGES:
            if page.method == "GET" and not page.path.endswith("/live") and "sign-out" not in page.path:
                yield from (Read("GET", path, None, person) for path in self._filled(page.path))
        for inbox in self._filled("/dashboard/teams/{team}/inbox/{id}"):
            for view in ("text", "headers", "source", "links", "check"):
                yield Read("GET", f"{inbox}?view={view}", None, person)
        form = {
            "csrf": self._csrf,
            "channel": "email",
            "name": "x",
            "subject": "x",
            "html": "{{customer.name}}" * SLOTS,
        }
        declared = {"variable.0": "name", "example.0": "x" * 4_000, "id": "tpl_large"}
        kind = ("Content-Type", "application/x-www-form-urlencoded")
        for preview in self._filled("/dashboard/teams/{team}/templates/preview"):
            for given in (form, form | declared):
                yield Read("POST", preview, urlencode(given).encode(), (*person, kind))

    def _filled(self, path: str) -> list[str]:
        """With the names of what is there: once, or for each mail."""
        path = path.replace("templates/{id}", "templates/tpl_large").replace("layouts/{id}", "layouts/lay_large")
        known = {"team": "team_sandbox", "template": "tpl_large", "number": "0"}
        known |= {"channel": "email", "attachment": "1", "version": "1"}
        path = re.sub(r"\{(\w+)\}", lambda at: "{id}" if at[1] == "id" else known.get(at[1], "x"), path)
        return list(dict.fromkeys(path.replace("{id}", mail) for mail in self._mails))

    def ask(self, read: Read) -> int:
        """The status; the answer is read to its end."""
        connection = HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
        try:
            connection.request(read.method, read.path, read.body, dict(read.headers))
            answer = connection.getresponse()
            while answer.read(64 << 10):
                pass
            return answer.status
        finally:
            connection.close()


@pytest.mark.parametrize("database_url", DATABASES, indirect=True)
def test_large_read_delays_no_other_request(database_url: str, tmp_path: Path) -> None:
    at_once, name = size("P29 at once"), database_name(database_url)
    more = tmp_path / "more.toml"
    more.write_text(MORE)
    with Service(database_url, tmp_path / "data") as service:
        service.apply(SETUP)
        service.apply(more)
        service.run("user", "add", "root@example.com", "--operator")
        process = service.start()
        reader = _reader(service)
        probe = Probe(service.ports[0], process.pid)
        small = _peak(process.pid)
        late, slow = 0.0, []
        for read in reader.reads():
            with ThreadPoolExecutor(at_once) as pool:
                statuses = list(pool.map(reader.ask, [read] * at_once))
            assert set(statuses) <= {200, 303, 400, 401, 403, 404, 405, 409, 410, 422, 503}, (read.path, statuses)
            wait = probe.longest()
            late = max(late, wait.computed)
            if wait.seconds > LATE_S or wait.computed > LATE_S:
                slow.append(f"{read.method} {read.path.split('?')[0]}: others wait {wait}")
        probe.close()
        blocked = [line for line in process.blocked if float(line.split("computed=")[1].split()[0]) > LATE_S]
        grown = _peak(process.pid) - small
    for line in slow:
        print(line)
    report("P29", f"{name}: {at_once} at once, others wait {late:.3f} s of CPU at most; memory {grown >> 20} MiB more")
    assert not blocked
    assert grown < GROWN_MAX
    assert not FULL or late < LATE_S


def _reader(service: Service) -> Reader:
    token = service.run(
        "key", "create", "--team", "team_sandbox", "--scope", "send", "--scope", "manage"
    ).stdout.strip()
    mails = []
    for html in (HTML[:-200], MIDDLE):
        mail = {"to": "delivered@simulator.test", "subject": "x", "html": html, "text": "x"}
        sent = service.post("/v1/emails", mail, key="SANDBOX")
        assert sent.status == 202, sent.raw
        settled(service, f"/v1/emails/{sent.json['id']}", "SANDBOX")
        mails.append(sent.json["id"])
    cookie = let_in(service.database, "root@example.com")
    page: Any = service.get("/dashboard/account", key=None, headers={"Cookie": f"heliograph_session={cookie}"})
    csrf = re.search(rb'name="csrf" value="([^"]+)"', page.raw)
    assert csrf, page.raw
    return Reader(service, token, mails, cookie, csrf[1].decode())


def _peak(pid: int) -> int:
    """The most memory that the process ever had, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) << 10
