"""Every setting has a value and a source, and no secret is printed."""

import base64
import json
import os
import re
from pathlib import Path

import click
import msgspec
import pytest

from heliograph.cli.options import SERVE_FLAGS
from heliograph.cli.serve import serve
from heliograph.settings import NAMES, BadSetting, Settings, read_settings, settings_of_cell, write_settings

from .conftest import Run

UNSET = ("secret", "secret_old", "public_url")  # without a default value
HELP = serve.get_help(click.Context(serve)).split()
KEY = base64.b64encode(bytes(32)).decode()
SECRET = {"HELIOGRAPH_SECRET": KEY}
TOKEN = "hush" * 8


def sources(run: Run, *arguments: str) -> dict[str, tuple[str | None, str, str]]:
    """Return name → (value, kind and name of the source)."""
    ended = run("config", "--json", *arguments)
    assert ended.code == 0, ended.err
    lines = json.loads(ended.out)["data"]
    return {line["name"]: (line["value"], line["source"]["kind"], line["source"]["name"]) for line in lines}


def test_settings_without_sources_are_the_defaults(run: Run) -> None:
    settings_sources = sources(run)
    assert list(settings_sources) == list(NAMES)
    assert {kind for _, kind, _ in settings_sources.values()} == {"default"}
    assert settings_sources["listen"][0] == "127.0.0.1:8700"
    assert settings_sources["secret"][0] is None
    assert sources(run, "--listen", "[::1]:80")["listen"][0] == "[::1]:80"


def test_a_setting_is_described_once() -> None:
    """Name, variable and flag are derived from the field; defaults have the format of input."""
    fields = [field.name for field in msgspec.structs.fields(Settings)]
    assert tuple("listen" if name == "host" else name for name in fields if name not in ("port", "sources")) == NAMES
    defaults = write_settings(Settings())
    environment = {f"HELIOGRAPH_{name.upper()}": value for name, value in defaults.items() if name not in UNSET}
    assert write_settings(read_settings({}, environment)) == defaults
    assert SERVE_FLAGS.keys() == {name for name in NAMES if f"--{name.replace('_', '-')}" in HELP}


def test_flags_override_environment_and_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five settings, each source overrides one more."""
    names = ["processes", "public_url", "resolver", "simulator_step_ms", "data"]
    values = ["2", "https://mail.example.com", "127.0.0.1:53", "9", "elsewhere"]
    environment = dict(zip(names, values, strict=True))
    (tmp_path / "h.toml").write_text("".join(f'{name} = "{value}"\n' for name, value in environment.items()))
    assert {sources(run, "--config", "h.toml")[name][1:] for name in names} == {
        ("config", f"h.toml: {name}") for name in names
    }
    (tmp_path / "credentials").mkdir()
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "credentials")
    for name in names[:4]:
        (tmp_path / "credentials" / name).write_text(f"{environment[name]}\n")
    (tmp_path / "credentials" / "other.key").write_text("not ours")
    for name in names[:3]:
        (tmp_path / name).write_text(f"{environment[name]}\n")
        monkeypatch.setenv(f"HELIOGRAPH_{name.upper()}_FILE", name)
    monkeypatch.delenv("HELIOGRAPH_PUBLIC_URL_FILE")
    monkeypatch.setenv("HELIOGRAPH_PUBLIC_URL", environment["public_url"])
    settings_sources = sources(run, "--config", "h.toml", "--processes", "2")
    assert {name: settings_sources[name] for name in names} == {
        "processes": ("2", "flag", "--processes"),
        "public_url": ("https://mail.example.com", "environment", "HELIOGRAPH_PUBLIC_URL"),
        "resolver": ("127.0.0.1:53", "file", "HELIOGRAPH_RESOLVER_FILE=resolver"),
        "simulator_step_ms": ("9", "credential", "credentials/simulator_step_ms"),
        "data": ("elsewhere", "config", "h.toml: data"),
    }


def test_the_file_refers_to_other_files(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Units and commands read one file, and the password is in another."""
    (tmp_path / "database").write_text("postgresql://u:hush@db/x\n")
    (tmp_path / "h.toml").write_text('database_file = "database"\n')
    monkeypatch.setenv("HELIOGRAPH_CONFIG", "h.toml")
    assert sources(run)["database"] == ("postgresql://u@db/x", "config", "h.toml: database_file")
    for text, message in (
        ('database_file = "none"', "h.toml: database_file none: No such file or directory"),
        ('database = "x"\ndatabase_file = "database"', "h.toml: database and database_file: only one of them"),
        ('port_file = "database"', "h.toml: port_file is not a setting"),
    ):
        (tmp_path / "h.toml").write_text(text)
        ended = run("config")
        assert ended.code == 1 and message in ended.err


@pytest.mark.parametrize(("url", "count"), [("sqlite:///x.db", "1"), ("postgresql://h/x", "3")])
def test_processes_default_to_one_per_core_on_postgresql(
    run: Run, monkeypatch: pytest.MonkeyPatch, url: str, count: str
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 5})
    assert sources(run, "--database", url)["processes"] == (count, "default", "")
    assert sources(run, "--database", url, "--processes", "2")["processes"] == ("2", "flag", "--processes")


def test_secrets_are_hidden(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    (tmp_path / "secret").write_text(KEY + "\n")
    (tmp_path / "token").write_text(TOKEN + "\n")
    monkeypatch.setenv("HELIOGRAPH_METRICS_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("HELIOGRAPH_S3_ACCESS_KEY", "k")
    monkeypatch.setenv("HELIOGRAPH_S3_SECRET_KEY", "hush")
    monkeypatch.setenv("HELIOGRAPH_DATABASE", "postgresql://u:hush@127.0.0.1/x?password=hush")
    for arguments in ([], ["--json"]):
        output = run("config", *arguments).out
        assert "hush" not in output and KEY not in output
        assert output.count("********") == 3
    assert sources(run)["database"][0] == "postgresql://u@127.0.0.1/x"


def test_a_secret_from_a_credential_is_used(run: Run, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(KEY)
    assert read_settings({}, {"CREDENTIALS_DIRECTORY": str(tmp_path)}).secret == bytes(32)
    assert read_settings({}, {"HELIOGRAPH_SECRET_FILE": str(tmp_path / "secret")}).secret == bytes(32)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"HELIOGRAPH_SECRET_FILE": "none"}, "HELIOGRAPH_SECRET_FILE none: No such file or directory"),
        ({"HELIOGRAPH_SECRET_FILE": "bytes"}, "HELIOGRAPH_SECRET_FILE bytes: expected text"),
        ({"HELIOGRAPH_SECRET_FILE": "short"}, "HELIOGRAPH_SECRET_FILE=short: expected 32 bytes in base64"),
        (
            {"HELIOGRAPH_BOUNCE_LISTEN": "off", "HELIOGRAPH_MAIL_LISTEN": "off"},
            "HELIOGRAPH_BOUNCE_LISTEN and HELIOGRAPH_MAIL_LISTEN: only one of them can be given",
        ),
        (
            {"HELIOGRAPH_SECRET": KEY, "HELIOGRAPH_SECRET_FILE": "short"},
            "HELIOGRAPH_SECRET and HELIOGRAPH_SECRET_FILE: only one of them can be given",
        ),
        ({"HELIOGRAPH_PORT_FILE": "short"}, "HELIOGRAPH_PORT_FILE is not a setting"),
        ({"HELIOGRAPH_DATABASE": "mysql://u:hush@h/x"}, "HELIOGRAPH_DATABASE: expected sqlite:///"),
        ({"HELIOGRAPH_SUBMISSION_LISTEN": "h:25,587"}, "HELIOGRAPH_SUBMISSION_LISTEN='h:25,587': expected host:port"),
        ({"HELIOGRAPH_SUBMISSION_TLS_LISTEN": "h:465"}, "submission_tls_listen needs a certificate"),
        ({"HELIOGRAPH_SUBMISSION_CERT": "x"}, "submission_cert and submission_key belong together"),
        ({"HELIOGRAPH_CHECKPOINT": "never"}, "HELIOGRAPH_CHECKPOINT='never': expected own, or external"),
        ({"HELIOGRAPH_ATTACHMENTS": "/srv/files"}, "HELIOGRAPH_ATTACHMENTS='/srv/files': expected s3://bucket"),
        ({"HELIOGRAPH_ATTACHMENTS": "s3://k:hush@b"}, "HELIOGRAPH_ATTACHMENTS: expected s3://bucket"),
        ({"HELIOGRAPH_S3_ENDPOINT": "minio:9000"}, "HELIOGRAPH_S3_ENDPOINT='minio:9000': expected an address"),
        ({"HELIOGRAPH_S3_ACCESS_KEY": "k"}, "s3_access_key and s3_secret_key belong together"),
    ],
)
def test_invalid_settings_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bytes").write_bytes(b"\xff")
    (tmp_path / "short").write_text("hush")
    with pytest.raises(BadSetting) as refused:
        read_settings({}, environment)
    assert str(refused.value).startswith(message)
    assert "hush" not in str(refused.value)


def test_client_variables_are_ignored() -> None:
    read_settings({}, {"HELIOGRAPH_URL": "https://mail.example.com", "HELIOGRAPH_KEY": "hk_x"})
    with pytest.raises(BadSetting, match="HELIOGRAPH_KEYS is not a setting"):
        read_settings({}, {"HELIOGRAPH_KEYS": "hk_x"})


WITH_CLIENT_ID = {"HELIOGRAPH_OIDC_CLIENT_ID": "heliograph"}
PROVIDER = WITH_CLIENT_ID | {"HELIOGRAPH_OIDC_ISSUER": "https://id.example.com/"}


def test_an_identity_provider() -> None:
    roles = "ops=operator,shop=team_shop:viewer"
    environment = PROVIDER | {"HELIOGRAPH_OIDC_ROLES": roles, "HELIOGRAPH_PASSWORD_SIGN_IN": "off"}
    settings = read_settings({}, environment)
    # the slash is part of the name
    assert (settings.oidc_issuer, settings.password_sign_in) == ("https://id.example.com/", False)
    written = write_settings(settings)
    assert (written["oidc_roles"], written["password_sign_in"]) == (roles, "off")
    assert read_settings({}, {"HELIOGRAPH_OIDC_ISSUER": "http://localhost:8080", **WITH_CLIENT_ID}).oidc_issuer


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (WITH_CLIENT_ID, "oidc_issuer and oidc_client_id belong together"),
        ({"HELIOGRAPH_PASSWORD_SIGN_IN": "off"}, "needs another way to sign in"),
        ({"HELIOGRAPH_PASSWORD_SIGN_IN": "no"}, "expected on or off"),
        (WITH_CLIENT_ID | {"HELIOGRAPH_OIDC_ISSUER": "http://id.example.com"}, "http only on this machine"),
        (WITH_CLIENT_ID | {"HELIOGRAPH_OIDC_ISSUER": "https://id.example.com?a=b"}, "without a query"),
        (WITH_CLIENT_ID | {"HELIOGRAPH_OIDC_ISSUER": "id.example.com"}, "such as https://id.example.com"),
        ({"HELIOGRAPH_OIDC_SCOPES": "email"}, "with openid in it"),
        ({"HELIOGRAPH_OIDC_ROLES": "ops=boss"}, "expected group=team:role"),
        ({"HELIOGRAPH_OIDC_CLIENT_SECRET": "hush\nhush"}, "HELIOGRAPH_OIDC_CLIENT_SECRET: expected one line"),
    ],
)
def test_invalid_identity_provider_settings_are_reported(given: dict[str, str], message: str) -> None:
    with pytest.raises(BadSetting, match=message.replace("?", r"\?")) as refused:
        read_settings({}, given)
    assert "hush" not in str(refused.value)


def test_a_setting_is_read_by_its_new_name() -> None:
    assert read_settings({}, {"HELIOGRAPH_MAIL_LISTEN": "127.0.0.1:25"}).bounce_listen == ("127.0.0.1", 25)


CELLS = {"HELIOGRAPH_DATABASE": "postgresql://db/mail?host=/run", "HELIOGRAPH_CELLS": "cell_01, cell_02"}


def test_cells_have_schemas_folders_ports_and_host_names_of_their_own() -> None:
    environment = {
        **CELLS,
        "HELIOGRAPH_DATABASE_READ": "postgresql://standby/mail",
        "HELIOGRAPH_LISTEN": "127.0.0.1:8700",
        "HELIOGRAPH_HEALTH": ":8800",
        "HELIOGRAPH_BOUNCE_LISTEN": "127.0.0.1:25",
        "HELIOGRAPH_SUBMISSION_LISTEN": "127.0.0.1:587,127.0.0.1:2587",
        "HELIOGRAPH_ATTACHMENTS": "s3://bucket/a",
        "HELIOGRAPH_PUBLIC_URL": "https://{cell}.mail.example.com",
    }
    assert read_settings({}, environment).cell == ""
    cell = read_settings({}, {**environment, "HELIOGRAPH_CELL": "cell_02"})
    for_serve = settings_of_cell(read_settings({}, environment), "cell_02")
    assert write_settings(cell) == write_settings(for_serve)
    assert cell.database == "postgresql://db/mail?host=/run&search_path=cell_02"
    assert cell.database_read == "postgresql://standby/mail?search_path=cell_02"
    assert (cell.data.name, cell.attachments) == ("cell_02", "s3://bucket/a/cell_02")
    assert (cell.port, cell.health, cell.bounce_listen) == (8701, ("0.0.0.0", 8801), ("127.0.0.1", 26))
    assert [port for _, port in cell.submission_listen] == [588, 2588]
    assert cell.base_url == "https://cell-02.mail.example.com"


def test_only_cell_is_selected_and_keeps_its_ports_and_public_url() -> None:
    cell = read_settings(
        {},
        {**CELLS, "HELIOGRAPH_CELLS": "cell_02", "HELIOGRAPH_PUBLIC_URL": "https://two.example.com", **SECRET},
    )
    assert (cell.cell, cell.port, cell.base_url) == ("cell_02", 8700, "https://two.example.com")
    assert cell.database.endswith("search_path=cell_02")


def test_port_zero_is_any_free_port_in_each_cell() -> None:
    environment = {**CELLS, "HELIOGRAPH_LISTEN": "127.0.0.1:0", "HELIOGRAPH_CELL": "cell_02"}
    assert read_settings({}, environment).port == 0


@pytest.mark.parametrize(
    ("environment", "error"),
    [
        ({"HELIOGRAPH_CELLS": "cell-01"}, "expected names such as cell_01"),
        ({"HELIOGRAPH_CELLS": "cell_01,cell_01"}, "expected each cell once"),
        ({"HELIOGRAPH_CELLS": "cell_01"}, "cells need PostgreSQL"),
        ({**CELLS, "HELIOGRAPH_CELL": "cell_03"}, "expected one of cells, cell_01, cell_02"),
        ({"HELIOGRAPH_CELL": "cell_03"}, "expected one of cells, which is empty"),
        ({**CELLS, "HELIOGRAPH_PUBLIC_URL": "https://mail.example.com"}, "{cell} must be in the host name"),
        ({"HELIOGRAPH_PUBLIC_URL": "https://{cell}.example.com"}, "{cell} needs cells"),
        ({**CELLS, **SECRET}, "several cells cannot share one"),
    ],
)
def test_wrong_settings_of_cells_are_named(environment: dict[str, str], error: str) -> None:
    with pytest.raises(BadSetting, match=re.escape(error)):
        read_settings({}, environment)


def test_command_on_one_cell_says_how_to_select_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CELLS.items():
        monkeypatch.setenv(name, value)
    ended = run("key", "list")
    assert (ended.code, ended.out) == (1, "")
    assert "Set HELIOGRAPH_CELL=cell_01, or another of cell_01, cell_02" in ended.err
    assert sources(run)["cells"][0] == "cell_01,cell_02"
