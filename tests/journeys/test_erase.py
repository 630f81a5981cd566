"""A person requests erasure: an address and a number that arrived in every possible way leave no trace."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.load import ask_database, check_books, finished
from tests.service import Service, until

EMAIL = "bounced+zoe-canary@example.com"  # the simulator bounces it, and it is suppressed
PHONE = "+447700900777"
OTHER = "ada@example.com"
FILE = """
[[teams]]
id = "team_acme"
  [[teams.webhooks]]
  url = "http://127.0.0.1:9/nobody"
  [[teams.recipients]]
  address = "{email}"
"""


def send(service: Service, *to: str, key: str = "", **more: Any) -> Any:
    body = {"from": "hi@acme.test", "to": list(to), "subject": f"For {to[0]}", "text": f"Dear {to[0]}", **more}
    return service.post("/v1/emails", body, headers={"Idempotency-Key": key} if key else None)


def stands_in(service: Service, text: str) -> list[str]:
    """Return the tables, or the files of an SQLite database, that contain the text."""
    if service.database.startswith("sqlite:///"):
        path = Path(service.database.removeprefix("sqlite:///"))
        files = [file for file in path.parent.iterdir() if file.name.startswith(path.name) and file.is_file()]
        return [file.name for file in files if text.encode() in file.read_bytes().lower()]
    tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
    return [
        table
        for (table,) in ask_database(service.database, tables)
        if ask_database(service.database, f"SELECT 1 FROM {table} AS t WHERE strpos(lower(t::text), '{text}') > 0")
    ]


def erase(service: Service, address: str, *options: str) -> Any:
    more = ["--vacuum"] if service.database.startswith("sqlite:") else []
    return service.run("erase", address, "--team", "team_acme", "--yes", *more, *options)


def export(service: Service, path: Path) -> Any:
    done = service.run("export", EMAIL, "--team", "team_acme", "--output", str(path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert path.stat().st_mode & 0o777 == 0o600
    again = service.run("export", EMAIL, "--team", "team_acme", "--output", str(path))
    assert (again.returncode, "already exists" in again.stderr) == (2, True)
    return json.loads(path.read_text())


@pytest.fixture
def running(service: Service, tmp_path: Path) -> Service:
    (tmp_path / "more.toml").write_text(FILE.format(email=EMAIL))
    service.apply(tmp_path / "more.toml")
    until(lambda: len(service.get("/v1/webhooks").json["data"]) > 0)
    return service


def test_erased_recipient_leaves_no_data(running: Service, tmp_path: Path) -> None:
    service = running
    service.run("pause")  # so that both are accepted before the first one bounces
    until(lambda: send(service, OTHER).json["status"] == "queued")
    assert send(service, EMAIL.upper(), key="one").status == 202
    assert send(service, OTHER, EMAIL, key="two").status == 202
    service.run("resume")
    finished(service.database)
    until(lambda: service.get(f"/v1/suppressions/{EMAIL}").status == 200)
    assert send(service, OTHER, bcc=[EMAIL], text=f"{EMAIL} invites you").status == 202  # sent to OTHER only
    assert send(service, EMAIL).code == "recipient_suppressed"
    assert send(service, OTHER, f"{EMAIL} {EMAIL}").status == 400  # the request log contains the invalid value
    sms = {"to": PHONE, "template_id": "tpl_sms", "variables": {"parcel": "1"}}
    assert service.post("/v1/sms", sms, headers={"Idempotency-Key": "three"}).status == 202
    begun = service.post("/v1/verify", {"to": PHONE}, headers={"Idempotency-Key": "four"}).json
    service.post(f"/v1/verify/{begun['id']}/check", {"code": "000000"})
    finished(service.database)
    assert stands_in(service, "zoe-canary")
    refused = erase(service, PHONE)
    assert (refused.returncode, "verifications: 1" in refused.stderr) == (1, True)
    assert PHONE not in refused.stderr

    held = export(service, tmp_path / "before.json")
    assert [message["record"]["to_addresses"] for message in held["messages"]] == [[EMAIL.upper()], [EMAIL], []]
    empty = {name for name, rows in held.items() if not rows}
    assert empty == {
        "verifications",
        "marketing",
        "audit_log",
        "imports",
        "early_reports",
        "account",
        "opt_outs",
        "unsubscribes",
        "received",
        "setup",
        "templates",
    }
    assert OTHER not in str(held)
    done = erase(service, EMAIL)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Erased from team_acme. Messages changed: 3\n"
    assert stands_in(service, "zoe-canary") == []
    after = export(service, tmp_path / "after.json")
    assert [name for name, rows in after.items() if rows] == ["address", "team", "exported_at"]
    assert send(service, EMAIL).code == "recipient_suppressed"
    assert service.get(f"/v1/suppressions/{EMAIL}").json["reason"] == "bounce"
    newest = service.get("/v1/suppressions?limit=1").json["data"][0]["email"]
    assert newest.endswith("@erased.invalid")
    assert service.get(f"/v1/suppressions?after={newest}").json["data"][0]["email"] == "gone@example.com"
    assert service.get("/v1/events").status == 200
    for message in service.get("/v1/emails").json["data"]:
        assert service.get(f"/v1/emails/{message['id']}").status == 200
    check_books(service.database)
    audit = ask_database(service.database, "SELECT detail FROM audit WHERE action = 'address.erase' ORDER BY key")
    assert audit == [("begun",), ("done, messages: 3",)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nobody", "--team", "team_acme"), "expected an email address or a phone number"),
        (("a@example.com", "--team", "team_none"), "There is no team team_none"),
        (("delivered@simulator.test", "--team", "team_acme"), "This is not a person's address"),
        (("a@example.com",), "Missing option '--team'"),
    ],
)
@pytest.mark.parametrize("command", [("erase", "--yes"), ("export",)])
def test_erase_command_error_is_one_line(
    shared_service: Service, command: tuple[str, ...], arguments: tuple[str, ...], said: str
) -> None:
    """The error occurs before anything is erased or shown, on either database."""
    done = shared_service.run(*command, *arguments)
    assert done.returncode != 0
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
