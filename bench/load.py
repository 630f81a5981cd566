"""The load of the benchmarks: several servers take turns of a quarter of a second.

So a slow moment of the machine affects all of them.
"""

import argparse
import json
import sys

import msgspec
from load_generator import Load, LoadRounds, LoadTarget, request

SENT = 1000  # distinct recipients, used in turn
TURN_S = 0.25


def make_requests(token: str) -> list[bytes]:
    return [_request(token, f"customer-{number}@example.com") for number in range(SENT)]


def _request(token: str, to: str) -> bytes:
    line = "Your order 4711 left our warehouse this morning and arrives on Thursday between 9 and 12. "
    mail = {
        "to": to,
        "from": "hello@bench.test",
        "subject": "Your order 4711 is on its way",
        "html": f"<html><body><h1>Hello</h1><p>{line * 4}</p></body></html>",
        "text": line * 4,
    }
    return request(token, mail)


def run(servers: list[LoadTarget], connections: int, seconds: float, requests: list[bytes]) -> list[dict[str, object]]:
    """Return the results of each server."""
    turns = [LoadRounds(server, connections, requests) for server in servers]
    measured = [Load() for _ in servers]
    pairs = list(zip(turns, measured, strict=True))
    for own, _ in pairs:
        own.run(min(TURN_S, seconds), Load())  # to warm up
    for number in range(max(1, round(seconds / TURN_S))):
        for own, into in pairs[:: 1 if number % 2 else -1]:
            own.run(min(TURN_S, seconds), into)
    return [_figures(one) for one in measured]


def _figures(one: Load) -> dict[str, object]:
    times = sorted(one.times)
    return {
        "answers": one.answers,
        "rate": one.answers / one.seconds,
        "cpu": one.cpu_s / one.answers * 1e6,
        "database": one.database_s / one.answers * 1e6,
        "p50": times[len(times) // 2] * 1000,
        "p99": times[len(times) * 99 // 100] * 1000,
        "wrong": one.wrong,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, epilog="the servers come by the standard input, as JSON")
    parser.add_argument("--token", required=True)
    parser.add_argument("--connections", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=5)
    options = parser.parse_args()
    servers = msgspec.json.decode(sys.stdin.buffer.read(), type=list[LoadTarget])
    print(json.dumps(run(servers, options.connections, options.seconds, make_requests(options.token))))
