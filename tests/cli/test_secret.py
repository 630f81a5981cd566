"""Without the secret that sealed what the database holds, nothing that needs it starts, until told otherwise."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

SERVE = ("serve", "--listen", "127.0.0.1:0")


@pytest.fixture
def secret(run: Run, example: str) -> Path:
    """Of an instance with a setup; the working folder is its own."""
    assert run("apply", example).code == 0
    return Path("heliograph-data/secret")


@pytest.mark.parametrize(
    "command",
    [SERVE, ("apply", "setup.toml"), ("webhook", "rotate", "whk_1"), ("key", "create", "--team", "team_example")],
)
def test_a_lost_secret_is_not_replaced_in_silence(run: Run, secret: Path, command: tuple[str, ...]) -> None:
    secret.unlink()
    here = ("--database", "sqlite:///heliograph.db", "--data", "heliograph-data")
    ended = run(*command, *here)
    assert ended.code == 1
    assert "heliograph secret replace" in ended.err
    assert not secret.exists()
    assert run("pause", *here).code == 0  # needs none
    found = [line for line in run("doctor", *here).out.splitlines() if "  secret: " in line]
    assert len(found) == 1 and found[0].startswith("FAIL  secret: the master secret is gone")


def test_another_secret_is_taken_when_told_so(run: Run, secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOGRAPH_SECRET", "A" * 43 + "=")
    refused = run(*SERVE)
    assert refused.code == 1
    assert "HELIOGRAPH_SECRET is not the master secret of this database" in refused.err
    assert "uses this secret now" in run("secret", "replace").out
    assert "nothing changed" in run("secret", "replace").out
    assert run("apply", "setup.toml").code == 0
    monkeypatch.delenv("HELIOGRAPH_SECRET")
    assert "is not the master secret" in run("apply", "setup.toml").err


def test_rotating_makes_a_new_one_and_keeps_the_old(run: Run, secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliograph.manage.secret.SETTLE_S", 0.0)
    old = secret.read_text()
    assert "secret.new into the data folder" in run("secret", "rotate", "--prepare").out
    prepared = secret.with_name("secret.new").read_text()
    assert secret.read_text() == old
    done = run("secret", "rotate")
    assert done.code == 0 and "secret.old is needed for backups of before alone" in done.out
    assert (secret.read_text(), secret.with_name("secret.old").read_text()) == (prepared, old)
    assert json.loads(run("secret", "show", "--json").out)["sealed"].popitem()[1] == 0  # nothing under the old one
    assert "ok    sealed: " in run("doctor", "--listen", "127.0.0.1:0").out
    assert run("apply", "setup.toml").code == 0
    assert run("secret", "rotate").code == 0
    (older,) = secret.parent.glob("secret.old.*")  # a backup of before the first one still has its secret
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
    assert "HELIOGRAPH_SECRET_OLD is needed for backups" in run("secret", "rotate").out
    assert "Sealed anew: 0" in run("secret", "rotate").out
    monkeypatch.delenv("HELIOGRAPH_SECRET_OLD")
    assert run("apply", "setup.toml").code == 0
    assert not secret.exists()


def test_a_file_that_is_no_secret_breaks_what_needs_it_alone(run: Run, secret: Path) -> None:
    secret.write_text("short")
    assert run("pause").code == 0
