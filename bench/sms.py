"""How fast SMS go from HTTP to an SMSC, beside Jasmin and Kannel, in one run: `make bench-sms`.

All servers stay up and share the machine with their client and the SMSC; they take turns in each round.
"""

import argparse
import secrets
import shutil
import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path

from accept import HERE, free_port, look_at_machine
from mail_install import Missing
from settle import settle
from sms_install import install_jasmin, install_kannel
from sms_jasmin import Jasmin
from sms_report import Cell, Results, print_report, write_docs
from sms_servers import WINDOW, Kannel, Ours, Server
from sms_smsc import Smsc

from heliograph.rules.setup.keys import ENTROPY_BYTES, make_token

WARM = 300  # messages before all measures
BARE = 50_000  # submits that the SMSC's own limit is measured with
ARRIVE_S = 60.0
WHOLE_S = 330  # for the bench with all that it installs


class Bench:
    def __init__(self, smsc: Smsc) -> None:
        self.smsc, self.sent = smsc, 0
        self.cells: list[Cell] = []

    def send(self, server: Server, request: str, messages: int) -> tuple[float, float, float]:
        """Seconds to the last answer and to the last submit, and CPU seconds; every message must arrive once."""
        used, (submits, different) = settle(server), self.smsc.count()
        started, answered = server.send(request, self.sent, messages)
        self.sent += messages
        ended = self.smsc.wait_for(submits + messages, ARRIVE_S)
        used = settle(server) - used
        if self.smsc.count() != (submits + messages, different + messages):
            raise SystemExit(f"{server.name} lost messages or sent some twice")
        return answered - started, ended - started, used

    def measure(self, server: Server, name: str, messages: int, round_: int) -> None:
        to_answer, to_submit, used = self.send(server, server.requests()[name], messages)
        cell = Cell(
            server=name,
            round=round_,
            rate=messages / to_submit,
            accepted=messages / to_answer,
            cpu_ms=used / messages * 1000,
        )
        self.cells.append(cell)
        print(f"round {round_}  {name:25} {cell.rate:6.0f} messages/s  {cell.cpu_ms:5.2f} CPU ms each", flush=True)


def start_servers(folder: Path, smsc: int, stack: ExitStack) -> tuple[list[Server], dict[str, str]]:
    """Those that can be had, and why the others cannot; the stack stops them."""
    ours = Ours(folder, smsc, make_token(secrets.token_bytes(ENTROPY_BYTES)))
    stack.callback(ours.stop)
    ours.start()
    servers: list[Server] = [ours]
    missing = {}
    for kind, install in ((Jasmin, install_jasmin), (Kannel, install_kannel)):
        try:
            install()
            peer = kind(folder, smsc)
            stack.callback(peer.stop)
            peer.start()
            servers.append(peer)
        except (Missing, SystemExit) as error:
            missing[kind.name], *more = str(error).splitlines()
            print("\n".join([f"{kind.name} is not measured: {missing[kind.name]}", *more]), flush=True)
    return servers, missing


def run(folder: Path, scale: float, rounds: int) -> Results:
    with ExitStack() as stack:
        smsc = Smsc(folder, free_port())
        stack.callback(smsc.stop)
        limit = smsc.limit(BARE, WINDOW)
        bench = Bench(smsc)
        servers, missing = start_servers(folder, smsc.port, stack)
        for server in servers:
            for request in server.requests().values():
                bench.send(server, request, WARM)
        for round_ in range(1, rounds + 1):
            for server in servers:
                for name in server.requests():
                    bench.measure(server, name, round(server.messages * scale), round_)
    durable = {name: server.durable for server in servers for name in server.requests()}
    return Results(durable=durable, missing=missing, limit=limit, cells=bench.cells)


def end_in_order(limit_s: int) -> None:
    """What was started is stopped, also when the bench is told to end or its time is over."""

    def end(number: int, _: object) -> None:
        raise KeyboardInterrupt(f"not finished after {limit_s} s" if number == signal.SIGALRM else "told to end")

    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, end)
    signal.alarm(limit_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=1, help="times as many messages for each server and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round of a fifth of the messages; writes no docs")
    given = parser.parse_args()
    scale, rounds = (0.2, 1) if given.quick else (given.scale, given.rounds)
    end_in_order(WHOLE_S)
    # Here and not in /tmp, which may be memory: a commit must reach a disk.
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=Path.cwd()))
    try:
        machine = look_at_machine(folder)
        results = run(folder, scale, rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print_report(results)
    if not given.quick:
        write_docs(HERE.parent / "docs", results, machine, f"python bench/sms.py --scale {scale:g} --rounds {rounds}")


if __name__ == "__main__":
    main()
