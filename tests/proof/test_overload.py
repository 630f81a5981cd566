"""P12: three times what the service can do. What it cannot take it refuses in words; what it takes, it keeps.

Requests come at their time whether or not others were answered, as those of many callers do.
"""

import asyncio
import itertools
import json
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tests import service as services
from tests.journeys.load import ask_database, check_books, email, finished
from tests.proof.size import FULL, database_name, report, size
from tests.service import TOKENS, Service

SECONDS, AT_ONCE = size("P12 seconds"), size("P12 at once")
TIMES = 3
CLIENTS = 16  # that find out what the service can do
TICK_S = 0.01
MIB = 1 << 20
GROWTH_MAX = 64 * MIB

# The service with a smaller limit, for the short form.
SMALL = f"""
from heliograph.api import app
from heliograph.cli.main import main

app.ACTIVE_MAX = {AT_ONCE}
main()
"""


class Asked(msgspec.Struct):
    status: int  # 0: the connection was closed without an answer
    seconds: float
    retry_after: bool = False
    id: str = ""


class Callers:
    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._numbers = itertools.count()

    async def ask(self) -> Asked:
        """One request, on a connection that is free or a new one."""
        body = json.dumps(email(f"number {next(self._numbers)}")).encode()
        head = f"POST /v1/emails HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKENS['ACME']}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        began = time.monotonic()
        try:
            reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection("127.0.0.1", self._port)
            writer.write(head.encode() + body)
            lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
            headers = dict(line.split(b": ", 1) for line in lines[1:-2])
            raw = await reader.readexactly(int(headers[b"content-length"]))
        except (OSError, EOFError):
            return Asked(0, time.monotonic() - began)
        if headers.get(b"connection") == b"close":
            writer.close()
        else:
            self._idle.append((reader, writer))
        status = int(lines[0].split()[1])
        id_ = json.loads(raw)["id"] if status == 202 else ""
        return Asked(status, time.monotonic() - began, b"retry-after" in headers, id_)

    async def ask_in_turn(self, seconds: float, clients: int) -> list[Asked]:
        end, asked = time.monotonic() + seconds, []

        async def client() -> None:
            while time.monotonic() < end:
                asked.append(await self.ask())

        await asyncio.gather(*(client() for _ in range(clients)))
        return asked

    async def ask_at(self, rate: float, seconds: float) -> list[Asked]:
        began, asked = time.monotonic(), list[asyncio.Task[Asked]]()
        while (passed := time.monotonic() - began) < seconds:
            asked += [asyncio.create_task(self.ask()) for _ in range(int(rate * passed) - len(asked))]
            await asyncio.sleep(TICK_S)
        return list(await asyncio.gather(*asked))

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()


def p99(asked: list[Asked]) -> float:
    taken = sorted(each.seconds for each in asked if each.status == 202)
    return taken[len(taken) * 99 // 100]


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


async def overload(port: int, pid: int) -> tuple[list[Asked], str]:
    callers = Callers(port)
    calm = await callers.ask_in_turn(SECONDS, 1)
    busy = await callers.ask_in_turn(SECONDS, CLIENTS)
    rate = len(busy) / SECONDS
    first = await callers.ask_at(TIMES * rate, SECONDS)  # until its buffers have their size
    before = resident(pid)
    second = await callers.ask_at(TIMES * rate, SECONDS)
    grown = resident(pid) - before
    callers.close()
    assert grown <= GROWTH_MAX
    many = first + second
    told = Counter(each.status for each in many)
    return calm + busy + many, (
        f"{rate:.0f} a second in turn, then {len(many) / 2 / SECONDS:.0f} a second for {2 * SECONDS} s: "
        f"{told[202]} accepted, {told[429] + told[503]} refused, {told[0]} dropped; p99 of the accepted "
        f"{p99(many):.3f} s, alone {p99(calm):.3f} s; memory {before // MIB} MiB, then {grown / MIB:+.1f} MiB"
    )


def test_overload_is_refused_and_not_dropped(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Service(database_url, tmp_path / "data") as service:
        service.apply()
        if not FULL:
            monkeypatch.setattr(services, "PROGRAM", SMALL)
        process = service.start()
        asked, line = asyncio.run(overload(service.ports[0], process.pid))
        told = Counter(each.status for each in asked)
        assert set(told) <= {202, 429, 503}
        assert told[202] and told[503]
        assert all(each.retry_after for each in asked if each.status != 202)
        finished(database_url, 120)
        stored = ask_database(database_url, "SELECT id FROM message")
        assert {id_ for (id_,) in stored} == {each.id for each in asked if each.status == 202}
        check_books(database_url)
    report("P12", f"{database_name(database_url)}: {line}")
