"""`make proof`: the proofs in full, one promise after the other; writes docs/internals/proof/results.md."""

import os
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

os.environ["PROOF"] = "1"  # before anything reads its size

import pytest

from tests.conftest import ONE_DATABASE
from tests.proof.size import found

CRASH, CLUSTER = "tests/journeys/test_crash.py", "tests/journeys/test_cluster.py"
READING = "tests/api/test_reading.py"
RESTORE = ["tests/proof/test_restore.py", "tests/storage/test_rollback_detection.py", "tests/cli/test_backup.py"]
PROOFS = {
    "P1": [f"{CRASH}::test_killed_server_loses_no_accepted_message"],
    "P2": ["tests/proof/test_power_cut.py"],
    "P3": ["tests/proof/test_duplicates.py"],
    "P4": ["tests/proof/test_money.py", f"{CLUSTER}::test_sixty_four_race_for_credit_for_ten"],
    "P5": ["tests/proof/test_retries.py", f"{CLUSTER}::test_one_message_for_one_key"],
    "P6": ["tests/proof/test_codes.py", "tests/storage/test_verifications.py::test_code_expires_after_ten_minutes"],
    "P7": ["tests/journeys/test_webhooks.py::test_no_event_is_lost_when_workers_are_killed"],
    "P8": [
        "tests/carriers/test_mx.py::test_mx_script_table_has_at_least_sixty_scripts",
        "tests/carriers/test_mx.py::test_mx_script_gives_the_expected_outcome",
    ],
    "P9": ["tests/proof/test_fairness.py"],
    "P10": [f"{CRASH}::test_stopped_server_loses_and_repeats_no_message", "tests/journeys/test_rolling.py"],
    "P12": ["tests/proof/test_overload.py"],
    "P13": ["tests/proof/test_full_disk.py"],
    "P14": ["tests/proof/test_poison.py"],
    "P16": RESTORE,
    "P17": [
        f"{READING}::test_without_a_key_or_with_a_suspended_team_nothing_is_told",
        f"{READING}::test_a_key_without_the_scope",
        f"{READING}::test_another_teams_record_is_as_one_that_never_existed",
        f"{READING}::test_lists_hold_only_the_teams_own",
    ],
    "P18": ["tests/proof/test_inputs.py"],
    "P19": ["tests/proof/test_interleavings.py"],
    "P20": ["tests/proof/test_database_crash.py"],
    "P21": ["tests/proof/test_hostile.py", "tests/test_growth.py"],
    "P22": ["tests/proof/test_crash_loop.py"],
    "P23": ["tests/manage/test_every_change.py"],
    "P26": [
        "tests/domain/test_bounce_classifier.py",
        "tests/texts/test_held_out.py",
        "tests/carriers/test_bounce_parser.py",
    ],
    "P27": ["tests/proof/test_wrong_clocks.py"],
    "P28": ["tests/proof/test_order.py"],
    "P29": ["tests/proof/test_reads.py"],
    "P30": ["tests/proof/test_comes_back.py"],
    "P32": ["tests/proof/test_feed.py", "tests/storage/test_feed.py"],
    "P33": ["tests/storage/test_claims.py"],
    "recovery": ["tests/proof/test_recovery.py"],
    "pauses": ["tests/proof/test_paused_database.py"],
    "failover": ["tests/proof/test_failover.py", "tests/proof/test_switchovers.py"],
    "growth": ["tests/proof/test_ten_million.py"],
    "pgbouncer": ["tests/storage/test_pgbouncer.py", "tests/journeys/test_pgbouncer.py"],
    "restore": [*RESTORE, "tests/proof/test_pitr.py", "tests/proof/test_litestream.py"],
    "upgrade": ["tests/proof/test_upgrade.py"],
    "cells": ["tests/proof/test_cells.py", "tests/journeys/test_cells.py"],
    "citus": ["tests/proof/test_citus.py"],
    "copy": ["tests/proof/test_live_copy.py", "tests/storage/test_database_copy.py"],
    "pumping": ["tests/proof/test_pumping.py"],
    "templates": ["tests/proof/test_template_bounds.py"],
    "restrictions": ["tests/proof/test_key_limits.py", "tests/storage/test_key_limits.py"],
    "rotation": ["tests/proof/test_dkim_rotation.py"],
    "limits": ["tests/proof/test_provider_limits.py"],
    "guessing": ["tests/accounts/test_guessing.py"],
    "image": ["tests/proof/test_image.py", "tests/proof/test_containers.py"],
    "install": ["tests/proof/test_install.py"],
    "memory": ["tests/proof/test_memory.py"],
    "draws": [
        "tests/domain/test_placeholders.py",
        "tests/domain/test_template_blocks.py",
        "tests/domain/test_template_bounds.py",
        "tests/carriers/test_bounce_parser.py",
        "tests/web/test_bodies.py",
    ],
    "commands": ["tests/test_pages.py"],
    "access": ["tests/dashboard/test_access.py", "tests/dashboard/test_injection.py"],
    "pages": ["tests/dashboard"],
    "postgres": [f"tests/{folder}" for folder in sorted(ONE_DATABASE)],
}
ALSO = {"P24": "failover", "P25": "upgrade"}  # promises that are known by another name
RESULTS = Path(__file__).parents[2] / "docs" / "internals" / "proof" / "results.md"
HEAD = """# Results of the full proofs

Written by `make proof`, with one row for the last run of each promise. A promise without a row was not run in full.

| promise | run | result | figures |
|---|---|---|---|
"""


class Tally:
    """Counts the tests of one promise."""

    def __init__(self) -> None:
        self.passed = 0
        self.others: list[str] = []  # failed or skipped

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed:
            self.passed += report.when == "call"
        else:
            self.others.append(f"{report.outcome}: {report.nodeid.rpartition('::')[2]}")

    def summary(self, seconds: float) -> str:
        return "; ".join([f"{self.passed} passed in {seconds:.0f} s", *self.others])


def prove(promise: str) -> bool:
    tests = [test for test in PROOFS[promise] if Path(test.partition("::")[0]).exists()]
    if not tests:
        return False
    print(f"\n== {promise}", flush=True)
    tally, began = Tally(), time.monotonic()
    # Proofs run for longer than tests may; printing the stack of a running simulation ended Python 3.11 once.
    options = ["-v", "-s", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=0"]
    code = pytest.main([*options, *tests], plugins=[tally])
    write(promise, tally.summary(time.monotonic() - began), found.get(promise, []))
    return code == pytest.ExitCode.OK


def write(promise: str, result: str, figures: list[str]) -> None:
    """Its row replaces the one before."""
    before = RESULTS.read_text("utf-8") if RESULTS.exists() else ""
    rows = dict(re.findall(r"^\| (\w+) (\| [0-9].*)$", before, re.M))
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    rows[promise] = f"| {date} | {result} | {'<br>'.join(figures)} |"
    lines = [f"| {name} {rows[name]}\n" for name in PROOFS if name in rows]
    RESULTS.write_text(HEAD + "".join(lines), "utf-8")


if __name__ == "__main__":
    wanted = [ALSO.get(name, name) for name in sys.argv[1:]] or list(PROOFS)
    if unknown := set(wanted) - set(PROOFS):
        sys.exit(f"no such proof: {', '.join(sorted(unknown))}. There are: {', '.join(PROOFS)}")
    failed = [promise for promise in wanted if not prove(promise)]
    sys.exit(f"not proven: {', '.join(failed)}" if failed else 0)
