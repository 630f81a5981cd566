"""An open-loop load generator: it sends a fixed number of requests per second, whether or not the service keeps up.

A request that finds no free connection opens one, and its time counts from when it was due. Each response becomes a
record in a file that the benchmark reads.
"""

import argparse
import select
import struct
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

import msgspec
from load_generator import LoadClient, is_complete
from rounds import ROOT
from send import TO

RECORD = struct.Struct("=Qddi30s")  # number, due time and response time (monotonic), status, message id
CONNECTIONS_MAX = 500
IDLE_S = 0.05
LAST_S = 60.0  # timeout for the last responses


class Answer(msgspec.Struct):
    id: str = ""


class Arrival(msgspec.Struct, frozen=True):
    number: int
    due: float
    answered: float
    status: int
    id: str


def run(port: int, text: bytes, rate: float, seconds: float, path: Path) -> None:
    count = int(rate * seconds)
    epoll, busy, idle = select.epoll(), dict[int, tuple[LoadClient, int, float]](), deque[LoadClient]()
    started, sent = time.monotonic(), 0
    with path.open("wb") as log:
        while sent < count or busy:
            now = time.monotonic()
            if now > started + seconds + LAST_S:
                raise SystemExit(f"{len(busy)} requests were not answered within {LAST_S:.0f} s")
            while sent < count and started + sent / rate <= now and (idle or len(busy) < CONNECTIONS_MAX):
                if idle:
                    caller = idle.popleft()  # in rotation, so that none is idle until the server closes it
                else:
                    caller = LoadClient(port)
                    epoll.register(caller.socket.fileno(), select.EPOLLIN)
                caller.socket.sendall(text.replace(TO, b"%012d" % sent))
                busy[caller.socket.fileno()] = (caller, sent, started + sent / rate)
                sent += 1
            wait = min(IDLE_S, max(0.0, started + sent / rate - time.monotonic()))
            for number, _ in epoll.poll(wait if sent < count else IDLE_S):
                if number not in busy:
                    raise SystemExit("the server closed a connection that was idle")
                caller, which, due = busy[number]
                came = caller.socket.recv(65536)
                if not came:
                    raise SystemExit("the server closed a connection")
                caller.came += came
                if is_complete(caller.came):
                    status = int(caller.came[9:12])
                    answer = msgspec.json.decode(caller.came.partition(b"\r\n\r\n")[2], type=Answer)
                    log.write(RECORD.pack(which, due, time.monotonic(), status, answer.id.encode()))
                    caller.came = b""
                    del busy[number]
                    idle.append(caller)


def read(path: Path) -> list[Arrival]:
    return [
        Arrival(number, due, answered, status, id_.rstrip(b"\0").decode())
        for number, due, answered, status, id_ in RECORD.iter_unpack(path.read_bytes())
    ]


def start(port: int, request: str, rate: float, seconds: float, path: Path) -> subprocess.Popen[bytes]:
    """Start the load in a process of its own, which ends by itself."""
    text = path.with_suffix(".request")
    text.write_text(request)
    options = [f"--port={port}", f"--rate={rate}", f"--seconds={seconds}", f"--text={text}", f"--log={path}"]
    return subprocess.Popen([sys.executable, str(ROOT / "bench/arrivals.py"), *options])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    args = parser.parse_args()
    run(args.port, args.text.read_bytes(), args.rate, args.seconds, args.log)
