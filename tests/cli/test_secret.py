"""Without the secret that encrypts the database, nothing that needs it starts, unless it is replaced."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

SERVE = ("serve", "--listen", "127.0.0.1:0")


@pytest.fixture
def secret(run: Run, example: str) -> Path:
    """Create an instance with a setup in the working folder; return the path of its secret."""
    assert run("apply", example).code == 0
    return Path("heliograph-data/secret")


@pytest.mark.parametrize(
    "command",
    [SERVE, ("apply", "setup.toml"), ("domain", "rotate", "dom_1"), ("key", "create", "--team", "team_example")],
)
def test_a_lost_secret_is_not_replaced_silently(run: Run, secret: Path, command: tuple[str, ...]) -> None:
    secret.unlink()
    flags = ("--database", "sqlite:///heliograph.db", "--data", "heliograph-data")
    ended = run(*command, *flags)
    assert ended.code == 1
    assert "heliograph secret replace" in ended.err
    assert not secret.exists()
    assert run("pause", *flags).code == 0  # needs no secret
    lines = [line for line in run("doctor", *flags).out.splitlines() if "  secret: " in line]
    assert len(lines) == 1 and lines[0].startswith("FAIL  secret: the master secret is missing")


def test_another_secret_is_used_after_replace(run: Run, secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOGRAPH_SECRET", "A" * 43 + "=")
    refused = run(*SERVE)
    assert refused.code == 1
    assert "HELIOGRAPH_SECRET is not the master secret of this database" in refused.err
    assert "now uses this secret" in run("secret", "replace").out
    assert "nothing changed" in run("secret", "replace").out
    assert run("apply", "setup.toml").code == 0
    monkeypatch.delenv("HELIOGRAPH_SECRET")
    assert "is not the master secret" in run("apply", "setup.toml").err


def test_rotation_creates_a_new_secret_and_keeps_the_old(
    run: Run, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heliograph.manage.secret.SETTLE_S", 0.0)
    old = secret.read_text()
    assert "secret.new to the data folder" in run("secret", "rotate", "--prepare").out
    prepared = secret.with_name("secret.new").read_text()
    assert secret.read_text() == old
    result = run("secret", "rotate")
    assert result.code == 0 and "secret.old only for older backups" in result.out
    assert (secret.read_text(), secret.with_name("secret.old").read_text()) == (prepared, old)
    # Nothing is encrypted with the old secret
    assert json.loads(run("secret", "show", "--json").out)["encrypted"].popitem()[1] == 0
    assert "ok    encryption: " in run("doctor", "--listen", "127.0.0.1:0").out
    assert run("apply", "setup.toml").code == 0
    assert run("secret", "rotate").code == 0
    (older,) = secret.parent.glob("secret.old.*")  # still needed for a backup from before the first rotation
    assert (older.read_text(), secret.with_name("secret.old").read_text()) == (old, prepared)


def test_a_secret_of_the_settings_needs_the_old_one_too(
    run: Run, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heliograph.manage.secret.SETTLE_S", 0.0)
    old, new = secret.read_text().strip(), "A" * 43 + "="
    secret.unlink()
    monkeypatch.setenv("HELIOGRAPH_SECRET", new)
    assert "HELIOGRAPH_SECRET_OLD" in run("secret", "rotate").err
    monkeypatch.setenv("HELIOGRAPH_SECRET_OLD", old)
    assert run("apply", "setup.toml").code == 0
    assert "Keep HELIOGRAPH_SECRET_OLD only for older backups" in run("secret", "rotate").out
    assert "Re-encrypted: 0" in run("secret", "rotate").out
    monkeypatch.delenv("HELIOGRAPH_SECRET_OLD")
    assert run("apply", "setup.toml").code == 0
    assert not secret.exists()


def test_an_invalid_secret_file_breaks_only_commands_that_need_it(run: Run, secret: Path) -> None:
    secret.write_text("short")
    assert run("pause").code == 0
