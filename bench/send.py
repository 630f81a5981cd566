"""The load for any server: a number of HTTP requests, each sent once, over keep-alive connections.

All requests have the same text, except the number to which the message goes.
"""

import argparse
import json
import select
import sys
import time
from collections.abc import Iterator

from load_generator import END, LENGTH, STALLED_S, LoadClient

TO = b"447400000000"  # number in the text, replaced by increasing numbers
ACCEPTED = (b"200", b"202")


def whole(came: bytes) -> bool:
    """Return whether the complete response has arrived, whatever the case of its header, also if it is chunked."""
    head, ended, body = came.partition(END)
    if not ended:
        return False
    head = head.lower()
    if LENGTH in head:
        return len(body) >= int(head.partition(LENGTH)[2].split(b"\r")[0])
    return body.endswith(b"0" + END)


def make_requests(text: bytes, first: int, messages: int) -> list[bytes]:
    return [text.replace(TO, b"%d" % (int(TO) + first + number)) for number in range(messages)]


def run(port: int, connections: int, requests: list[bytes]) -> tuple[float, float]:
    """Return when the first request was sent and the last one answered, on the machine's monotonic clock."""
    epoll = select.epoll()
    callers = {}
    for _ in range(min(connections, len(requests))):
        caller = LoadClient(port)
        callers[caller.socket.fileno()] = caller
        epoll.register(caller.socket.fileno(), select.EPOLLIN)
    started = time.monotonic()
    unsent, answered = iter(requests), 0
    for caller in callers.values():
        send_next(caller, unsent)
    while answered < len(requests):
        ready = epoll.poll(STALLED_S)
        if not ready:
            raise SystemExit(f"no answer in {STALLED_S} s")
        for number, _ in ready:
            if receive(callers[number]):
                answered += 1
                send_next(callers[number], unsent)
    return started, time.monotonic()


def send_next(caller: LoadClient, unsent: Iterator[bytes]) -> None:
    if request := next(unsent, None):
        caller.socket.sendall(request)


def receive(caller: LoadClient) -> bool:
    """Return whether the response has arrived. A rejected request ends the run."""
    came = caller.socket.recv(65536)
    if not came:
        raise SystemExit("the server closed a connection")
    caller.came += came
    if not whole(caller.came):
        return False
    if caller.came[9:12] not in ACCEPTED:
        raise SystemExit(f"not accepted: {caller.came.decode(errors='replace')}")
    caller.came = b""
    return True


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, epilog="the request's text comes by the standard input")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--connections", type=int, default=128)
    options = parser.parse_args()
    requests = make_requests(sys.stdin.buffer.read(), options.first, options.messages)
    print(json.dumps(run(options.port, options.connections, requests)))
