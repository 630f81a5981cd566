"""`heliograph webhook`: every command on a store that no service runs on."""

import json
from typing import Any

import pytest

from heliograph.webhooks.policy.webhook import secret_size

from .conftest import Run

URL = "http://127.0.0.1:9/hook"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def team(run: Run, example: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A team, on a machine whose operator allows loopback. The example's own webhook removed."""
    monkeypatch.setenv("HELIOGRAPH_WEBHOOK_ALLOW_PRIVATE", "127.0.0.0/8")
    applied = json.loads(run("apply", example, "--json").out)
    assert run("webhook", "remove", applied["webhooks"][0]["id"]).code == 0
    return "team_acme"


def add(run: Run, team: str, *more: str) -> Any:
    result = run("webhook", "add", URL, "--team", team, "--json", *more)
    assert result.code == 0, result.err
    return json.loads(result.out)


def test_add_list_show_change_remove(run: Run, team: str) -> None:
    assert run("webhook", "list").out == ""
    added = run("webhook", "add", URL, "--team", team, "--event", "email.*", "--event", "sms.sent")
    first, last = added.out.splitlines()
    id_ = first.split()[0]
    assert first == f"{id_}  {team}  {URL}  email.*,sms.sent  enabled"
    assert secret_size(last.removeprefix("secret, shown only once: ")) == 24
    assert run("webhook", "list", "--team", team).out == first + "\n"
    assert run("webhook", "list", "--team", "team_none").out == ""
    assert run("webhook", "show", id_, "--team", team).out == first + "\n"
    changed = run("webhook", "change", id_, "--disable", "--url", f"{URL}/2", "--event", "*", "--description", "d")
    assert changed.out == f"{id_}  {team}  {URL}/2  *  disabled\n"
    webhook = json.loads(run("webhook", "show", id_, "--json").out)
    assert (webhook["team"], webhook["description"], webhook["enabled"]) == (team, "d", False)
    assert "secret" not in webhook
    assert run("webhook", "change", id_, "--enable", "--format", "resend").out.endswith("  *  resend  enabled\n")
    assert run("webhook", "remove", id_).out == f"webhook {id_} removed\n"
    assert json.loads(run("webhook", "list", "--json").out)["data"] == []


def test_secrets(run: Run, team: str) -> None:
    hook = add(run, team, "--secret", SECRET)
    assert (hook["secret"], hook["events"]) == (SECRET, ["*"])
    rotated = json.loads(run("webhook", "rotate", hook["id"], "--json").out)
    assert secret_size(rotated["secret"]) == 24 and rotated["secret"] != SECRET
    assert rotated["secret_rotates_until"] > hook["created_at"]
    assert "shown only once: whsec_" in run("webhook", "rotate", hook["id"]).out


def test_test_deliveries_replay(run: Run, team: str) -> None:
    id_ = add(run, team)["id"]
    assert run("webhook", "deliveries", id_).out == ""
    event = run("webhook", "test", id_).out.strip()
    assert event.startswith("evt_")
    output = run("webhook", "deliveries", id_).out
    assert output.endswith(f"  {event}  webhook.test  waiting\n")
    (delivery,) = json.loads(run("webhook", "deliveries", id_, "--limit", "1", "--json").out)["data"]
    assert (delivery["event_id"], delivery["attempts"]) == (event, [])
    replayed = run("webhook", "replay", id_, "--event-id", event)
    assert (replayed.code, replayed.out) == (0, "1 events queued for replay\n")
    time_flags = ("--after", "2020-01-01T00:00:00Z", "--before", "2020-01-02T00:00:00Z")
    assert run("webhook", "replay", id_, *time_flags, "--failed-only").out == "0 events queued for replay\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add", URL), "Missing option '--team'"),
        (("add", URL, "--team", "team_x"), "There is no team 'team_x'"),
        (("add", "http://10.0.0.1/", "--team", "team_acme"), "a private or reserved address"),
        (("add", "ftp://x", "--team", "team_acme"), "expected http:// or https://"),
        (("add", URL, "--team", "team_acme", "--event", "email.opened"), "There is no event 'email.opened'"),
        (("add", URL, "--team", "team_acme", "--secret", "hush"), "secret must be whsec_"),
        (("show", "whk_none"), "no webhook 'whk_none'"),
        (("change", "whk_none", "--enable"), "no webhook 'whk_none'"),
        (("remove", "whk_none"), "no webhook 'whk_none'"),
        (("rotate", "whk_none"), "no webhook 'whk_none'"),
        (("test", "whk_none"), "no webhook 'whk_none'"),
        (("deliveries", "whk_none"), "no webhook 'whk_none'"),
        (("replay", "whk_none", "--event-id", "evt_1"), "no webhook 'whk_none'"),
        (("replay", "whk_none"), "Give --event-id, or --after and --before"),
        (("replay", "whk_none", "--event-id", "evt_1", "--failed-only"), "Give --event-id, or --after and --before"),
        (("replay", "whk_none", "--after", "2026-01-01T00:00:00Z"), "Give --event-id, or --after and --before"),
        (("replay", "whk_none", "--after", "x", "--before", "y"), "--after 'x': expected a time"),
    ],
)
def test_an_error_is_one_line(run: Run, team: str, arguments: tuple[str, ...], message: str) -> None:
    ended = run("webhook", *arguments)
    assert (ended.code in (1, 2), ended.out) == (True, "")
    assert message in ended.err
    assert ended.err.count("\n") == 1
    assert "hush" not in ended.err


def test_a_webhook_of_another_team_is_not_found(run: Run, team: str, tmp_path: Any) -> None:
    id_ = add(run, team)["id"]
    (tmp_path / "b.toml").write_text('[[teams]]\nid = "team_b"\n')
    run("apply", "b.toml")
    assert "no webhook" in run("webhook", "show", id_, "--team", "team_b").err


@pytest.mark.parametrize(
    "command", ["add", "list", "show", "change", "remove", "rotate", "test", "deliveries", "replay"]
)
def test_every_help_has_an_example(run: Run, command: str) -> None:
    assert f"heliograph webhook {command}" in run("webhook", command, "--help").out.split("\n", 1)[1]
