"""Each check reports the problem and its fix; all servers are on loopback."""

import asyncio
import json
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from heliograph.cli.checks import machine, mail
from heliograph.cli.checks.findings import Finding, Site
from heliograph.cli.checks.machine import check_memory, check_ntp, check_sync_rate
from heliograph.cli.checks.store import CITUS_MINIMA, check_clock_difference, check_postgres, citus_findings
from heliograph.cli.checks.table import CHECKS
from heliograph.domain.setup.records import CarrierRecord
from heliograph.domain.setup.snapshot import Setup
from heliograph.runtime.resolver import Resolver
from heliograph.settings import Settings
from heliograph.storage.diagnostics import Diagnostics
from heliograph.storage.engine.citus import Cell
from tests.carriers.dns_peer import DnsPeer, Zone
from tests.s3 import S3Server
from tests.service import NOBODY

from .conftest import Run

PUBLIC = Settings(public_url="https://mail.example.com")
GOOD_POSTGRES = {
    "version": 150004,
    "fsync": "on",
    "full_page_writes": "on",
    "encoding": "UTF8",
    "connections": 100,
    "standby": False,
    "may_create": True,
}
FAILS: list[str] = []  # records of a name that no name server answers

ZONE: Zone = {
    ("probe.test", "MX"): ["10 mx.probe.test."],
    ("mx.probe.test", "A"): ["127.0.0.1"],
    ("mail.example.com", "A"): ["127.0.0.1"],
    ("1.0.0.127.in-addr.arpa", "PTR"): ["mail.example.com."],
}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return int(bound.getsockname()[1])


@pytest.fixture
def server() -> Iterator[int]:
    """Return the port of a server that accepts connections."""
    with closing(socket.create_server(("127.0.0.1", 0))) as bound:
        yield bound.getsockname()[1]


def run_network_checks(zone: Zone, port: int, *relays: str, settings: Settings = PUBLIC) -> dict[str, Finding]:
    """Return the findings about mail, with this name server."""

    async def run_with_resolver() -> dict[str, Finding]:
        async with DnsPeer(zone) as peer:
            host, _, number = peer.address.partition(":")
            resolver = Resolver((host, int(number)), mail.TIMEOUT_S)
            return await asyncio.to_thread(findings_by_check, Site(settings, resolver, "probe.test", port, relays))

    return asyncio.run(run_with_resolver())


def findings_by_check(site: Site) -> dict[str, Finding]:
    checks = CHECKS[[check.run for check in CHECKS].index(mail.check_exchangers) :]
    return {finding.check: finding for check in checks for finding in check.findings(site)}


def test_all_network_checks_pass(server: int) -> None:
    findings = run_network_checks(ZONE, server)
    assert {check: finding.level for check, finding in findings.items()} == dict.fromkeys(
        ("dns", "port 25", "helo name", "ptr"), "ok"
    )
    assert findings["port 25"].message == "mx.probe.test. is reachable from 127.0.0.1"


def test_a_blocked_port_25_names_a_relay(server: int) -> None:
    findings = run_network_checks(ZONE, free_port(), f"127.0.0.1:{free_port()}", f"127.0.0.1:{server}")
    assert findings["port 25"].level == "warn"
    assert f"such as 127.0.0.1:{server}, which is reachable" in str(findings["port 25"].fix)
    assert run_network_checks(ZONE, free_port(), f"127.0.0.1:{free_port()}")["port 25"].level == "FAIL"


@pytest.mark.parametrize(
    ("changed", "check", "level", "message"),
    [
        ({("probe.test", "MX"): []}, "dns", "FAIL", "the mail exchangers of probe.test cannot be determined"),
        ({("mail.example.com", "A"): []}, "helo name", "FAIL", "mail.example.com has no address record in DNS"),
        ({("1.0.0.127.in-addr.arpa", "PTR"): []}, "ptr", "FAIL", "127.0.0.1 has no PTR record"),
        (
            {("1.0.0.127.in-addr.arpa", "PTR"): ["host-1.provider.test."]},
            "ptr",
            "FAIL",
            "127.0.0.1 has the PTR record host-1.provider.test, not mail.example.com",
        ),
    ],
)
def test_missing_dns_records_are_reported(server: int, changed: Zone, check: str, level: str, message: str) -> None:
    finding = run_network_checks(ZONE | changed, server)[check]
    assert (finding.level, finding.message[: len(message)]) == (level, message)
    assert finding.fix


@pytest.mark.parametrize(
    ("changed", "level", "message"),
    [
        ({}, "ok", "192.0.2.1 has the PTR record mail.example.com"),
        ({("1.2.0.192.in-addr.arpa", "PTR"): []}, "FAIL", "192.0.2.1 has no PTR record"),
        (
            {("mail.example.com", "A"): ["192.0.2.9"]},
            "FAIL",
            "192.0.2.1 has the PTR record mail.example.com, which does",
        ),
        (
            {("1.2.0.192.in-addr.arpa", "PTR"): ["out.example.com."], ("out.example.com", "A"): ["192.0.2.1"]},
            "warn",
            "192.0.2.1 has the PTR record out.example.com, but the carrier greets with mail.example.com",
        ),
        ({("1.2.0.192.zen.spamhaus.org", "A"): ["127.0.0.2"]}, "FAIL", "192.0.2.1 is listed by zen.spamhaus.org (127"),
        ({("1.2.0.192.bl.spamcop.net", "A"): ["127.255.255.254"]}, "warn", "bl.spamcop.net refuses queries"),
        ({("1.2.0.192.bl.spamcop.net", "A"): ["198.51.100.7"]}, "warn", "the answer of bl.spamcop.net is not from a"),
        ({("1.2.0.192.in-addr.arpa", "PTR"): FAILS}, "warn", "the reverse DNS of 192.0.2.1 cannot be looked up"),
        ({("mail.example.com", "A"): FAILS}, "warn", "the reverse DNS of 192.0.2.1 cannot be looked up"),
        ({("1.2.0.192.bl.spamcop.net", "A"): FAILS}, "warn", "bl.spamcop.net cannot be asked about 192.0.2.1"),
    ],
)
def test_source_addresses_are_checked_in_dns(changed: Zone, level: str, message: str) -> None:
    zone: Zone = {
        ("1.2.0.192.in-addr.arpa", "PTR"): ["mail.example.com."],
        ("mail.example.com", "A"): ["192.0.2.1"],
    }
    carriers = [
        CarrierRecord(id="mx", channel="email", kind="mx", options={"source_ips": [{"address": "192.0.2.1"}]}),
        CarrierRecord(id="off", channel="email", kind="mx", options={"source_ips": ["192.0.2.2"]}, enabled=False),
    ]
    diagnostics = cast(Diagnostics, SimpleNamespace(setup=Setup(carriers=tuple(carriers))))

    async def check_sources() -> list[Finding]:
        async with DnsPeer(zone | changed) as peer:
            peer.failing_names = {name for (name, _), records in changed.items() if records is FAILS}
            host, _, port = peer.address.partition(":")
            site = Site(PUBLIC, Resolver((host, int(port)), mail.TIMEOUT_S), diagnostics=diagnostics)
            return await mail.check_source_addresses(site)

    finding = asyncio.run(check_sources())[-1]
    assert (finding.level, finding.message[: len(message)]) == (level, message)
    assert bool(finding.fix) == (level != "ok")


def test_missing_public_host_name_is_a_warning(server: int) -> None:
    findings = run_network_checks(ZONE, server, settings=Settings())
    assert findings["helo name"].level == "warn" and "--public-url" in str(findings["helo name"].fix)


def test_a_silent_name_server_is_named() -> None:
    resolver = Resolver(("127.0.0.1", free_port()), 0.1)

    [finding] = findings_by_check(Site(PUBLIC, resolver, "probe.test")).values()
    assert (finding.check, finding.level) == ("dns", "FAIL")


@pytest.mark.parametrize(
    ("changed", "level", "message"),
    [
        ({}, "ok", "PostgreSQL 15 is configured correctly"),
        ({"version": 120003}, "FAIL", "PostgreSQL is older than version 13"),
        ({"standby": True}, "FAIL", "the server is a standby and read-only"),
        ({"fsync": "off"}, "FAIL", "fsync is off: a crash loses accepted messages"),
        ({"full_page_writes": "off"}, "FAIL", "full_page_writes is off: a crash may destroy tables"),
        ({"encoding": "LATIN1"}, "FAIL", "the database encoding is LATIN1"),
        ({"may_create": False}, "FAIL", "this user cannot create tables"),
        ({"connections": 29}, "warn", "max_connections is 29, 3 processes may use 27"),
    ],
)
def test_postgresql_settings_that_risk_messages_are_reported(changed: dict[str, Any], level: str, message: str) -> None:
    [finding] = check_postgres(Settings(processes=3), GOOD_POSTGRES | changed)
    assert (finding.level, finding.message) == (level, message)
    assert bool(finding.fix) == (level != "ok")


GOOD_CITUS = {
    "shared_preload_libraries": "citus,pg_stat_statements",
    "wal_level": "logical",
    "citus.enable_schema_based_sharding": "on",
    **{name: str(minimum) for name, minimum in CITUS_MINIMA.items()},
}


@pytest.mark.parametrize(
    ("changed", "level", "message"),
    [
        ({}, "ok", "the cell cell_01 is on 127.0.0.1:9701"),
        ({"shared_preload_libraries": ""}, "FAIL", "Citus is not preloaded"),
        ({"wal_level": "replica"}, "warn", "wal_level is not logical: no cell can be moved under load"),
        (
            {"citus.enable_schema_based_sharding": "off"},
            "warn",
            "citus.enable_schema_based_sharding is off: a new schema stays on the coordinator",
        ),
        *(
            ({name: "7"}, "warn", f"{name} is 7: moving a cell may need {minimum}")
            for name, minimum in CITUS_MINIMA.items()
        ),
    ],
)
def test_citus_settings_that_hinder_moves_are_reported(changed: dict[str, str], level: str, message: str) -> None:
    [finding] = citus_findings(Cell("cell_01", "127.0.0.1:9701", GOOD_CITUS | changed))
    assert (finding.level, finding.message) == (level, message)
    assert bool(finding.fix) == (level != "ok")


def test_schema_that_is_not_distributed() -> None:
    [finding] = citus_findings(Cell("public", None, GOOD_CITUS))
    assert (finding.level, finding.message) == ("warn", "the schema public is not distributed")


@pytest.fixture
def unreachable_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail, "TIMEOUT_S", 0.1)
    monkeypatch.setenv("HELIOGRAPH_RESOLVER", NOBODY)


def test_real_postgresql_is_checked_for_durability_and_clock(
    run: Run, unreachable_network: None, postgres: str
) -> None:
    """The tests' PostgreSQL does not survive a power cut, which makes it fast."""
    ended = run("preflight", "--json", "--listen", "127.0.0.1:0", "--database", postgres)
    messages = [
        (finding["check"], finding["message"].partition(":")[0]) for finding in json.loads(ended.out)["findings"]
    ]
    assert [message for check, message in messages if check == "database"] == [
        "fsync is off",
        "full_page_writes is off",
    ]
    assert [message for check, message in messages if check == "clock"][-1].startswith(
        "the database's clock differs by "
    )


@pytest.mark.parametrize(("available", "level"), [(832, "ok"), (831, "warn"), (255, "FAIL")])
def test_memory_below_the_need_is_a_warning_or_failure(available: int, level: str) -> None:
    assert check_memory(Settings(processes=2, body_memory_mb=96), available).level == level


def test_clock_and_disk_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [check_ntp(state).level for state in (0, 5)] == ["ok", "warn"]
    assert [check_clock_difference(ms).level for ms in (-4_999, 5_000, -5_000)] == ["ok", "FAIL", "FAIL"]
    assert check_sync_rate(tmp_path).level in ("ok", "warn")
    assert check_sync_rate(tmp_path / "none").level == "FAIL"
    monkeypatch.setattr(machine, "SYNC_RATE_LOW", 1e9)
    assert check_sync_rate(tmp_path).level == "warn"


def test_the_command_changes_nothing_and_fails_on_problems(
    run: Run, unreachable_network: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy_socket:
        monkeypatch.setenv("HELIOGRAPH_BOUNCE_LISTEN", f"127.0.0.1:{busy_socket.getsockname()[1]}")
        ended = run("preflight", "--listen", "127.0.0.1:0", "--database", "postgresql://127.0.0.1:1/x")
    assert ended.code == 1
    lines = {line.partition(":")[0] for line in ended.out.splitlines()}
    assert {"FAIL  database", "FAIL  dns", "FAIL  mail ports", "ok    data folder", "ok    port"} <= lines
    assert all(" → " in line or "CAP_NET_BIND" in line for line in ended.out.splitlines() if line.startswith("FAIL"))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


@pytest.mark.parametrize("command", ["preflight", "doctor"])
def test_attachments_in_an_object_store(
    run: Run, unreachable_network: None, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """The secret is in a file, and printed nowhere."""
    (tmp_path / "key").write_text("hush-hush\n")
    environment = {f"HELIOGRAPH_{name.upper()}": value for name, value in s3.settings.items()}
    environment["HELIOGRAPH_S3_SECRET_KEY_FILE"] = str(tmp_path / "key")
    del environment["HELIOGRAPH_S3_SECRET_KEY"]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    def run_check() -> dict[str, str]:
        output = run(command, "--json", "--listen", "127.0.0.1:0").out
        assert "hush-hush" not in output
        [finding] = [finding for finding in json.loads(output)["findings"] if finding["check"] == "attachments"]
        return dict(finding)

    assert run_check() == {
        "check": "attachments",
        "level": "ok",
        "message": f"{environment['HELIOGRAPH_ATTACHMENTS']} responds",
        "fix": None,
    }
    assert s3.names() == []
    monkeypatch.setenv("HELIOGRAPH_ATTACHMENTS", "s3://no-such-bucket")
    failure = run_check()
    assert failure["level"] == "FAIL" and failure["fix"]
    where = f"s3://no-such-bucket at {s3.url}"
    assert failure["message"] == f"attachment files in {where}: The specified bucket does not exist (NoSuchBucket)"
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    assert "heliograph[s3]" in run_check()["message"]
