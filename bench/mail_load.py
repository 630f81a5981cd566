"""The load on our own server: a number of `POST /v1/emails`, each sent once, over keep-alive connections."""

import argparse
import json
import select
import time

from load import STALLED_S, Caller, whole

RECIPIENTS = 1000  # in turn
LINE = "Your order 4711 left our warehouse this morning and arrives on Thursday, 9 to 12."
LINES = 27  # of text, and again of HTML: the mail has 5 KiB with its header, before it is signed


def make_requests(token: str) -> list[bytes]:
    text = "\n".join([LINE] * LINES)
    html = "<html><body>" + "<br>\n".join([LINE] * LINES) + "</body></html>"
    fields = {"from": "hello@bench.test", "subject": "Your order 4711 is on its way", "html": html, "text": text}
    made = []
    for number in range(RECIPIENTS):
        body = json.dumps({"to": f"customer-{number}@example.com", **fields}).encode()
        head = (
            f"POST /v1/emails HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        made.append(head.encode() + body)
    return made


def run(port: int, connections: int, mails: int, requests: list[bytes]) -> float:
    """Returns when the first request was sent, on the machine's monotonic clock."""
    epoll = select.epoll()
    callers = {}
    for _ in range(min(connections, mails)):
        caller = Caller(port)
        callers[caller.socket.fileno()] = caller
        epoll.register(caller.socket.fileno(), select.EPOLLIN)
    started = time.monotonic()
    sent = answered = 0
    for caller in callers.values():
        caller.socket.sendall(requests[sent % RECIPIENTS])
        sent += 1
    while answered < mails:
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
            if caller.came[9:12] != b"202":
                raise SystemExit(f"not accepted: {caller.came.decode()}")
            caller.came = b""
            answered += 1
            if sent < mails:
                caller.socket.sendall(requests[sent % RECIPIENTS])
                sent += 1
    return started


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--mails", type=int, required=True)
    parser.add_argument("--connections", type=int, default=128)
    given = parser.parse_args()
    print(run(given.port, given.connections, given.mails, make_requests(given.token)))
