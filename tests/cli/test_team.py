import json

import pytest

from .conftest import Run


def test_a_team_is_created_taken_live_and_suspended(run: Run, example: str) -> None:
    assert run("team", "list").out == "There are no teams yet: heliograph team create, or heliograph apply.\n"
    created = run("team", "create", "team_new", "--name", "New", "--currency", "EUR", "--credit", "2.50")
    assert (created.code, created.out) == (0, "team_new created, in the sandbox\n")
    assert run("team", "list").out.split() == ["team_new", "sandbox", "2.5000", "EUR", "New"]
    run("apply", example)
    for command, expected in {
        "suspend": "team_acme is suspended",
        "resume": "team_acme can send again",
        "sandbox": "team_acme is in the sandbox",
        "live": "team_acme is live",
    }.items():
        assert run("team", command, "team_acme").out == f"{expected}\n"
    (acme,) = [team for team in json.loads(run("team", "list", "--json").out)["data"] if team["id"] == "team_acme"]
    assert (acme["mode"], acme["suspended"], acme["credit"]) == ("live", False, "25.0000")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("create", "acme"), "expected an id such as team_acme"),
        (("create", "team_a", "--credit", "much"), "'much' is not an amount"),
        (("create", "team_new"), "A team with this ID already exists."),
        (("live", "team_new"), "You can't go live yet. Add a domain"),
        (("suspend", "team_x"), "There is no team team_x."),
    ],
)
def test_invalid_arguments_are_refused(run: Run, arguments: tuple[str, ...], said: str) -> None:
    run("team", "create", "team_new")
    ended = run("team", *arguments)
    assert (ended.code, ended.out) == (1, "")
    assert said in ended.err
