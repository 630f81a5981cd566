import json
from pathlib import Path

from heliograph.data_folder import save_address

from .conftest import Run


def test_users_are_added_and_listed(run: Run, example: str) -> None:
    run("apply", example)
    assert run("user", "list").out.startswith("There are no users yet")
    link = run("user", "add", "Ada@Example.com", "--name", "Ada", "--operator").out
    assert link.startswith("http://127.0.0.1:8700/dashboard/link/")
    run("user", "add", "bob@example.com", "--team", "team_acme", "--role", "viewer")
    ada, bob = json.loads(run("user", "list", "--json").out)["data"]
    assert (ada["email"], ada["name"], ada["operator"], ada["roles"]) == ("ada@example.com", "Ada", False, {})
    assert (ada["invited"], bob["invited"]) == (["operator"], ["viewer of team_acme"])
    assert (bob["operator"], bob["roles"], bob["password"]) == (False, {}, False)
    lines = run("user", "list").out.splitlines()
    assert [line.split()[0] for line in lines] == ["ada@example.com", "bob@example.com"]
    assert lines[1].endswith("invited: viewer of team_acme")


def test_a_link_uses_the_services_address(run: Run, tmp_path: Path) -> None:
    data = tmp_path / "heliograph-data"
    data.mkdir()
    save_address(data, "http://127.0.0.1:9999")
    assert run("user", "add", "ada@example.com").out.startswith("http://127.0.0.1:9999/dashboard/link/")
    result = run("user", "link", "ada@example.com", "--public-url", "https://mail.example.com")
    assert result.out.startswith("https://mail.example.com/dashboard/link/")


def test_an_existing_user_becomes_an_operator(run: Run) -> None:
    for flags in ((), ("--operator",)):
        assert run("user", "add", "ada@example.com", *flags).code == 0
    (ada,) = json.loads(run("user", "list", "--json").out)["data"]
    assert (ada["operator"], ada["invited"]) == (False, ["operator"])


def test_invalid_changes_are_refused(run: Run, example: str) -> None:
    run("apply", example)
    run("user", "add", "ada@example.com", "--team", "team_acme", "--role", "owner")
    for arguments, message in (
        (("add", "nobody"), "Enter a valid email address."),
        (("add", "a@example.com", "--name", "a\nb"), "Enter a name of up to 200 characters"),
        (("add", "a@example.com", "--team", "team_x"), "There is no team team_x"),
        (("link", "b@example.com"), "There is no user b@example.com"),
    ):
        refused = run("user", *arguments)
        assert refused.code in (1, 2)
        assert message in refused.err
    assert "/dashboard/link/" in run("user", "link", "ada@example.com", "--without-code").out


def test_roles_are_changed_and_users_removed(run: Run, example: str) -> None:
    run("apply", example)
    run("user", "add", "bob@example.com", "--team", "team_acme", "--role", "viewer")
    assert run("user", "role", "bob@example.com", "team_acme", "developer").out.endswith("now developer in team_acme\n")
    (bob,) = json.loads(run("user", "list", "--json").out)["data"]
    assert bob["invited"] == ["developer of team_acme"]
    assert run("user", "role", "bob@example.com", "team_acme", "none").code == 0
    assert "is not a member of team_acme" in run("user", "role", "bob@example.com", "team_acme", "viewer").err
    assert run("user", "sign-out", "bob@example.com").code == 0
    assert run("user", "remove", "bob@example.com").out == "bob@example.com removed\n"
    assert "There is no user" in run("user", "remove", "bob@example.com").err


def test_a_read_only_operator(run: Run) -> None:
    assert "/dashboard/link/" in run("user", "add", "eve@example.com", "--operator", "--read-only").out
    users = json.loads(run("user", "list", "--json").out)["data"]
    assert [(user["operator"], user["read_only"], user["invited"]) for user in users] == [
        (False, False, ["read-only operator"])
    ]
