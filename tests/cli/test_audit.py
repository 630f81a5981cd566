"""`heliograph audit`: a recorded link reveals that the chain was rewritten."""

from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from heliograph.cli import audit
from tests.cli.conftest import Run


def test_a_recorded_head_matches_until_the_log_is_rewritten(run: Run, tmp_path: Path) -> None:
    assert run("audit", "head").out == "0\n"
    assert run("pause").code == 0
    position, link = run("audit", "head").out.split()
    assert (position, len(link)) == ("1", 64)
    assert msgspec.json.decode(run("audit", "head", "--json").out) == {"position": 1, "hash": link}
    assert run("resume").code == 0
    unchanged = run("audit", "check", position, link)
    assert (unchanged.code, unchanged.out) == (0, "entry 1 has this hash\n")
    file = apsw.Connection(str(tmp_path / "heliograph.db"))
    file.execute("UPDATE audit SET link = 'forged' WHERE place = 1")
    anew = run("audit", "check", position, link)
    assert anew.code == 1
    assert anew.out.startswith("entry 1 does not have this hash: its hash is forged. The log was rewritten")
    assert msgspec.json.decode(run("audit", "--until", "2100-01-01").out.splitlines()[-1])["action"] == "delivery.pause"
    assert "the entry does not exist" in run("audit", "check", "9", link).out
    file.execute("DELETE FROM audit_head")
    file.close()
    truncated = run("audit", "head")
    assert (truncated.code, "the newest audit log entries were removed" in truncated.err) == (1, True)


def entries(run: Run, *arguments: str) -> list[dict[str, Any]]:
    ended = run("audit", "export", *arguments)
    assert ended.code == 0, ended.err
    return [msgspec.json.decode(line) for line in ended.out.splitlines()]


def test_the_log_is_exported_as_json_lines_between_two_times(
    run: Run, example: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "PAGE", 3)  # so that there are several pages
    assert entries(run) == []
    run("apply", example)
    assert run("key", "create", "--team", "team_acme").code == 0
    for command in ("pause", "resume", "pause"):
        assert run(command).code == 0
    exported = entries(run)
    assert [entry["action"] for entry in exported[:3]] == ["delivery.pause", "delivery.resume", "delivery.pause"]
    assert [entry["id"] for entry in exported] == sorted((entry["id"] for entry in exported), reverse=True)
    assert exported[0].keys() == {"object", "id", "at", "by", "email", "team", "action", "subject", "detail", "address"}
    at = exported[0]["at"][:10]
    assert entries(run, "--since", at) == exported and entries(run, "--until", at) == []
    assert entries(run, "--since", "2999-01-01") == [] and entries(run, "--until", "2999-01-01T00:00:00Z") == exported
    team_entries = entries(run, "--team", "team_acme")
    assert team_entries and {entry["team"] for entry in team_entries} == {"team_acme"}
    assert run("audit", "export", "--since", "yesterday").code == 2
