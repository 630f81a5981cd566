import json
from pathlib import Path

from .conftest import Run

TEAM = ("--team", "team_acme")


def test_the_list_is_changed_and_shown(run: Run, example: str) -> None:
    run("apply", example)
    before = len(json.loads(run("suppression", "list", *TEAM, "--json").out)["data"])
    assert run("suppression", "add", "Ada@example.com", *TEAM).out == "Ada@example.com is on the list now\n"
    again = run("suppression", "add", "ada@example.com", *TEAM, "--json")
    assert json.loads(again.out) == {"email": "ada@example.com", "added": False}
    Path("list.csv").write_text("email\nada@example.com\nbob@example.com,bounce\nnobody\n")
    done = json.loads(run("suppression", "import", "list.csv", *TEAM, "--json").out)
    assert done.pop("id").startswith("imp_")
    assert done == {"state": "done", "lines": 3, "added": 1, "already": 1, "left_out": 1}
    assert "bob@example.com" in run("suppression", "list", *TEAM, "--search", "BOB").out
    assert run("suppression", "remove", "ADA@example.com", *TEAM).out == "ADA@example.com is off the list\n"
    left = json.loads(run("suppression", "list", *TEAM, "--json").out)["data"]
    assert len(left) == before + 1
    assert (left[0]["email"], left[0]["reason"]) == ("bob@example.com", "bounce")


def test_what_cannot_be_done(run: Run, example: str) -> None:
    run("apply", example)
    assert "not on the suppression list" in run("suppression", "remove", "x@example.com", *TEAM).err
    assert "not a valid email address" in run("suppression", "add", "x", *TEAM).err
    assert "There is no team" in run("suppression", "list", "--team", "team_none").err
