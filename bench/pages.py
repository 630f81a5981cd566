"""Every page of the dashboard with a million messages in the database: how long the server takes for each.

SQLite in a temporary folder, filled with rows as the worker would have left them; each page is asked for ten times.
"""

import argparse
import http.client
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
from accept import CLI, HERE, look_at_machine
from report import made_by, write_part

from heliograph.rules.ids import ulid

TEAM_REF, TEAM = 1, "team_demo"
STATES = ("delivered", "delivered", "delivered", "bounced", "failed", "complained")
PAGES = (
    *("", "/messages", "/messages?status=failed", "/messages?q=user77%40example.com", "/verifications", "/inbox"),
    *("/templates", "/senders", "/suppressions", "/keys", "/webhooks", "/events", "/start", "/money", "/settings"),
    *("/team", "/audit"),
)
OPERATOR = ("", "/approvals", "/carriers", "/queues", "/people", "/audit")
TRIES = 10
MOST_MS = 100.0  # expected (issue 6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    count = parser.parse_args().messages
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "heliograph.db"
        where = ["--data", folder, "--database", f"sqlite:///{database}", "--listen", "127.0.0.1:0"]
        start(where, lambda link: None)  # makes the database
        began = time.monotonic()
        fill(database, count)
        print(f"{count} messages written in {time.monotonic() - began:.0f} s", flush=True)
        cells: list[tuple[str, float, float]] = []
        start(where, lambda link: cells.extend(measure(link)))
        machine = look_at_machine(Path(folder))
    lines = [f"| {path} | {median:.0f} | {worst:.0f} |" for path, median, worst in cells]
    slow = [path for path, median, _ in cells if median > MOST_MS]
    verdict = f"All below {MOST_MS:.0f} ms." if not slow else f"Above {MOST_MS:.0f} ms: {', '.join(slow)}."
    table = "\n".join(["| page | median ms | slowest ms |", "|---|--:|--:|", *lines])
    print(table)
    made = made_by(f"python bench/pages.py --messages {count}", machine)
    text = (
        f"{count:,} messages, as many recipients, events and searchable addresses; each page {TRIES} times, over HTTP."
    )
    write_part(
        HERE.parent / "docs" / "benchmarks.md", "pages", ["## Pages of the dashboard", text, made, verdict, table]
    )


def start(where: list[str], act: Callable[[str], object]) -> None:
    """Run a demo until `act` is done with its sign-in link."""
    service = subprocess.Popen([*CLI, "demo", *where], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert service.stdout
        for line in service.stdout:
            if found := re.match(r"Dashboard +(\S+)", line):
                act(found[1])
                return
    finally:
        service.terminate()
        service.wait()
    raise SystemExit("the demo did not start")


def fill(database: Path, count: int) -> None:
    db = apsw.Connection(str(database))
    now = time.time_ns() // 1_000_000
    with db:
        db.executemany(
            "INSERT INTO message (key, id, team, channel, status, sandbox, key_id, template_id, country, price, charge,"
            " sequence, created_at, ended_at, has_body, record)"
            " VALUES (?, ?, ?, 'email', ?, 0, 'demo', NULL, NULL, 0, 'none', 2, ?, ?, 0, ?)",
            messages(count, now),
        )
        db.execute(
            "INSERT INTO recipient (message, position, address, given, kind, status, updated_at, late, carrier)"
            " SELECT key, 0, 'user' || key % 50000 || '@example.com', 'user' || key % 50000 || '@example.com', 'to',"
            " status, created_at, 0, 'simulator-email' FROM message"
        )
        db.execute(
            "INSERT OR IGNORE INTO seen_recipient (span, team, address, message)"
            " SELECT message >> 12, ?, address, message FROM recipient",
            (TEAM_REF,),
        )
        db.execute(
            "INSERT INTO event (id, team, subject, message, recipient, sequence, type, status, previous_status,"
            " message_status, created_at) SELECT 'evt_' || substr(m.id, 5), m.team, m.id, m.key, r.given, 1,"
            " 'email.' || m.status, m.status, 'sending', m.status, m.created_at"
            " FROM message m JOIN recipient r ON r.message = m.key"
        )
        db.execute(
            "INSERT OR REPLACE INTO figure (team, hour, channel, sent, delivered, bounced, complained, failed, read)"
            " SELECT team, created_at / 3600000 * 3600000, channel, count(*), count(*) / 2, 9, 1, 5, 0"
            " FROM message GROUP BY 1, 2, 3"
        )
    db.close()


def messages(count: int, now: int) -> Iterator[tuple[object, ...]]:
    """Over the last 90 days, oldest first."""
    step = 90 * 86_400_000 / count
    for number in range(count):
        at = int(now - (count - number) * step)
        id_ = "eml_" + ulid(at, number)
        record = f'{{"id":"{id_}","to":"user{number % 50000}@example.com","subject":"Receipt {number}"}}'
        yield 1000 + number, id_, TEAM_REF, STATES[number % len(STATES)], at, at, record


def measure(link: str) -> list[tuple[str, float, float]]:
    host, _, token = link.removeprefix("http://").partition("/dashboard/link/")
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("POST", f"/dashboard/link/{token}", "", {"Content-Type": "application/x-www-form-urlencoded"})
    answer = connection.getresponse()
    answer.read()
    cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
    cells = []
    paths = [f"/dashboard/teams/{TEAM}{page}" for page in PAGES] + [f"/dashboard/operator{page}" for page in OPERATOR]
    for path in paths:
        times = []
        for _ in range(TRIES):
            began = time.perf_counter()
            connection.request("GET", path, headers={"Cookie": cookie})
            answer = connection.getresponse()
            answer.read()
            times.append((time.perf_counter() - began) * 1000)
            assert answer.status == 200, (path, answer.status)
        cells.append((path.removeprefix("/dashboard"), statistics.median(times), max(times)))
        print(f"{cells[-1][0]:<60} {cells[-1][1]:7.1f} ms", flush=True)
    return cells


if __name__ == "__main__":
    main()
