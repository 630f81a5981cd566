"""Benchmark of accepting sends, compared with a floor and a baseline in one run: `make bench`.

The load (and PostgreSQL) runs on core 0, the measured server on core 1. All servers stay up; each is measured once per
round at each number of connections, so that a slow minute of the machine affects all of them.
"""

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from load import make_requests
from matplotlib.figure import Figure
from ours import TOKEN, Databases, Ours, Revision, revisions
from processes import Group, family, settle
from rounds import (
    LOAD_CORE,
    RESULTS,
    ROOT,
    SERVER_CORE,
    Rounds,
    arguments,
    folder_on_disk,
    free_port,
    look_at_machine,
    made_by,
    share_cores,
    spread,
    table,
    turns,
    verdict,
    write_part,
)

HERE = ROOT / "bench"
KINDS = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
FLOOR, BASELINE = "bare ASGI echo (floor)", "FastAPI + aiosqlite (baseline)"
AT = 128  # expectations apply to this number of connections
CPU_MOST = 0.7  # maximum CPU time, relative to the compared revision
MANY = 9000  # successive connections, whose memory must be freed
DRAIN_S = 60.0  # timeout for delivering everything accepted
LOAD_S = 300.0
ALONE, DELIVERING, TWO = "", ", delivering too", ", two processes"


def ours(revision: Revision, kind: str, how: str = ALONE) -> str:
    return revision.called(f"Heliograph, {KINDS[kind]}{how}")


def at(server: str, connections: int) -> str:
    return f"{server} | {connections}"


class Bench:
    def __init__(self, folder: Path, databases: Databases, seconds: float) -> None:
        self.folder, self.databases, self.seconds = folder, databases, seconds
        self.rounds = Rounds()
        self._started = 0

    def script(self, name: str, file: str, *args: str) -> Group:
        port = free_port()
        command = [sys.executable, str(HERE / file), str(port), *args]
        server = Group(name, command, self.folder / f"{file}.log", port=port, core=SERVER_CORE)
        server.wait_for(("127.0.0.1", port))
        return server

    def floor(self) -> Group:
        return self.script(FLOOR, "floor.py")

    def baseline(self) -> Group:
        return self.script(BASELINE, "baseline.py", str(self.folder / "baseline.db"), TOKEN)

    def ours(self, revision: Revision, kind: str, how: str = ALONE, role: str = "api") -> Ours:
        self._started += 1
        name = f"ours-{self._started}"
        database = self.databases.new(kind, name)
        where = self.folder / name
        return Ours(revision, ours(revision, kind, how), where, database, "--role", role, core=SERVER_CORE)

    def measure(self, server: Group, connections: int, round_: int, name: str = "", drained: bool = False) -> None:
        """Measure one server at one number of connections.

        `drained`: also measure the CPU time until everything accepted is delivered.
        """
        used = server.cpu_s()
        (result,) = self.load([[server]], connections)
        if drained:
            result["cpu"] = (settle(server, DRAIN_S) - used) / result["answers"] * 1e6
        self.note_accepts(name or server.name, connections, round_, result, server.rss_mb())

    def note_accepts(self, name: str, connections: int, round_: int, result: dict[str, float], mb: float) -> None:
        figures = {figure: result[figure] for figure in ("rate", "cpu", "database", "p50", "p99")}
        self.rounds.note(at(name, connections), round_, **figures, mb=mb)

    def load(self, servers: list[list[Group]], connections: int, seconds: float = 0.0) -> list[dict[str, Any]]:
        """Return rate, times and CPU time per accept of each server (and of PostgreSQL); the servers take turns."""
        args = [
            {
                "ports": [one.port for one in own],
                "pids": [pid for one in own for pid in family(one.pid)],
                "database_pids": list(self.databases.family()),
            }
            for own in servers
        ]
        options = [f"--connections={connections}", f"--seconds={seconds or self.seconds}"]
        done = subprocess.run(
            [sys.executable, str(HERE / "load.py"), "--token", TOKEN, *options],
            input=msgspec.json.encode(args),
            stdout=subprocess.PIPE,
            timeout=LOAD_S,
        )
        names = ", ".join(own[0].name for own in servers)
        if done.returncode:
            raise SystemExit(f"{names}, {connections} connections: the load failed")
        results: list[dict[str, Any]] = json.loads(done.stdout)
        if wrong := [result["wrong"] for result in results if result["wrong"]]:
            raise SystemExit(f"{names}: an answer was not 202:\n{wrong[0]}")
        return results

    def measure_delivering(self, revision: Revision, round_: int) -> None:
        """Measure accepting while delivering.

        The server is up only meanwhile, so that it does not disturb the others.
        """
        server = self.ours(revision, "sqlite", DELIVERING, "all")
        try:
            self.measure(server, AT, round_, drained=True)
        finally:
            server.stop()

    def measure_two(self, revision: Revision, round_: int) -> None:
        """Measure two API processes on one file, on both cores, like the load."""
        with ExitStack() as stack:
            first = self.ours(revision, "sqlite", TWO)
            stack.callback(first.stop)
            second = Ours(revision, first.name, first.folder, first.database, "--role", "api", core=LOAD_CORE)
            stack.callback(second.stop)
            (result,) = self.load([[first, second]], AT)
            self.note_accepts(first.name, AT, round_, result, first.rss_mb() + second.rss_mb())

    def measure_memory(self, revision: Revision, round_: int) -> None:
        """Measure the memory that remains after many closed connections with one request each."""
        server = self.ours(revision, "sqlite")
        try:
            connect(server.port, 1000)
            settle(server)
            before = server.rss_mb()
            connect(server.port, MANY)
            settle(server)
            self.rounds.note(server.name, round_, left=server.rss_mb() - before)
        finally:
            server.stop()


def connect(port: int, times: int) -> None:
    """Open this many connections, some hundreds at a time, and send one request on each."""
    requests = make_requests(TOKEN)
    for first in range(0, times, 300):
        wires = [socket.create_connection(("127.0.0.1", port)) for _ in range(min(300, times - first))]
        for wire, request in zip(wires, requests, strict=False):
            wire.sendall(request)
        for wire in wires:
            came = wire.recv(65536)
            if came[9:12] != b"202":
                raise SystemExit(f"not accepted: {came.decode()}")
            wire.close()


def run(bench: Bench, compared: list[Revision], connections: list[int], rounds: int, only: str) -> None:
    starts: dict[str, Callable[[], Group]] = {FLOOR: bench.floor, BASELINE: bench.baseline}
    extras: dict[str, Callable[[int], None]] = {}
    for revision in compared:
        for kind in KINDS:
            starts[ours(revision, kind)] = partial(bench.ours, revision, kind)
        extras[ours(revision, "sqlite", DELIVERING)] = partial(bench.measure_delivering, revision)
        extras[ours(revision, "sqlite", TWO)] = partial(bench.measure_two, revision)
        extras[ours(revision, "sqlite", ", memory")] = partial(bench.measure_memory, revision)
    with ExitStack() as stack:
        servers = []
        for start in [start for name, start in starts.items() if only in name]:
            servers.append(start())
            stack.callback(servers[-1].stop)
        for round_ in range(1, rounds + 1):
            for number in connections:
                for server, result in zip(servers, bench.load([[one] for one in servers], number), strict=True):
                    bench.note_accepts(server.name, number, round_, result, server.rss_mb())
            for extra in turns([extra for name, extra in extras.items() if only in name], round_):
                extra(round_)


# -- what the figures say -----------------------------------------------------------------------------------


def expectations(rounds: Rounds, compared: list[Revision]) -> str:
    """Return a table of the expectations, and the results of the older revision and of this one."""
    at_most = {
        "one request alone, SQLite, p50 ms": (at("{}", 1), "p50", "sqlite", ALONE, 0.7, ".2f"),
        "one request alone, PostgreSQL, p50 ms": (at("{}", 1), "p50", "postgres", ALONE, 1.5, ".2f"),
        f"{AT} connections, SQLite, CPU µs for each": (at("{}", AT), "cpu", "sqlite", ALONE, None, ",.0f"),
        f"{AT} connections, PostgreSQL, CPU µs for each": (at("{}", AT), "cpu", "postgres", ALONE, None, ",.0f"),
        f"{AT} connections, SQLite, p99 ms": (at("{}", AT), "p99", "sqlite", ALONE, 60, ".1f"),
        f"{AT} connections, PostgreSQL, p99 ms": (at("{}", AT), "p99", "postgres", ALONE, 60, ".1f"),
        "two API processes on SQLite, p99 ms": (at("{}", AT), "p99", "sqlite", TWO, 100, ".1f"),
        "accepting and delivering, SQLite, CPU µs": (at("{}", AT), "cpu", "sqlite", DELIVERING, None, ",.0f"),
        f"MB left of {MANY:,} connections": ("{}", "left", "sqlite", ALONE, 3, "+.1f"),
        "resident MB, SQLite": (at("{}", AT), "mb", "sqlite", ALONE, 90, ".0f"),
    }  # fmt: skip
    rows = [["", "expected", *[revision.name or "now" for revision in compared[::-1]], ""]]
    if len(compared) > 1:
        rows[0].append(f"of {compared[1].name}")
    for kind, wanted in (("sqlite", 0.42), ("postgres", 0.34)):
        for figure, words in (("rate", "accepts/s"), ("cpu", "CPU time")):
            found = [_of_floor(rounds, ours(revision, kind), figure) for revision in compared[::-1]]
            met = verdict(median(found[-1]) >= wanted) if found[-1] and figure == "rate" else ""
            name = f"{KINDS[kind]} at {AT}: {words}, of the floor"
            rows.append([name, f"≥ {wanted:.2f}", *[spread(one, ".2f") for one in found], met])
            if len(compared) > 1:
                rows[-1].append(spread([a / b for a, b in zip(found[1], found[0], strict=True)], ".2f"))
    for name, (key, figure, kind, how, most, form) in at_most.items():
        keys = [key.format(ours(revision, kind, how)) for revision in compared[::-1]]
        found = [rounds.values(key, figure) for key in keys]
        wanted, met = f"≤ {most:g}" if most else "–", verdict(median(found[-1]) <= most) if most and found[-1] else ""
        ratios = rounds.ratios(keys[1], keys[0], figure) if len(compared) > 1 and figure != "left" else []
        if ratios and figure == "cpu":
            wanted, met = f"≤ {CPU_MOST:.2f} ×", verdict(median(ratios) <= CPU_MOST)
        rows.append([name, wanted, *[spread(one, form) for one in found], met])
        if len(compared) > 1:
            rows[-1].append(spread(ratios, ".2f") if ratios else "")
    return table(*rows)


def _of_floor(rounds: Rounds, server: str, figure: str) -> list[float]:
    """Return the share of the floor's speed that a server reaches, by rate or by CPU time."""
    key, floor = at(server, AT), at(FLOOR, AT)
    return rounds.ratios(key, floor, "rate") if figure == "rate" else rounds.ratios(floor, key, "cpu")


def figures(rounds: Rounds) -> str:
    rows = [
        [
            "server",
            "connections",
            "accepts/s",
            "of floor",
            "× baseline",
            "CPU µs",
            "database's",
            "p50 ms",
            "p99 ms",
            "MB",
        ]
    ]
    for key in rounds.servers():
        server, _, connections = key.partition(" | ")
        if not connections:
            continue
        rows.append(
            [
                server,
                connections,
                spread(rounds.values(key, "rate")),
                spread(rounds.ratios(key, at(FLOOR, int(connections)), "rate"), ".2f"),
                f"{median(rounds.ratios(key, at(BASELINE, int(connections)), 'rate') or [0]):.1f}",
                spread(rounds.values(key, "cpu")),
                f"{median(rounds.values(key, 'database')):,.0f}" if KINDS["postgres"] in server else "–",
                f"{median(rounds.values(key, 'p50')):.2f}",
                spread(rounds.values(key, "p99"), ".1f"),
                f"{rounds.values(key, 'mb')[0]:.0f} → {rounds.values(key, 'mb')[-1]:.0f}",
            ]
        )  # fmt: skip
    return table(*rows)


def plot(rounds: Rounds, connections: list[int]) -> None:
    figure = Figure(figsize=(12, 4), layout="constrained")
    panels = (("accepts a second", "rate", "log"), ("CPU µs for an accept", "cpu", "log"), ("p99, ms", "p99", "log"))
    servers = dict.fromkeys(key.partition(" | ")[0] for key in rounds.servers() if " | " in key)
    for place, (title, what, scale) in enumerate(panels, 1):
        axes = figure.add_subplot(1, 3, place)
        for server in servers:
            own = [number for number in connections if rounds.values(at(server, number), what)]
            values = [median(rounds.values(at(server, number), what)) for number in own]
            axes.plot([str(number) for number in own], values, "o-", label=server)
        axes.set(title=title, xlabel="connections", yscale=scale)
        axes.grid(alpha=0.3)
    names, lines = figure.axes[0].get_legend_handles_labels()[::-1]
    figure.legend(lines, names, loc="outside lower center", ncols=3, fontsize="small")
    figure.savefig(RESULTS / "accept.svg", metadata={"Date": None})


def main() -> None:
    args = arguments(__doc__, seconds=3.0, rounds=5, connections="1,32,128,256", only="")
    seconds, rounds = (1.0, 1) if args.quick else (args.seconds, args.rounds)
    connections, compared = [int(number) for number in args.connections.split(",")], revisions(args.compare)
    share_cores()
    with folder_on_disk() as folder, ExitStack() as stack:
        machine = look_at_machine(folder)
        databases = Databases(folder)
        stack.callback(databases.stop)
        bench = Bench(folder, databases, seconds)
        run(bench, compared, connections, rounds, args.only)
    print(f"\n{figures(bench.rounds)}\n\n{expectations(bench.rounds, compared)}")
    if not args.quick and not args.only:
        plot(bench.rounds, connections)
        picture = "![accepts a second, CPU time and p99 by connections](accept.svg)"
        made = made_by(args, machine)
        write_part("accept", [made, expectations(bench.rounds, compared), figures(bench.rounds), picture])


if __name__ == "__main__":
    main()
