"""What the measured mail says: the expectations beside what came, a table, the stages, a plot, and the docs' part."""

import statistics
from collections.abc import Callable
from pathlib import Path

import msgspec
from matplotlib.figure import Figure
from report import Machine, made_by, write_part

OURS = "ours"
EXPECTED = {"postfix": 1.5, "haraka": 2.0}  # times as fast, for as much less CPU time
STAGES = {
    "accept": "accept: HTTP, checks, insert",
    "dispatch": "dispatch: claim, choose the carrier",
    "build": "build: MIME, envelope sender",
    "sign": "sign: DKIM, RSA and Ed25519",
    "talk": "talk: SMTP",
    "record": "record: outcome, events",
    "commit": "commit: SQLite, of accept, claim and record",
    "rest": "rest: event loop, threads",
}


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One server in one round."""

    server: str
    round: int
    rate: float  # mails a second, from the first submission to the last mail at the sink
    cpu_ms: float  # for each mail, of all processes of the server, until it was quiet again


class Results(msgspec.Struct, frozen=True, kw_only=True):
    mails: int  # of each cell
    labels: dict[str, str]  # of the servers that were measured
    missing: dict[str, str]  # peer → why it was not
    signatures: dict[str, int]  # of each mail, all verified
    octets: dict[str, int]  # of a mail as it arrived
    cells: list[Cell]
    stages: dict[str, float]  # CPU ms for each mail


def ratios(results: Results, peer: str) -> tuple[float, float] | None:
    """How much faster ours is, and for how much less CPU time: medians of the ratios inside a round."""
    by = {(cell.server, cell.round): cell for cell in results.cells}
    pairs = [(by[OURS, cell.round], cell) for cell in results.cells if cell.server == peer]
    if not pairs:
        return None
    faster = statistics.median(ours.rate / other.rate for ours, other in pairs)
    return faster, statistics.median(other.cpu_ms / ours.cpu_ms for ours, other in pairs)


def expectations(results: Results) -> str:
    lines = ["| Heliograph, two signatures | expected | measured | |", "|---|--:|--:|---|"]
    for peer, wanted in EXPECTED.items():
        found = ratios(results, peer)
        label = results.labels.get(peer, peer.capitalize())
        for number, what in enumerate((f"mails/s, times {label}", f"CPU time of {label}, times ours")):
            said = f"{found[number]:.2f} | {verdict(found[number] >= wanted)}" if found else "– | not measured"
            lines.append(f"| {what} | ≥ {wanted} | {said} |")
    lines += [f"\n{peer.capitalize()} was not measured: {why}." for peer, why in results.missing.items()]
    return "\n".join(lines)


def verdict(met: bool) -> str:
    return "met" if met else "**missed**"


def table(results: Results) -> str:
    lines = [
        "| server | signatures | octets | mails/s | lowest – highest | CPU ms for a mail | lowest – highest |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for server, label in results.labels.items():
        rates, costs = values(results, server, lambda c: c.rate), values(results, server, lambda c: c.cpu_ms)
        lines.append(
            f"| {label} | {results.signatures[server]} | {results.octets[server]:,} "
            f"| {statistics.median(rates):,.0f} | {min(rates):,.0f} – {max(rates):,.0f} "
            f"| {statistics.median(costs):.2f} | {min(costs):.2f} – {max(costs):.2f} |"
        )
    return "\n".join(lines)


def values(results: Results, server: str, value: Callable[[Cell], float]) -> list[float]:
    return [value(cell) for cell in results.cells if cell.server == server]


def stage_table(results: Results) -> str:
    whole = sum(results.stages.values())
    lines = ["| stage of ours | CPU ms for a mail | share |", "|---|--:|--:|"]
    for stage, words in STAGES.items():
        spent = results.stages[stage]
        lines.append(f"| {words} | {spent:.3f} | {spent / whole:.0%} |")
    return "\n".join([*lines, f"| all | {whole:.3f} | |"])


def print_report(results: Results) -> None:
    print(f"\n{table(results)}\n\n{expectations(results)}\n\n{stage_table(results)}")


def write_docs(docs: Path, results: Results, machine: Machine, command: str) -> None:
    plot(results, docs / "benchmarks-mail.svg")
    part = [
        made_by(command, machine),
        expectations(results),
        table(results),
        "![mails a second, CPU time for a mail, and our stages](benchmarks-mail.svg)",
        stage_table(results),
    ]
    write_part(docs / "benchmarks.md", "mail", part)


def plot(results: Results, path: Path) -> None:
    figure = Figure(figsize=(12, 3.5), layout="constrained")
    panels: list[tuple[str, Callable[[Cell], float]]] = [
        ("mails a second", lambda cell: cell.rate),
        ("CPU ms for a mail", lambda cell: cell.cpu_ms),
    ]
    for place, (title, value) in enumerate(panels, 1):
        axes = figure.add_subplot(1, 3, place)
        for server, label in results.labels.items():
            measured = values(results, server, value)
            middle = statistics.median(measured)
            axes.barh(label, middle, xerr=[[middle - min(measured)], [max(measured) - middle]], capsize=3)
        axes.set(title=title)
        axes.invert_yaxis()
        if place > 1:
            axes.set_yticklabels([])
    axes = figure.add_subplot(1, 3, 3)
    axes.barh(list(STAGES), [results.stages[stage] for stage in STAGES], color="tab:gray")
    axes.set(title="our stages, CPU ms for a mail")
    axes.invert_yaxis()
    figure.savefig(path, metadata={"Date": None})
