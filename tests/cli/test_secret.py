"""Without the secret that sealed what the database holds, nothing that needs it starts, until told otherwise."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run

SERVE = ("serve", "--listen", "127.0.0.1:0")


@pytest.fixture
def secret(run: Run, example: str) -> Path:
    """Of an instance with a setup; the working folder is its own."""
    assert run("apply", example).code == 0
    return Path("heliograph-data/secret")


@pytest.mark.parametrize("command", [SERVE, ("apply", "setup.toml"), ("webhook", "rotate", "whk_1")])
def test_a_lost_secret_is_not_replaced_in_silence(run: Run, secret: Path, command: tuple[str, ...]) -> None:
    secret.unlink()
    here = ("--database", "sqlite:///heliograph.db", "--data", "heliograph-data")
    ended = run(*command, *here)
    assert ended.code == 1
    assert "heliograph secret replace" in ended.err
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
