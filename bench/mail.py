"""How fast signed mail leaves, beside Postfix with opendkim and Haraka, in one run: `make bench-email`.

One server is up at a time and shares the machine with its client and the sink; all take turns in each round.
"""

import argparse
import json
import os
import secrets
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import dkim
from accept import HERE, free_port, look_at_machine
from mail_install import Missing, install_haraka, install_postfix
from mail_peers import Haraka, Postfix
from mail_report import Cell, Results, print_report, write_docs
from mail_servers import Ours, OursRsa, Server
from mail_sink import Sink, read_dump
from settle import settle

from heliograph.rules.setup.keys import ENTROPY_BYTES, make_token

WARM = 200  # mails before each measure
CHECKED = 5  # mails of each server whose signatures are verified
ARRIVE_S = 120.0


class Bench:
    def __init__(self, folder: Path, sink: int, servers: list[Server]) -> None:
        self.folder, self.sink, self.servers = folder, sink, servers

    def check(self) -> tuple[dict[str, int], dict[str, int]]:
        """Every server's mail arrives signed: the number of signatures of each, all verified, and its octets."""
        signatures, octets = {}, {}
        for server in self.servers:
            dump = self.folder / f"{server.name}-mails"
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
            (signatures[server.name],) = {verified(mail, zone) for mail in mails}
            octets[server.name] = round(statistics.median(map(len, mails)))
        return signatures, octets

    def measure(self, server: Server, mails: int, round_: int) -> Cell:
        with Sink(self.sink) as sink:
            server.start()
            try:
                started, ended, used = send(server, sink, mails)
            finally:
                server.stop()
        cell = Cell(server=server.name, round=round_, rate=mails / (ended - started), cpu_ms=used / mails * 1000)
        print(f"round {round_}  {cell.server:10} {cell.rate:7.0f} mails/s  {cell.cpu_ms:6.2f} CPU ms/mail", flush=True)
        return cell

    def stages(self, server: Ours, mails: int) -> dict[str, float]:
        """CPU ms of each mail by stage; the timing itself costs some."""
        path = server.folder / "stages.json"
        with Sink(self.sink) as sink:
            group = server.launch(sys.executable, str(HERE / "mail_stages.py"), str(path))
            try:
                send(server, sink, mails, lambda: os.kill(group.pid, signal.SIGUSR1))
            finally:
                server.stop()
        used: dict[str, float] = json.loads(path.read_text())
        return {stage: seconds / mails * 1000 for stage, seconds in used.items()}


def send(server: Server, sink: Sink, mails: int, warm: Callable[[], None] = lambda: None) -> tuple[float, float, float]:
    """Warm up, then send: first submission, last arrival, CPU seconds."""
    server.send(WARM)
    sink.wait_for(WARM, ARRIVE_S)
    before = settle(server)
    warm()
    started = server.send(mails)
    ended = sink.wait_for(WARM + mails, ARRIVE_S)
    return started, ended, settle(server) - before


def verified(mail: bytes, zone: dict[str, str]) -> int:
    """How many DKIM signatures a mail has; all of them must be good."""
    judge = dkim.DKIM(mail)
    count: int = sum(name.lower() == b"dkim-signature" for name, _ in judge.headers)
    for index in range(count):
        if not judge.verify(index, lambda name, timeout=5: zone[name.decode().rstrip(".")].encode()):
            raise SystemExit(f"a signature is not good:\n{mail.decode(errors='replace')}")
    if not count:
        raise SystemExit(f"a mail is not signed:\n{mail.decode(errors='replace')}")
    return count


def make_servers(folder: Path, sink: int) -> tuple[list[Server], dict[str, str]]:
    """Those that can be had, and why the others cannot."""
    token = make_token(secrets.token_bytes(ENTROPY_BYTES))
    servers: list[Server] = [Ours(folder, sink, token), OursRsa(folder, sink, token)]
    missing = {}
    for peer, install in ((Postfix, install_postfix), (Haraka, install_haraka)):
        try:
            install()
            servers.append(peer(folder, sink))
        except Missing as error:
            missing[peer.name] = str(error)
            print(f"{peer.name} is not measured: {error}", flush=True)
    return servers, missing


def run(folder: Path, mails: int, rounds: int) -> Results:
    try:
        install_postfix()
    except Missing as error:
        raise SystemExit(f"the sink is Postfix's smtp-sink, and it is not here: {error}") from None
    sink = free_port()
    servers, missing = make_servers(folder, sink)
    bench = Bench(folder, sink, servers)
    signatures, octets = bench.check()
    cells = [bench.measure(server, mails, round_) for round_ in range(1, rounds + 1) for server in servers]
    ours = next(server for server in servers if isinstance(server, Ours))
    return Results(
        mails=mails,
        labels={server.name: server.label for server in servers},
        missing=missing,
        signatures=signatures,
        octets=octets,
        cells=cells,
        stages=bench.stages(ours, mails),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--mails", type=int, default=3000, help="for each server and round (3000)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round of 300 mails; writes no docs")
    given = parser.parse_args()
    mails, rounds = (300, 1) if given.quick else (given.mails, given.rounds)
    # Here and not in /tmp, which may be memory: what is queued must reach a disk.
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=Path.cwd()))
    folder.chmod(0o755)
    try:
        machine = look_at_machine(folder)
        results = run(folder, mails, rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print_report(results)
    if not given.quick:
        write_docs(HERE.parent / "docs", results, machine, f"python bench/mail.py --mails {mails} --rounds {rounds}")


if __name__ == "__main__":
    main()
