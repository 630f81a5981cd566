"""A mail sink that records each mail: its number in the load, the start of its transaction, and its acceptance.

It writes one record per mail into a file that the benchmark reads; times are from the machine's monotonic clock.
"""

import argparse
import asyncio
import re
import struct
import sys
import time
from pathlib import Path
from typing import IO, cast

from processes import Group
from rounds import free_port

RECORD = struct.Struct("=Qdd")  # the recipient's number, time of the first command, time of acceptance
END = b"\r\n.\r\n"

_NUMBER = re.compile(rb"(?i)RCPT TO:<[^>]*?([0-9]+)@")


class Session(asyncio.Protocol):
    """One connection; commands may be pipelined."""

    def __init__(self, log: IO[bytes]) -> None:
        self._log, self._came, self._began, self._number = log, b"", 0.0, 0
        self._in_mail = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(b"220 sink\r\n")

    def data_received(self, octets: bytes) -> None:
        self._came += octets
        self._began = self._began or time.monotonic()
        answers = []
        while answer := self._next():
            answers.append(answer)
        self._transport.write(b"".join(answers))

    def _next(self) -> bytes:
        """Return the reply to the next command; empty if the command is not complete yet."""
        if self._in_mail:
            end = self._came.find(END)
            if end < 0:
                return b""
            self._came, self._in_mail = self._came[end + len(END) :], False
            self._log.write(RECORD.pack(self._number, self._began, time.monotonic()))
            self._began = 0.0
            return b"250 taken\r\n"
        line, whole, rest = self._came.partition(b"\r\n")
        if not whole:
            return b""
        self._came = rest
        match line[:4].upper():
            case b"EHLO":
                return b"250-sink\r\n250-PIPELINING\r\n250-8BITMIME\r\n250 SIZE 50000000\r\n"
            case b"RCPT":
                found = _NUMBER.match(line)
                self._number = int(found[1]) if found else 0
            case b"DATA":
                self._in_mail = True
                return b"354 go on\r\n"
            case b"QUIT":
                self._transport.write(b"221 bye\r\n")
                self._transport.close()
                return b""
        return b"250 ok\r\n"


async def serve(port: int, path: Path) -> None:
    with path.open("wb", buffering=0) as log:
        server = await asyncio.get_running_loop().create_server(lambda: Session(log), "127.0.0.1", port, backlog=1000)
        await server.serve_forever()


class Stamps(Group):
    """The sink's process, as seen by the benchmark."""

    def __init__(self, folder: Path) -> None:
        self._path, port = folder / "stamps", free_port()
        command = [sys.executable, __file__, str(port), str(self._path)]
        super().__init__("sink", command, folder / "stamps.log", port=port)
        self.wait_for(("127.0.0.1", port))

    def count(self) -> int:
        return self._path.stat().st_size // RECORD.size

    def read(self) -> list[tuple[int, float, float]]:
        came = self._path.read_bytes()
        return list(RECORD.iter_unpack(came[: len(came) // RECORD.size * RECORD.size]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    asyncio.run(serve(options.port, options.file))
