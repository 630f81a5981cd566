"""`heliograph audit`: an end that was noted shows that the log was hashed anew."""

from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from heliograph.cli import audit
from tests.cli.conftest import Run


def test_a_noted_end_holds_until_the_log_is_written_anew(run: Run, tmp_path: Path) -> None:
    assert run("audit", "head").out == "0\n"
    assert run("pause").code == 0
    place, link = run("audit", "head").out.split()
    assert (place, len(link)) == ("1", 64)
    assert msgspec.json.decode(run("audit", "head", "--json").out) == {"place": 1, "link": link}
    assert run("resume").code == 0
    held = run("audit", "check", place, link)
    assert (held.code, held.out) == (0, "entry 1 has this link\n")
    file = apsw.Connection(str(tmp_path / "heliograph.db"))
    file.execute("UPDATE audit SET link = 'forged' WHERE place = 1")
    anew = run("audit", "check", place, link)
    assert anew.code == 1
    assert anew.out.startswith("entry 1 does not have this link: its link is forged. The log was written anew")
    assert "there is none" in run("audit", "check", "9", link).out
    file.execute("DELETE FROM audit_head")
    file.close()
    gone = run("audit", "head")
    assert (gone.code, "the end of the chain was removed" in gone.err) == (1, True)


def entries(run: Run, *arguments: str) -> list[dict[str, Any]]:
    ended = run("audit", "export", *arguments)
    assert ended.code == 0, ended.err
    return [msgspec.json.decode(line) for line in ended.out.splitlines()]


def test_the_log_is_exported_as_json_lines_between_two_times(
    run: Run, example: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "PAGE", 3)  # so that there are several
    assert entries(run) == []
    run("apply", example)
    assert run("key", "create", "--team", "team_acme").code == 0
    for command in ("pause", "resume", "pause"):
        assert run(command).code == 0
    found = entries(run)
    assert [one["action"] for one in found[:3]] == ["delivery.pause", "delivery.resume", "delivery.pause"]
    assert [one["id"] for one in found] == sorted((one["id"] for one in found), reverse=True)
    assert found[0].keys() == {"object", "id", "at", "by", "email", "team", "action", "subject", "detail", "address"}
    at = found[0]["at"][:10]
    assert entries(run, "--since", at) == found and entries(run, "--until", at) == []
    assert entries(run, "--since", "2999-01-01") == [] and entries(run, "--until", "2999-01-01T00:00:00Z") == found
    own = entries(run, "--team", "team_acme")
    assert own and {one["team"] for one in own} == {"team_acme"}
    assert run("audit", "export", "--since", "yesterday").code == 2
