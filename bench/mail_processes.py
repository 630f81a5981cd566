"""Processes of the mail benchmark: each in a session of its own, read from /proc, ended by their ids."""

import os
import signal
import socket
import subprocess
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
START_S, STOP_S, KILL_S = 30.0, 40.0, 5.0  # our server drains for up to 30 s


class Group:
    """One program with all that it starts."""

    def __init__(self, name: str, command: list[str], log: Path, environment: dict[str, str] | None) -> None:
        self._name, self._log = name, log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=output, env=environment, start_new_session=True
            )
        self.pid = self._process.pid

    def wait_for(self, family_: socket.AddressFamily, address: tuple[str, int] | str) -> None:
        """Until it takes connections there."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise SystemExit(f"{self._name} ended with {self._process.returncode}:\n{self._log.read_text()}")
            with socket.socket(family_) as probe:
                if probe.connect_ex(address) == 0:
                    return
            time.sleep(0.05)
        raise SystemExit(f"{self._name} took no connection within {START_S:.0f} s:\n{self._log.read_text()}")

    def cpu_s(self) -> float:
        """Used so far, also by those that have ended."""
        return sum(family(self.pid).values()) * TICK_S

    def stop(self) -> None:
        """All of them, asked first."""
        members = family(self.pid)
        for number, limit_s in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, KILL_S)):
            deadline = time.monotonic() + limit_s
            for pid in filter(is_alive, members):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            while any(map(is_alive, members)) and time.monotonic() < deadline:
                time.sleep(0.02)
        self._process.wait()


def family(root: int) -> dict[int, int]:
    """The process and its descendants: id → ticks that it used, with those of its children that have ended."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        if fields := read_stat(pid):
            children[int(fields[1])].append(pid)
            ticks[pid] = sum(map(int, fields[11:15]))
    found: dict[int, int] = {}
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        if pid in ticks:
            found[pid] = ticks[pid]
            waiting += children[pid]
    return found


def is_alive(pid: int) -> bool:
    fields = read_stat(pid)
    return fields is not None and fields[0] != "Z"


def read_stat(pid: int) -> list[str] | None:
    """The fields behind the name (state, parent, …); None when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
