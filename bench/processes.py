"""Measured processes: each in its own session, observed through /proc, and ended by process id."""

import os
import signal
import socket
import subprocess
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PAGE_B = os.sysconf("SC_PAGE_SIZE")
START_S, STOP_S, KILL_S = 30.0, 40.0, 5.0  # our server drains for up to 30 s
QUIET_S, SETTLE_S = 0.3, 10.0
IDLE_SHARE = 0.1  # share of a core below which a server counts as idle


class Group:
    """A program with all the processes that it starts."""

    def __init__(
        self,
        name: str,
        command: list[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        core: int | None = None,
        port: int = 0,
    ) -> None:
        self.name, self.port, self._log = name, port, log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
                preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}),
            )
        self.pid = self._process.pid

    def wait_for(self, address: tuple[str, int] | str) -> None:
        """Wait until the program accepts connections at this address; stop it if it does not."""
        family_ = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            self.check_alive()
            with socket.socket(family_) as probe:
                if probe.connect_ex(address) == 0:
                    return
            time.sleep(0.02)
        self.stop()
        raise SystemExit(f"{self.name} took no connection within {START_S:.0f} s:\n{self._log.read_text()}")

    def check_alive(self) -> None:
        if self._process.poll() is not None:
            raise SystemExit(f"{self.name} ended with {self._process.returncode}:\n{self._log.read_text()}")

    def cpu_s(self) -> float:
        """Return the CPU seconds used so far, including processes that have ended."""
        return cpu_s(self.pid)

    def rss_mb(self) -> float:
        """Return the resident memory of all processes together, in MB."""
        self.check_alive()
        stats = filter(None, map(read_stat, family(self.pid)))
        return sum(int(fields[21]) for fields in stats) * PAGE_B / 1e6

    def stop(self) -> None:
        """Stop all processes, first by asking."""
        members = family(self.pid)
        for number, limit_s in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, KILL_S)):
            deadline = time.monotonic() + limit_s
            for pid in filter(is_alive, members):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            while any(map(is_alive, members)) and time.monotonic() < deadline:
                time.sleep(0.02)
        self._process.wait()


class Busy(Protocol):
    def cpu_s(self) -> float: ...


def settle(server: Busy, limit_s: float = SETTLE_S) -> float:
    """Wait until the server is idle, because recording continues after the last message; return its CPU time."""
    used, deadline = server.cpu_s(), time.monotonic() + limit_s
    while time.monotonic() < deadline:
        time.sleep(QUIET_S)
        before, used = used, server.cpu_s()
        if used - before < IDLE_SHARE * QUIET_S:
            break
    return used


def cpu_s(root: int) -> float:
    return sum(family(root).values()) * TICK_S


def family(root: int) -> dict[int, int]:
    """Return the process and its descendants: id → CPU ticks used, including those of ended children."""
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
    """Return the fields after the name (state, parent, …); None if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
