"""A load generator for the benchmarks.

Each connection sends its next request when the previous one is answered. It uses plain sockets and one epoll, about
10 µs per request, so that the client is not the bottleneck.
"""

import os
import select
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

LENGTH = b"content-length: "
END = b"\r\n\r\n"
STALLED_S = 10.0


class LoadClient:
    __slots__ = ("buffer", "sent_at", "socket")

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.sent_at = 0.0


def request(token: str, mail: object) -> bytes:
    """Return the raw HTTP request that sends `mail`."""
    body = msgspec.json.encode(mail)
    head = (
        f"POST /v1/emails HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def is_complete(received: bytes) -> bool:
    """Return whether the bytes received are a complete HTTP response."""
    head = received.find(END)
    if head < 0:
        return False
    at = received.find(LENGTH, 0, head) + len(LENGTH)
    length = int(received[at : received.index(b"\r", at)])
    return len(received) >= head + len(END) + length


class LoadTarget(msgspec.Struct):
    """A server under load: its ports, its processes and those of its database, whose CPU time is measured."""

    ports: list[int]
    pids: list[int]
    database_pids: list[int] = []


class Load(msgspec.Struct):
    """The accumulated results of a server's load rounds."""

    answers: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    database_s: float = 0.0
    times: list[float] = msgspec.field(default_factory=list)
    wrong: str = ""  # last response whose status was not 202


class LoadRounds:
    def __init__(self, server: LoadTarget, connections: int, requests: Sequence[bytes]) -> None:
        self._server, self._requests, self._sent = server, requests, 0
        self._epoll, self._clients = select.epoll(), dict[int, LoadClient]()
        for number in range(connections):
            client = LoadClient(server.ports[number % len(server.ports)])
            self._clients[client.socket.fileno()] = client
            self._epoll.register(client.socket.fileno(), select.EPOLLIN)

    def run(self, seconds: float, result: Load) -> None:
        """Send requests for `seconds`, wait for the outstanding responses, and add the results to `result`."""
        cpu, database = cpu_s(self._server.pids), cpu_s(self._server.database_pids)
        started = now = time.perf_counter()
        waiting = 0
        for client in self._clients.values():
            self._send(client)
            waiting += 1
        while waiting:
            ready = self._epoll.poll(STALLED_S)
            if not ready:
                raise SystemExit(f"no response in {STALLED_S} s")
            for descriptor, _ in ready:
                client = self._clients[descriptor]
                received = client.socket.recv(65536)
                if not received:
                    raise SystemExit("the server closed a connection")
                client.buffer += received
                if not is_complete(client.buffer):
                    continue
                now = time.perf_counter()
                result.times.append(now - client.sent_at)
                if client.buffer[9:12] != b"202":
                    result.wrong = client.buffer.decode()
                result.answers += 1
                waiting -= 1
                client.buffer = b""
                if now < started + seconds:
                    self._send(client)
                    waiting += 1
        result.seconds += now - started
        result.cpu_s += cpu_s(self._server.pids) - cpu
        result.database_s += cpu_s(self._server.database_pids) - database

    def _send(self, client: LoadClient) -> None:
        client.sent_at = time.perf_counter()
        client.socket.sendall(self._requests[self._sent % len(self._requests)])
        self._sent += 1


def cpu_s(pids: Sequence[int]) -> float:
    """Return the CPU seconds of all live threads of `pids`, in ns from schedstat, else in clock ticks from stat."""
    used = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            used += int(task.read_text().split()[0])
    return used / 1e9 or sum(map(_ticks, pids)) / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> int:
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(after_name[11]) + int(after_name[12])
