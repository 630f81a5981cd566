"""Rate of signed mail, compared with Postfix with opendkim and with Haraka, in one run: `make bench-email`.

One server is up at a time and shares the machine with its client and the sink; all take turns in each round.
"""

import json
import os
import random
import signal
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import dkim
from accept import KINDS
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from mail_install import Missing, install_haraka, install_postfix
from mail_peers import Haraka, Postfix
from mail_servers import MAIL, MailServer, OurMail, relay_setup
from mail_sink import Sink, read_dump
from matplotlib.figure import Figure
from ours import TOKEN, Databases, Ours, Revision, revisions
from processes import settle
from rounds import (
    RESULTS,
    Rounds,
    arguments,
    folder_on_disk,
    free_port,
    look_at_machine,
    made_by,
    spread,
    table,
    turns,
    verdict,
    write_part,
)
from send import TO
from servers import request_of
from stamps import Stamps

from heliograph.domain.mail.dkim import RSA_BITS

WARM = 200  # mails before each measurement
CHECKED = 5  # mails of each server whose signatures are verified
ARRIVE_S = 120.0
OURS, RSA, CORES = "Heliograph", "Heliograph, RSA alone", f"--processes {os.cpu_count()}"
# Other server → expected ratio of our mails per second to its, and of its CPU time to ours; all cores, one command.
EXPECTED = {"Postfix": (3.2, 3.2), "Haraka": (2.0, 2.0)}
EXPECTED_RSA, CPU_MS, WAKE_MS = 3.0, 2.1, 15.0
SIGNATURES = 200  # signatures measured, of which the fastest counts
WAKES = 20  # successive mails per round
STAGES = {
    "accept": "accept: HTTP, checks, insert",
    "dispatch": "dispatch: claim, choose the carrier",
    "build": "build: MIME, envelope sender",
    "sign": "sign: DKIM, RSA and Ed25519",
    "talk": "talk: SMTP",
    "record": "record: outcome, events",
    "commit": "commit: SQLite, of accept, claim and record",
    "rest": "rest: event loop, threads",
}


class Bench:
    def __init__(self, folder: Path, databases: Databases) -> None:
        self.folder, self.databases, self.sink = folder, databases, free_port()
        self.rounds = Rounds()

    def check(self, server: MailServer) -> None:
        """Check that the server's mail arrives with valid signatures."""
        dump = server.folder / "mails"
        dump.mkdir()
        dump.chmod(0o777)
        with Sink(self.sink, dump) as sink:
            server.start()
            try:
                server.send(CHECKED)
                sink.wait_for(CHECKED, ARRIVE_S)
                settle(server)
            finally:
                server.stop()
        zone = server.records()
        mails = [read_dump(path) for path in dump.iterdir()]
        (signatures,) = {verified(mail, zone) for mail in mails}
        self.rounds.note(server.name, 0, signatures=signatures, octets=median(map(len, mails)))

    def measure(self, server: MailServer, mails: int, round_: int) -> None:
        with Sink(self.sink) as sink:
            server.start()
            try:
                started, ended, used = send(server, sink, mails)
            finally:
                server.stop()
        self.rounds.note(server.name, round_, rate=mails / (ended - started), cpu=used / mails * 1000)

    def measure_wake(self, revision: Revision, kind: str, round_: int) -> None:
        """Measure the time from a 202 to the mail's first SMTP command, with the worker in a process of its own."""
        name = revision.called(f"wake-{kind}-{round_}")
        folder = self.folder / name
        folder.mkdir()
        with ExitStack() as stack:
            sink = Stamps(folder)
            stack.callback(sink.stop)
            setup, database = relay_setup(folder, sink.port), self.databases.new(kind, name)
            api = Ours(revision, name, folder / "files", database, "--role", "api", setup=setup)
            stack.callback(api.stop)
            worker = Ours(revision, name, folder / "files", database, "--role", "worker", setup=setup)
            stack.callback(worker.stop)
            accepted = [send_one(api.port, number) for number in range(WAKES)]
            deadline = time.monotonic() + ARRIVE_S
            while sink.count() < WAKES and time.monotonic() < deadline:
                time.sleep(0.1)
            waits = sorted((began - accepted[number]) * 1000 for number, began, _ in sink.read())
        waits = waits[: WAKES - 1]  # without the first, which opens the connections
        self.rounds.note(revision.called(KINDS[kind]), round_, wake=median(waits), most=waits[-1])

    def stages(self, server: OurMail, mails: int) -> dict[str, float]:
        """Return the CPU ms per mail by stage; the timing itself costs some."""
        path = server.folder / "stages.json"
        with Sink(self.sink) as sink:
            pid = server.start_timed(path)
            try:
                send(server, sink, mails, lambda: os.kill(pid, signal.SIGUSR1))
            finally:
                server.stop()
        used: dict[str, float] = json.loads(path.read_text())
        return {stage: seconds / mails * 1000 for stage, seconds in used.items()}


def send(
    server: MailServer, sink: Sink, mails: int, warm: Callable[[], None] = lambda: None
) -> tuple[float, float, float]:
    """Warm up, then send: first submission, last arrival, CPU seconds."""
    server.send(WARM)
    sink.wait_for(WARM, ARRIVE_S)
    before = settle(server)
    warm()
    started = server.send(mails)
    ended = sink.wait_for(WARM + mails, ARRIVE_S)
    return started, ended, settle(server) - before


def send_one(port: int, number: int) -> float:
    """Send one mail after a pause, in which the worker becomes idle; return the time of its 202."""
    time.sleep(random.uniform(0.1, 0.4))
    mail = {**MAIL, "to": f"customer-{number:0{len(TO)}}@example.com"}
    with socket.create_connection(("127.0.0.1", port)) as wire:
        wire.sendall(request_of("/v1/emails", TOKEN, mail).encode())
        came = wire.recv(65536)
        now = time.monotonic()
    if came[9:12] != b"202":
        raise SystemExit(f"not accepted: {came.decode()}")
    return now


def verified(mail: bytes, zone: dict[str, str]) -> int:
    """Return the number of DKIM signatures of a mail; all of them must be valid."""
    judge = dkim.DKIM(mail)
    count: int = sum(name.lower() == b"dkim-signature" for name, _ in judge.headers)
    for index in range(count):
        if not judge.verify(index, lambda name, timeout=5: zone[name.decode().rstrip(".")].encode()):
            raise SystemExit(f"a signature is not good:\n{mail.decode(errors='replace')}")
    if not count:
        raise SystemExit(f"a mail is not signed:\n{mail.decode(errors='replace')}")
    return count


def make_servers(folder: Path, sink: int, compared: list[Revision]) -> tuple[list[MailServer], list[str]]:
    """Return the servers that are available, and why the others are not."""
    servers: list[MailServer] = []
    for revision in compared:
        several: list[tuple[str, list[str]]] = [("", [])]
        if "--processes" in revision.ask("serve", "--help"):
            several.append((f", {CORES}", CORES.split()))
        for more, options in several:
            servers.append(OurMail(revision, OURS + more, folder, sink, *options))
            servers.append(OurMail(revision, RSA + more, folder, sink, *options, rsa=True))
    missing = []
    for peer, install in ((Postfix, install_postfix), (Haraka, install_haraka)):
        try:
            install()
            servers.append(peer(folder, sink))
        except Missing as error:
            missing.append(f"{peer.name} was not measured: {error}.")
            print(missing[-1], flush=True)
    return servers, missing


# -- what the figures say -----------------------------------------------------------------------------------


def expectations(rounds: Rounds, names: list[str], compared: list[Revision]) -> str:
    """Return a table of the expectations, and the results of each revision on all available cores."""
    rows = [["", "expected", *[revision.name or "now" for revision in compared[::-1]], ""]]

    def best(name: str, revision: Revision) -> str:
        whole = revision.called(f"{name}, {CORES}")
        return whole if whole in names else revision.called(name)

    def add(what: str, wanted: float, found: list[list[float]], at_least: bool, form: str = ".2f") -> None:
        met = verdict((median(found[-1]) >= wanted) == at_least)
        rows.append([what, f"{'≥' if at_least else '≤'} {wanted:g}", *[spread(one, form) for one in found], met])

    for start, (faster, cheaper) in EXPECTED.items():
        for peer in [name for name in names if name.startswith(start)]:
            for ours, wanted in ((OURS, faster), (RSA, EXPECTED_RSA if start == "Postfix" else faster)):
                found = [rounds.ratios(best(ours, revision), peer, "rate") for revision in compared[::-1]]
                add(f"{ours}: mails/s, times {peer}", wanted, found, at_least=True)
            found = [rounds.ratios(peer, revision.called(OURS), "cpu") for revision in compared[::-1]]
            add(f"CPU time of {peer}, times ours", cheaper, found, at_least=True)
    found = [rounds.values(revision.called(OURS), "cpu") for revision in compared[::-1]]
    add("CPU ms for a mail with two signatures", CPU_MS, found, at_least=False)
    for kind in KINDS.values():
        found = [rounds.values(revision.called(kind), "wake") for revision in compared[::-1]]
        add(f"202 → first SMTP command, {kind}, ms", WAKE_MS, found, at_least=False, form=".0f")
    return table(*rows)


def rsa_ms() -> float:
    """Return the CPU ms of one RSA signature, which every server needs and which differs most between processors."""
    key, times = rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS), []
    for _ in range(SIGNATURES):
        began = time.process_time()
        key.sign(b"text", padding.PKCS1v15(), hashes.SHA256())
        times.append(time.process_time() - began)
    return min(times) * 1000


def figures(rounds: Rounds, names: list[str], rsa_ms: float) -> str:
    rows = [["server", "signatures", "octets", "mails/s", "CPU ms for a mail", f"without RSA's {rsa_ms:.2f}"]]
    for name in names:
        signatures, octets = (f"{rounds.values(name, what)[0]:,.0f}" for what in ("signatures", "octets"))
        costs = rounds.values(name, "cpu")
        rest = spread([cost - rsa_ms for cost in costs], ".2f")
        rows.append([name, signatures, octets, spread(rounds.values(name, "rate")), spread(costs, ".2f"), rest])
    return table(*rows)


def stage_table(stages: dict[str, float]) -> str:
    whole = sum(stages.values())
    rows = [[words, f"{stages[stage]:.3f}", f"{stages[stage] / whole:.0%}"] for stage, words in STAGES.items()]
    return table(["stage of ours", "CPU ms for a mail", "share"], *rows, ["all", f"{whole:.3f}", ""])


def plot(rounds: Rounds, names: list[str], stages: dict[str, float]) -> None:
    figure = Figure(figsize=(12, 4), layout="constrained")
    for place, (title, what) in enumerate((("mails a second", "rate"), ("CPU ms for a mail", "cpu")), 1):
        axes = figure.add_subplot(1, 3, place)
        rounds.bars(axes, names, what, title)
        if place > 1:
            axes.set_yticklabels([])
    axes = figure.add_subplot(1, 3, 3)
    axes.barh(list(STAGES), [stages[stage] for stage in STAGES], color="tab:gray")
    axes.set(title="our stages, CPU ms for a mail")
    axes.invert_yaxis()
    figure.savefig(RESULTS / "mail.svg", metadata={"Date": None})


def main() -> None:
    args = arguments(__doc__, mails=3000, rounds=3)
    mails, rounds = (300, 1) if args.quick else (args.mails, args.rounds)
    compared = revisions(args.compare)
    try:
        install_postfix()
    except Missing as error:
        raise SystemExit(f"the sink is Postfix's smtp-sink, and it is not here: {error}") from None
    with folder_on_disk() as folder, ExitStack() as stack:
        machine = look_at_machine(folder)
        databases = Databases(folder)
        stack.callback(databases.stop)
        bench = Bench(folder, databases)
        servers, missing = make_servers(folder, bench.sink, compared)
        for server in servers:
            bench.check(server)
        for round_ in range(1, rounds + 1):
            for server in turns(servers, round_):
                bench.measure(server, mails, round_)
            for kind in KINDS:
                for revision in turns(compared, round_):
                    bench.measure_wake(revision, kind, round_)
        ours = next(server for server in servers if isinstance(server, OurMail))
        stages = bench.stages(ours, mails)
    names = [server.name for server in servers]
    shown = figures(bench.rounds, names, rsa_ms())
    part = [expectations(bench.rounds, names, compared), *missing, shown, stage_table(stages)]
    print("\n\n".join(part))
    if not args.quick:
        plot(bench.rounds, names, stages)
        picture = "![mails a second, CPU time for a mail, and our stages](mail.svg)"
        write_part("mail", [made_by(args, machine), *part[:-1], picture, part[-1]])


if __name__ == "__main__":
    main()
