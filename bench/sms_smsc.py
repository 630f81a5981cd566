"""The SMSC to which all servers submit: it accepts and counts every message, and sends no receipts.

The count is in a small file that the benchmark maps too, so that reading it costs the SMSC nothing.
"""

import argparse
import asyncio
import mmap
import socket
import struct
import sys
import time
from pathlib import Path
from typing import cast

from processes import Group

from heliograph.carriers.sms.smpp import command
from heliograph.carriers.sms.smpp.pdu import (
    Pdu,
    PduReader,
    ShortMessage,
    SmppAddress,
    decode_short_message,
    encode_bind,
    encode_pdu,
    encode_short_message,
)

COUNTS = struct.Struct("=QQd")  # submits, distinct destinations, time of the last submit (monotonic)
BARE = ShortMessage(source=SmppAddress(5, 0, "Bench"), destination=SmppAddress(1, 1, "447399999999"), text=b"x" * 80)


class Connection(asyncio.Protocol):
    def __init__(self, counts: mmap.mmap, seen: set[str]) -> None:
        self._counts, self._seen = counts, seen
        self._frames = PduReader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        before, *_ = COUNTS.unpack_from(self._counts)
        submits, answers = before, []
        for pdu in self._frames.feed(data):
            body = b""
            if pdu.command == command.SUBMIT_SM:
                submits += 1
                self._seen.add(decode_short_message(pdu.body).destination.value)
                body = b"%08x\0" % submits
            elif pdu.command & command.RESP:
                continue
            elif pdu.command == command.BIND_TRANSCEIVER:
                body = b"smsc\0"
            answers.append(encode_pdu(pdu.command | command.RESP, pdu.sequence, body))
        if submits > before:
            COUNTS.pack_into(self._counts, 0, submits, len(self._seen), time.monotonic())
        self._transport.write(b"".join(answers))


async def serve(port: int, path: Path) -> None:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), COUNTS.size) as counts:
        seen: set[str] = set()
        server = await asyncio.get_running_loop().create_server(lambda: Connection(counts, seen), "127.0.0.1", port)
        await server.serve_forever()


class Smsc:
    """The SMSC's process, as seen by the benchmark."""

    def __init__(self, folder: Path, port: int) -> None:
        self.port, path = port, folder / "smsc.counts"
        path.write_bytes(bytes(COUNTS.size))
        with path.open("r+b") as file:
            self._counts = mmap.mmap(file.fileno(), COUNTS.size)
        program = [sys.executable, __file__, str(port), str(path)]
        self._group = Group("smsc", program, folder / "smsc.log", None)
        self._group.wait_for(("127.0.0.1", port))
        self.stop = self._group.stop

    def count(self) -> tuple[int, int]:
        """Return the number of submits, and of distinct destinations."""
        submits, different, _ = COUNTS.unpack_from(self._counts)
        return submits, different

    def wait_for(self, submits: int, limit_s: float) -> float:
        """Return when the submit with this number arrived, on the machine's monotonic clock."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            came, _, at = COUNTS.unpack_from(self._counts)
            if came >= submits:
                return float(at)
            time.sleep(0.005)
        raise SystemExit(f"after {limit_s:.0f} s only {came} of {submits} messages have come to the SMSC")

    def limit(self, submits: int, window: int) -> float:
        """Return the submits per second of a loop that does nothing else, one window after the other."""
        with socket.create_connection(("127.0.0.1", self.port)) as wire:
            wire.sendall(encode_pdu(command.BIND_TRANSCEIVER, 1, encode_bind("bench", "bench", "")))
            _read(wire, PduReader(), 1)
            body = encode_short_message(BARE)
            batch = b"".join(encode_pdu(command.SUBMIT_SM, number, body) for number in range(1, window + 1))
            frames, started = PduReader(), time.perf_counter()
            for _ in range(submits // window):
                wire.sendall(batch)
                _read(wire, frames, window)
            return submits // window * window / (time.perf_counter() - started)


def _read(wire: socket.socket, frames: PduReader, pdus: int) -> None:
    came: list[Pdu] = []
    while len(came) < pdus:
        came += frames.feed(wire.recv(65536))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("counts", type=Path)
    options = parser.parse_args()
    asyncio.run(serve(options.port, options.counts))
