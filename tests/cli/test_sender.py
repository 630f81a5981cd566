import json
from pathlib import Path

import pytest

from .conftest import Run

SETUP = """
[[teams]]
id = "team_new"
[[teams.sender_ids]]
country = "GB"
value = "SHOP"
[[teams.sender_ids]]
country = "FR"
value = "SHOP"
"""


def test_pending_senders_are_approved_or_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "setup.toml").write_text(SETUP)
    run("apply", "setup.toml")
    assert run("sender", "list").out == (
        "team_new/FR  team_new  Send SMS as SHOP to FR\nteam_new/GB  team_new  Send SMS as SHOP to GB\n"
    )
    assert run("sender", "approve", "team_new/GB").out == "approved: Send SMS as SHOP to GB\n"
    assert run("sender", "refuse", "team_new/FR", "--reason", "Papers?").out == "refused: Send SMS as SHOP to FR\n"
    assert json.loads(run("sender", "list", "--json").out) == {"object": "list", "data": []}
    ended = run("sender", "approve", "team_new/GB")
    assert (ended.code, ended.out) == (1, "")
    assert "There is no pending approval with the ID team_new/GB." in ended.err


@pytest.mark.parametrize("command", ["list", "approve", "refuse"])
def test_every_help_has_an_example(run: Run, command: str) -> None:
    assert f"heliograph sender {command}" in run("sender", command, "--help").out.split("\n", 1)[1]
