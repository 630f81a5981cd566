"""A webhook endpoint that responds 200 immediately and records each event: message, type, id and time."""

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import IO, cast

import httptools
import msgspec
from processes import Group
from rounds import free_port

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Subject(msgspec.Struct):
    id: str = ""


class Event(msgspec.Struct):
    id: str
    type: str
    data: Subject


class Session(asyncio.Protocol):
    def __init__(self, log: IO[bytes]) -> None:
        self._log, self._parser, self._body = log, httptools.HttpRequestParser(self), b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, octets: bytes) -> None:
        self._parser.feed_data(octets)

    def on_body(self, octets: bytes) -> None:
        self._body += octets

    def on_message_complete(self) -> None:
        event = msgspec.json.decode(self._body, type=Event)
        self._log.write(f"{event.data.id} {event.type} {event.id} {time.monotonic()}\n".encode())
        self._body = b""
        self._transport.write(OK)


async def serve(port: int, path: Path) -> None:
    with path.open("wb", buffering=0) as log:
        server = await asyncio.get_running_loop().create_server(lambda: Session(log), "127.0.0.1", port)
        await server.serve_forever()


class Hook(Group):
    """The endpoint's process, as seen by the benchmark."""

    def __init__(self, folder: Path) -> None:
        self.path, port = folder / "events", free_port()
        super().__init__("hook", [sys.executable, __file__, str(port), str(self.path)], folder / "hook.log", port=port)
        self.wait_for(("127.0.0.1", port))
        self.url = f"http://127.0.0.1:{port}"

    def count(self) -> int:
        return self.path.read_bytes().count(b"\n")

    def read(self) -> list[tuple[str, str, str, float]]:
        """Return (message, type, id, time) of each event."""
        return [(one, type_, id_, float(at)) for one, type_, id_, at in map(str.split, self.path.open())]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    asyncio.run(serve(options.port, options.file))
