"""What the measured SMS say: the expectation beside what came, a table, a plot, and the docs' part."""

import statistics
from collections.abc import Callable
from pathlib import Path

import msgspec
from mail_report import verdict
from matplotlib.figure import Figure
from report import Machine, made_by, write_part

OURS = "Heliograph"
EXPECTED = {"Jasmin": 3.0, "Jasmin, receipts wanted": 3.0}  # times as fast


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One server in one round."""

    server: str
    round: int
    rate: float  # messages a second, from the first request to the last submit at the SMSC
    accepted: float  # messages a second, from the first request to the last answer
    cpu_ms: float  # for each message, of all processes of the server, until it was quiet again


class Results(msgspec.Struct, frozen=True, kw_only=True):
    durable: dict[str, str]  # by server
    missing: dict[str, str]  # peer → why it was not measured
    limit: float  # submits a second that the SMSC takes from a bare loop
    cells: list[Cell]

    def values(self, server: str, value: Callable[[Cell], float]) -> list[float]:
        return [value(cell) for cell in self.cells if cell.server == server]

    def faster(self, peer: str) -> float | None:
        """How much faster ours is: the median of the ratios inside a round."""
        ours = {cell.round: cell.rate for cell in self.cells if cell.server == OURS}
        found = [ours[cell.round] / cell.rate for cell in self.cells if cell.server == peer]
        return statistics.median(found) if found else None


def expectations(results: Results) -> str:
    lines = ["| Heliograph | expected | measured | |", "|---|--:|--:|---|"]
    for peer, wanted in EXPECTED.items():
        found = results.faster(peer)
        said = f"{found:.2f} | {verdict(found >= wanted)}" if found else "– | not measured"
        lines.append(f"| messages/s, times {peer} | ≥ {wanted:g} | {said} |")
    for peer in [server for server in results.durable if server not in (OURS, *EXPECTED)]:
        lines.append(f"| messages/s, times {peer} | – | {results.faster(peer):.2f} | the limit without durability |")
    lines += [f"\n{peer} was not measured: {why}." for peer, why in results.missing.items()]
    return "\n".join(lines)


def table(results: Results) -> str:
    lines = [
        "| server | messages/s | lowest – highest | accepted/s | CPU ms for a message | lowest – highest | durable |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    for server, durable in results.durable.items():
        rates, costs = results.values(server, lambda c: c.rate), results.values(server, lambda c: c.cpu_ms)
        accepted = statistics.median(results.values(server, lambda c: c.accepted))
        lines.append(
            f"| {server} | {statistics.median(rates):,.0f} | {min(rates):,.0f} – {max(rates):,.0f} | {accepted:,.0f} "
            f"| {statistics.median(costs):.2f} | {min(costs):.2f} – {max(costs):.2f} | {durable} |"
        )
    return "\n".join(lines)


def limit(results: Results) -> str:
    return f"The SMSC alone takes {results.limit:,.0f} messages/s from a bare loop with the same window."


def print_report(results: Results) -> None:
    print(f"\n{table(results)}\n\n{expectations(results)}\n\n{limit(results)}")


def write_docs(docs: Path, results: Results, machine: Machine, command: str) -> None:
    plot(results, docs / "benchmarks-sms.svg")
    part = [
        made_by(command, machine),
        expectations(results),
        table(results),
        limit(results),
        "![messages a second and CPU time for a message](benchmarks-sms.svg)",
    ]
    write_part(docs / "benchmarks.md", "sms", part)


def plot(results: Results, path: Path) -> None:
    """Medians, with the lowest and the highest round."""
    figure = Figure(figsize=(12, 3), layout="constrained")
    panels: list[tuple[str, Callable[[Cell], float]]] = [
        ("messages a second, accept to submit", lambda cell: cell.rate),
        ("CPU ms for a message", lambda cell: cell.cpu_ms),
    ]
    for place, (title, value) in enumerate(panels, 1):
        axes = figure.add_subplot(1, 2, place)
        for server in results.durable:
            measured = results.values(server, value)
            middle = statistics.median(measured)
            axes.barh(server, middle, xerr=[[middle - min(measured)], [max(measured) - middle]], capsize=3)
        axes.set(title=title)
        axes.invert_yaxis()
        if place > 1:
            axes.set_yticklabels([])
    figure.savefig(path, metadata={"Date": None})
