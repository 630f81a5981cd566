import json
from pathlib import Path

from .conftest import Run

TEAM = ("--team", "team_acme")


def test_the_list_is_changed_and_shown(run: Run, example: str) -> None:
    run("apply", example)
    before = len(json.loads(run("suppression", "list", *TEAM, "--json").out)["data"])
    assert run("suppression", "add", "Ada@example.com", *TEAM).out == "Ada@example.com added to the suppression list\n"
    repeated = run("suppression", "add", "ada@example.com", *TEAM, "--json")
    assert json.loads(repeated.out) == {"email": "ada@example.com", "added": False}
    Path("list.csv").write_text("email\nada@example.com\nbob@example.com,bounce\nnobody\n")
    imported = json.loads(run("suppression", "import", "list.csv", *TEAM, "--json").out)
    assert imported.pop("id").startswith("imp_")
    assert imported == {"state": "done", "lines": 3, "added": 1, "existing": 1, "skipped": 1}
    assert "bob@example.com" in run("suppression", "list", *TEAM, "--search", "BOB").out
    assert (
        run("suppression", "remove", "ADA@example.com", *TEAM).out
        == "ADA@example.com removed from the suppression list\n"
    )
    remaining = json.loads(run("suppression", "list", *TEAM, "--json").out)["data"]
    assert len(remaining) == before + 1
    assert (remaining[0]["email"], remaining[0]["reason"]) == ("bob@example.com", "bounce")


def test_invalid_changes_are_refused(run: Run, example: str) -> None:
    run("apply", example)
    assert "not on the suppression list" in run("suppression", "remove", "x@example.com", *TEAM).err
    assert "not a valid email address" in run("suppression", "add", "x", *TEAM).err
    assert "There is no team" in run("suppression", "list", "--team", "team_none").err
