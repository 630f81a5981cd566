import json
import os
import socket
from pathlib import Path

import pytest

from heliograph.cli.checks.findings import Command
from heliograph.cli.checks.mail import callbacks, carriers, delivery, platform_sender
from heliograph.cli.checks.table import CHECKS
from heliograph.domain.limits import DAY_MS
from heliograph.domain.setup.records import CarrierRecord, Channel, Domain, Platform
from heliograph.domain.setup.snapshot import PLATFORM_TEAM, Setup
from heliograph.storage.carrier_stats import RecentUse, Use
from heliograph.storage.engine.migrate import schema_files
from tests.carriers.smtp_peer import Authority
from tests.service import Service

from .conftest import Run

ANY_PORT = ("--listen", "127.0.0.1:0")


def levels(out: str) -> dict[str, str]:
    """The worst level of each check."""
    found: dict[str, str] = {}
    for finding in json.loads(out)["findings"]:
        found[finding["check"]] = max(
            found.get(finding["check"], ""), finding["level"], key=("", "ok", "warn", "FAIL").index
        )
    return found


def test_a_sound_installation(run: Run, tmp_path: Path, example: str) -> None:
    run("apply", example)
    ended = run("doctor", *ANY_PORT)
    assert ended.code == 0
    schema = schema_files()[-1][0]
    assert f"ok    database: sqlite:///heliograph.db can be read and written, schema {schema}\n" in ended.out
    assert "email is served by the built-in simulator" in ended.out
    assert "sms goes to sim (simulator)" in ended.out
    assert "\x1b" not in ended.out  # no colour without a terminal
    machine = run("doctor", *ANY_PORT, "--json")
    assert json.loads(machine.out)["ok"] is True
    assert levels(machine.out)["database"] == "ok"


@pytest.mark.parametrize("command", ["doctor", "preflight"])
def test_help_says_what_is_asked(run: Run, command: Command) -> None:
    said = run(command, "--help").out
    assert [check.name for check in CHECKS if (check.asks in said) != (check.by in (command, "both"))] == []


def test_ready(run: Run, shared_service: Service) -> None:
    assert run("doctor", "--ready", "--listen", f"127.0.0.1:{shared_service.ports[-1]}").code == 0
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = closed.getsockname()[1]
    assert run("doctor", "--ready", "--listen", f"127.0.0.1:{nowhere}").code == 1


def test_a_neighbours_service_is_not_ours(run: Run, tmp_path: Path, shared_service: Service) -> None:
    taken = ("--listen", f"127.0.0.1:{shared_service.ports[-1]}", "--json")
    run("pause")
    assert levels(run("doctor", *taken).out)["port"] == "ok"  # no service has run here: nobody knows
    for folder, level in ((tmp_path / "other", "FAIL"), (shared_service.data, "ok")):
        folder.mkdir(exist_ok=True)
        if level == "FAIL":
            (folder / "instance").write_text("0123456789abcdef")
        found = run("doctor", *taken, "--data", str(folder)).out
        assert [one["level"] for one in json.loads(found)["findings"] if one["check"] == "port"] == [level]


def test_it_changes_nothing(run: Run, tmp_path: Path) -> None:
    ended = run("doctor", *ANY_PORT, "--json")
    assert ended.code == 0
    assert levels(ended.out)["database"] == "warn"
    assert list(tmp_path.iterdir()) == []
    run("apply", os.devnull)
    before = (tmp_path / "heliograph.db").read_bytes()
    run("doctor", *ANY_PORT)
    assert (tmp_path / "heliograph.db").read_bytes() == before


@pytest.mark.parametrize(
    ("content", "mode", "level"),
    [
        ("A" * 43 + "=", 0o600, "ok"),
        ("A" * 43 + "=", 0o644, "FAIL"),
        ("short", 0o600, "FAIL"),
        ("ä", 0o600, "FAIL"),
    ],
    ids=["good", "open to others", "not 32 bytes", "not base64"],
)
def test_the_secret(run: Run, tmp_path: Path, content: str, mode: int, level: str) -> None:
    run("pause")
    secret = tmp_path / "heliograph-data" / "secret"
    secret.write_text(content)
    secret.chmod(mode)
    ended = run("doctor", *ANY_PORT, "--json")
    assert levels(ended.out)["secret"] == level
    assert ended.code == (1 if level == "FAIL" else 0)
    assert content not in ended.out


@pytest.mark.parametrize("name", ["heliograph-data", "heliograph.db"])
def test_what_others_can_read(run: Run, tmp_path: Path, name: str) -> None:
    run("pause")
    assert "access" not in levels(run("doctor", *ANY_PORT, "--json").out)
    path = tmp_path / name
    path.chmod(path.stat().st_mode | 0o040)
    ended = run("doctor", *ANY_PORT)
    assert ended.code == 1
    assert f"FAIL  access: {name} has mode" in ended.out
    assert f"→ chmod {'700' if path.is_dir() else '600'} {name}" in ended.out


def test_what_is_broken_is_said(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliograph.cli.checks.machine.PROBE_S", 0.05)
    (tmp_path / "file").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = run(
            "doctor",
            "--listen",
            where,
            "--data",
            "file",
            "--database",
            "postgresql://127.0.0.1:1/x",
            "--json",
        )
    assert ended.code == 1
    failed = {check for check, level in levels(ended.out).items() if level == "FAIL"}
    assert failed >= {"database", "data folder", "port"}


@pytest.mark.parametrize(
    ("kind", "verified", "level"),
    [("smtp", True, ["ok"]), ("smtp", False, ["warn"]), ("smtp", None, ["warn"]), ("simulator", None, [])],
)
def test_the_platforms_sender(kind: str, verified: bool | None, level: list[str]) -> None:
    own = Domain(id="dom_1", team=PLATFORM_TEAM, name="sandbox.heliograph.test", brand="H", verified=bool(verified))
    setup = Setup(
        carriers=(CarrierRecord(id="c", channel="email", kind=kind),),
        platform_domains={} if verified is None else {own.name: own},
    )
    assert [finding.level for finding in platform_sender(setup)] == level


@pytest.mark.parametrize(
    ("channel", "what"),
    [
        ("email", "emails are accepted and wait, deferred"),
        ("sms", "sends are refused with 503"),
        ("whatsapp", "sends are refused with 503"),
    ],
)
def test_a_channel_of_disabled_carriers(channel: Channel, what: str) -> None:
    setup = Setup(carriers=(CarrierRecord(id="off", channel=channel, kind="http", enabled=False),))
    (found,) = (finding for finding in carriers(setup) if finding.level == "FAIL")
    assert found.message == f"every {channel} carrier is disabled: {what}"


@pytest.mark.parametrize(
    ("kind", "sent", "heard", "found"),
    [
        ("twilio", 0, None, []),
        ("twilio", 3, None, [("warn", "c: 3 sent in 24 hours, and no callback came")]),
        ("twilio", 1, -DAY_MS - 1, [("warn", "c: 1 sent in 24 hours, and no callback came")]),
        ("twilio", 3, -60_000, [("ok", "c called back at 1970-04-10T23:59:00.000Z")]),
        ("smpp", 3, None, []),
    ],
)
def test_a_carrier_that_should_call_back(kind: str, sent: int, heard: int | None, found: list[tuple[str, str]]) -> None:
    now = 100 * DAY_MS
    setup = Setup(carriers=(CarrierRecord(id="c", channel="sms", kind=kind),))
    use = {"c": RecentUse(day=Use(accepted=sent))}
    told = callbacks(setup, {} if heard is None else {"c": now + heard}, use, now)
    assert [(one.level, one.message) for one in told] == found


def test_paused_delivery_and_carriers_of_another_version() -> None:
    setup = Setup(
        platform=Platform(paused=True),
        carriers=(
            CarrierRecord(id="post", channel="email", kind="pigeon"),
            CarrierRecord(id="off", channel="sms", kind="smpp", enabled=False),
        ),
    )
    assert [finding.level for finding in carriers(setup)] == ["FAIL", "FAIL", "ok"]
    assert [finding.level for finding in delivery(setup)] == ["warn"]


def test_where_mail_is_taken_by_smtp(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOGRAPH_SUBMISSION_LISTEN", "127.0.0.1:2587")
    assert (
        "ok    smtp: mail is taken on 127.0.0.1:2587 (no TLS, from this machine alone)" in run("doctor", *ANY_PORT).out
    )
    monkeypatch.setenv("HELIOGRAPH_SUBMISSION_LISTEN", "0.0.0.0:2587")
    assert levels(run("doctor", *ANY_PORT, "--json").out)["smtp"] == "warn"
    for name in ("CERT", "KEY"):
        monkeypatch.setenv(f"HELIOGRAPH_SUBMISSION_{name}", str(tmp_path / "server.pem"))
    assert levels(run("doctor", *ANY_PORT, "--json").out)["smtp"] == "FAIL"
    (tmp_path / "server.pem").write_bytes(Authority().pem("127.0.0.1")[0])
    assert "ok    smtp: mail is taken on 0.0.0.0:2587 (STARTTLS)" in run("doctor", *ANY_PORT).out
