"""Benchmark of accepting sends into a cell on Citus, beside plain PostgreSQL of the same version: `make bench-cells`.

The load and all databases run on core 0, the measured API process on core 1. All servers stay up and take turns of a
quarter of a second, so that other work on the machine affects all of them; ratios are computed within a round.
"""

import os
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from accept import AT, Bench, at
from ours import NOW, Databases, Ours
from processes import family
from rounds import (
    Rounds,
    arguments,
    folder_on_disk,
    free_port,
    look_at_machine,
    made_by,
    share_cores,
    spread,
    table,
    verdict,
    write_part,
)
from tests.postgres_server import PostgresServer, temporary_folder
from tests.proof.citus import SETTINGS, Citus, built, running, worker_of

PLAIN, COORDINATOR, WORKER = "plain PostgreSQL", "Citus, through the coordinator", "Citus, at the cell's worker"
GOALS = {COORDINATOR: 0.6, WORKER: 0.8}  # rate at 128 connections, relative to plain PostgreSQL
DURABLE = {"fsync": "on", "full_page_writes": "on"}
COORDINATED, DIRECT = "cell_01", "cell_02"


class Nodes(Databases):
    """Plain PostgreSQL, and the nodes of Citus: the same programs and settings."""

    def __init__(self, plain: PostgresServer, citus: Citus) -> None:
        self._nodes = [plain, citus.coordinator, *citus.workers]

    def family(self) -> dict[int, int]:
        """Return the processes of all nodes. Only those of the server whose turn it is have work."""
        return {pid: ticks for node in self._nodes for pid, ticks in family(node.pid).items()}


def start_plain(folder: Path, programs: Path) -> tuple[PostgresServer, str]:
    """Start plain PostgreSQL; return the server and its URL."""
    port = free_port()
    own = {name: value for name, value in (SETTINGS | DURABLE).items() if "citus" not in name + value}
    server = PostgresServer(folder / "plain", programs, port=str(port), **own)
    return server, f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable"


def serve_cells(folder: Path, citus: Citus, plain_url: str, stack: ExitStack) -> list[Ours]:
    """Start an API process for each of the three ways to a database."""
    urls = {PLAIN: plain_url, COORDINATOR: citus.url(COORDINATED)}
    for cell in (COORDINATED, DIRECT):
        citus.run(f"CREATE SCHEMA {cell}")
        NOW.ask("migrate", "--database", citus.url(cell), "--data", str(folder / f"migrate-{cell}"))
    urls[WORKER] = citus.url(DIRECT, worker_of(citus, DIRECT))
    servers = []
    for number, (name, url) in enumerate(urls.items()):
        servers.append(Ours(NOW, name, folder / f"ours-{number}", url, "--role", "api", core=1))
        stack.callback(servers[-1].stop)
    return servers


def run(bench: Bench, servers: list[Ours], connections: list[int], rounds: int) -> list[float]:
    """Measure all servers in each round; return the load of the machine at each measurement."""
    loads = []
    for number in connections:  # the pools open their connections
        bench.load([[server] for server in servers], number, 1.0)
    for round_ in range(1, rounds + 1):
        for number in connections:
            results = bench.load([[server] for server in servers], number)
            loads.append(os.getloadavg()[0])
            print(f"round {round_}  load of the machine {loads[-1]:.1f}", flush=True)
            for server, result in zip(servers, results, strict=True):
                bench.note_accepts(server.name, number, round_, result, server.rss_mb())
    return loads


def expectations(rounds: Rounds, connections: list[int]) -> str:
    rows = [["rate, relative to plain PostgreSQL", "connections", "expected", "measured", ""]]
    for name, goal in GOALS.items():
        for number in connections:
            ratios = rounds.ratios(at(name, number), at(PLAIN, number), "rate")
            is_goal = number == AT
            met = verdict(median(ratios) >= goal) if is_goal else ""
            rows.append([name, str(number), f"≥ {goal:.2f}" if is_goal else "–", spread(ratios, ".2f"), met])
    return table(*rows)


def figures(rounds: Rounds) -> str:
    rows = [["", "connections", "accepts/s", "CPU µs", "databases' CPU µs", "p50 ms", "p99 ms"]]
    for key in rounds.servers():
        name, _, connections = key.partition(" | ")
        forms = {"rate": ",.0f", "cpu": ",.0f", "database": ",.0f", "p50": ".1f", "p99": ".1f"}
        rows.append([name, connections, *(spread(rounds.values(key, what), form) for what, form in forms.items())])
    return table(*rows)


def main() -> None:
    args = arguments(__doc__, seconds=4.0, rounds=9, connections="32,128")
    seconds, rounds = (1.0, 1) if args.quick else (args.seconds, args.rounds)
    connections = [int(number) for number in args.connections.split(",")]
    programs = built()
    share_cores()
    with folder_on_disk() as folder, temporary_folder() as data, ExitStack() as stack:
        machine = look_at_machine(folder)
        plain, plain_url = start_plain(data, programs)
        stack.callback(plain.stop)
        citus = stack.enter_context(running(**DURABLE))
        bench = Bench(folder, Nodes(plain, citus), seconds)
        loads = run(bench, serve_cells(folder, citus, plain_url, stack), connections, rounds)
    print(f"\n{figures(bench.rounds)}\n\n{expectations(bench.rounds, connections)}")
    if not args.quick:
        load = f"Load of the machine during the rounds: {spread(loads, '.1f')}."
        write_part(
            "cells", [made_by(args, machine), load, expectations(bench.rounds, connections), figures(bench.rounds)]
        )


if __name__ == "__main__":
    main()
