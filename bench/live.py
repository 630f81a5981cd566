"""Cost of ten open live dashboards for the accept path, in one run: `make bench-live`.

The server has core 1; the load, the dashboards and PostgreSQL have core 0.
"""

import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from secrets import token_hex
from statistics import median
from urllib.parse import urlencode

from accept import AT, KINDS, Bench, at
from ours import Databases, Ours, revisions
from rounds import (
    Rounds,
    arguments,
    folder_on_disk,
    look_at_machine,
    made_by,
    share_cores,
    spread,
    table,
    turns,
    verdict,
    write_part,
)

PAGES = ("", "/messages") * 5
TEAM = "/dashboard/teams/team_bench"
EXPECTED = 0.95  # expected rate, relative to accepting without a dashboard (issue 6)
PASSWORD = "correct horse battery"
LIVE = ", live"
ABOUT = """# Open dashboards

`make bench-live` measures how much ten open dashboards slow down the accept path of the process that serves them.

- **Accepting**: as in accept.md at 128 connections, `heliograph serve --role api`, which also serves the pages.
- **Dashboards**: five open on Overview, five on Messages, of the team that sends. Each keeps a stream of server-sent
  events open and fetches its page after each change event, as `page.js` does; nothing is rendered.
- **Rounds**: without and with dashboards in turns on the same process; ratios are computed within a round. "pages/s" is
  the number of pages fetched during the measurement: 0 would mean that no page was updated."""


class Dashboard(threading.Thread):
    """One open page: listens for changes, and reloads itself when notified."""

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
        except Exception as error:  # a closed stream also raises an error
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


def sign_in(server: Ours) -> str:
    """Add an operator by the command line, follow the link, and return the session cookie."""
    options = ["--operator", "--listen", f"127.0.0.1:{server.port}", *server.where]
    link = server.revision.ask("user", "add", f"{token_hex(4)}@example.com", *options).strip()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    path = "/dashboard/link/" + link.partition("/dashboard/link/")[2]
    connection.request("POST", path, urlencode({"password": PASSWORD}), form)
    answer = connection.getresponse()
    answer.read()
    cookies = [value.partition(";")[0] for name, value in answer.getheaders() if name.lower() == "set-cookie"]
    if answer.status != 303:
        raise SystemExit(f"signing in was answered {answer.status}")
    return "; ".join(cookies)


def measure_live(bench: Bench, server: Ours, cookie: str, round_: int) -> None:
    with opened(server.port, cookie) as dashboards:
        began = time.monotonic()
        bench.measure(server, AT, round_, name=server.name + LIVE)
        took = time.monotonic() - began
    if failed := [one.failure for one in dashboards if one.failure]:
        raise SystemExit(f"{server.name}: {failed[0]}")
    count = sum(at >= began for one in dashboards for at in one.fetched)
    bench.rounds.note(server.name, round_, pages=count / took)


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


def cost_table(rounds: Rounds, servers: list[str]) -> str:
    """Return the table of costs; ratios are computed within each round."""
    head = [f"at {AT} connections", "accepts/s", f"with {len(PAGES)} dashboards", "of it", "expected", "", "CPU µs"]
    rows = [[*head, "with them", "of it", "p99 ms", "with them", "pages/s"]]
    for server in servers:
        alone, live = at(server, AT), at(server + LIVE, AT)
        ratio, pages = rounds.ratios(live, alone, "rate"), rounds.values(server, "pages")
        rates = [spread(rounds.values(one, "rate")) for one in (alone, live)]
        costs = [spread(rounds.values(one, "cpu")) for one in (alone, live)]
        p99 = [f"{median(rounds.values(one, 'p99')):.1f}" for one in (alone, live)]
        met = verdict(median(ratio) >= EXPECTED and median(pages) > 0)
        rows.append([server, *rates, spread(ratio, ".3f"), f"≥ {EXPECTED}", met, *costs])
        rows[-1] += [spread(rounds.ratios(live, alone, "cpu"), ".3f"), *p99, f"{median(pages):.1f}"]
    return table(*rows)


def main() -> None:
    args = arguments(__doc__, seconds=5.0, rounds=5)
    seconds, rounds = (1.0, 1) if args.quick else (args.seconds, args.rounds)
    share_cores()
    with folder_on_disk() as folder, ExitStack() as stack:
        machine = look_at_machine(folder)
        databases = Databases(folder)
        stack.callback(databases.stop)
        bench = Bench(folder, databases, seconds)
        subjects: list[tuple[Ours, str]] = []
        for revision in revisions(args.compare):
            for kind in KINDS:
                server = bench.ours(revision, kind)
                stack.callback(server.stop)
                subjects.append((server, sign_in(server)))
        for round_ in range(1, rounds + 1):
            for server, cookie in turns(subjects, round_):
                for with_them in turns((False, True), round_):
                    if with_them:
                        measure_live(bench, server, cookie, round_)
                    else:
                        bench.measure(server, AT, round_)
    print(costs := cost_table(bench.rounds, [server.name for server, _ in subjects]))
    if not args.quick:
        write_part("live", [ABOUT, made_by(args, machine), costs])


if __name__ == "__main__":
    main()
