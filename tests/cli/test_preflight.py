"""Each check says what is wrong and how to fix it; every peer is on loopback."""

import asyncio
import json
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from heliograph.cli.checks import machine, mail
from heliograph.cli.checks.findings import Finding, Site
from heliograph.cli.checks.machine import kept_clock, memory, sync_rate
from heliograph.cli.checks.store import off_clock, postgres
from heliograph.cli.checks.table import CHECKS
from heliograph.runtime.resolver import NameServers
from heliograph.settings import Settings
from tests.carriers.dns_peer import DnsPeer, Zone
from tests.s3 import S3Server
from tests.service import NOBODY

from .conftest import Run

PUBLIC = Settings(public_url="https://mail.example.com")
GOOD = {
    "version": 150004,
    "fsync": "on",
    "full_page_writes": "on",
    "encoding": "UTF8",
    "connections": 100,
    "standby": False,
    "may_create": True,
}
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
    """The port of one that takes connections."""
    with closing(socket.create_server(("127.0.0.1", 0))) as bound:
        yield bound.getsockname()[1]


def look(zone: Zone, port: int, *relays: str, settings: Settings = PUBLIC) -> dict[str, Finding]:
    """What is found about mail, with this name server."""

    async def ask() -> dict[str, Finding]:
        async with DnsPeer(zone) as peer:
            host, _, number = peer.at.partition(":")
            resolver = NameServers((host, int(number)), mail.PROBE_S)
            return await asyncio.to_thread(found_outside, Site(settings, resolver, "probe.test", port, relays))

    return asyncio.run(ask())


def found_outside(site: Site) -> dict[str, Finding]:
    asked = CHECKS[[check.look for check in CHECKS].index(mail.exchangers) :]
    return {finding.check: finding for check in asked for finding in check.findings(site)}


def test_all_is_well(server: int) -> None:
    found = look(ZONE, server)
    assert {check: finding.level for check, finding in found.items()} == dict.fromkeys(
        ("dns", "port 25", "helo name", "ptr"), "ok"
    )
    assert found["port 25"].message == "mx.probe.test. can be reached from 127.0.0.1"


def test_a_blocked_port_25_names_a_relay(server: int) -> None:
    found = look(ZONE, free_port(), f"127.0.0.1:{free_port()}", f"127.0.0.1:{server}")
    assert found["port 25"].level == "warn"
    assert f"such as 127.0.0.1:{server}, which can be reached" in str(found["port 25"].fix)
    assert look(ZONE, free_port(), f"127.0.0.1:{free_port()}")["port 25"].level == "FAIL"


@pytest.mark.parametrize(
    ("changed", "check", "level", "message"),
    [
        ({("probe.test", "MX"): []}, "dns", "FAIL", "who takes mail for probe.test cannot be found"),
        ({("mail.example.com", "A"): []}, "helo name", "FAIL", "mail.example.com has no address in DNS"),
        ({("1.0.0.127.in-addr.arpa", "PTR"): []}, "ptr", "FAIL", "127.0.0.1 has no name"),
        (
            {("1.0.0.127.in-addr.arpa", "PTR"): ["host-1.provider.test."]},
            "ptr",
            "FAIL",
            "127.0.0.1 is called host-1.provider.test, not mail.example.com",
        ),
    ],
)
def test_what_dns_lacks(server: int, changed: Zone, check: str, level: str, message: str) -> None:
    found = look(ZONE | changed, server)[check]
    assert (found.level, found.message[: len(message)]) == (level, message)
    assert found.fix


def test_without_a_public_name(server: int) -> None:
    found = look(ZONE, server, settings=Settings())
    assert found["helo name"].level == "warn" and "--public-url" in str(found["helo name"].fix)


def test_a_silent_name_server_is_named() -> None:
    resolver = NameServers(("127.0.0.1", free_port()), 0.1)

    [found] = found_outside(Site(PUBLIC, resolver, "probe.test")).values()
    assert (found.check, found.level) == ("dns", "FAIL")


@pytest.mark.parametrize(
    ("changed", "level", "message"),
    [
        ({}, "ok", "PostgreSQL 15 is set up well"),
        ({"version": 120003}, "FAIL", "it is older than PostgreSQL 13"),
        ({"standby": True}, "FAIL", "it is a standby and takes no writes"),
        ({"fsync": "off"}, "FAIL", "fsync is off: a crash loses accepted messages"),
        ({"full_page_writes": "off"}, "FAIL", "full_page_writes is off: a crash may destroy tables"),
        ({"encoding": "LATIN1"}, "FAIL", "its encoding is LATIN1"),
        ({"may_create": False}, "FAIL", "this user may not make tables"),
        ({"connections": 29}, "warn", "max_connections is 29, 3 processes may take 27"),
    ],
)
def test_the_settings_of_postgresql(changed: dict[str, Any], level: str, message: str) -> None:
    [found] = postgres(Settings(processes=3), GOOD | changed)
    assert (found.level, found.message) == (level, message)
    assert bool(found.fix) == (level != "ok")


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail, "PROBE_S", 0.1)
    monkeypatch.setenv("HELIOGRAPH_RESOLVER", NOBODY)


def test_a_real_postgresql(run: Run, nobody: None, postgres: str) -> None:
    """That of the tests survives no power cut, and so is the fastest."""
    ended = run("preflight", "--json", "--listen", "127.0.0.1:0", "--database", postgres)
    found = [(one["check"], one["message"].partition(":")[0]) for one in json.loads(ended.out)["findings"]]
    assert [message for check, message in found if check == "database"] == ["fsync is off", "full_page_writes is off"]
    assert [message for check, message in found if check == "clock"][-1].startswith("the database's differs by ")


@pytest.mark.parametrize(("available", "level"), [(832, "ok"), (831, "warn"), (255, "FAIL")])
def test_memory(available: int, level: str) -> None:
    assert memory(Settings(processes=2, body_memory_mb=96), available).level == level


def test_clocks_and_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [kept_clock(state).level for state in (0, 5)] == ["ok", "warn"]
    assert [off_clock(ms).level for ms in (-4_999, 5_000, -5_000)] == ["ok", "FAIL", "FAIL"]
    assert sync_rate(tmp_path).level in ("ok", "warn")
    assert sync_rate(tmp_path / "none").level == "FAIL"
    monkeypatch.setattr(machine, "SYNCS_LOW", 1e9)
    assert sync_rate(tmp_path).level == "warn"


def test_the_command_changes_nothing_and_fails_with_what_must_be_fixed(
    run: Run, nobody: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("HELIOGRAPH_BOUNCE_LISTEN", f"127.0.0.1:{taken.getsockname()[1]}")
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
    run: Run, nobody: None, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Its secret comes from a file, and is said nowhere."""
    (tmp_path / "key").write_text("hush-hush\n")
    given = {f"HELIOGRAPH_{name.upper()}": value for name, value in s3.settings.items()}
    given["HELIOGRAPH_S3_SECRET_KEY_FILE"] = str(tmp_path / "key")
    del given["HELIOGRAPH_S3_SECRET_KEY"]
    for name, value in given.items():
        monkeypatch.setenv(name, value)

    def found() -> dict[str, str]:
        said = run(command, "--json", "--listen", "127.0.0.1:0").out
        assert "hush-hush" not in said
        [one] = [one for one in json.loads(said)["findings"] if one["check"] == "attachments"]
        return dict(one)

    assert found() == {
        "check": "attachments",
        "level": "ok",
        "message": f"{given['HELIOGRAPH_ATTACHMENTS']} answers",
        "fix": None,
    }
    assert s3.names() == []
    monkeypatch.setenv("HELIOGRAPH_ATTACHMENTS", "s3://no-such-bucket")
    wrong = found()
    assert wrong["level"] == "FAIL" and wrong["fix"]
    where = f"s3://no-such-bucket at {s3.url}"
    assert wrong["message"] == f"attachment files in {where}: The specified bucket does not exist (NoSuchBucket)"
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    assert "heliograph[s3]" in found()["message"]
