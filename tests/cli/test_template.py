import json
from pathlib import Path

import pytest

from .conftest import Run

SETUP = """
[[teams]]
id = "team_new"
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
def _templates(run: Run, tmp_path: Path) -> None:
    (tmp_path / "setup.toml").write_text(SETUP)
    assert run("apply", "setup.toml").code == 0


def test_a_draft_is_refused_and_approved(run: Run) -> None:
    assert "tpl_code  team_new  sms  draft  version 1  Code  (draft awaiting approval)\n" in run("template", "list").out
    assert run("template", "refuse", "tpl_code", "--reason", "Who are you?").out == "tpl_code is refused\n"
    assert json.loads(run("template", "show", "tpl_code", "--draft").out)["refused_reason"] == "Who are you?"
    assert run("template", "approve", "tpl_code", "--price", "0.05").out == "tpl_code is approved\n"
    template = json.loads(run("template", "show", "tpl_code").out)
    assert (template.get("status", "approved"), template["price"]) == ("approved", "0.0500")


def test_a_template_is_archived_and_unarchived(run: Run) -> None:
    for expected in ("tpl_mail is archived", "tpl_mail was archived already"):
        assert run("template", "archive", "tpl_mail").out == f"{expected}\n"
    for expected in ("tpl_mail is in use", "tpl_mail was in use already"):
        assert run("template", "unarchive", "tpl_mail").out == f"{expected}\n"
    templates = json.loads(run("template", "list", "--team", "team_new", "--json").out)["data"]
    assert {item["id"]: item["pending"] for item in templates} == {"tpl_code": True, "tpl_mail": False}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("approve", "tpl_code"), "Set a price"),
        (("approve", "tpl_code", "--price", "cheap"), "cheap"),
        (("approve", "tpl_mail"), "tpl_mail has no pending draft."),
        (("archive", "tpl_none"), "There is no template tpl_none."),
    ],
)
def test_invalid_arguments_are_refused(run: Run, arguments: tuple[str, ...], said: str) -> None:
    ended = run("template", *arguments)
    assert (ended.code, ended.out) == (1, "")
    assert said in ended.err


def test_a_free_template_needs_the_free_flag(run: Run) -> None:
    assert run("template", "approve", "tpl_code", "--free").code == 0


@pytest.mark.parametrize("command", ["list", "show", "archive", "unarchive", "approve", "refuse"])
def test_every_help_has_an_example(run: Run, command: str) -> None:
    assert f"heliograph template {command}" in run("template", command, "--help").out.split("\n", 1)[1]
