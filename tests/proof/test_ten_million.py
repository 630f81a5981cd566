"""Ten million messages cost what ten thousand cost: `make bench-growth`, judged by its own table."""

import subprocess
import sys

from tests.proof.size import report
from tests.test_dist import ROOT

SIZES = "10000,10000000"


def judged(tables: str) -> list[list[str]]:
    """The rows that have something expected of them, as cells."""
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in tables.splitlines()]
    return [row for row in rows if row[-1] in ("met", "**missed**")]


def test_work_per_message_stays_constant_with_table_size() -> None:
    made = subprocess.run(
        [sys.executable, "bench/growth.py", "--sizes", SIZES], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    rows = judged(made.stdout)
    for row in rows:
        report("growth", " · ".join(row))
    assert rows
    assert [row[0] for row in rows if row[-1] != "met"] == []
