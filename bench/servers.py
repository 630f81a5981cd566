"""A server under test, ours or another, with its own files and ports."""

import json
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from pathlib import Path

from processes import Group
from rounds import ROOT, free_port

CONNECTIONS = 128  # connections of the HTTP load
SEND_S = 120.0


class Server(ABC):
    """Runs from `start` to `stop`; everything that it writes is in its folder, which is reused."""

    name: str

    def __init__(self, folder: Path, name: str = "") -> None:
        self.name = name or self.name
        self.folder, self.port = folder / self.name.replace(" ", "-").replace(",", ""), free_port()
        self.folder.mkdir()
        self.folder.chmod(0o755)  # Postfix's own users must enter it
        self._groups: list[Group] = []

    @abstractmethod
    def start(self) -> None:
        """Start the server and return when it accepts requests."""

    def post(self, request: str, first: int, messages: int) -> tuple[float, float]:
        """Send an HTTP request this many times, each to another number.

        Returns when the first was sent and the last one answered, on the machine's monotonic clock.
        """
        options = [f"--port={self.port}", f"--first={first}", f"--messages={messages}", f"--connections={CONNECTIONS}"]
        load = [sys.executable, str(ROOT / "bench/send.py"), *options]
        done = subprocess.run(load, input=request.encode(), check=True, stdout=subprocess.PIPE, timeout=SEND_S)
        started, answered = json.loads(done.stdout)
        return started, answered

    def cpu_s(self) -> float:
        return sum(group.cpu_s() for group in self._groups)

    def stop(self) -> None:
        while self._groups:
            self._groups.pop().stop()

    def _run(self, *command: str, address: tuple[str, int] | str | None = None, **environment: str) -> None:
        """Start the command and return when it accepts connections at the address."""
        log = self.folder / f"{len(self._groups)}.log"
        group = Group(self.name, [*command], log, {**os.environ, **environment})
        self._groups.append(group)
        if address:
            group.wait_for(address)


def request_of(path: str, token: str, body: object) -> str:
    text = json.dumps(body)
    return (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n{text}"
    )
