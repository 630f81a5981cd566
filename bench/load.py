"""The load: N keep-alive connections that each send the next request when the last one is answered.

Plain sockets on one epoll: about 10 µs a request, so that it is never what is measured.
"""

import argparse
import json
import select
import socket
import time

SENT = 1000  # different recipients, one after the other
LENGTH = b"content-length: "
END = b"\r\n\r\n"
STALLED_S = 10.0


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


def run(ports: list[int], connections: int, seconds: float, warmup: float, requests: list[bytes]) -> dict[str, object]:
    """Answers that came after the warm-up: how many a second, how long they took, and which were not 202; and how
    many came in all.
    """
    clock = time.perf_counter
    epoll = select.epoll()
    callers: dict[int, Caller] = {}
    for number in range(connections):
        caller = Caller(ports[number % len(ports)])
        callers[caller.socket.fileno()] = caller
        epoll.register(caller.socket.fileno(), select.EPOLLIN)
    count, errors, wrong = 0, 0, ""
    times: list[float] = []
    counted_from = clock() + warmup
    until = counted_from + seconds
    for caller in callers.values():
        caller.sent_at = clock()
        caller.socket.sendall(requests[count % SENT])
        count += 1
    now = clock()
    while now < until:
        ready = epoll.poll(STALLED_S)
        if not ready:
            raise SystemExit(f"no answer in {STALLED_S} s")
        for number, _ in ready:
            caller = callers[number]
            came = caller.socket.recv(65536)
            if not came:
                raise SystemExit("the server closed a connection")
            caller.came += came
            if not whole(caller.came):
                continue
            now = clock()
            if now >= counted_from:
                times.append(now - caller.sent_at)
                if caller.came[9:12] != b"202":
                    errors += 1
                    wrong = caller.came.decode()
            caller.came = b""
            caller.sent_at = now
            caller.socket.sendall(requests[count % SENT])
            count += 1
    for caller in callers.values():
        caller.socket.close()
    times.sort()
    return {
        "answers": count - connections,
        "rate": len(times) / (now - counted_from),
        "p50_ms": times[len(times) // 2] * 1000,
        "p99_ms": times[len(times) * 99 // 100] * 1000,
        "errors": errors,
        "wrong": wrong,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, action="append", required=True, help="in turn, where there are several")
    parser.add_argument("--token", required=True)
    parser.add_argument("--connections", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--warmup", type=float, default=0.5)
    given = parser.parse_args()
    result = run(given.port, given.connections, given.seconds, given.warmup, make_requests(given.token))
    print(json.dumps(result))
