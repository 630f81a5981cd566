"""Batches of 500 emails compared with single sends of the same emails, in one run: `make bench-batch`.

The server has core 1; the load and PostgreSQL have core 0.
"""

import time
from contextlib import ExitStack

from accept import AT, KINDS, Bench, at
from load import make_requests
from load_generator import END
from ours import TOKEN, Databases, Ours, revisions
from rounds import (
    Rounds,
    arguments,
    folder_on_disk,
    look_at_machine,
    made_by,
    share_cores,
    spread,
    table,
    turns,
    write_part,
)
from send import run

SIZE = 500
CONNECTIONS = 4
BATCHED = ", batches"
ABOUT = f"""# Sending in batches

`make bench-batch` compares emails sent {SIZE} per request (`POST /v1/emails/batch`) with the same emails sent
one per request.

- **Single sends**: as in accept.md at {AT} connections. **Batches**: over {CONNECTIONS} connections, each of which
  sends the next batch after the response. Both are durable before their 202, and each email has its own id, rows and
  checks.
- **Rounds**: both take turns on the same process, `heliograph serve --role api`; ratios are computed within a round.
  CPU time is the server's CPU time per email."""


def make_batches(count: int) -> list[bytes]:
    """Return request bodies with the same emails as the single sends."""
    head, *_ = make_requests(TOKEN)
    messages = [request.partition(END)[2] for request in make_requests(TOKEN)[:SIZE]]
    body = b'{"messages":[%s]}' % b",".join(messages)
    lines = [line for line in head.partition(END)[0].split(b"\r\n") if not line.startswith(b"content-length")]
    lines[0] = lines[0].replace(b"/v1/emails", b"/v1/emails/batch")
    return [b"\r\n".join([*lines, b"content-length: %d" % len(body)]) + END + body] * count


def measure_batches(bench: Bench, server: Ours, count: int, round_: int) -> None:
    used, began = server.cpu_s(), time.monotonic()
    database = bench.databases.cpu_s()
    run(server.port, CONNECTIONS, make_batches(count))
    took, emails = time.monotonic() - began, count * SIZE
    cpu = (server.cpu_s() - used) / emails * 1e6
    own = (bench.databases.cpu_s() - database) / emails * 1e6
    bench.rounds.note(server.name + BATCHED, round_, rate=emails / took, cpu=cpu, database=own)


def batch_table(rounds: Rounds, servers: list[str]) -> str:
    rows = [
        [
            "",
            "emails/s, single",
            "in batches",
            "times",
            "CPU µs, single",
            "in batches",
            "of it",
            "database's",
            "in batches",
        ]
    ]
    for server in servers:
        single, batched = at(server, AT), server + BATCHED
        rates, costs = ([spread(rounds.values(one, figure)) for one in (single, batched)] for figure in ("rate", "cpu"))
        rows.append([server, *rates, spread(rounds.ratios(batched, single, "rate"), ".2f")])
        rows[-1] += [*costs, spread(rounds.ratios(batched, single, "cpu"), ".2f")]
        own = [spread(rounds.values(one, "database")) for one in (single, batched)]
        rows[-1] += own if KINDS["postgres"] in server else ["–", "–"]
    return table(*rows)


def main() -> None:
    options = arguments(__doc__, seconds=3.0, rounds=5, batches=20)
    seconds, rounds = (1.0, 1) if options.quick else (options.seconds, options.rounds)
    share_cores()
    with folder_on_disk() as folder, ExitStack() as stack:
        machine = look_at_machine(folder)
        databases = Databases(folder)
        stack.callback(databases.stop)
        bench = Bench(folder, databases, seconds)
        servers = []
        for revision in revisions(options.compare):
            for kind in KINDS:
                servers.append(bench.ours(revision, kind))
                stack.callback(servers[-1].stop)
        for round_ in range(1, rounds + 1):
            for server in turns(servers, round_):
                for batched in turns((False, True), round_):
                    if batched:
                        measure_batches(bench, server, options.batches, round_)
                    else:
                        bench.measure(server, AT, round_)
    print(figures := batch_table(bench.rounds, [server.name for server in servers]))
    if not options.quick:
        write_part("batch", [ABOUT, made_by(options, machine), figures])


if __name__ == "__main__":
    main()
