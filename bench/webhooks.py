"""Rate of webhook deliveries, and their cost for accepting sends, in one run: `make bench-webhooks`.

The measured process has core 1; the receiver, and the load of the accept path, have core 0.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from urllib.request import Request, urlopen

from accept import AT, Bench, at
from ours import SETUP, TOKEN, Databases, Ours, Revision, revisions
from rounds import (
    ROOT,
    SERVER_CORE,
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

ENDPOINTS = (1, 10)
EXPECTED = 0.9  # expected rate, relative to accepting without a webhook
EVENTS_S = 3000  # expected events per second to one endpoint
LIMIT_S = 300.0
LONG_AGO, LATER = "2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z"
# Measurements of the accept path: name → role of the process.
ROLES = {"accepting": "api", "accepting and delivering": "all"}
SUBSCRIBED = ", one webhook"
ABOUT = """# Webhooks

`make bench-webhooks` measures how many events per second one worker delivers, and how much a webhook adds to accepting.

- **Events**: of emails that were sent before, about 600 bytes each; `POST /v1/webhooks/:id/replay` makes them due, then
  the worker starts. Measured from the first request to the last, at a receiver that responds immediately.
- **Each event**: read with its message, converted to its body, signed with both schemes, posted on a reused connection
  after the target was checked again, and its response recorded; at most 10 in flight per endpoint.
- **Accepting**: as in accept.md at 128 connections, with and without one webhook for all events, in turns. The
  API process alone only accepts; the other one also sends and delivers events, all on one core."""


class Receiver:
    """A process that responds 200 immediately and records each event."""

    def __init__(self, log: Path) -> None:
        self._log = log
        command = [sys.executable, "-m", "tests.carriers.hook_receiver", "--log", str(log)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        self.url = self._process.stdout.readline().strip()

    def count(self) -> int:
        return self._log.read_bytes().count(b"\n")

    def wait_for(self, events: int) -> int:
        deadline = time.monotonic() + LIMIT_S
        while (came := self.count()) < events:
            if time.monotonic() > deadline:
                raise SystemExit(f"{came} of {events} events were told within {LIMIT_S:.0f} s")
            time.sleep(0.1)
        return came

    def times(self) -> list[float]:
        return [json.loads(line)["at"] for line in self._log.read_text("utf-8").splitlines()]

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


class Webhooks(Bench):
    def publish(self, revision: Revision, events: int) -> Path:
        """Run a service that publishes at least this many events; return its folder with the database."""
        folder = self.folder / f"published-{revision.name}-{events}"
        folder.mkdir()
        server = Ours(revision, "published", folder, database_in(folder), core=SERVER_CORE)
        sent = 0
        try:
            while sent * 2 < events:  # two events per message: sent and delivered
                sent += self.load([[server]], 8, seconds=0.1)[0]["answers"]
            time.sleep(5)  # until the simulator has sent all reports
        finally:
            server.stop()
        return folder

    def tell(self, revision: Revision, published: Path, endpoints: int, round_: int) -> None:
        """Deliver the same events to each endpoint."""
        folder = self.folder / f"tell-{published.name}-{endpoints}-{round_}"
        shutil.copytree(published, folder)
        where = ["--database", database_in(folder), "--data", str(folder)]
        receiver = Receiver(folder / "received.jsonl")
        worker = None
        try:
            setup = subscribed(folder, [f"{receiver.url}/{number}" for number in range(endpoints)])
            hooks = json.loads(revision.ask("apply", str(setup), "--json", *where))["webhooks"]
            api = Ours(revision, "api", folder, database_in(folder), "--role", "api", setup=setup)
            due = sum(replay(api, hook["id"]) for hook in hooks)
            api.stop()
            time.sleep(due / endpoints / 1000)  # a replay makes one event due per millisecond
            worker = Ours(revision, "worker", folder, database_in(folder), "--role", "worker", setup=setup,
                          core=SERVER_CORE)  # fmt: skip
            first = receiver.wait_for(1)
            used = worker.cpu_s()  # without the CPU time of its start
            receiver.wait_for(due)
            used = (worker.cpu_s() - used) / (due - first)
        finally:
            if worker:
                worker.stop()
            receiver.stop()
        times = receiver.times()
        rate = (len(times) - 1) / (max(times) - min(times))
        self.rounds.note(told(revision, endpoints), round_, rate=rate, cpu=used * 1e6, events=due)
        shutil.rmtree(folder)

    def accept(self, revision: Revision, name: str, with_one: bool, round_: int) -> None:
        """Measure accepting with a new service, so that its undelivered events do not disturb the next measurement."""
        folder = self.folder / f"{ROLES[name]}-{with_one}-{round_}-{revision.name}"
        folder.mkdir()
        receiver = Receiver(folder / "received.jsonl")
        setup = subscribed(folder, [receiver.url] * with_one)
        server = Ours(revision, revision.called(name + SUBSCRIBED * with_one), folder, database_in(folder),
                      "--role", ROLES[name], setup=setup, core=SERVER_CORE)  # fmt: skip
        try:
            self.measure(server, AT, round_, drained=ROLES[name] == "all")
        finally:
            server.stop()
            receiver.stop()


def replay(api: Ours, hook: str) -> int:
    """Make all events due for the webhook; return their number."""
    request = Request(
        f"http://127.0.0.1:{api.port}/v1/webhooks/{hook}/replay",
        json.dumps({"created_after": LONG_AGO, "created_before": LATER}).encode(),
        {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
    )
    with urlopen(request) as response:
        return int(json.load(response)["count"])


def database_in(folder: Path) -> str:
    return f"sqlite:///{folder / 'heliograph.db'}"


def subscribed(folder: Path, urls: list[str]) -> Path:
    """Return the benchmark's setup with these webhooks."""
    path = folder / "setup.toml"
    path.write_text(SETUP.read_text() + "".join(f'\n  [[teams.webhooks]]\n  url = "{url}"\n' for url in urls))
    return path


def told(revision: Revision, endpoints: int) -> str:
    return revision.called(f"{endpoints} endpoint{'s' * (endpoints > 1)}")


def rate_table(rounds: Rounds, compared: list[Revision]) -> str:
    rows = [["", "events", "events/s", "expected", "", "CPU µs for an event"]]
    for endpoints in ENDPOINTS:
        for revision in compared:
            key = told(revision, endpoints)
            rates = rounds.values(key, "rate")
            wanted = endpoints == 1 and not revision.name
            goal = [f"≥ {EVENTS_S:,}", verdict(median(rates) >= EVENTS_S)] if wanted else ["–", ""]
            events = f"{median(rounds.values(key, 'events')):,.0f}"
            rows.append([key, events, spread(rates), *goal, spread(rounds.values(key, "cpu"))])
    return table(*rows)


def cost_table(rounds: Rounds, compared: list[Revision]) -> str:
    """Return the table of costs; ratios are computed within each round."""
    head = [f"at {AT} connections", "accepts/s", "with a webhook", "of it", "expected", ""]
    rows = [[*head, "CPU µs", "with a webhook", "of it"]]
    for name in ROLES:
        for revision in compared:
            alone, one = (at(revision.called(name + more), AT) for more in ("", SUBSCRIBED))
            ratio = rounds.ratios(one, alone, "rate")
            rates = [spread(rounds.values(key, "rate")) for key in (alone, one)]
            costs = [spread(rounds.values(key, "cpu")) for key in (alone, one)]
            goal = [f"≥ {EXPECTED}", verdict(median(ratio) >= EXPECTED)]
            rows.append([revision.called(name), *rates, spread(ratio, ".2f"), *goal, *costs])
            rows[-1].append(spread(rounds.ratios(one, alone, "cpu"), ".2f"))
    return table(*rows)


def main() -> None:
    options = arguments(__doc__, events=10_000, seconds=3.0, rounds=3)
    events, seconds, rounds = (2000, 1.0, 1) if options.quick else (options.events, options.seconds, options.rounds)
    compared = revisions(options.compare)
    share_cores()
    os.environ["HELIOGRAPH_WEBHOOK_ALLOW_PRIVATE"] = "127.0.0.0/8"
    with folder_on_disk() as folder, ExitStack() as stack:
        machine = look_at_machine(folder)
        databases = Databases(folder)
        stack.callback(databases.stop)
        bench = Webhooks(folder, databases, seconds)
        sources = {(one, number): bench.publish(one, events // number) for one in compared for number in ENDPOINTS}
        for round_ in range(1, rounds + 1):
            for (revision, endpoints), published in turns(list(sources.items()), round_):
                bench.tell(revision, published, endpoints, round_)
            for name in ROLES:
                for revision in turns(compared, round_):
                    for with_one in turns((False, True), round_):
                        bench.accept(revision, name, with_one, round_)
    print(rates := rate_table(bench.rounds, compared), costs := cost_table(bench.rounds, compared), sep="\n\n")
    if not options.quick:
        write_part("webhooks", [ABOUT, made_by(options, machine), rates, costs])


if __name__ == "__main__":
    main()
