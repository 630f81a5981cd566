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
[[teams.templates]]
id = "tpl_code"
channel = "sms"
name = "Code"
body = "Hello"
status = "draft"
[[teams.templates]]
id = "tpl_mail"
channel = "email"
name = "Mail"
subject = "Hello"
text = "Hello"
"""


@pytest.fixture(autouse=True)
def _setup(run: Run, tmp_path: Path) -> None:
    (tmp_path / "setup.toml").write_text(SETUP)
    assert run("apply", "setup.toml").code == 0


def test_pending_requests_are_listed_approved_and_refused(run: Run) -> None:
    assert run("approval", "list").out.splitlines() == [
        "team_new/FR  team_new  Send SMS as SHOP to FR",
        "team_new/GB  team_new  Send SMS as SHOP to GB",
        "tpl_code  team_new  Use the sms template Code",
    ]
    assert run("approval", "approve", "team_new/GB").out == "team_new/GB is approved\n"
    assert run("approval", "refuse", "team_new/FR", "--reason", "Papers?").out == "team_new/FR is refused\n"
    assert run("approval", "approve", "tpl_code", "--price", "0.05").out == "tpl_code is approved\n"
    assert json.loads(run("approval", "list", "--json").out) == {"object": "list", "data": []}


def test_a_refused_template_is_no_longer_pending(run: Run) -> None:
    assert run("approval", "refuse", "tpl_code", "--reason", "Who are you?").out == "tpl_code is refused\n"
    assert "tpl_code" not in run("approval", "list").out
    assert run("approval", "approve", "tpl_code", "--free").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("approve", "tpl_code"), "Set a price"),
        (("approve", "tpl_code", "--price", "cheap"), "cheap"),
        (("approve", "tpl_mail"), "tpl_mail has no pending draft."),
        (("refuse", "tpl_none", "--reason", "x"), "There is no template tpl_none."),
        (("approve", "lay_none"), "There is no layout"),
        (("approve", "team_new/DE"), "There is no pending approval with the ID team_new/DE."),
        (("refuse", "team_new/GB"), "Missing option '--reason'"),
    ],
)
def test_an_error_is_one_line(run: Run, arguments: tuple[str, ...], message: str) -> None:
    ended = run("approval", *arguments)
    assert (ended.code in (1, 2), ended.out, ended.err.count("\n")) == (True, "", 1)
    assert message in ended.err
