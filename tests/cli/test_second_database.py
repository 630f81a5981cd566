"""A command stops if it would create a second, empty database while a service of this machine uses another."""

from pathlib import Path

import pytest

from heliograph.cli import options
from heliograph.data_folder import save_database_counter
from heliograph.settings import CONFIG_VARIABLE
from tests.conftest import fresh_database

from .conftest import Run

OTHER = ["--database", "sqlite:///other.db"]


def test_a_data_folder_of_another_database_is_refused(run: Run, tmp_path: Path, example: str) -> None:
    assert run("apply", example).code == 0
    save_database_counter(tmp_path / "heliograph-data", 17, 1)  # as the service does when it starts
    assert run("key", "list").code == 0
    for command in (["apply", example], ["pause"], ["key", "list"], ["secret", "show"]):
        ended = run(*command, *OTHER)
        assert (ended.code, ended.out) == (1, "")
        assert (
            "there is no database sqlite:///other.db yet, and the service of heliograph-data uses another database"
            in ended.err
        )
    assert not (tmp_path / "other.db").exists()
    assert run("migrate", *OTHER).code == 0  # creates it on purpose
    assert run("pause", *OTHER).code == 0


def test_an_empty_postgresql_database_is_refused(run: Run, tmp_path: Path, postgres: str) -> None:
    database = ["--database", fresh_database(postgres, "template1")]
    save_database_counter(tmp_path / "heliograph-data", 17, 1)
    ended = run("pause", *database)
    assert ended.code == 1 and "To create a new database: heliograph migrate" in ended.err
    assert run("migrate", *database).code == 0
    assert run("pause", *database).code == 0


def test_a_second_database_beside_a_configured_service_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured = tmp_path / "etc.toml"
    monkeypatch.setattr(options, "SERVICE_FILE", configured)
    configured.write_text(f'data = "{tmp_path}/service"\ndatabase = "sqlite:///{tmp_path}/service.db"\n')
    for command in ("pause", "migrate"):
        ended = run(command)
        assert ended.code == 1 and f"{configured} configures a service here" in ended.err
    assert run("pause", "--config", str(configured)).code == 0
    monkeypatch.setenv(CONFIG_VARIABLE, str(configured))
    assert run("resume").code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"etc.toml", "service", "service.db"}
