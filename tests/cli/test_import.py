"""`heliograph import`: what other services exported, with a word on each line."""

import json
from pathlib import Path

import pytest

from .conftest import Run

TEAM = ("--team", "team_acme")
SUPPRESSIONS = """id,email,origin,source_id,created_at
1,Ada@example.com,bounce,,2026-01-01
2,bob@example.com,complaint,,2026-01-01
3,ada@example.com,manual,,2026-01-01

4,nobody,bounce,,2026-01-01
"""
TEMPLATES = [
    {"id": "4a", "name": "Resend welcome", "subject": "Hi {{{NAME}}}", "html": "<p>Hi {{{NAME}}}</p>", "alias": None},
    {"id": "4b", "name": "Broken", "subject": "{{#if x}}", "html": "<p>Hi</p>"},
    {"id": "4c", "name": "Wordless", "alias": "wordless", "published_at": None},
]


def lines(run: Run, *files: str) -> list[tuple[int, str, str, str]]:
    done = run("import", "resend", *files, *TEAM, "--json")
    assert done.code == 0, done.err
    told = map(json.loads, done.out.splitlines())
    return [(one["number"], one["kind"], one["text"], one["outcome"]) for one in told]


@pytest.fixture(autouse=True)
def _team(run: Run, example: str) -> None:
    run("apply", example)


def test_suppressions(run: Run) -> None:
    Path("s.csv").write_text(SUPPRESSIONS)
    first = [
        (2, "suppression", "Ada@example.com", "added"),
        (3, "suppression", "bob@example.com", "added"),
        (4, "suppression", "ada@example.com", "left out: the same as line 2"),
        (6, "suppression", "nobody", "left out: not an email address"),
    ]
    assert lines(run, "s.csv") == first
    assert [outcome for *_, outcome in lines(run, "s.csv")][:2] == ["already on the list"] * 2
    listed = json.loads(run("suppression", "list", *TEAM, "--json").out)["suppressions"]
    assert {one["email"]: one["reason"] for one in listed}["bob@example.com"] == "complaint"


def test_contacts_are_no_suppressions(run: Run) -> None:
    Path("c.csv").write_text("id,email,unsubscribed\n1,a@example.com,false\n2,b@example.com,true\n")
    assert lines(run, "c.csv") == [
        (2, "", "a@example.com", "left out: a contact who has not unsubscribed"),
        (3, "suppression", "b@example.com", "added"),
    ]


def test_domains_and_templates(run: Run) -> None:
    domains = [{"id": "d1", "name": "moved.test", "status": "verified", "region": "eu-west-1"}, {"name": "no domain."}]
    Path("d.json").write_text(json.dumps({"object": "list", "has_more": False, "data": domains}))
    Path("t.jsonl").write_text("\n".join(map(json.dumps, TEMPLATES)))
    told = lines(run, "d.json", "t.jsonl")
    assert [one[:3] for one in told] == [
        (1, "domain", "moved.test"),
        (2, "domain", "no domain."),
        (1, "template", "Resend welcome"),
        (2, "template", "Broken"),
        (3, "", "Wordless"),
    ]
    assert told[0][3].startswith("added as dom_") and "is not a domain" in told[1][3]
    assert told[2][3].startswith("4a is tpl_") and told[3][3].startswith("left out: subject")
    assert "without its words" in told[4][3]
    made = json.loads(run("template", "show", told[2][3].split()[2]).out)
    assert (made["subject"], made["variables"]) == ("Hi {{customer.name}}", ["name"])
    assert "status" not in made  # it is in use
    again = lines(run, "d.json", "t.jsonl")
    assert (again[0][3], again[2][3][:13]) == ("already there", "already there")


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (b"\xff", "not UTF-8"),
        (b"email\n", "no records"),
        (b"[1]", "Record 1 is not an object"),
        (b'{"email":"a@b.test"}\n{', "Line 2 is not JSON"),
    ],
)
def test_what_cannot_be_read_changes_nothing(run: Run, file: bytes, why: str) -> None:
    Path("good.csv").write_text("email\nc@example.com\n")
    Path("bad").write_bytes(file)
    done = run("import", "resend", "good.csv", "bad", *TEAM)
    assert (done.code, why in done.err) == (1, True)
    assert "c@example.com" not in run("suppression", "list", *TEAM).out


def test_a_report_for_people(run: Run) -> None:
    Path("one.csv").write_text("email\nd@example.com\n")
    assert run("import", "resend", "one.csv", *TEAM).out == "one.csv:2  suppression  d@example.com  added\n"
    assert "'mailgun' is not 'resend'" in run("import", "mailgun", "one.csv", *TEAM).err
    assert "There is no team" in run("import", "resend", "one.csv", "--team", "team_none").err
