import json
import os
import socket
from pathlib import Path

import apsw
import pytest

from heliograph.cli.checks.findings import Command
from heliograph.cli.checks.mail import check_callbacks, check_carriers, check_delivery, check_platform_sender
from heliograph.cli.checks.table import CHECKS
from heliograph.domain.limits import DAY_MS
from heliograph.domain.setup.records import CarrierRecord, Channel, Domain, Platform
from heliograph.domain.setup.snapshot import PLATFORM_TEAM, Setup
from heliograph.storage.carrier_stats import CarrierCounts, RecentCarrierCounts
from heliograph.storage.engine.migrate import UNFINISHED_COPY, schema_files
from tests.carriers.smtp_peer import Authority
from tests.service import Service

from .conftest import Run

ANY_PORT = ("--listen", "127.0.0.1:0")


def levels(out: str) -> dict[str, str]:
    """Return check → its most severe level."""
    level_by_check: dict[str, str] = {}
    for finding in json.loads(out)["findings"]:
        level_by_check[finding["check"]] = max(
            level_by_check.get(finding["check"], ""), finding["level"], key=("", "ok", "warn", "FAIL").index
        )
    return level_by_check


def test_a_healthy_installation(run: Run, tmp_path: Path, example: str) -> None:
    run("apply", example)
    ended = run("doctor", *ANY_PORT)
    assert ended.code == 0
    schema = schema_files()[-1][0]
    assert f"ok    database: sqlite:///heliograph.db is readable and writable, schema {schema}\n" in ended.out
    assert "email uses the built-in simulator" in ended.out
    assert "sms is sent with sim (simulator)" in ended.out
    assert "\x1b" not in ended.out  # no colours without a terminal
    machine = run("doctor", *ANY_PORT, "--json")
    assert json.loads(machine.out)["ok"] is True
    assert levels(machine.out)["database"] == "ok"


def test_an_unfinished_copy_is_continued(run: Run, tmp_path: Path) -> None:
    run("migrate")
    with apsw.Connection("heliograph.db") as connection:
        connection.execute("INSERT INTO schema_version VALUES (?)", (UNFINISHED_COPY,))
    output = run("doctor", *ANY_PORT).out
    fix = "run `heliograph copy` again, which continues it"
    assert f"FAIL  database: sqlite:///heliograph.db is an unfinished copy → {fix}\n" in output


@pytest.mark.parametrize("command", ["doctor", "preflight"])
def test_help_lists_the_checks(run: Run, command: Command) -> None:
    output = run(command, "--help").out
    assert [check.name for check in CHECKS if (check.question in output) != (check.command in (command, "both"))] == []


def test_ready_exits_with_the_readiness_of_the_service(run: Run, shared_service: Service) -> None:
    assert run("doctor", "--ready", "--listen", f"127.0.0.1:{shared_service.ports[-1]}").code == 0
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = closed.getsockname()[1]
    assert run("doctor", "--ready", "--listen", f"127.0.0.1:{nowhere}").code == 1


def test_another_instances_service_is_reported(run: Run, tmp_path: Path, shared_service: Service) -> None:
    flags = ("--listen", f"127.0.0.1:{shared_service.ports[-1]}", "--json")
    run("pause")
    assert levels(run("doctor", *flags).out)["port"] == "ok"  # no service has run here, so the port's user is unknown
    for folder, level in ((tmp_path / "other", "FAIL"), (shared_service.data, "ok")):
        folder.mkdir(exist_ok=True)
        if level == "FAIL":
            (folder / "instance").write_text("0123456789abcdef")
        output = run("doctor", *flags, "--data", str(folder)).out
        assert [finding["level"] for finding in json.loads(output)["findings"] if finding["check"] == "port"] == [level]


def test_doctor_changes_nothing(run: Run, tmp_path: Path) -> None:
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
def test_secret_file_checks(run: Run, tmp_path: Path, content: str, mode: int, level: str) -> None:
    run("pause")
    secret = tmp_path / "heliograph-data" / "secret"
    secret.write_text(content)
    secret.chmod(mode)
    ended = run("doctor", *ANY_PORT, "--json")
    assert levels(ended.out)["secret"] == level
    assert ended.code == (1 if level == "FAIL" else 0)
    assert content not in ended.out


@pytest.mark.parametrize("name", ["heliograph-data", "heliograph.db"])
def test_readable_files_are_reported(run: Run, tmp_path: Path, name: str) -> None:
    run("pause")
    assert "access" not in levels(run("doctor", *ANY_PORT, "--json").out)
    path = tmp_path / name
    path.chmod(path.stat().st_mode | 0o040)
    ended = run("doctor", *ANY_PORT)
    assert ended.code == 1
    assert f"FAIL  access: {name} has mode" in ended.out
    assert f"→ chmod {'700' if path.is_dir() else '600'} {name}" in ended.out


def test_problems_are_reported(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliograph.cli.checks.machine.REQUEST_TIMEOUT_S", 0.05)
    (tmp_path / "file").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as busy_socket:
        where = f"127.0.0.1:{busy_socket.getsockname()[1]}"
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
def test_platform_sender_check(kind: str, verified: bool | None, level: list[str]) -> None:
    sender_domain = Domain(
        id="dom_1", team=PLATFORM_TEAM, name="sandbox.heliograph.test", brand="H", verified=bool(verified)
    )
    setup = Setup(
        carriers=(CarrierRecord(id="c", channel="email", kind=kind),),
        platform_domains={} if verified is None else {sender_domain.name: sender_domain},
    )
    assert [finding.level for finding in check_platform_sender(setup)] == level


@pytest.mark.parametrize(
    ("channel", "what"),
    [
        ("email", "emails are accepted and deferred"),
        ("sms", "sends are refused with 503"),
        ("whatsapp", "sends are refused with 503"),
    ],
)
def test_channel_whose_carriers_are_all_disabled_is_a_failure(channel: Channel, what: str) -> None:
    setup = Setup(carriers=(CarrierRecord(id="off", channel=channel, kind="http", enabled=False),))
    (failure,) = (finding for finding in check_carriers(setup) if finding.level == "FAIL")
    assert failure.message == f"every {channel} carrier is disabled: {what}"


@pytest.mark.parametrize(
    ("kind", "sent", "heard", "found"),
    [
        ("twilio", 0, None, []),
        ("twilio", 3, None, [("warn", "c: 3 sent in 24 hours without a callback")]),
        ("twilio", 1, -DAY_MS - 1, [("warn", "c: 1 sent in 24 hours without a callback")]),
        ("twilio", 3, -60_000, [("ok", "c sent a callback at 1970-04-10T23:59:00.000Z")]),
        ("smpp", 3, None, []),
    ],
)
def test_missing_callbacks_of_a_carrier_are_reported(
    kind: str, sent: int, heard: int | None, found: list[tuple[str, str]]
) -> None:
    now = 100 * DAY_MS
    setup = Setup(carriers=(CarrierRecord(id="c", channel="sms", kind=kind),))
    use = {"c": RecentCarrierCounts(day=CarrierCounts(accepted=sent))}
    findings = check_callbacks(setup, {} if heard is None else {"c": now + heard}, use, now)
    assert [(finding.level, finding.message) for finding in findings] == found


def test_paused_delivery_and_carriers_of_another_version() -> None:
    setup = Setup(
        platform=Platform(paused=True),
        carriers=(
            CarrierRecord(id="post", channel="email", kind="pigeon"),
            CarrierRecord(id="off", channel="sms", kind="smpp", enabled=False),
        ),
    )
    assert [finding.level for finding in check_carriers(setup)] == ["FAIL", "FAIL", "ok"]
    assert [finding.level for finding in check_delivery(setup)] == ["warn"]


def test_smtp_submission_check(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOGRAPH_SUBMISSION_LISTEN", "127.0.0.1:2587")
    assert (
        "ok    smtp: mail is accepted on 127.0.0.1:2587 (no TLS, from this machine only)"
        in run("doctor", *ANY_PORT).out
    )
    monkeypatch.setenv("HELIOGRAPH_SUBMISSION_LISTEN", "0.0.0.0:2587")
    assert levels(run("doctor", *ANY_PORT, "--json").out)["smtp"] == "warn"
    for name in ("CERT", "KEY"):
        monkeypatch.setenv(f"HELIOGRAPH_SUBMISSION_{name}", str(tmp_path / "server.pem"))
    assert levels(run("doctor", *ANY_PORT, "--json").out)["smtp"] == "FAIL"
    (tmp_path / "server.pem").write_bytes(Authority().pem("127.0.0.1")[0])
    assert "ok    smtp: mail is accepted on 0.0.0.0:2587 (STARTTLS)" in run("doctor", *ANY_PORT).out
