"""Loops of the server outlive what breaks them, and a start waits for its database."""

import asyncio

import pytest
from structlog.testing import capture_logs

from heliograph import server
from heliograph.storage.store import StoreUnavailable

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "AGAIN_S", 0.0)


async def test_a_loop_that_breaks_is_begun_anew() -> None:
    errors: list[Exception] = [StoreUnavailable("away"), RuntimeError("a bug")]

    async def loop() -> None:
        if errors:
            raise errors.pop()

    with capture_logs() as logs:
        await server._begun_anew("rates", loop)
    assert [(line["loop"], line["error"]) for line in logs] == [
        ("rates", "RuntimeError"),
        ("rates", "StoreUnavailable"),
    ]


async def test_the_start_waits_for_the_database_and_says_so() -> None:
    stop, errors = asyncio.Event(), [StoreUnavailable("PostgreSQL: the database system is starting up")]

    async def work() -> str:
        if errors:
            raise errors.pop()
        return "done"

    with capture_logs() as logs:
        assert await server._patiently(stop, work) == "done"
    assert [(line["event"], line["error"]) for line in logs] == [
        ("waiting for the database", "PostgreSQL: the database system is starting up")
    ]
    stop.set()
    with pytest.raises(server.Stopped):
        await server._patiently(stop, work)
