"""The peak load that GOV.UK Notify is designed for, a million emails per hour, on one small machine: `make bench-peak`.

Mails arrive at 278 per second, whether or not the service keeps up. Each is signed twice and sent to a relay, and every
event is delivered to a webhook. In the end every 202 must have its mail, exactly once, and every event its webhook
delivery.
"""

import os
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import arrivals
import msgspec
from accept import KINDS
from hooks import Hook
from mail_servers import DOMAIN, MAIL, relay_setup
from matplotlib.figure import Figure
from ours import TOKEN, Databases, Ours, Revision, revisions
from rounds import RESULTS, arguments, folder_on_disk, look_at_machine, made_by, table, verdict, write_part
from servers import request_of
from stamps import Stamps

RATE = 1_000_000 / 3600
HOUR_S, SHORT_S, QUICK_S = 3600.0, 600.0, 20.0
LIMITS = {90: 10.0, 99: 60.0}  # percent of the mail → maximum seconds until it is sent
MOST_MB = 300
SPAN_S = 10.0  # seconds that a point of the plot covers
AFTER_S = 120.0  # timeout for work in progress after the last mail was accepted
WARM_S = 3
LEFT = ("SELECT count(*) FROM outbox", "SELECT count(*) FROM event")
ABOUT = """# The peak: a million emails in an hour

`make bench-peak` runs the peak load that GOV.UK Notify says it is designed for, 278 emails per second, on one small
machine that also runs the callers, the relay, the webhook's endpoint and PostgreSQL. It runs ten minutes by default,
and the whole hour with `--hour sqlite`.

- **Arrival**: `bench/arrivals.py` sends 278 requests per second without waiting for responses.
- **Mail**: 5 KiB of text and HTML, signed with RSA-2048 and Ed25519, over the carrier `smtp` with 20 connections to
  `bench/stamps.py`, which records the arrival time of each email by its recipient; each email has a different one.
- **Webhook**: one endpoint for all events (`bench/hooks.py`).
- **Time to send**: from when a request was due to be sent until the relay has accepted its email.
- **Nothing lost**: every request got a 202; the relay accepted each of these emails exactly once; the endpoint received
  every event in the database exactly once; nothing is left in the outbox."""


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """Results of one run on one database."""

    name: str
    seconds: float
    times: list[tuple[float, float]]  # (seconds from the first mail until it was due, seconds until sent)
    accept_ms: list[float]
    tell_s: list[float]  # seconds from the send to the webhook, first event of each mail
    memory: list[float]  # MB, once per second
    cpu: float  # cores used while mails arrived
    cpu_ms: float  # CPU ms per mail, until all work was done
    database_cpu: float
    wrong: dict[str, int]


def measure(
    revision: Revision, kind: str, folder: Path, databases: Databases, seconds: float, options: list[str]
) -> Peak:
    folder = folder / f"{kind}-{revision.name}"
    folder.mkdir()
    with ExitStack() as stack:
        sink, hook = Stamps(folder), Hook(folder)
        stack.callback(sink.stop)
        stack.callback(hook.stop)
        setup = relay_setup(folder, sink.port)
        setup.write_text(f'{setup.read_text()}\n  [[teams.webhooks]]\n  url = "{hook.url}"\n')
        database, data = databases.new(kind, f"peak-{revision.name}"), folder / "files"
        revision.ask("apply", str(setup), "--json", "--database", database, "--data", str(data))
        revision.ask("domain", "dns", DOMAIN, "--json", "--database", database, "--data", str(data))  # creates keys
        ours = Ours(revision, KINDS[kind], data, database, *options, setup=setup)
        stack.callback(ours.stop)
        time.sleep(WARM_S)
        request = request_of("/v1/emails", TOKEN, MAIL)
        began, used, used_there = time.monotonic(), ours.cpu_s(), databases.cpu_s()
        load = arrivals.start(ours.port, request, RATE, seconds, folder / "arrivals")
        stack.callback(load.kill)
        memory = []
        while load.poll() is None:
            memory.append(ours.rss_mb())
            time.sleep(1)
            if len(memory) % 30 == 0:
                print(f"{kind}  {len(memory):4} s  {memory[-1]:.0f} MB  {sink.count():,} mails taken", flush=True)
        lasted = time.monotonic() - began
        cpu, there = (ours.cpu_s() - used) / lasted, (databases.cpu_s() - used_there) / lasted
        if load.returncode:
            raise SystemExit("the load failed")
        deadline = time.monotonic() + AFTER_S
        while (left := databases.ask(database, *LEFT)) != [0, hook.count()] and time.monotonic() < deadline:
            time.sleep(1)
        cpu_s = ours.cpu_s() - used
    waiting, events = left
    came, taken, told = arrivals.read(folder / "arrivals"), sink.read(), hook.read()
    taken_at = {number: at for number, _, at in taken}
    first = min(one.due for one in came)
    heard = dict[str, float]()
    for message, _, _, at in told:
        heard.setdefault(message, at)
    return Peak(
        name=revision.called(KINDS[kind]),
        seconds=seconds,
        times=sorted((one.due - first, taken_at[one.number] - one.due) for one in came if one.number in taken_at),
        accept_ms=sorted((one.answered - one.due) * 1000 for one in came),
        tell_s=sorted(heard[one.id] - taken_at[one.number] for one in came if one.id in heard),
        memory=memory,
        cpu=cpu,
        cpu_ms=cpu_s / len(came) * 1000,
        database_cpu=there,
        wrong={
            "requests not answered 202": sum(one.status != 202 for one in came) + int(RATE * seconds) - len(came),
            "mails lost": len({one.number for one in came if one.status == 202} - taken_at.keys()),
            "mails twice": len(taken) - len(taken_at),
            "mails that nobody asked for": len(taken_at.keys() - {one.number for one in came}),
            "events not delivered": events - len({id_ for _, _, id_, _ in told}),
            "events delivered twice": sum(times - 1 for times in Counter(id_ for _, _, id_, _ in told).values()),
            "messages without an event": len({one.id for one in came} - heard.keys()),
            "left in the outbox": waiting,
        },
    )


def percentile(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share / 100))]


def summary(peaks: list[Peak]) -> str:
    rows = [["", "expected", *[name for peak in peaks for name in (peak.name, "")]]]

    def add(what: str, expected: str, *found: tuple[str, bool | None]) -> None:
        cells = [cell for text, met in found for cell in (text, "" if met is None else verdict(met))]
        rows.append([what, expected, *cells])

    waits = [sorted(wait for _, wait in peak.times) for peak in peaks]
    add("mails", "–", *[(f"{len(one):,}", None) for one in waits])
    add("sent, p50", "–", *[(f"{percentile(one, 50):.3f} s", None) for one in waits])
    for share, most in LIMITS.items():
        found = [percentile(one, share) for one in waits]
        add(f"sent, p{share}", f"≤ {most:g} s", *[(f"{one:.3f} s", one <= most) for one in found])
    add("sent, the slowest", "–", *[(f"{one[-1]:.3f} s", None) for one in waits])
    for share in (50, 99):
        add(f"202, p{share}", "–", *[(f"{percentile(peak.accept_ms, share):.1f} ms", None) for peak in peaks])
    for share in (50, 99):
        found = [percentile(peak.tell_s, share) for peak in peaks]
        add(f"webhook after the send, p{share}", "–", *[(f"{one:.3f} s", None) for one in found])
    most_mb = [max(peak.memory) for peak in peaks]
    add("resident memory, the most", f"≤ {MOST_MB} MB", *[(f"{one:.0f} MB", one <= MOST_MB) for one in most_mb])
    add("CPU of ours", "–", *[(f"{peak.cpu:.2f} cores", None) for peak in peaks])
    add("CPU of ours for a mail", "–", *[(f"{peak.cpu_ms:.2f} ms", None) for peak in peaks])
    add("CPU of PostgreSQL", "–", *[(f"{peak.database_cpu:.2f} cores", None) for peak in peaks])
    for what in peaks[0].wrong:
        add(what, "0", *[(f"{peak.wrong[what]:,}", peak.wrong[what] == 0) for peak in peaks])
    return table(*rows)


def minutes(peaks: list[Peak]) -> str:
    """Return the time until sent, by the minute in which a mail was due."""
    head = [f"{peak.name}: {what}" for peak in peaks for what in ("p50 s", "p90", "p99", "MB")]
    rows = [["minute", *head]]
    for minute in range(round(peaks[0].seconds / 60)):
        row = [str(minute + 1)]
        for peak in peaks:
            waits = sorted(wait for due, wait in peak.times if minute <= due / 60 < minute + 1)
            row += [f"{percentile(waits, share):.3f}" for share in (50, 90, 99)]
            row.append(f"{max(peak.memory[minute * 60 : minute * 60 + 60], default=0):.0f}")
        rows.append(row)
    return table(*rows)


def plot(peaks: list[Peak]) -> None:
    figure = Figure(figsize=(12, 4), layout="constrained")
    for place, peak in enumerate(peaks, 1):
        axes = figure.add_subplot(1, len(peaks), place)
        spans: dict[int, list[float]] = {}
        for due, wait in peak.times:
            spans.setdefault(int(due / SPAN_S), []).append(wait)
        at = [number * SPAN_S / 60 for number in spans]
        for share in (50, 90, 99, 100):
            values = [percentile(sorted(waits), share) for waits in spans.values()]
            axes.plot(at, values, label=f"p{share}" if share < 100 else "slowest", linewidth=1)
        for share, most in LIMITS.items():
            axes.axhline(most, linestyle="--", color="tab:gray", linewidth=1)
            axes.text(0, most * 1.1, f"{share} % within {most:g} s", fontsize="small", color="tab:gray")
        axes.set(title=f"{peak.name}: time to send, s", xlabel="minutes", yscale="log")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.savefig(RESULTS / "peak.svg", metadata={"Date": None})


def main() -> None:
    args = arguments(__doc__, hour="", databases="sqlite,postgres", options="")
    os.environ["HELIOGRAPH_WEBHOOK_ALLOW_PRIVATE"] = "127.0.0.0/8"
    peaks = list[Peak]()
    with folder_on_disk() as folder, ExitStack() as stack:
        machine = look_at_machine(folder)
        databases = Databases(folder)
        stack.callback(databases.stop)
        for kind in args.databases.split(","):
            seconds = QUICK_S if args.quick else HOUR_S if kind in args.hour.split(",") else SHORT_S
            for revision in revisions(args.compare):
                peaks.append(measure(revision, kind, folder, databases, seconds, args.options.split()))
                print(summary(peaks[-1:]), flush=True)
    short = [minutes(peaks)] if {peak.seconds for peak in peaks} <= {QUICK_S, SHORT_S} else []
    print(summary(peaks), *short, sep="\n\n")
    if not args.quick:
        plot(peaks)
        picture = "![time to send by minute](peak.svg)"
        write_part("peak", [ABOUT, made_by(args, machine), summary(peaks), picture, *short])


if __name__ == "__main__":
    main()
