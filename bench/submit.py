"""The load on a mail server: many mails over persistent connections, one command at a time."""

import argparse
import base64
import json
import select
import sys
import time

from load_generator import STALLED_S, LoadClient


def dialogue(sender: str, to: str, mail: bytes) -> list[tuple[bytes, bytes]]:
    """Return the commands of each mail, with the expected reply codes."""
    return [
        (f"MAIL FROM:<{sender}>\r\n".encode(), b"250"),
        (f"RCPT TO:<{to}>\r\n".encode(), b"250"),
        (b"DATA\r\n", b"354"),
        (mail + b"\r\n.\r\n", b"250"),
    ]


class Client(LoadClient):
    """Counts the replies so far: to the greeting, then to the mails."""

    __slots__ = ("steps",)

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.steps = 0


def hello(token: str) -> list[tuple[bytes, bytes]]:
    steps = [(b"", b"220"), (b"EHLO bench.test\r\n", b"250")]
    if token:
        steps.append((b"AUTH PLAIN " + base64.b64encode(b"\0bench\0" + token.encode()) + b"\r\n", b"235"))
    return steps


def is_whole(came: bytes) -> bool:
    """Return whether the reply is complete: its last line has a space after the code."""
    return came.endswith(b"\r\n") and came[came.rfind(b"\n", 0, -2) + 4 :][:1] == b" "


def run(
    port: int, connections: int, mails: int, begin: list[tuple[bytes, bytes]], each: list[tuple[bytes, bytes]]
) -> float:
    """Return the seconds from the first mail to the last one's reply, without the greetings."""
    epoll = select.epoll()
    clients = {client.socket.fileno(): client for client in (Client(port) for _ in range(connections))}
    for number in clients:
        epoll.register(number, select.EPOLLIN)
    left, taken, started, greeted = mails, 0, 0.0, 0

    def go_on(client: Client) -> None:
        """Start the client's next mail, if there is one left."""
        nonlocal left
        if left:
            left -= 1
            client.steps = 0
            client.socket.sendall(each[0][0])

    def receive(client: Client, steps: list[tuple[bytes, bytes]]) -> bool:
        """Return whether all replies have arrived."""
        client.came += client.socket.recv(65536)
        if not is_whole(client.came):
            return False
        if client.came[:3] != steps[client.steps][1]:
            raise SystemExit(f"not accepted: {client.came!r}")
        client.came = b""
        client.steps += 1
        if client.steps == len(steps):
            return True
        client.socket.sendall(steps[client.steps][0])
        return False

    while taken < mails:
        ready = epoll.poll(STALLED_S)
        if not ready:
            raise SystemExit(f"no answer in {STALLED_S} s")
        for number, _ in ready:
            if not receive(clients[number], begin if greeted < connections else each):
                continue
            if greeted < connections:
                greeted += 1
                if greeted == connections:
                    started = time.monotonic()
                    for client in clients.values():
                        go_on(client)
            else:
                taken += 1
                go_on(clients[number])
    return time.monotonic() - started


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, epilog="the mail comes by the standard input")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--mails", type=int, required=True)
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--token", default="")
    options = parser.parse_args()
    each = dialogue("hello@bench.test", "customer@example.com", sys.stdin.buffer.read())
    print(json.dumps(run(options.port, options.connections, options.mails, hello(options.token), each)))
