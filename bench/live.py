"""What ten dashboards that are open live cost the accept path, in one run: `make bench-live`.

The server has core 1; the load, the dashboards and PostgreSQL have core 0.
"""

import http.client
import re
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlencode

from accept import CLI, HERE, Bench, Subject, read_arguments, two_cores
from report import made_by, write_part

AT = 128  # connections
PAGES = ("", "/messages") * 5
TEAM = "/dashboard/teams/team_bench"
EXPECTED = 0.95  # of the accepts without a dashboard (issue 6)
PASSWORD = "correct horse battery"
NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
LIVE = ", live"
ABOUT = """## Dashboards that are open live

`make bench-live` measures what ten open dashboards take from the accept path of the process that serves them.

- **Accepting**: as above at 128 connections, `heliograph serve --role api`, which answers the pages too.
- **Dashboards**: five open on Overview, five on Messages, of the team that sends. Each holds its stream of server-sent
  events and fetches its page whenever it is told of a change, as `page.js` does; nothing is drawn.
- **Rounds**: without and with them in turns on the same process; ratios are made inside a round. "pages/s" is how many
  pages were fetched while it was measured: with none, nothing would have been live."""


class Dashboard(threading.Thread):
    """One open page: listens, and fetches itself anew when told."""

    def __init__(self, port: int, cookie: str, path: str) -> None:
        super().__init__(daemon=True)
        self._port, self._headers, self._path = port, {"Cookie": cookie}, path
        self._stream: socket.socket | None = None
        self._closed = threading.Event()
        self.is_open = threading.Event()
        self.fetched: list[float] = []
        self.failure = ""

    def run(self) -> None:
        try:
            self._listen()
        except Exception as error:  # a closed stream ends so too
            if not self._closed.is_set():
                self.failure = f"{self._path}: {error!r}"

    def _listen(self) -> None:
        pages = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        found = re.search(r'data-live="([^"]+)"', self._fetch(pages))
        if found is None:
            raise RuntimeError("the page is not live")
        events = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        events.request("GET", found[1].replace("&amp;", "&"), headers=self._headers)
        self._stream = events.sock
        answer = events.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"the stream was answered {answer.status}")
        self.is_open.set()
        for line in answer:
            if line == b"event: changed\n":
                self._fetch(pages)
                self.fetched.append(time.monotonic())
        raise RuntimeError("the stream ended")

    def _fetch(self, pages: http.client.HTTPConnection) -> str:
        pages.request("GET", self._path, headers=self._headers)
        answer = pages.getresponse()
        text = answer.read().decode()
        if answer.status != 200:
            raise RuntimeError(f"the page was answered {answer.status}")
        return text

    def close(self) -> None:
        self._closed.set()
        if self._stream:
            self._stream.shutdown(socket.SHUT_RDWR)
        self.join(10)


class LiveBench(Bench):
    def __init__(self, folder: Path, seconds: float) -> None:
        super().__init__(folder, seconds)
        self.fetches: list[tuple[str, float]] = []  # server, pages a second

    def sign_in(self, subject: Subject, database: str) -> str:
        """Add an operator by the command line and follow the link; answers the cookie."""
        where = ["--database", database, "--data", str(self.folder / subject.name)]
        options = ["--operator", "--listen", f"127.0.0.1:{subject.port}", *where]
        added = [*CLI, "user", "add", "bench@example.com", *options]
        link = subprocess.run(added, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        connection = http.client.HTTPConnection("127.0.0.1", subject.port, timeout=60)
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        path = "/dashboard/link/" + link.partition("/dashboard/link/")[2]
        connection.request("POST", path, urlencode({"password": PASSWORD}), form)
        answer = connection.getresponse()
        answer.read()
        cookies = [value.partition(";")[0] for name, value in answer.getheaders() if name.lower() == "set-cookie"]
        if answer.status != 303:
            raise SystemExit(f"signing in was answered {answer.status}")
        return "; ".join(cookies)

    def round(self, subject: Subject, cookie: str, number: int) -> None:
        name = subject.name
        for with_them in (False, True) if number % 2 else (True, False):
            subject.name = name + LIVE * with_them
            if not with_them:
                self.measure(subject, AT, number)
                continue
            with opened(subject.port, cookie) as dashboards:
                began = time.monotonic()
                self.measure(subject, AT, number)
                took = time.monotonic() - began
            count = sum(at >= began for one in dashboards for at in one.fetched)
            if failed := [one.failure for one in dashboards if one.failure]:
                raise SystemExit(f"{name}: {failed[0]}")
            self.fetches.append((name, count / took))
        subject.name = name


@contextmanager
def opened(port: int, cookie: str) -> Iterator[list[Dashboard]]:
    dashboards = [Dashboard(port, cookie, TEAM + page) for page in PAGES]
    try:
        for one in dashboards:
            one.start()
        for one in dashboards:
            if not one.is_open.wait(20):
                raise SystemExit(one.failure or "a dashboard did not open")
        yield dashboards
    finally:
        for one in dashboards:
            one.close()


def cost_table(bench: LiveBench) -> str:
    """Ratios are made inside a round."""
    lines = [
        f"| at {AT} connections | accepts/s | with {len(PAGES)} dashboards | of it | expected | "
        "| p99 ms | with them | pages/s |",
        "|---|--:|--:|--:|--:|---|--:|--:|--:|",
    ]
    for server, name in NAMES.items():
        alone, live = (
            sorted((cell for cell in bench.cells if cell.server == one), key=lambda cell: cell.round)
            for one in (server, server + LIVE)
        )
        ratio = statistics.median(b.rate / a.rate for a, b in zip(alone, live, strict=True))
        rates = [f"{statistics.median(cell.rate for cell in cells):,.0f}" for cells in (alone, live)]
        p99 = [f"{statistics.median(cell.p99_ms for cell in cells):.1f}" for cells in (alone, live)]
        pages = statistics.median(rate for one, rate in bench.fetches if one == server)
        verdict = "met" if ratio >= EXPECTED and pages else "**missed**"
        figures = [*rates, f"{ratio:.3f}", f"≥ {EXPECTED}", verdict, *p99, f"{pages:.1f}"]
        lines.append(f"| {name} | {' | '.join(figures)} |")
    return "\n".join(lines)


def main() -> None:
    seconds, rounds, quick = read_arguments(__doc__, 10, 5)
    with two_cores() as (folder, postgres, machine), ExitStack() as stack:
        bench = LiveBench(folder, seconds)
        subjects = []
        for name, database in (("sqlite", f"sqlite:///{folder}/ours.db"), ("postgres", postgres)):
            subject = bench.ours(name, database, "api")
            stack.callback(subject.stop)
            subjects.append((subject, bench.sign_in(subject, database)))
        for number in range(1, rounds + 1):
            for subject, cookie in subjects:
                bench.round(subject, cookie, number)
    print(f"\n{cost_table(bench)}")
    if not quick:
        command = f"python bench/live.py --seconds {seconds:g} --rounds {rounds}"
        part = [ABOUT, made_by(command, machine), cost_table(bench)]
        write_part(HERE.parent / "docs" / "benchmarks.md", "live", part)


if __name__ == "__main__":
    main()
