"""How the product scales with the number of stored messages, from ten thousand to ten million: `make bench-growth`.

Each database is filled by bench/fill.py with all rows that the worker stores, measured, and removed.
"""

import asyncio
import http.client
import random
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import arrivals
from accept import AT, KINDS, Bench, at
from fill import fill
from live import sign_in
from load import make_requests
from ours import NOW, TOKEN, Databases, Ours, Revision, revisions
from rounds import (
    SERVER_CORE,
    arguments,
    folder_on_disk,
    look_at_machine,
    made_by,
    share_cores,
    table,
    turns,
    verdict,
    write_part,
)

from heliograph.bootstrap import open_store
from heliograph.domain.limits import DAY_MS
from heliograph.domain.setup.records import KEEP_MESSAGES_DAYS, TeamRecord
from heliograph.runtime.clock import Clock
from heliograph.settings import Settings
from heliograph.storage import retention
from heliograph.storage.engine.database import T, TxFunction

READS, LISTS = 200, 20  # repetitions of each read and list
ALL_S, ALL_RATE = 15.0, 50
LIST_MS, FLAT = 100.0, 1.2  # expected
RETAINED, RETENTIONS = 1_000, 5  # messages that expire at once, and repetitions
RETENTION_MS = 50.0  # expected maximum time for which retention occupies SQLite's writer
COMPARED_MAX = 1_000_000  # maximum messages with which an older revision is measured too
DRAIN_S = 300.0
WAITING = "SELECT count(*) FROM outbox"
MONTH_AGO, YESTERDAY = (f"{datetime.now(UTC) - timedelta(days):%Y-%m-%dT%H:%M:%SZ}" for days in (30, 1))
LIST, SEARCH = "/v1/emails?", "/dashboard/teams/team_bench/messages?q="
READING = {
    "list": LIST,
    "list, `status=failed`": f"{LIST}status=failed",
    "list, `status=queued` (none)": f"{LIST}status=queued",
    "list, `template_id` of every tenth": f"{LIST}template_id=tpl_3",
    "list, `template_id` of one in 10,000": f"{LIST}template_id=tpl_9",
    "list, `created_before` a month ago": f"{LIST}created_before={MONTH_AGO}",
    "list, `created_after` yesterday": f"{LIST}created_after={YESTERDAY}",
    "list, `to` somebody": f"{LIST}to=user77@example.com",
    "list, `to` nobody": f"{LIST}to=nobody@example.com",
    "list, `status` and `template_id`": f"{LIST}status=failed&template_id=tpl_3",
    "search, an address": f"{SEARCH}user77%40example.com",
    "search, nothing like it": f"{SEARCH}nothing+like+this",
}
ABOUT = """# Growth: ten thousand to ten million messages

`make bench-growth` measures the same work with ten thousand, a million and ten million messages stored, of one team
over 80 days, with recipients, two events each, searchable addresses, and contents of the last days (`bench/fill.py`).

- **Start**: from the command to the first connection taken, `--role api`.
- **Accepting**: `--role api`, 128 connections.
- **Delivering**: `--role worker` starts with what was accepted just before, over the simulator; retention and all other
  duties run at its start.
- **Reading**: by HTTP, one after the other: an id, and 20 messages with each filter; search is the dashboard's page.
  The median, and behind it the slowest.
- **All work**: `--role all` with 50 emails a second in its first 15 s, in which every duty has its turn: what it takes
  of a core, and the slowest 202.
- **Retention**: five times the 1,000 oldest messages become too old; the CPU time for each, PostgreSQL's too, and the
  longest transaction: the median, and behind it the longest of all."""


class Growth(Bench):
    """Measures the service on one database of each kind, for each revision, with the same number of messages."""

    def __init__(self, folder: Path, databases: Databases, count: int) -> None:
        super().__init__(folder, databases, seconds=3)
        self.count = count

    def prepare(self, revision: Revision, kind: str) -> str:
        """Return the URL of a database with the number of messages."""
        database = self.databases.new(kind, f"growth-{kind}-{revision.name}-{self.count}")
        self.start(revision, kind, database, "api").stop()  # migrates the database and creates the team
        began = time.monotonic()
        (there,) = self.databases.ask(database, "SELECT coalesce(max(key), 0) FROM message")
        if there < self.count:
            fill(database, self.count - there)
        print(f"filled in {time.monotonic() - began:.0f} s", flush=True)
        self.note(revision, kind, size=self.databases.size(database) / self.count)
        return database

    def start(self, revision: Revision, kind: str, database: str, role: str) -> Ours:
        where = self.folder / f"data-{kind}-{revision.name}-{self.count}"
        return Ours(revision, revision.called(KINDS[kind]), where, database, "--role", role, core=SERVER_CORE)

    def note(self, revision: Revision, kind: str, **figures: float) -> None:
        self.rounds.note(revision.called(KINDS[kind]), self.count, **figures)

    def value(self, revision: Revision, kind: str, figure: str) -> float:
        """Return a figure; 0 if it was not measured."""
        name = revision.called(KINDS[kind])
        found = self.rounds.values(name, figure) or self.rounds.values(at(name, AT), figure)
        return found[-1] if found else 0.0

    def accept_and_read(self, revision: Revision, kind: str, database: str) -> None:
        server = self.start(revision, kind, database, "api")
        try:
            self.note(revision, kind, start=server.started_s)
            self.read(revision, kind, server)
            self.measure(server, AT, self.count)
        finally:
            server.stop()

    def read(self, revision: Revision, kind: str, server: Ours) -> None:
        wire = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        keys = random.sample(range(1, self.count), READS)
        near = "SELECT id FROM message WHERE key >= {} ORDER BY key LIMIT 1"  # the oldest messages may be deleted
        ids = self.databases.ask(server.database, *map(near.format, keys))
        headers = {"Authorization": f"Bearer {TOKEN}", "Cookie": sign_in(server)}

        def ask(path: str) -> float:
            began = time.perf_counter()
            wire.request("GET", path, headers=headers)
            answer = wire.getresponse()
            answer.read()
            if answer.status != 200:
                raise SystemExit(f"{path} was answered {answer.status}")
            return (time.perf_counter() - began) * 1000

        reading = {"read one": [f"/v1/emails/{id_}" for id_ in ids]}
        reading |= {name: [path] * LISTS for name, path in READING.items()}
        for name, paths in reading.items():
            ask(paths[0])
            times = [ask(path) for path in paths]
            self.note(revision, kind, **{name: median(times), f"{name}, slowest": max(times)})

    def deliver(self, revision: Revision, kind: str, database: str) -> None:
        """Measure delivery of the waiting messages by a worker that has just started."""
        (waiting,) = self.databases.ask(database, WAITING)
        worker = self.start(revision, kind, database, "worker")
        try:
            began, deadline, used = time.monotonic(), time.monotonic() + DRAIN_S, worker.cpu_s()
            while (left := self.databases.ask(database, WAITING)[0]) and time.monotonic() < deadline:
                time.sleep(0.1)
            took, used = time.monotonic() - began, worker.cpu_s() - used
        finally:
            worker.stop()
        done = max(1, waiting - left)
        self.note(revision, kind, deliver=done / took, deliver_cpu=used / done * 1e6)

    def all_work(self, revision: Revision, kind: str, database: str) -> None:
        with ExitStack() as stack:
            server = self.start(revision, kind, database, "all")
            stack.callback(server.stop)
            used, path = server.cpu_s(), self.folder / f"{kind}-{revision.name}.arrivals"
            load = arrivals.start(server.port, make_requests(TOKEN)[0].decode(), ALL_RATE, ALL_S, path)
            stack.callback(load.kill)
            if load.wait(ALL_S + DRAIN_S):
                raise SystemExit("the load failed")
            used = server.cpu_s() - used
        slowest = max((one.answered - one.due) * 1000 for one in arrivals.read(path))
        self.note(revision, kind, all_cpu=used / ALL_S, all_slowest=slowest)

    def retain(self, revision: Revision, kind: str, database: str) -> None:
        """Run the retention job in this process, for one batch of days after the other."""
        if revision is not NOW:
            return
        settings, oldest = Settings(database=database, data=self.folder / "retention"), "SELECT min(key) FROM message"
        cpu, longest = [], []
        for _ in range(RETENTIONS):
            first, due = self.databases.ask(
                database, oldest, f"SELECT created_at FROM message WHERE key = ({oldest}) + {RETAINED}"
            )
            used = time.process_time() + self.databases.cpu_s()
            times = asyncio.run(_purge(settings, due + KEEP_MESSAGES_DAYS * DAY_MS))
            used = time.process_time() + self.databases.cpu_s() - used
            (left,) = self.databases.ask(database, oldest)
            cpu.append(used / (left - first) * 1e6)
            longest.append(max(times) * 1000)
        self.note(revision, kind, retain_cpu=median(cpu), retain_ms=median(longest), retain_slowest=max(longest))


async def _purge(settings: Settings, now: int) -> list[float]:
    """Return the duration of each transaction of the job, in seconds."""
    times = []
    async with open_store(settings, Clock(), "bench/0") as store:
        write = store.database.write

        async def timed(story: TxFunction[T]) -> T:
            began = time.perf_counter()
            try:
                return await write(story)
            finally:
                times.append(time.perf_counter() - began)

        store.database.write = timed  # type: ignore[method-assign]
        # Contents of the last days are kept: only messages have expired.
        await retention.purge(store.database, now, [TeamRecord(ref=1, id="", name="", keep_content_days=60)])
    return times


def run(folder: Path, databases: Databases, sizes: list[int], compared: list[Revision], keep: bool) -> list[Growth]:
    done = []
    for count in sizes:
        bench = Growth(folder, databases, count)
        done.append(bench)
        for kind in KINDS:
            own = compared if count <= COMPARED_MAX else [NOW]
            filled = {revision: bench.prepare(revision, kind) for revision in own}
            for number, step in enumerate((bench.accept_and_read, bench.deliver, bench.all_work, bench.retain)):
                for revision in turns(own, number):
                    step(revision, kind, filled[revision])
            for database in [] if keep else filled.values():
                databases.drop(database)
    return done


def report(done: list[Growth], compared: list[Revision], kind: str) -> str:
    """Return a table with one row per work and one column per number of messages, followed by the older revision."""
    columns = [(growth, revision) for revision in compared for growth in done]
    columns = [(growth, revision) for growth, revision in columns if growth.value(revision, kind, "size")]
    own = [growth for growth, revision in columns if revision is NOW]
    head = [
        f"{growth.count:,}" if revision is NOW else f"{revision.name}: {growth.count:,}" for growth, revision in columns
    ]
    rows = [[KINDS[kind], *head, f"{own[-1].count:,} of {own[0].count:,}", "expected", ""]]

    def add(name: str, figure: str, form: str, most: float = 0, flat: float = 0, behind: str = "") -> None:
        values = [growth.value(revision, kind, figure) for growth, revision in columns]
        cells = [f"{value:{form}}" for value in values]
        if behind:
            slowest = [growth.value(revision, kind, behind) for growth, revision in columns]
            cells = [f"{cell} ({more:{form}})" for cell, more in zip(cells, slowest, strict=True)]
        last, ratio = values[len(own) - 1], values[len(own) - 1] / values[0]
        goal = ["–", ""]
        if most:
            goal = [f"≤ {most:g}", verdict(last <= most)]
        if flat:
            goal = [f"≤ {flat:g} ×", verdict(ratio <= flat)]
        rows.append([name, *cells, f"{ratio:.2f}", *goal])

    add("start, s", "start", ".2f")
    add("accepts/s", "rate", ",.0f")
    add("accept, CPU µs", "cpu", ",.0f", flat=FLAT)
    add("delivered/s", "deliver", ",.0f")
    add("deliver, CPU µs", "deliver_cpu", ",.0f", flat=FLAT)
    add("read one, ms", "read one", ".1f", behind="read one, slowest")
    for name in READING:
        add(f"{name}, ms", name, ".1f", most=LIST_MS, behind=f"{name}, slowest")
    add("all work: of a core", "all_cpu", ".2f")
    add("all work: slowest 202, ms", "all_slowest", ".0f")
    add("retention: CPU µs for a message", "retain_cpu", ",.0f", flat=FLAT)
    most = RETENTION_MS if kind == "sqlite" else 0
    add("retention: longest transaction, ms", "retain_ms", ".1f", most=most, behind="retain_slowest")
    add("bytes a message", "size", ",.0f")
    return table(*rows)


def main() -> None:
    options = arguments(__doc__, sizes="10000,1000000,10000000", folder="", keep=False)
    sizes = [1_000, 10_000] if options.quick else [int(size) for size in options.sizes.split(",")]
    compared = revisions(options.compare)
    share_cores()
    with folder_on_disk(options.folder) as folder, ExitStack() as stack:
        machine = look_at_machine(folder)
        databases = Databases(folder)
        stack.callback(databases.stop)
        done = run(folder, databases, sizes, compared, options.keep)
    print(*(tables := [report(done, compared, kind) for kind in KINDS]), sep="\n\n")
    if not options.quick:
        options.folder = ""  # the folder does not appear in the results
        write_part("growth", [ABOUT, made_by(options, machine), *tables])


if __name__ == "__main__":
    main()
