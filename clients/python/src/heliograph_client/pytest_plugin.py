"""Pytest fixtures for programs that send: a running service with a sandbox team, and the messages it delivered."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from heliograph_client._request import Sync
from heliograph_client.client import Heliograph, _Client
from heliograph_client.errors import NotFoundError
from heliograph_client.resources import Clock
from heliograph_client.results import InboxMessage

SIMULATE = "X-Heliograph-Simulate"
TEAM = """
[[teams]]
id = "team_tests"
name = "Tests"
mode = "sandbox"
test_clock = true
features = ["verify"]
verify = { inbox = true }
rate_limit = 0
  [[teams.keys]]
  name = "tests"
  scopes = ["send", "manage"]
"""


@dataclass(frozen=True)
class Outbox:
    """Messages that the service has delivered since the test began."""

    client: Heliograph
    url: str
    key: str
    since: str

    @property
    def clock(self) -> Clock[Sync]:
        """Return the team's test clock: `clock.advance(days=5)` returns when all due work is done."""
        return self.client.test_clock

    @contextmanager
    def chaos(self, fault: str, *, times: int | None = None) -> Iterator[None]:
        """Inject a fault into the requests of this process's clients, or into the first `times` of them.

        Faults are `status=503`, `rate_limit`, `latency=2s` and `timeout`.
        """
        http_arguments, requests_before = _Client._http_arguments, count()

        def with_fault(client: _Client[Any], request: Any) -> dict[str, Any]:
            arguments = http_arguments(client, request)
            is_affected = times is None or next(requests_before) < times
            return {**arguments, "headers": {**arguments["headers"], SIMULATE: fault}} if is_affected else arguments

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(_Client, "_http_arguments", with_fault)
            yield

    def wait(self, *, to: str, timeout: int = 10, **filters: Any) -> InboxMessage:
        """Wait for a message to this address or phone; return the newest, with `text`, `html`, `code` and `links`."""
        message = self.client.inbox.wait(to=to, timeout=timeout, **{"after": self.since, **filters})
        assert message is not None, f"no message to {to} within {timeout} s"
        return message


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("heliograph_setup", "TOML file that extends the team: its templates, its recipients")
    parser.addoption("--heliograph-url", help="URL of a running service; HELIOGRAPH_KEY is the key of a sandbox team")


@pytest.fixture(scope="session")
def heliograph_service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """Return URL and key of a service, one per worker, on a free port and with its own SQLite database."""
    if url := request.config.getoption("--heliograph-url"):
        yield url, os.environ["HELIOGRAPH_KEY"]
        return
    folder = tmp_path_factory.mktemp("heliograph")
    added, setup = request.config.getini("heliograph_setup"), folder / "setup.toml"
    setup.write_text(TEAM + ((request.config.rootpath / added).read_text("utf-8") if added else ""), "utf-8")
    applying = _heliograph(folder, "apply", str(setup), "--json")
    applied, _ = applying.communicate()
    if applying.returncode:
        pytest.fail("the service could not be set up (see above); is it installed here? pip install heliograph", False)
    key = json.loads(applied)["keys"][0]["token"]
    running = _heliograph(folder, "serve", "--listen", "127.0.0.1:0", "--processes", "1")
    assert running.stdout is not None
    try:
        ready = next((line for line in running.stdout if line.startswith("Heliograph is ")), "")
        assert ready, "the service did not start"
        yield ready[ready.index("http://") :].split()[0], key
    finally:
        running.kill()
        running.wait()


def _heliograph(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HELIOGRAPH_")}
    environment |= {
        "HELIOGRAPH_DATABASE": f"sqlite:///{folder / 'heliograph.db'}",
        "HELIOGRAPH_DATA": str(folder / "data"),
    }
    environment |= {"HELIOGRAPH_SIMULATOR_STEP_MS": "0", "HELIOGRAPH_BOUNCE_LISTEN": "off", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-P", "-m", "heliograph.cli.main", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def heliograph(heliograph_service: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Outbox]:
    """Set HELIOGRAPH_URL and HELIOGRAPH_KEY for the program under test, and return the outbox."""
    url, key = heliograph_service
    monkeypatch.setenv("HELIOGRAPH_URL", url)
    monkeypatch.setenv("HELIOGRAPH_KEY", key)
    with Heliograph(key, url=url) as client:
        yield Outbox(client, url, key, _now(client))


def _now(client: Heliograph) -> str:
    """Return the current time of the team's test clock, which an earlier test may have moved; else the real time."""
    try:
        return str(client.test_clock.get().now)
    except NotFoundError:
        return datetime.now(timezone.utc).isoformat(timespec="milliseconds")  # noqa: UP017 (3.10)
