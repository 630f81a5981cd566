"""How fast webhooks are told, and what they add to accepting a send, in one run: `make bench-webhooks`.

What is measured has core 1; the receiver, and the load of the accept path, have core 0.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import msgspec
from accept import CLI, HERE, LOAD_CORE, SERVER_CORE, Bench, look_at_machine
from report import Cell, made_by, write_part

from heliograph.channels.webhook.signature import make_secret
from heliograph.opening import make_secrets, open_store
from heliograph.rules.audit import COMMAND_LINE
from heliograph.rules.setup.records import Webhook
from heliograph.rules.setup.snapshot import to_row
from heliograph.settings import Settings
from heliograph.storage.setup import SetupChange

TEAM = "team_bench"
ENDPOINTS = (1, 100)
AT = 128  # connections
EXPECTED = 0.9  # of the accepts without a webhook
LIMIT_S = 300.0
FOLLOWED_S = 1.0  # a running service has seen a change of the setup
# What is measured on the accept path: name → the role of the process.
ROLES = {"accepting": "api", "accepting and delivering": "all"}
SUBSCRIBED = ", one webhook"
ABOUT = """## Telling webhooks

`make bench-webhooks` measures how many events a second one worker tells, and what a webhook adds to accepting.

- **Events**: of emails that a service has sent before, about 600 bytes each; the deliveries are written as the
  publisher writes them, then the worker starts. From the first request to the last, at a receiver that answers at once.
- **Each event**: read with its message, made into its body, signed twice over (both schemes), posted on a kept
  connection with the target checked again, its answer recorded; at most 10 in flight for an endpoint.
- **Accepting**: as above at 128 connections, with and without one webhook that hears everything, in turns. The API
  process alone only accepts; the other one also delivers and tells, all on one core."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One round of telling: so many events over so many endpoints."""

    endpoints: int
    events: int
    rate: float  # a second


class Receiver:
    """A process that answers 200 at once and notes what came."""

    def __init__(self, log: Path) -> None:
        self._log = log
        command = [sys.executable, "-m", "tests.channels.hook_receiver", "--log", str(log)]
        self._process = subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        self.url = self._process.stdout.readline().strip()

    def count(self) -> int:
        return self._log.read_bytes().count(b"\n")

    def times(self) -> list[float]:
        return [json.loads(line)["at"] for line in self._log.read_text("utf-8").splitlines()]

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


class Webhooks(Bench):
    def publish(self, events: int) -> Path:
        """A service that has published so many events; answers its folder, with the database in it."""
        folder = self.folder / "published"
        settings = in_folder(folder)
        subject = self.ours("published", settings.database, "all")
        load = [sys.executable, str(HERE / "load.py"), "--token", self.token, f"--port={subject.port}"]
        try:
            while asyncio.run(count_events(settings)) < events:
                subprocess.run([*load, "--connections=32", "--seconds=1"], check=True, stdout=subprocess.DEVNULL)
        finally:
            subject.stop()
        return folder

    def tell(self, published: Path, endpoints: int, events: int, round_: int) -> Told:
        folder = self.folder / f"tell-{endpoints}-{round_}"
        shutil.copytree(published, folder)
        settings = in_folder(folder)
        receiver = Receiver(folder / "received.jsonl")
        worker = None
        try:
            asyncio.run(make_due(settings, [f"{receiver.url}/{number}" for number in range(endpoints)], events))
            worker = subprocess.Popen(
                [*CLI, "serve", "--role", "worker", "--database", settings.database, "--data", str(folder)],
                stdout=subprocess.DEVNULL,
                preexec_fn=lambda: os.sched_setaffinity(0, {SERVER_CORE}),
            )
            deadline = time.monotonic() + LIMIT_S
            while receiver.count() < events:
                if time.monotonic() > deadline:
                    raise SystemExit(f"{receiver.count()} of {events} events were told within {LIMIT_S:.0f} s")
                time.sleep(0.5)
        finally:
            if worker:
                worker.terminate()
                worker.wait()
            receiver.stop()
        times = receiver.times()
        told = Told(endpoints=endpoints, events=events, rate=(len(times) - 1) / (max(times) - min(times)))
        print(f"round {round_}  {endpoints:3} endpoints  {told.rate:6.0f} events/s", flush=True)
        return told

    def accept(self, name: str, subscribed: bool, round_: int) -> None:
        """A new service each time: what it has not told yet must not be told in the next one's time."""
        folder = self.folder / f"{ROLES[name]}-{'told' if subscribed else 'untold'}-{round_}"
        settings = in_folder(folder)
        receiver = Receiver(self.folder / f"{folder.name}.jsonl")
        subject = self.ours(folder.name, settings.database, ROLES[name])
        try:
            if subscribed:
                asyncio.run(subscribe(settings, [receiver.url]))
            time.sleep(FOLLOWED_S)
            subject.name = name + SUBSCRIBED * subscribed
            self.measure(subject, AT, round_)
        finally:
            subject.stop()
            receiver.stop()


def in_folder(folder: Path) -> Settings:
    return Settings(database=f"sqlite:///{folder / 'heliograph.db'}", data=folder)


async def subscribe(settings: Settings, urls: list[str]) -> list[Webhook]:
    sealer = make_secrets(settings).sealer
    hooks = []
    for number, url in enumerate(urls):
        id_, secret = f"whk_{number}", make_secret(bytes(24)).encode()
        hooks.append(Webhook(id=id_, team=TEAM, url=url, secret=sealer.seal(secret, f"webhook/{id_}")))
    async with open_store(settings) as store:
        rows = [to_row("webhook", hook.id, hook, TEAM) for hook in hooks]
        await store.setup.change(
            lambda _, __: SetupChange(rows=rows, audit=COMMAND_LINE.did(0, "bench.set_up", "a bench"))
        )
    return hooks


async def make_due(settings: Settings, urls: list[str], events: int) -> None:
    """Each endpoint gets its share of the events."""
    hooks = await subscribe(settings, urls)
    async with open_store(settings) as store:
        ref = store.setup.current.teams[TEAM].record.ref
        told = (await store.events.feed(ref, "", events))[:events]
        rows = [
            (hooks[number % len(hooks)].id, ref, event.id, json.loads(event.record or "")["id"], event.created_at)
            for number, event in enumerate(told)
        ]
        await store.database.write(lambda tx: tx.run("insert_deliveries", deliveries=rows))


async def count_events(settings: Settings) -> int:
    await asyncio.sleep(FOLLOWED_S)  # the feed leaves out the last moment
    async with open_store(settings) as store:
        return len(await store.events.feed(store.setup.current.teams[TEAM].record.ref, "", 1_000_000))


def rate_table(told: list[Told]) -> str:
    lines = ["| endpoints | events | events/s | lowest – highest |", "|--:|--:|--:|--:|"]
    for endpoints in ENDPOINTS:
        rates = [one.rate for one in told if one.endpoints == endpoints]
        spread = f"{min(rates):,.0f} – {max(rates):,.0f}"
        lines.append(f"| {endpoints} | {told[0].events:,} | {statistics.median(rates):,.0f} | {spread} |")
    return "\n".join(lines)


def cost_table(cells: list[Cell]) -> str:
    """Ratios are made inside a round."""
    rates = {(cell.server, cell.round): cell.rate for cell in cells}
    lines = [f"| at {AT} connections | accepts/s | with a webhook | of it | expected | |", "|---|--:|--:|--:|--:|---|"]
    for name in ROLES:
        alone = [rate for (server, _), rate in rates.items() if server == name]
        told = [rate for (server, _), rate in rates.items() if server == name + SUBSCRIBED]
        ratio = statistics.median(b / a for a, b in zip(alone, told, strict=True))
        verdict = "met" if ratio >= EXPECTED else "**missed**"
        expected = f"≥ {EXPECTED} | {verdict}" if ROLES[name] == "api" else "– |"
        figures = f"{statistics.median(alone):,.0f} | {statistics.median(told):,.0f} | {ratio:.2f}"
        lines.append(f"| {name} | {figures} | {expected} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=10_000, help="told in each round (10,000)")
    parser.add_argument("--seconds", type=float, default=3, help="of accepting, for each cell and round (3)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one small round; writes no docs")
    given = parser.parse_args()
    events, seconds, rounds = (2000, 1.0, 1) if given.quick else (given.events, given.seconds, given.rounds)
    if not {LOAD_CORE, SERVER_CORE} <= os.sched_getaffinity(0):
        raise SystemExit("needs two cores: one for the load, one for the server")
    os.sched_setaffinity(0, {LOAD_CORE})  # what we start inherits it; the servers move to theirs
    os.environ["HELIOGRAPH_WEBHOOK_ALLOW_PRIVATE"] = "127.0.0.0/8"
    # Here and not in /tmp, which may be memory: a commit must reach a disk.
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=Path.cwd()))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        machine = look_at_machine(folder)
        bench = Webhooks(folder, seconds)
        published = bench.publish(events)
        told = []
        for round_ in range(1, rounds + 1):
            told += [bench.tell(published, endpoints, events, round_) for endpoints in ENDPOINTS]
            for name in ROLES:
                for subscribed in (False, True) if round_ % 2 else (True, False):
                    bench.accept(name, subscribed, round_)
    print(f"\n{rate_table(told)}\n\n{cost_table(bench.cells)}")
    if not given.quick:
        command = f"python bench/webhooks.py --events {events} --seconds {seconds:g} --rounds {rounds}"
        part = [ABOUT, made_by(command, machine), rate_table(told), cost_table(bench.cells)]
        write_part(HERE.parent / "docs" / "benchmarks.md", "webhooks", part)


if __name__ == "__main__":
    main()
