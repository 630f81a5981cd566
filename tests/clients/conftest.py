"""The service with the demo's teams, to which the clients' pages refer."""

import os
from collections.abc import Iterator
from unittest import mock

import pytest

from heliograph_client import Heliograph
from tests.service import TOKENS, Service
from tests.test_docs import DEMO


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("clients")
    with mock.patch.dict(os.environ, {"LIVE": TOKENS["ACME"]}):
        running = Service(f"sqlite:///{folder / 'heliograph.db'}", folder / "data")
    with running:
        running.apply(DEMO)
        running.start()
        yield running


@pytest.fixture
def environment(demo: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the environment variables as the README describes."""
    monkeypatch.setenv("HELIOGRAPH_URL", f"http://127.0.0.1:{demo.ports[0]}")
    monkeypatch.setenv("HELIOGRAPH_KEY", TOKENS["ACME"])


@pytest.fixture
def client(environment: None) -> Iterator[Heliograph]:
    with Heliograph() as client:
        yield client
