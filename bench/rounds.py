"""Shared code of all benchmarks: arguments, the machine, results of several rounds, and parts of the docs page.

The machine is shared and noisy: everything that is compared takes turns in each round, ratios are computed within a
round, and a result is shown as the median of the rounds with the lowest and the highest.
"""

import argparse
import os
import shutil
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import matplotlib as mpl
import msgspec
from matplotlib.axes import Axes

mpl.rcParams["svg.hashsalt"] = "heliograph"  # equal figures give an identical file

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"
LOAD_CORE, SERVER_CORE = 0, 1
Item = TypeVar("Item")


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    cpu: str
    cores: int
    kernel: str
    python: str
    fsync_ms: float
    date: str


class Rounds:
    """Results by server and round: rates, CPU times and others."""

    def __init__(self) -> None:
        self._figures: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)

    def note(self, server: str, round_: int, **figures: float) -> None:
        for figure, value in figures.items():
            self._figures[server, figure][round_] = value
        said = "  ".join(f"{figure} {value:,.4g}" for figure, value in figures.items())
        print(f"round {round_}  {server:45} {said}", flush=True)

    def servers(self) -> list[str]:
        return list(dict.fromkeys(server for server, _ in self._figures))

    def values(self, server: str, figure: str) -> list[float]:
        return list(self._figures.get((server, figure), {}).values())

    def ratios(self, server: str, to: str, figure: str) -> list[float]:
        """Return the ratio in each round that has both results."""
        own, others = (self._figures.get((one, figure), {}) for one in (server, to))
        return [value / others[at] for at, value in own.items() if others.get(at)]

    def bars(self, axes: Axes, servers: Iterable[str], figure: str, title: str) -> None:
        """Draw the medians, with the lowest and the highest round."""
        for server in servers:
            found = self.values(server, figure)
            middle = statistics.median(found)
            axes.barh(server, middle, xerr=[[middle - min(found)], [max(found) - middle]], capsize=3)
        axes.set(title=title)
        axes.invert_yaxis()


def turns(items: Sequence[Item], round_: int) -> Sequence[Item]:
    """Return the items in alternating order, forwards and backwards, so that a gradual slowdown affects all equally."""
    return items if round_ % 2 else items[::-1]


def spread(values: Sequence[float], form: str = ",.0f") -> str:
    """Return the median, with the lowest and the highest value if there are several."""
    if not values:
        return "–"
    middle = format(statistics.median(values), form)
    return f"{middle} ({min(values):{form}} – {max(values):{form}})" if len(values) > 1 else middle


def verdict(met: bool) -> str:
    return "met" if met else "**missed**"


def table(*rows: Sequence[str]) -> str:
    """Return a table whose first row is the head; all columns except the first are right-aligned."""
    head, *body = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---", *["--:"] * (len(head) - 1)], *body))


def arguments(about: str | None, **defaults: Any) -> argparse.Namespace:
    """Parse the arguments of all benchmarks, and this one's own by their defaults; `quick` runs one small round."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0] if about else None)
    for name, default in defaults.items():
        if default is False:
            parser.add_argument(f"--{name}", action="store_true")
        else:
            parser.add_argument(f"--{name}", type=type(default), default=default, help=f"({default})")
    parser.add_argument("--compare", metavar="REVISION", help="an older revision of ours, measured in the same rounds")
    parser.add_argument("--quick", action="store_true", help="one small round; writes no docs")
    signal.signal(signal.SIGTERM, _end)
    return parser.parse_args()


def _end(*_: object) -> None:
    """Stop what was started, also if the benchmark is told to end."""
    raise KeyboardInterrupt("told to end")


def command(options: argparse.Namespace) -> str:
    """Return the command line that was run, for the docs."""
    words = [
        f"--{name}" if value is True else f"--{name} {value}"
        for name, value in vars(options).items()
        if value not in (None, False, "")
    ]
    return " ".join(["python", f"bench/{Path(sys.argv[0]).name}", *words])


@contextmanager
def folder_on_disk(kept: str = "") -> Iterator[Path]:
    """Yield a folder in the working directory: the system's temporary folder may be in memory."""
    if kept:  # with its content, for the next run
        Path(kept).mkdir(exist_ok=True)
        yield Path(kept).absolute()
        return
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=Path.cwd()))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def share_cores() -> None:
    """Move this process and what it starts to one core; the servers use the other."""
    if not {LOAD_CORE, SERVER_CORE} <= os.sched_getaffinity(0):
        raise SystemExit("needs two cores: one for the load, one for the server")
    os.sched_setaffinity(0, {LOAD_CORE})


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def look_at_machine(folder: Path) -> Machine:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return Machine(
        cpu=next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown"),
        cores=os.cpu_count() or 0,
        kernel=os.uname().release,
        python=sys.version.split()[0],
        fsync_ms=fsync_ms(folder),
        date=time.strftime("%Y-%m-%d"),
    )


def fsync_ms(folder: Path, tries: int = 100) -> float:
    """Return the median time to append 4 KiB to a file and sync it."""
    times = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(tries):
            started = time.perf_counter()
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - started)
    return statistics.median(times) * 1000


def made_by(options: argparse.Namespace, machine: Machine) -> str:
    return (
        f"Made by `{command(options)}` on {machine.date}: {machine.cpu}, {machine.cores} cores, "
        f"Linux {machine.kernel}, Python {machine.python}; "
        f"4 KiB written and synced in {machine.fsync_ms:.2f} ms (median)."
    )


def write_part(name: str, paragraphs: list[str]) -> None:
    """Replace the text between the marks on the page with this name; text outside of them stays."""
    page = RESULTS / f"{name}.md"
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, _, rest = page.read_text("utf-8").partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n" + "\n\n".join(paragraphs) + f"\n{end}{after}", "utf-8")
