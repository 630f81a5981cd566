"""Templates in files: checked without a service, and planned without changes."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.service import Service

TEAM = '[[teams]]\nid = "team_acme"\n'
WARNED = (
    '[[teams.templates]]\nid = "tpl_warned"\nchannel = "email"\nsubject = "S"\ntext = "x"\nhtml = "<p>\\n<b>a</p>"\n'
)
INVALID_TEMPLATE = '[[teams.templates]]\nid = "tpl_wrong"\nchannel = "sms"\nbody = "a\\n{{#if customer.x}}"\n'
KEY = '[[teams.keys]]\nname = "planned"\n'


def run(service: Service, tmp_path: Path, text: str, *command: str, name: str = "setup.toml") -> Any:
    file = tmp_path / name
    file.write_text(text)
    return service.run(*command, str(file))


@pytest.mark.parametrize(
    ("name", "text", "code", "said"),
    [
        ("setup.toml", TEAM + WARNED, 0, "warning: tpl_warned: html, line 2: <b> is not closed"),
        ("setup.toml", TEAM + INVALID_TEMPLATE, 1, "error: tpl_wrong: body, line 2: {{#if}} is not closed"),
        ("setup.toml", TEAM, 0, ""),
        ("a.html", "{{#each customer.items}}{{item.a}}{{/each}}\n<img src=x>", 0, "line 2: an image has no alt text"),
        ("a.html", "<p>{{customer.name|date}}</p>", 0, ""),
        ("a.html", "{% x %}", 1, "(foreign_syntax)"),
        ("a.mjml", "<mjml><mj-body><mj-text>", 1, ""),
    ],
)
def test_lint_reports_problems_with_its_exit_code(
    shared_service: Service, tmp_path: Path, name: str, text: str, code: int, said: str
) -> None:
    process = run(shared_service, tmp_path, text, "template", "lint", name=name)
    assert (process.returncode or 0) == code, process.stderr
    assert said in process.stdout and bool(said) == bool(process.stdout)


def test_lint_as_json(shared_service: Service, tmp_path: Path) -> None:
    process = run(shared_service, tmp_path, TEAM + WARNED, "template", "lint", "--json")
    (problem,) = json.loads(process.stdout)["data"]
    assert (problem["template_id"], problem["level"], problem["code"]) == ("tpl_warned", "warning", "unclosed_tag")


def test_apply_reports_problems(shared_service: Service, tmp_path: Path) -> None:
    (problem,) = json.loads(run(shared_service, tmp_path, TEAM + WARNED, "apply", "--json").stdout)["problems"]
    assert (problem["template_id"], problem["level"], problem["line"]) == ("tpl_warned", "warning", 2)
    refused = run(shared_service, tmp_path, TEAM + INVALID_TEMPLATE, "apply", "--json")
    assert refused.returncode and "line 2" in refused.stderr
    problem = json.loads(refused.stdout)["problems"][0]
    assert (problem["template_id"], problem["level"], problem["code"]) == ("tpl_wrong", "error", "unclosed_block")


def test_a_plan_changes_nothing(shared_service: Service, tmp_path: Path) -> None:
    text = TEAM + 'name = "Another"\n' + KEY + WARNED.replace("tpl_warned", "tpl_planned")
    first = run(shared_service, tmp_path, text, "apply", "--plan")
    assert "team team_acme: changed (name)" in first.stdout and "tpl_planned" in first.stdout
    assert "token" not in first.stdout
    repeated = json.loads(run(shared_service, tmp_path, text, "apply", "--plan", "--json").stdout)
    assert repeated["changed"] == first.stdout.splitlines() and repeated["keys"] == []
    assert "nothing would change" in run(shared_service, tmp_path, TEAM, "apply", "--plan").stdout
