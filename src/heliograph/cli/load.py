"""A load generator for `heliograph capacity` and `bench/`; each connection sends its next request when the previous
one is answered.

It uses plain sockets and one epoll, about 10 µs per request, so that the client is not the bottleneck.
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


class LoadCaller:
    __slots__ = ("came", "sent_at", "socket")

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.came = b""
        self.sent_at = 0.0


def request(token: str, mail: object) -> bytes:
    """Return the raw HTTP request that sends `mail`."""
    body = msgspec.json.encode(mail)
    head = (
        f"POST /v1/emails HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def whole(came: bytes) -> bool:
    """Return whether the bytes received are a complete HTTP response."""
    head = came.find(END)
    if head < 0:
        return False
    at = came.find(LENGTH, 0, head) + len(LENGTH)
    length = int(came[at : came.index(b"\r", at)])
    return len(came) >= head + len(END) + length


class Loaded(msgspec.Struct):
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


class Turns:
    def __init__(self, server: Loaded, connections: int, requests: Sequence[bytes]) -> None:
        self._server, self._requests, self._sent = server, requests, 0
        self._epoll, self._callers = select.epoll(), dict[int, LoadCaller]()
        for number in range(connections):
            caller = LoadCaller(server.ports[number % len(server.ports)])
            self._callers[caller.socket.fileno()] = caller
            self._epoll.register(caller.socket.fileno(), select.EPOLLIN)

    def take(self, seconds: float, into: Load) -> None:
        """Send requests for `seconds`, wait for the outstanding responses, and add the results to `into`."""
        cpu, database = cpu_s(self._server.pids), cpu_s(self._server.database_pids)
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
        into.database_s += cpu_s(self._server.database_pids) - database

    def _send(self, caller: LoadCaller) -> None:
        caller.sent_at = time.perf_counter()
        caller.socket.sendall(self._requests[self._sent % len(self._requests)])
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
