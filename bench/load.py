"""The load: N keep-alive connections that each send the next request when the last one is answered.

Several servers take turns of a quarter of a second, so that a slow moment of the machine meets them all. Plain sockets
on one epoll: about 10 µs a request, so that it is never what is measured.
"""

import argparse
import json
import select
import socket
import sys
import time
from pathlib import Path

import msgspec

SENT = 1000  # different recipients, one after the other
LENGTH = b"content-length: "
END = b"\r\n\r\n"
STALLED_S = 10.0
TURN_S = 0.25


class Caller:
    """One connection: its socket, what came so far, when its request was sent."""

    __slots__ = ("came", "sent_at", "socket")

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.came = b""
        self.sent_at = 0.0


def make_requests(token: str) -> list[bytes]:
    return [_request(token, f"customer-{number}@example.com") for number in range(SENT)]


def _request(token: str, to: str) -> bytes:
    line = "Your order 4711 left our warehouse this morning and arrives on Thursday between 9 and 12. "
    body = json.dumps(
        {
            "to": to,
            "from": "hello@bench.test",
            "subject": "Your order 4711 is on its way",
            "html": f"<html><body><h1>Hello</h1><p>{line * 4}</p></body></html>",
            "text": line * 4,
        }
    ).encode()
    head = (
        f"POST /v1/emails HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def whole(came: bytes) -> bool:
    """Has the whole answer come?"""
    head = came.find(END)
    if head < 0:
        return False
    at = came.find(LENGTH, 0, head) + len(LENGTH)
    length = int(came[at : came.index(b"\r", at)])
    return len(came) >= head + len(END) + length


class Server(msgspec.Struct):
    """Where it listens, which processes its CPU time is made of, and those of its database."""

    ports: list[int]
    pids: list[int]
    database: list[int]


class Measured(msgspec.Struct):
    """All turns of one server together."""

    answers: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    database_s: float = 0.0
    times: list[float] = msgspec.field(default_factory=list)
    wrong: str = ""  # an answer that was not 202


class Turns:
    def __init__(self, server: Server, connections: int, requests: list[bytes]) -> None:
        self._server, self._requests, self._sent = server, requests, 0
        self._epoll, self._callers = select.epoll(), dict[int, Caller]()
        for number in range(connections):
            caller = Caller(server.ports[number % len(server.ports)])
            self._callers[caller.socket.fileno()] = caller
            self._epoll.register(caller.socket.fileno(), select.EPOLLIN)

    def take(self, seconds: float, into: Measured) -> None:
        """For so long, and until the last answer has come."""
        cpu, database = cpu_s(self._server.pids), cpu_s(self._server.database)
        began = now = time.perf_counter()
        waiting = 0
        for caller in self._callers.values():
            self._send(caller)
            waiting += 1
        while waiting:
            ready = self._epoll.poll(STALLED_S)
            if not ready:
                raise SystemExit(f"no answer in {STALLED_S} s")
            for number, _ in ready:
                caller = self._callers[number]
                came = caller.socket.recv(65536)
                if not came:
                    raise SystemExit("the server closed a connection")
                caller.came += came
                if not whole(caller.came):
                    continue
                now = time.perf_counter()
                into.times.append(now - caller.sent_at)
                if caller.came[9:12] != b"202":
                    into.wrong = caller.came.decode()
                into.answers += 1
                waiting -= 1
                caller.came = b""
                if now < began + seconds:
                    self._send(caller)
                    waiting += 1
        into.seconds += now - began
        into.cpu_s += cpu_s(self._server.pids) - cpu
        into.database_s += cpu_s(self._server.database) - database

    def _send(self, caller: Caller) -> None:
        caller.sent_at = time.perf_counter()
        caller.socket.sendall(self._requests[self._sent % SENT])
        self._sent += 1


def cpu_s(pids: list[int]) -> float:
    """Of all threads that live, to the nanosecond; in /proc/PID/stat it is to the hundredth of a second."""
    used = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            used += int(task.read_text().split()[0])
    return used / 1e9


def run(servers: list[Server], connections: int, seconds: float, requests: list[bytes]) -> list[dict[str, object]]:
    """One for each server."""
    turns = [Turns(server, connections, requests) for server in servers]
    measured = [Measured() for _ in servers]
    pairs = list(zip(turns, measured, strict=True))
    for own, _ in pairs:
        own.take(min(TURN_S, seconds), Measured())  # to warm up
    for number in range(max(1, round(seconds / TURN_S))):
        for own, into in pairs[:: 1 if number % 2 else -1]:
            own.take(min(TURN_S, seconds), into)
    return [_figures(one) for one in measured]


def _figures(one: Measured) -> dict[str, object]:
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
    given = parser.parse_args()
    servers = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Server])
    print(json.dumps(run(servers, given.connections, given.seconds, make_requests(given.token))))
