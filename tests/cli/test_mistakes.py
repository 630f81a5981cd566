import socket
from pathlib import Path

import apsw
import pytest

from .conftest import Run

TOKEN = "hk_e6FyJqrQy5_B0Gcb0VZXHtbKLaMqUiIawolD691iK8Ufvf9Ncn7q8d1nqgSq"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["serv"], 2, "No such command 'serv'"),
        (["serve", "--rol", "all"], 2, "See: heliograph serve --help"),
        (["serve", "--role", "cook"], 2, "'cook' is not one of"),
        (["migrate", "--database", "mysql://x"], 1, "--database='mysql://x': expected sqlite:///"),
        (
            ["migrate", "--database", "postgresql://u:hush@h:port/x"],
            1,
            "database postgresql://u@h:port/x: Port",
        ),
        (["migrate", "--database", "postgresql://u:hush@127.0.0.1:1/x"], 1, "Check --database"),
        (["serve", "--listen", "8700"], 1, "--listen='8700': expected host:port"),
        (["migrate", "--config", "none.toml"], 1, "none.toml: no such settings file"),
        (["migrate", "--database", "sqlite:////dev/null/x.db"], 1, "/dev/null: "),
        (["migrate", "--database", "sqlite:///text.db"], 1, "file is not a database"),
        (["pause", "--data", "text.db"], 1, "text.db"),
        (["apply", "none.toml"], 2, "'none.toml': No such file or directory"),
        (["apply", "text.db"], 1, "text.db: Expected '=' after a key"),
        (["apply", "bytes.toml"], 1, "bytes.toml: 'utf-8' codec can't decode"),
        (["key", "revoke", "x"], 1, "There is no such key"),
        (["key", "list", "--team", "team_none"], 1, "There is no team team_none."),
        (["domain", "list", "--team", "team_none"], 1, "There is no team team_none."),
        (["domain", "add", "a.test", "--team", "team_none"], 1, "There is no team team_none."),
        (["audit", "export", "--team", "team_none"], 1, "There is no team team_none."),
        (["export", "ada@example.com", "--team", "team_none"], 1, "There is no team team_none."),
        (["erase", "ada@example.com", "--team", "team_none", "--yes"], 1, "There is no team team_none."),
        (["reputation", "show", "team_none"], 1, "There is no team team_none."),
        (["user", "add", "ada@example.com", "--team", "team_none"], 1, "There is no team team_none."),
        (["send", "sms", "--to", "+1", "--key", "hk_cut"], 1, "not a complete token"),
        (["send", "sms", "--to", "+1", "--key", "@none"], 1, "--key: none cannot be read"),
        (["send", "sms", "--to", "+1", "--to", "+2", "--key", TOKEN], 2, "sms has exactly one recipient"),
        (["send", "sms", "--to", "+1", "--key", TOKEN, "--var", "x"], 2, "expected NAME=VALUE"),
        (
            ["send", "sms", "--to", "+1", "--key", TOKEN, "--url", "file:///etc"],
            2,
            "expected http:// or https://",
        ),
        (
            ["send", "sms", "--to", "+1", "--key", TOKEN, "--url", "http://127.0.0.1:1"],
            1,
            "Is the service running?",
        ),
    ],
)
def test_an_error_is_one_line(run: Run, tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    (tmp_path / "text.db").write_text("no database, no TOML, and long enough to be looked at")
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    ended = run(*arguments)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith("heliograph: ")
    assert message in ended.err
    assert ended.err.count("\n") == 1
    assert "hush" not in ended.err


@pytest.mark.parametrize(("variable", "value"), [("HELIOGRAPH_PORT", "1"), ("HELIOGRAPH_SECRET", "hush")])
def test_an_invalid_setting_is_reported_on_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    ended = run("migrate")
    assert ended.code == 1
    assert ended.err.startswith(f"heliograph: {variable}")
    assert ended.err.count("\n") == 1
    assert "hush" not in ended.err


def test_port_in_use_is_reported_on_one_line(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy_socket:
        ended = run("serve", "--listen", f"127.0.0.1:{busy_socket.getsockname()[1]}")
    assert ended.code == 1
    assert "choose another address with --listen" in ended.err
    assert ended.err.count("\n") == 1


def test_migrate_applies_the_schema(run: Run) -> None:
    first = run("migrate")
    assert first.code == 0
    assert first.out.startswith("schema 47 applied\n")
    assert run("migrate").out == "sqlite:///heliograph.db is up to date\n"


@pytest.mark.parametrize("command", ["migrate", "pause", "doctor"])
def test_a_database_of_a_newer_version_is_refused(run: Run, tmp_path: Path, command: str) -> None:
    run("migrate")
    connection = apsw.Connection(str(tmp_path / "heliograph.db"))
    connection.execute("INSERT INTO schema_version VALUES (999)")
    connection.close()
    ended = run(command)
    assert ended.code == 1
    assert "the database has schema 999, this Heliograph knows up to " in ended.out + ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("command", ["migrate", "pause", "doctor"])
def test_a_database_of_a_version_too_old_is_refused(run: Run, tmp_path: Path, command: str) -> None:
    run("migrate")
    connection = apsw.Connection(str(tmp_path / "heliograph.db"))
    connection.execute("DELETE FROM schema_version")
    connection.execute("INSERT INTO schema_version VALUES (12)")
    connection.close()
    ended = run(command)
    assert ended.code == 1
    assert "the database has schema 12, this Heliograph supports 47 and later: run `heliograph migrate`" in (
        ended.out + ended.err
    )
    assert "Traceback" not in ended.err
