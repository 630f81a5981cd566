"""P18 in full: for every endpoint some requests of tests/api/test_schemathesis.py, drawn from the schema and judged by
it, then many more, made from those and from good ones by changes (mutations.py).

A request is repeated by its endpoint and its number, but for ids that exist.
"""

import json
import re
import socket
import socketserver
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from random import Random
from typing import Any

import pytest

from tests.api import test_schemathesis as short
from tests.conftest import migrated_database
from tests.proof.mutations import SET_UP_IDS, Draft, Good, kind
from tests.proof.size import DATABASES, FULL, database_name, report, size
from tests.service import PATIENCE_S, Service

if FULL:  # in short they run where they are
    from tests.api.test_schemathesis import (
        test_generated_requests_get_responses_as_documented as test_generated_requests_get_responses_as_documented,
    )

DRAWN, CHANGED = size("P18 requests"), size("P18 changed requests")
KINDS = Counter([short.label(one) for one, _ in short.RUNS] + [f"POST {path}" for path in short.EXISTING_IDS])
AT_ONCE = 32
ERROR = {"type", "code", "message", "param", "details", "request_id", "doc_url"}
PROBLEM = {"type", "title", "status", "detail", "instance", "code", "param", "request_id"}
IDS = re.compile(r'"id":"(\w+)"')
RIGHT: dict[str, Any] = {
    **short.EXISTING_IDS,
    **{f"/v1/{channel}/{{id}}": {"scheduled_at": "2026-11-15T09:30:00Z"} for channel in ("emails", "sms", "whatsapp")},
    "/v1/webhooks/{id}": {"enabled": True},
    "/v1/domains": {"name": "news.acme.test"},  # makes no keys: it is there
    "/v1/webhooks": {"url": "http://127.0.0.1:9/", "events": ["domain.failed"]},  # which does not happen here
}
DOCUMENTED = {"/readyz": "service_unavailable"}  # a busy machine may not commit within a second
GOOD: dict[str, list[Good]] = {}  # of each endpoint
existing: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=50))  # ids that were answered, by their kind
statuses: Counter[int] = Counter()


@pytest.fixture(scope="module", params=DATABASES)
def shared_service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("inputs")
    with (
        migrated_database(request.param, request, folder) as url,
        no_names() as resolver,
        Service(url, folder / "data", resolver=resolver) as running,
    ):
        running.apply()
        process = running.start()
        statuses.clear()
        existing.clear()
        for id_ in SET_UP_IDS:
            existing[kind(id_)].append(id_)
        yield running
        assert process.poll() is None
        told = ", ".join(f"{count} × {status}" for status, count in sorted(statuses.items()))
        errors = sum(count for status, count in statuses.items() if status >= 500 and status != 503)
        report(
            "P18",
            f"{database_name(url)}: {DRAWN} drawn and {CHANGED} changed requests for each of {len(KINDS)} endpoints; "
            f"of the changed {errors} were answered with 500 or above but 503: {told}",
        )


@pytest.fixture(autouse=True)
def _as_many(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """What is drawn is kept, to be changed."""
    given, judge = request.node.callspec.params, short.assert_as_described
    endpoint = f"POST {given['path']}" if "path" in given else short.label(given["operation"])
    monkeypatch.setattr(short, "EXAMPLES_EACH", -(-DRAWN // KINDS[endpoint]))

    def keep(service: Service, case: Any) -> None:
        body = case.body if isinstance(case.body, dict | list) else None
        names, query = dict(case.path_parameters or {}), dict(case.query or {})
        GOOD.setdefault(endpoint, []).append(Good(case.method, case.path, names, query, body))
        judge(service, case)

    monkeypatch.setattr(short, "assert_as_described", keep)


def good(operation: Any) -> list[Good]:
    """Requests that are right, as many as those that were drawn, and those."""
    method, path, drawn = operation.method.upper(), operation.path, GOOD.get(short.label(operation), [])
    names = {one.name: one.definition.get("example", "") for one in operation.path_parameters}
    body: Any = short.EXAMPLES.get(path, {}) | RIGHT.get(path, {}) if operation.body else None
    if path.endswith("/batch"):
        one = path.removesuffix("/batch")
        body = {"messages": [short.EXAMPLES[one] | RIGHT[one]] * 3, "mode": "permissive"}
    query = {one.name: "" for one in operation.query}
    key = "SANDBOX" if path.startswith("/v1/inbox") else "ACME"  # others have none
    right = [Good(method, path, names, each, body, key) for each in ({}, query)]
    return right * max(1, len(drawn) // 2) + drawn


@pytest.mark.parametrize("operation", short.OPERATIONS, ids=short.label)
def test_mutated_requests_never_get_500(shared_service: Service, operation: Any) -> None:
    endpoint, choices = short.label(operation), good(operation)
    made = (Draft(choices[n % len(choices)], Random(f"{endpoint} {n}"), existing) for n in range(CHANGED))
    for asked, status, answer in answers(shared_service.ports[-1], map(bytes, made)):
        statuses[status] += 1
        fault = judge(status, answer, DOCUMENTED.get(operation.path, "no_carrier_available"))
        assert fault is None, f"{fault}: {status} {answer!r} to {asked!r}"
        if status in (201, 202):
            for id_ in IDS.findall(answer.decode()):
                existing[kind(id_)].append(id_)


@contextmanager
def no_names() -> Iterator[str]:
    """A name server that knows none, and says so at once."""
    with socketserver.UDPServer(("127.0.0.1", 0), NoNames) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class NoNames(socketserver.DatagramRequestHandler):
    def handle(self) -> None:
        asked = self.rfile.read()
        self.wfile.write(asked[:2] + b"\x81\x83" + asked[4:])  # NXDOMAIN


def judge(status: int, answer: bytes, documented: str) -> str | None:
    if status < 400:
        return None
    try:
        said = json.loads(answer)
        error = said.get("error", said)
    except ValueError:
        return "no JSON"
    if set(error) not in (ERROR, PROBLEM):
        return "not the shape of an error"
    return "a server error" if status >= 500 and (status, error["code"]) != (503, documented) else None


def answers(port: int, asked: Iterable[bytes]) -> Iterator[tuple[bytes, int, bytes]]:
    """Each request with its answer's status and body; AT_ONCE are under way, each on a connection of its own."""
    lines, waiting = [Line(port) for _ in range(AT_ONCE)], iter(asked)
    while group := list(islice(waiting, AT_ONCE)):
        for line, one in zip(lines, group, strict=False):
            line.send(one)
        for line, one in zip(lines, group, strict=False):
            yield one, *line.read()
    for line in lines:
        line.close()


class Line:
    """A connection that is opened again when the service closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open()

    def _open(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self._port), PATIENCE_S)
        self._answers = self._socket.makefile("rb")

    def close(self) -> None:
        self._answers.close()
        self._socket.close()

    def send(self, asked: bytes) -> None:
        with suppress(OSError):  # it may have been refused before its end
            self._socket.sendall(asked)

    def read(self) -> tuple[int, bytes]:
        status = int(self._answers.readline().split()[1])
        length, ends = 0, False
        while line := self._answers.readline().strip().lower():
            name, _, value = line.partition(b": ")
            if name == b"content-length":
                length = int(value)
            ends |= line == b"connection: close"
        answer = self._answers.read(length)
        if ends:
            self.close()
            self._open()
        return status, answer
