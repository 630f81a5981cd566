"""A webhook receiver that follows a script, in this process or as a separate one:

    python -m tests.carriers.hook_receiver --port 9000 --log got.jsonl --script 500,429:7,200 --script /slow=hang

A script has one word per request; the last one repeats. Words: a status (`200`, `500`, `410`), a status with
Retry-After (`429:7`), `hang`, `reset`, `redirect[:URL]`, `long`, `huge`, `trickle`, `garbage`, `cookie`, and `random`
(mostly 200, else 500, hang or reset). Requests are kept in memory or, with --log, written to the log before the
response, one JSON object per line.
"""

import argparse
import asyncio
import json
import random
import ssl
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import httptools
import msgspec

EVERYWHERE = ""  # key of the script for paths that have none
LONG = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000
HUGE = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n" + b"x" * 65536


class Received(msgspec.Struct, frozen=True):
    at: float  # unix seconds
    path: str
    headers: dict[str, str]  # names in lower case
    body: str
    action: str  # how the receiver responded


class Receiver:
    def __init__(
        self,
        script: Sequence[str] | Mapping[str, Sequence[str]] = ("200",),
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        log: Path | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.scripts = dict(script) if isinstance(script, Mapping) else {EVERYWHERE: script}
        self.received: list[Received] = []
        self.accepted = 0  # number of accepted connections
        self.host, self.port, self.tls = host, port, tls
        self._log: IO[str] | None = log.open("a", encoding="utf-8", buffering=1) if log else None
        self._times: Counter[str] = Counter()
        self._random = random.Random(0)
        self.open: set[_Connection] = set()

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.tls else ''}://{host}:{self.port}"

    async def __aenter__(self) -> Self:
        make: Callable[[], _Connection] = lambda: _Connection(self)  # noqa: E731
        self._server = await asyncio.get_running_loop().create_server(make, self.host, self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for connection in list(self.open):
            connection.transport.abort()
        if self._log:
            self._log.close()

    def next_action(self, path: str, headers: dict[str, str], body: str) -> str:
        script = self.scripts.get(path) or self.scripts.get(EVERYWHERE) or ("200",)
        action = script[min(self._times[path], len(script) - 1)]
        self._times[path] += 1
        if action == "random":
            action = self._random.choice(["200"] * 7 + ["500", "hang", "reset"])
        received = Received(time.time(), path, headers, body, action)
        if self._log:
            self._log.write(json.dumps(msgspec.structs.asdict(received)) + "\n")
        else:
            self.received.append(received)
        return action


class _Connection(asyncio.Protocol):
    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.parser = httptools.HttpRequestParser(self)
        self.trickling: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.receiver.accepted += 1
        self.receiver.open.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.receiver.open.discard(self)
        if self.trickling:
            self.trickling.cancel()

    def data_received(self, octets: bytes) -> None:
        try:
            self.parser.feed_data(octets)
        except httptools.HttpParserError:
            self.say("400")
            self.transport.close()

    def on_message_begin(self) -> None:
        self.path, self.headers, self.body = "", dict[str, str](), bytearray()

    def on_url(self, url: bytes) -> None:
        self.path += url.decode()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode().lower()] = value.decode()

    def on_body(self, octets: bytes) -> None:
        self.body += octets

    def on_message_complete(self) -> None:
        self.answer(self.receiver.next_action(self.path, self.headers, self.body.decode()))

    def answer(self, action: str) -> None:
        name, _, rest = action.partition(":")
        match name:
            case "hang":
                pass
            case "reset":
                self.transport.abort()
            case "redirect":
                self.say("302", f"Location: {rest or self.receiver.url + '/elsewhere'}\r\n")
            case "long":
                self.transport.write(LONG)
            case "huge":
                self.transport.write(HUGE)
            case "trickle":
                self.trickling = asyncio.create_task(self.trickle())
            case "garbage":
                self.transport.write(b"SSH-2.0-peer\r\n")
            case "cookie":
                self.say("200", "Set-Cookie: a=b\r\n")
            case _:
                self.say(name, f"Retry-After: {rest}\r\n" if rest else "")

    def say(self, status: str, header: str = "") -> None:
        text = "" if status == "204" else f"status {status}"
        self.transport.write(f"HTTP/1.1 {status} .\r\nContent-Length: {len(text)}\r\n{header}\r\n{text}".encode())

    async def trickle(self) -> None:
        """Send a status at once, and then a body that never ends."""
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            self.transport.write(b"x")
            await asyncio.sleep(0.01)


async def _serve(port: int, log: Path, scripts: Mapping[str, Sequence[str]]) -> None:
    async with Receiver(scripts, port=port, log=log) as receiver:
        print(receiver.url, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--script", action="append", default=[], help="words with commas, or /path=words")
    args = parser.parse_args()
    split = [script.rpartition("=") for script in args.script]
    asyncio.run(_serve(args.port, args.log, {path: actions.split(",") for path, _, actions in split}))


if __name__ == "__main__":
    main()
