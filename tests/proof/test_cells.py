"""Two cells with the same ids and keys answer requests of all kinds: none is answered with the data of the other cell.

All data of a cell has a word that the other never has. A request has the credentials of one cell, and goes through a
proxy or past it, with any host name, to either cell.
"""

import random
import smtplib
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from email.message import EmailMessage
from typing import Any

import msgspec
import pytest

from heliograph.domain.refusals import InvalidApiKey
from heliograph.domain.setup.keys import make_token
from tests.cells import API_HOST, CELLS, MARKS, Cell, Cells, ask, running_cells, running_proxy
from tests.conftest import fresh_database
from tests.journeys.load import ask_database
from tests.journeys.test_cells import FORM, connect_tls, mail_of, unsubscribe_path
from tests.postgres_server import MISSING, is_installed
from tests.proof.size import report, rounds, size
from tests.service import free_port

pytestmark = pytest.mark.skipif(not is_installed(), reason=MISSING)

REQUESTS = size("cells requests")
CLIENTS = 4
PROXIES = ("haproxy", "caddy")
SEED_MAILS = 3  # of each cell before the requests, whose ids the requests name
UNKNOWN_KEY = InvalidApiKey.meaning().encode()
NO_CELL_HOSTS = (API_HOST, "cell-03.mail.test", "127.0.0.1", "mail.test")


class Fuzzed(msgspec.Struct, frozen=True, kw_only=True):
    """A request, and the cell whose credentials it has; None if they are of no cell."""

    method: str
    path: str
    body: Any
    headers: dict[str, str]
    owner: Cell | None
    is_keyless: bool = False  # only the host name says which cell it is for


class Fuzzer:
    """Makes requests from random numbers."""

    def __init__(self, cells: Cells, seed: int) -> None:
        self._cells = list(cells.cells.values())
        self.random = random.Random(seed)
        self.ids: dict[str, list[str]] = {name: [] for name in CELLS}
        self.links: dict[str, str] = {}

    def make(self) -> Fuzzed:
        cell = self.random.choice(self._cells)
        make = self.random.choice((self._own_api, self._resend, self._postmark, self._twilio, self._postal, self._page))
        return make(cell)

    def host(self, request: Fuzzed) -> str:
        if request.owner and self.random.randrange(2):
            return request.owner.host
        return self.random.choice([*(cell.host for cell in self._cells), *NO_CELL_HOSTS])

    def _id(self) -> str:
        return self.random.choice([id_ for ids in self.ids.values() for id_ in ids])

    def _credential(self, cell: Cell) -> tuple[str, Cell | None]:
        """Return a key and its cell: mostly a valid key of the cell, sometimes one of no cell."""
        kind = self.random.randrange(12)
        token = cell.tokens[self.random.choice(("ACME", "ACME", "ACME_SEND", "ACME_MANAGE"))]
        if kind == 0:
            return make_token(bytes([1]) * 64), None  # the same key outside cells
        if kind == 1:
            return make_token(bytes([1]) * 64, "cell_03"), None
        if kind == 2:
            return token.replace(cell.name, cell.other), None  # the checksum is wrong
        if kind == 3:
            return token[:-7] + token[-6:], None
        return token, cell

    def _bearer(self, cell: Cell, request: tuple[str, str, Any]) -> Fuzzed:
        token, owner = self._credential(cell)
        headers = {"Authorization": f"{self.random.choice(('Bearer', 'bearer', 'Bearer '))} {token}"}
        if not self.random.randrange(5):  # a credential of the other cell that this API does not read
            other = next(item for item in self._cells if item is not cell)
            headers[self.random.choice(("X-Postmark-Server-Token", "X-Server-API-Key", "X-Api-Key"))] = other.key
        method, path, body = request
        return Fuzzed(method=method, path=path, body=body, headers=headers, owner=owner)

    def _own_api(self, cell: Cell) -> Fuzzed:
        call = {"name": "find_messages", "arguments": {}}
        return self._bearer(
            cell,
            self.random.choice(
                [
                    ("POST", "/v1/emails", mail_of(cell, to=f"{cell.mark}@simulator.test")),
                    ("POST", "/v1/emails/batch", {"messages": [mail_of(cell), mail_of(cell)]}),
                    ("POST", "/v1/suppressions", {"email": f"{cell.mark}{self.random.randrange(9)}@example.com"}),
                    ("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}),
                    ("GET", "/v1/emails?limit=5", None),
                    ("GET", f"/v1/emails/{self._id()}", None),
                    ("GET", f"/v1/events?message_id={self._id()}", None),
                    ("GET", "/v1/events", None),
                    ("GET", "/v1/suppressions", None),
                    ("GET", "/v1/unsubscribes", None),
                    ("GET", "/v1/me", None),
                    ("GET", "/v1/keys", None),
                    ("GET", "/v1/templates", None),
                    ("DELETE", f"/v1/suppressions/{MARKS[cell.name]}1@example.com", None),
                ]
            ),
        )

    def _resend(self, cell: Cell) -> Fuzzed:
        prefix = "/compat/resend"
        return self._bearer(
            cell,
            self.random.choice(
                [
                    ("POST", f"{prefix}/emails", mail_of(cell)),
                    ("POST", f"{prefix}/emails/batch", [mail_of(cell)]),
                    ("GET", f"{prefix}/emails", None),
                    ("GET", f"{prefix}/emails/{self._id()}", None),
                    ("GET", f"{prefix}/suppressions", None),
                    ("GET", f"{prefix}/api-keys", None),
                    ("GET", f"{prefix}/logs", None),
                ]
            ),
        )

    def _postmark(self, cell: Cell) -> Fuzzed:
        token, owner = self._credential(cell)
        prefix = "/compat/postmark"
        mail = {"From": "hello@acme.test", "To": f"{cell.mark}@simulator.test", "Subject": cell.mark, "TextBody": "Hi"}
        method, path, body = self.random.choice(
            [
                ("POST", f"{prefix}/email", mail),
                ("POST", f"{prefix}/email/batch", [mail, mail]),
                ("GET", f"{prefix}/messages/outbound?count=5&offset=0", None),
                ("GET", f"{prefix}/messages/outbound/{self._id()}/details", None),
                ("GET", f"{prefix}/message-streams/outbound/suppressions/dump", None),
                ("GET", f"{prefix}/server", None),
            ]
        )
        headers = {"X-Postmark-Server-Token": token, "Accept": "application/json"}
        return Fuzzed(method=method, path=path, body=body, headers=headers, owner=owner)

    def _twilio(self, cell: Cell) -> Fuzzed:
        token, owner = self._credential(cell)
        account = "/compat/twilio/2010-04-01/Accounts/AC1"
        user = "A" * self.random.randrange(1, 40)
        form = f"To=%2B15005550006&ContentSid=tpl_sms&ContentVariables=%7B%22parcel%22%3A%22{cell.mark}%22%7D".encode()
        method, path, body = self.random.choice(
            [
                ("POST", f"{account}/Messages.json", form),
                ("GET", f"{account}/Messages.json", None),
                ("GET", f"{account}/Messages/{self._id()}.json", None),
            ]
        )
        scheme = self.random.choice(("Basic", "basic"))
        headers = {"Authorization": f"{scheme} {b64encode(f'{user}:{token}'.encode()).decode()}"}
        return Fuzzed(method=method, path=path, body=body, headers=headers | (FORM if body else {}), owner=owner)

    def _postal(self, cell: Cell) -> Fuzzed:
        token, owner = self._credential(cell)
        prefix = "/compat/postal/api/v1"
        mail = {"from": "hello@acme.test", "to": [f"{cell.mark}@simulator.test"], "subject": cell.mark}
        path, body = self.random.choice(
            [
                (f"{prefix}/send/message", mail | {"plain_body": "Hi"}),
                (f"{prefix}/messages/message", {"id": self._id(), "_expansions": True}),
                (f"{prefix}/messages/deliveries", {"id": self._id()}),
            ]
        )
        return Fuzzed(method="POST", path=path, body=body, headers={"X-Server-API-Key": token}, owner=owner)

    def _page(self, cell: Cell) -> Fuzzed:
        challenge = f"hub.mode=subscribe&hub.verify_token=verify-{cell.mark}&hub.challenge={cell.mark}"
        team = "/dashboard/teams/team_acme"
        method, path, body, headers = self.random.choice(
            [
                ("GET", "/dashboard/operator", None, cell.cookie),
                ("GET", team, None, cell.cookie),
                ("GET", f"{team}/messages", None, cell.cookie),
                ("GET", f"{team}/messages/{self._id()}", None, cell.cookie),
                ("GET", f"{team}/suppressions", None, cell.cookie),
                ("GET", f"/carriers/meta/callback?{challenge}", None, {}),
                ("GET", self.links[cell.name], None, {}),
                ("POST", self.links[cell.name], b"List-Unsubscribe=One-Click", FORM),
            ]
        )
        return Fuzzed(method=method, path=path, body=body, headers=dict(headers), owner=cell, is_keyless=True)


class Judge:
    """Checks the answers, and counts them."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self.counts = Counter[str]()
        self.leaks: list[str] = []

    def check(self, request: Fuzzed, host: str, port: int, asked: Cell | None, status: int, raw: bytes) -> None:
        """Check an answer. `asked`: the cell whose process was asked directly; None behind a proxy."""
        where = f"{request.method} {request.path} host {host} port {port} {request.headers}: {status} {raw[:200]!r}"
        for name, mark in MARKS.items():
            is_own = request.owner is not None and name == request.owner.name
            if mark.encode() in raw and not is_own:
                self.leaks.append(f"{mark} in {where}")
        owner = request.owner
        if status >= 500:
            self.leaks.append(f"failed: {where}")
        if owner is None:
            expected = status >= 400 or (status == 200 and b'"status":"error"' in raw)
            self.counts["of no cell, refused"] += expected
            if not expected:
                self.leaks.append(f"accepted: {where}")
        elif request.is_keyless:
            reaches = host == owner.host and asked in (None, owner)
            if (status == 200 and not reaches) or (status == 421 and reaches):
                self.leaks.append(f"wrong host name: {where}")
            self.counts["without a key, answered" if reaches else "without a key, refused"] += 1
        elif asked not in (None, owner):
            self.counts["wrong cell, 421"] += status == 421
            if status != 421:
                self.leaks.append(f"wrong cell: {where}")
        else:
            is_known = status != 421 and UNKNOWN_KEY not in raw
            self.counts["with a key, answered by its cell"] += is_known
            if not is_known:
                self.leaks.append(f"not routed to its cell: {where}")


@pytest.fixture
def cells(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cells]:
    with running_cells(fresh_database(postgres, "template1"), tmp_path_factory.mktemp("cells")) as running:
        yield running


def test_no_request_is_answered_with_the_data_of_another_cell(cells: Cells) -> None:
    judge, smtps_port = Judge(cells), free_port()
    with ExitStack() as stack:
        fronts = [stack.enter_context(running_proxy(name, cells, smtps_port, free_port())) for name in PROXIES]
        fuzzers = [Fuzzer(cells, seed) for seed in range(CLIENTS)]
        ids, links = send_first_mails(cells), {cell.name: unsubscribe_path(cell) for cell in cells.cells.values()}
        for fuzzer in fuzzers:
            fuzzer.ids, fuzzer.links = ids, links
        with ThreadPoolExecutor(CLIENTS) as pool:
            share = REQUESTS // CLIENTS
            done = [pool.submit(send_requests, cells, fuzzer, judge, fronts, smtps_port, share) for fuzzer in fuzzers]
            for future in done:
                future.result()
    assert judge.leaks == []
    assert foreign_rows(cells) == []
    total = sum(judge.counts.values())
    assert total == share * CLIENTS
    assert all(judge.counts[kind] for kind in ("wrong cell, 421", "with a key, answered by its cell"))
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(judge.counts.items()))
    report("cells", f"{total} requests to two cells: {kinds}; 0 answers with data of the other cell, 0 foreign rows")


def send_first_mails(cells: Cells) -> dict[str, list[str]]:
    ids: dict[str, list[str]] = {}
    for cell in cells.cells.values():
        bearer = {"Authorization": f"Bearer {cell.key}"}
        answers = [cell.ask("POST", "/v1/emails", mail_of(cell), bearer) for _ in range(SEED_MAILS)]
        ids[cell.name] = [answer.json["id"] for answer in answers]
    return ids


def send_requests(cells: Cells, fuzzer: Fuzzer, judge: Judge, fronts: list[int], smtps_port: int, count: int) -> None:
    direct: dict[int, Cell] = {cell.port: cell for cell in cells.cells.values()}
    for _ in rounds("cells", count):
        if not fuzzer.random.randrange(40):
            submit_mail(cells, fuzzer, judge, smtps_port)
            continue
        request = fuzzer.make()
        host, port = fuzzer.host(request), fuzzer.random.choice([*fronts, *fronts, *direct])
        written = fuzzer.random.choice((host, host.upper(), f"{host}:{port}"))
        answer = ask(request.method, request.path, request.body, {"Host": written, **request.headers}, port)
        text = answer.raw + " ".join(answer.headers.values()).encode()
        judge.check(request, host, port, direct.get(port), answer.status, text)


def submit_mail(cells: Cells, fuzzer: Fuzzer, judge: Judge, smtps_port: int) -> None:
    """Submit a mail with the key of one cell at the host name of any."""
    addressed, owner = (fuzzer.random.choice(list(cells.cells.values())) for _ in range(2))
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "hello@acme.test", "delivered@simulator.test", owner.mark
    message.set_content(owner.mark)
    port = fuzzer.random.choice((smtps_port, addressed.submission_tls_port))
    status = 200
    with connect_tls(cells, addressed, port) as client:
        try:
            client.login("heliograph", owner.key)
            client.send_message(message)
        except smtplib.SMTPAuthenticationError as error:
            status = 421 if b"wrong_cell" in bytes(error.smtp_error) else 401  # type: ignore[arg-type]
    request = Fuzzed(method="SMTP", path="", body=None, headers={}, owner=owner)
    judge.check(request, addressed.host, port, addressed, status, b"")


def foreign_rows(cells: Cells) -> list[str]:
    """Return the tables in which a cell has the word of the other."""
    found = []
    for cell in cells.cells.values():
        tables = ask_database(cell.database, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        assert len(tables) > 50
        own = 0
        for (table,) in tables:
            own += count_rows(cell, table, cell.mark)
            if count_rows(cell, table, MARKS[cell.other]):
                found.append(f"{table} of {cell.name}")
        assert own  # the word is in readable columns
    return found


def count_rows(cell: Cell, table: str, mark: str) -> int:
    query = f"SELECT count(*) FROM {table} AS t WHERE t::text LIKE '%{mark}%'"
    return int(ask_database(cell.database, query)[0][0])
