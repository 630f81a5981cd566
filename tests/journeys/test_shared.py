"""Several processes on one database show the same dashboard data.

Refusals, imports and counts of one process are shown by the others; kill -9 during an import loses no line and imports
none twice.
"""

import asyncio
import csv
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import apsw
import asyncpg
import pytest

from heliograph.dashboard.page_request import SESSION_COOKIE
from tests.conftest import DATABASES, fresh_database
from tests.journeys.load import ask_database
from tests.lock_waits import LOCK_WAITS
from tests.people import let_in
from tests.service import PATIENCE_S, Service, until

TEAM = "/dashboard/teams/team_acme"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
LINES = 10_000


@pytest.fixture(scope="module", params=DATABASES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Start two API processes without a worker."""
    folder: Path = tmp_path_factory.mktemp("pair")
    sqlite = request.param == "sqlite"
    database = f"sqlite:///{folder / 'x.db'}" if sqlite else fresh_database(request.getfixturevalue("postgres"))
    with Service(database, folder / "data") as service:
        service.apply()
        for _ in range(2):
            service.start("api")
        yield service


class Visitor:
    """A signed-in user whose requests a load balancer sends to any process."""

    def __init__(self, service: Service, email: str) -> None:
        self._service = service
        added = service.run("user", "add", email, "--team", "team_acme", "--role", "developer")
        assert added.returncode == 0, added.stderr
        self._cookie = {"Cookie": f"{SESSION_COOKIE}={let_in(service.database, email)}"}

    def get(self, path: str, port: int | None = None) -> str:
        answer = self._service.get(TEAM + path, key=None, headers=self._cookie, port=port)
        assert answer.status == 200, answer.raw
        return answer.raw.decode()

    def upload(self, file: str, port: int | None = None) -> str:
        """Upload a file and return the import's id."""
        csrf = re.search(r'name="csrf" value="(\w+)"', self.get("/suppressions", port))
        assert csrf
        parts = [f'name="csrf"\r\n\r\n{csrf[1]}', f'name="file"; filename="list.csv"\r\n\r\n{file}']
        body = "".join(f"--part\r\nContent-Disposition: form-data; {part}\r\n" for part in parts) + "--part--\r\n"
        headers = {**self._cookie, "Content-Type": "multipart/form-data; boundary=part"}
        answer = self._service.post(f"{TEAM}/suppressions/import", body.encode(), key=None, headers=headers, port=port)
        assert answer.status == 303, answer.raw
        return answer.headers["location"].rpartition("/")[2]

    def report(self, id_: str, port: int | None = None) -> list[list[str]]:
        return list(csv.reader(self.get(f"/suppressions/imports/{id_}/report", port).splitlines()))[1:]


def people(name: str) -> str:
    return "\n".join(f"{name}{number}@example.net" for number in range(LINES))


def check_done_once(service: Service, told: list[list[str]], name: str) -> None:
    """Check the report: a line imported twice would be reported or published twice, or be listed already."""
    assert [int(number) for number, *_ in told] == list(range(1, LINES + 1))
    assert Counter(outcome for *_, outcome in told) == {"added": LINES}
    events = f"FROM event WHERE type = 'suppression.created' AND subject LIKE '{name}%'"
    assert ask_database(service.database, f"SELECT count(*), count(DISTINCT subject) {events}") == [(LINES, LINES)]


# -- two processes -----------------------------------------------------------------------------------------------


def test_request_refused_by_one_process_is_in_the_log_of_the_other(pair: Service) -> None:
    visitor = Visitor(pair, "log@example.com")
    for here, there in (pair.ports, pair.ports[::-1]):
        id_ = pair.post("/v1/emails", {"to": "nobody"}, port=here).headers["x-request-id"]
        assert id_ in visitor.get(f"/requests/{id_}", here)  # at once: the page has it written
        assert id_ in visitor.get("/requests", there)
        late = pair.post("/v1/emails", {"to": "nobody"}, port=here).headers["x-request-id"]
        until(lambda late=late, there=there: late in visitor.get("/requests", there))
        assert "What to do" in visitor.get(f"/requests/{late}", there)


def test_import_begun_in_one_process_is_visible_in_the_other(pair: Service) -> None:
    visitor = Visitor(pair, "imports@example.com")
    here, there = pair.ports
    id_ = visitor.upload(people("both"), here)
    assert id_ in visitor.get("/suppressions", there)
    until(lambda: "Import finished" in visitor.get(f"/suppressions/imports/{id_}", there))
    check_done_once(pair, visitor.report(id_, there), "both")


def test_wrong_passwords_are_counted_over_both_processes(pair: Service) -> None:
    Visitor(pair, "guessed@example.com")

    def guess(place: tuple[int, str]) -> int:
        number, email = place
        form = urlencode({"email": email, "password": "wrong"}).encode()
        port = pair.ports[number % 2]
        return pair.post("/dashboard/sign-in", form, key=None, headers=FORM, port=port).status

    for email in ("guessed@example.com", "nobody@example.com"):
        with ThreadPoolExecutor(8) as pool:
            assert Counter(pool.map(guess, enumerate([email] * 14))) == {403: 10, 429: 4}


# -- restarts ----------------------------------------------------------------------------------------------------


def test_refused_request_is_shown_after_a_restart(service: Service) -> None:
    visitor = Visitor(service, "stays@example.com")
    id_ = service.post("/v1/emails", {"to": "nobody"}).headers["x-request-id"]
    assert service.stop() == 0  # before the periodic write
    service.start()
    assert "What to do" in visitor.get(f"/requests/{id_}")


def held_sqlite(database: str, id_: str) -> apsw.Connection | None:
    """Return a connection that blocks writes while the import is in progress; None if it has finished."""
    file = apsw.Connection(database.removeprefix("sqlite:///"))
    file.set_busy_timeout(int(PATIENCE_S * 1000))
    query = "SELECT portions_done, portions FROM suppression_import WHERE id = ?"

    def begun() -> Any:
        file.execute("BEGIN IMMEDIATE")
        ((done, portions),) = file.execute(query, (id_,)).fetchall()
        if done:
            return done, portions
        return file.execute("ROLLBACK").fetchall()

    done, portions = until(begun)
    if done < portions:
        return file
    file.close()
    return None


@contextmanager
def held_postgres(database: str) -> Iterator[None]:
    """Add an address of the file in an open transaction, so that a batch of the import waits while half written."""
    with asyncio.Runner() as runner:
        server: Any = runner.run(asyncpg.connect(database))
        runner.run(server.execute("BEGIN"))
        row = "team, 'person5250@example.net', '', 'manual', 0 FROM suppression WHERE address = 'first@example.net'"
        runner.run(server.execute(f"INSERT INTO suppression (team, address, email, reason, created_at) SELECT {row}"))
        yield
        runner.run(server.execute("ROLLBACK"))
        runner.run(server.close())


def test_import_killed_with_sigkill_is_resumed(service: Service) -> None:
    visitor = Visitor(service, "killed@example.com")
    service.post("/v1/suppressions", {"email": "first@example.net"})
    numbers = itertools.count()
    if service.database.startswith("sqlite"):
        held = None
        while held is None:
            id_ = visitor.upload(people(name := f"person{next(numbers)}-"))
            held = held_sqlite(service.database, id_)
        service.kill()
        held.close()
    else:
        waiting = f"SELECT 1 FROM {LOCK_WAITS}"
        with held_postgres(service.database):
            id_ = visitor.upload(people(name := "person"))
            until(lambda: ask_database(service.database, waiting))
            service.kill()
    ((done,),) = ask_database(service.database, f"SELECT lines_done FROM suppression_import WHERE id = '{id_}'")
    assert 0 < done < LINES
    assert ask_database(service.database, f"SELECT count(*) FROM suppression WHERE address LIKE '{name}%'") == [(done,)]
    service.start()
    until(lambda: "Import finished" in visitor.get(f"/suppressions/imports/{id_}"))
    check_done_once(service, visitor.report(id_), name)
