"""Delay of urgent mail during a backlog of bulk mail: `make bench-backlog`.

A hundred thousand bulk mails wait; then mails of all three priorities arrive for a minute, a few per second of each.
Measured is the time from each 202 response to the relay.
"""

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import arrivals
from accept import KINDS
from mail_servers import DOMAIN, MAIL, relay_setup
from matplotlib.figure import Figure
from ours import TOKEN, Databases, Ours, Revision, revisions
from peak import percentile
from rounds import RESULTS, ROOT, arguments, folder_on_disk, look_at_machine, made_by, table, verdict, write_part
from send import TO
from servers import request_of
from stamps import Stamps

PRIORITIES = ("critical", "normal", "bulk")
RATE = 5.0  # mails per second, of each priority
MOST_S = 1.0  # maximum delay of 99 % of the critical mails
FILL_S = 600.0
ABOUT = """# Urgent mail during a backlog

`make bench-backlog` accepts a hundred thousand bulk emails while nothing is delivered. Then a process starts to
deliver, and for a minute five emails per second of each priority are accepted. All are signed twice and sent to one
relay over 20 connections. The time to send is from the 202 until the relay has the email; bulk emails wait behind
earlier ones."""


def mail(priority: str, place: str = "") -> str:
    return request_of("/v1/emails", TOKEN, MAIL | {"to": f"{place}{TO.decode()}@example.com", "priority": priority})


def fill(port: int, count: int) -> None:
    load = [sys.executable, str(ROOT / "bench/send.py"), f"--port={port}", "--first=0", f"--messages={count}"]
    subprocess.run(load, input=mail("bulk").encode(), check=True, stdout=subprocess.DEVNULL, timeout=FILL_S)


def measure(
    revision: Revision, kind: str, folder: Path, databases: Databases, count: int, seconds: float
) -> tuple[dict[str, list[tuple[float, float]]], int, int]:
    """Return (time accepted, delay until sent) of each mail by priority, and how many mails waited before and after."""
    folder = folder / f"{kind}-{revision.name}"
    folder.mkdir()
    with ExitStack() as stack:
        sink = Stamps(folder)
        stack.callback(sink.stop)
        setup = relay_setup(folder, sink.port)
        database, data = databases.new(kind, f"backlog-{revision.name}"), folder / "files"
        revision.ask("apply", str(setup), "--json", "--database", database, "--data", str(data))
        revision.ask("domain", "dns", DOMAIN, "--json", "--database", database, "--data", str(data))  # creates keys
        api = Ours(revision, KINDS[kind], data, database, "--role", "api", setup=setup)
        stack.callback(api.stop)
        fill(api.port, count)
        worker = Ours(revision, KINDS[kind], data, database, "--role", "worker", setup=setup)
        stack.callback(worker.stop)
        loads = [
            arrivals.start(api.port, mail(name, str(place)), RATE, seconds, folder / name)
            for place, name in enumerate(PRIORITIES, 1)
        ]
        for load in loads:
            stack.callback(load.kill)
        while any(load.poll() is None for load in loads):
            time.sleep(1)
        time.sleep(MOST_S * 2)
        (left,) = databases.ask(database, "SELECT count(*) FROM outbox")
        taken = {number: at for number, _, at in sink.read()}
    found = dict[str, list[tuple[float, float]]]()
    for place, name in enumerate(PRIORITIES, 1):
        came = arrivals.read(folder / name)
        first = min(one.due for one in came)
        # A mail that was not sent has waited until now, at least.
        ends = [taken.get(place * 10**12 + one.number, time.monotonic()) for one in came]
        found[name] = [(one.answered - first, end - one.answered) for one, end in zip(came, ends, strict=True)]
    return found, left, len(taken)


def main() -> None:
    options = arguments(__doc__, databases="sqlite,postgres", count=100_000, seconds=60.0)
    count, seconds = (2_000, 5.0) if options.quick else (options.count, options.seconds)
    rows = [["", "priority", "mails", "p50 s", "p90 s", "p99 s", "99 % of critical in 1 s", "waiting", "sent"]]
    figure, runs = Figure(figsize=(12, 4), layout="constrained"), list[str]()
    with folder_on_disk() as folder, ExitStack() as stack:
        machine = look_at_machine(folder)
        databases = Databases(folder)
        stack.callback(databases.stop)
        for kind in options.databases.split(","):
            for revision in revisions(options.compare):
                found, left, taken = measure(revision, kind, folder, databases, count, seconds)
                runs.append(revision.called(KINDS[kind]))
                axes = figure.add_subplot(1, 2, min(2, len(runs)))
                for name, times in found.items():
                    waits = sorted(wait for _, wait in times)
                    worst = percentile(waits, 99)
                    met = verdict(worst <= MOST_S) if name == "critical" else ""
                    shown = [f"{percentile(waits, share):.2f}" for share in (50, 90, 99)]
                    rows.append([runs[-1], name, f"{len(waits):,}", *shown, met, f"{left:,}", f"{taken:,}"])
                    axes.plot(*zip(*sorted(times), strict=True), ".", label=name, markersize=3)
                axes.set(title=f"{runs[-1]}: 202 to send, s", xlabel="s", yscale="log")
                axes.grid(alpha=0.3)
                axes.legend(fontsize="small")
    print(table(*rows))
    if not options.quick:
        figure.savefig(RESULTS / "backlog.svg", metadata={"Date": None})
        picture = "![time to send by priority](backlog.svg)"
        write_part("backlog", [ABOUT, made_by(options, machine), table(*rows), picture])


if __name__ == "__main__":
    main()
