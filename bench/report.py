"""What the measured cells say: a table, the expectations beside what came, a plot, and docs/benchmarks.md."""

import statistics
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import msgspec
from matplotlib.figure import Figure

mpl.rcParams["svg.hashsalt"] = "heliograph"  # the same cells make the same file

NAMES = {
    "floor": "bare ASGI echo (floor)",
    "baseline": "FastAPI + aiosqlite (baseline)",
    "sqlite": "Heliograph, SQLite",
    "postgres": "Heliograph, PostgreSQL",
    "delivering": "Heliograph, SQLite, delivering too",
}
AT = 128  # connections that the expectations are for


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One server at one number of connections in one round."""

    server: str
    connections: int
    round: int
    rate: float  # answers a second
    p50_ms: float
    p99_ms: float
    rss_mb: float  # the server's highest resident size while it was measured


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    cpu: str
    cores: int
    kernel: str
    python: str
    fsync_ms: float
    date: str


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One server at one number of connections: medians of the rounds, ratios inside each round."""

    server: str
    connections: int
    rate: float
    of_floor: float
    of_baseline: float
    p50_ms: float
    p99_ms: float
    rss_first: float  # in the first round
    rss_last: float  # in the last round


def rows_of(cells: list[Cell]) -> list[Row]:
    by = {(c.server, c.connections, c.round): c for c in cells}
    found: dict[tuple[str, int], list[Cell]] = {}
    for cell in cells:
        found.setdefault((cell.server, cell.connections), []).append(cell)
    rows = []
    for (server, connections), own in found.items():

        def ratio(to: str, own: list[Cell] = own) -> float:
            return statistics.median(c.rate / by[to, c.connections, c.round].rate for c in own)

        def median(value: Callable[[Cell], float], own: list[Cell] = own) -> float:
            return statistics.median(map(value, own))

        rows.append(
            Row(
                server=server,
                connections=connections,
                rate=median(lambda c: c.rate),
                of_floor=ratio("floor"),
                of_baseline=ratio("baseline"),
                p50_ms=median(lambda c: c.p50_ms),
                p99_ms=median(lambda c: c.p99_ms),
                rss_first=own[0].rss_mb,
                rss_last=own[-1].rss_mb,
            )
        )
    return rows


def expectations(rows: list[Row], several: bool) -> list[tuple[str, str, str, bool]]:
    """What, expected, measured, met; at 128 connections. One round cannot say whether memory is flat."""
    at = {row.server: row for row in rows if row.connections == AT}
    sqlite, postgres = at["sqlite"], at["postgres"]
    p99, rss = max(sqlite.p99_ms, postgres.p99_ms), max(sqlite.rss_last, postgres.rss_last)
    growth = max(row.rss_last / row.rss_first - 1 for row in (sqlite, postgres))
    flat = (f"{growth:+.1%}", growth <= 0.05) if several else ("needs two rounds", False)
    return [
        ("SQLite, of the floor", "≥ 0.30", f"{sqlite.of_floor:.2f}", sqlite.of_floor >= 0.30),
        ("SQLite, times the baseline", "≥ 15", f"{sqlite.of_baseline:.1f}", sqlite.of_baseline >= 15),
        ("PostgreSQL, of the floor", "≥ 0.20", f"{postgres.of_floor:.2f}", postgres.of_floor >= 0.20),
        ("p99, the slower of both", "< 60 ms", f"{p99:.1f} ms", p99 < 60),
        ("resident memory, the larger of both", "< 150 MB", f"{rss:.0f} MB", rss < 150),
        ("its growth from first to last round", "flat (≤ 5 %)", *flat),
    ]


def table(rows: list[Row]) -> str:
    lines = [
        "| server | connections | accepts/s | of floor | × baseline | p50 ms | p99 ms | MB first → last |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in sorted(rows, key=lambda r: (list(NAMES).index(r.server), r.connections)):
        lines.append(
            f"| {NAMES[row.server]} | {row.connections} | {row.rate:,.0f} | {row.of_floor:.2f} "
            f"| {row.of_baseline:.1f} | {row.p50_ms:.2f} | {row.p99_ms:.2f} "
            f"| {row.rss_first:.0f} → {row.rss_last:.0f} |"
        )
    return "\n".join(lines)


def expectation_table(rows: list[Row], several: bool) -> str:
    lines = [f"| at {AT} connections | expected | measured | |", "|---|--:|--:|---|"]
    lines += [
        f"| {what} | {expected} | {measured} | {'met' if met else '**missed**'} |"
        for what, expected, measured, met in expectations(rows, several)
    ]
    return "\n".join(lines)


def _several(cells: list[Cell]) -> bool:
    return len({cell.round for cell in cells}) > 1


def print_report(cells: list[Cell]) -> None:
    rows = rows_of(cells)
    print(f"\n{table(rows)}\n\n{expectation_table(rows, _several(cells))}")


def write_docs(docs: Path, cells: list[Cell], machine: Machine, command: str) -> None:
    """The part of benchmarks.md about accepting, and its plot."""
    rows = rows_of(cells)
    plot(rows, docs / "benchmarks-accept.svg")
    part = [
        made_by(command, machine),
        expectation_table(rows, _several(cells)),
        table(rows),
        "![accepts a second, p99 and resident memory by connections](benchmarks-accept.svg)",
    ]
    write_part(docs / "benchmarks.md", "accept", part)


def made_by(command: str, machine: Machine) -> str:
    return (
        f"Made by `{command}` on {machine.date}: {machine.cpu}, {machine.cores} cores, "
        f"Linux {machine.kernel}, Python {machine.python}; "
        f"4 KiB written and synced in {machine.fsync_ms:.2f} ms (median)."
    )


def write_part(page: Path, name: str, paragraphs: list[str]) -> None:
    """What stands between the marks of that name; at the end where there are none yet."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, _, rest = page.read_text("utf-8").partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n" + "\n\n".join(paragraphs) + f"\n{end}{after}", "utf-8")


def plot(rows: list[Row], path: Path) -> None:
    figure = Figure(figsize=(12, 4), layout="constrained")
    panels: list[tuple[str, str, Callable[[Row], float]]] = [
        ("accepts a second", "log", lambda row: row.rate),
        ("p99, ms", "log", lambda row: row.p99_ms),
        ("resident memory, MB", "linear", lambda row: row.rss_last),
    ]
    for place, (title, scale, value) in enumerate(panels, 1):
        axes = figure.add_subplot(1, 3, place)
        for server, name in NAMES.items():
            own = sorted((r for r in rows if r.server == server), key=lambda r: r.connections)
            axes.plot([str(r.connections) for r in own], [value(r) for r in own], "o-", label=name)
        axes.set(title=title, xlabel="connections", yscale=scale)
        axes.grid(alpha=0.3)
        if scale == "linear":
            axes.set_ylim(0, 1.2 * max(map(value, rows)))
    names, lines = figure.axes[0].get_legend_handles_labels()[::-1]
    figure.legend(lines, names, loc="outside lower center", ncols=len(NAMES), fontsize="small")
    figure.savefig(path, metadata={"Date": None})
