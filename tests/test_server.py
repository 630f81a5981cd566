"""The server's loops survive failures, and a start waits for the database."""

import asyncio
import signal
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from heliograph import server
from heliograph.app import LOOP_WATCHDOG, App
from heliograph.settings import Settings
from heliograph.storage.store import StoreUnavailable
from tests.service import PATIENCE_S, Service, free_port, until

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "RETRY_S", 0.0)


async def test_worker_loop_that_fails_is_restarted() -> None:
    errors: list[Exception] = [StoreUnavailable("away"), RuntimeError("a bug")]

    async def loop() -> None:
        if errors:
            raise errors.pop()

    with capture_logs() as logs:
        await server._run_with_restarts("rates", loop)
    assert [(line["job"], line["error"]) for line in logs] == [
        ("rates", "RuntimeError"),
        ("rates", "StoreUnavailable"),
    ]


async def test_job_that_raises_when_cancelled_still_ends() -> None:
    turns = 0

    async def loop() -> None:
        nonlocal turns
        turns += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if turns == 1:
                raise StoreUnavailable("away") from None
            raise

    task = asyncio.create_task(server._run_with_restarts("rates", loop))
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_S):
        await server._cancel([task])
    assert task.cancelled()


async def test_the_start_waits_for_the_database_and_says_so() -> None:
    stop, errors = asyncio.Event(), [StoreUnavailable("PostgreSQL: the database system is starting up")]

    async def work() -> str:
        if errors:
            raise errors.pop()
        return "done"

    with capture_logs() as logs:
        assert await server._retry_until_available(Settings(database="postgresql://h/x"), stop, work) == "done"
    assert [(line["event"], line["error"]) for line in logs] == [
        ("waiting for the database", "PostgreSQL: the database system is starting up")
    ]
    stop.set()
    with pytest.raises(server.StopRequested):
        await server._retry_until_available(Settings(database="postgresql://h/x"), stop, work)


async def test_shutdown_closes_resources_in_reverse_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "collect_when_idle", asyncio.Event().wait)  # in the process that runs the tests
    monkeypatch.setattr(server, "freeze_existing", lambda: None)
    done: list[str] = []

    class Part:
        async def stop(self) -> None:
            done.append("worker stopped")

        async def close(self) -> None:
            done.append("client closed")

    async def duty() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            done.append("duty ended")

    async def ready(_: Settings, __: Any) -> None:
        done.append("ready")
        stop.set()

    stop, part, nothing = server.Stop(), cast(Any, Part()), cast(Any, None)
    app = App(
        settings=Settings(),
        role="worker",
        store=nothing,
        context=nothing,
        dispatcher=nothing,
        workers=[part],
        inbound_server=None,
        submission_server=nothing,
        jobs={"a duty": duty},
        clients=[part],
    )
    await server._run(app, [], stop, ready)
    assert done == ["ready", "worker stopped", "duty ended", "client closed"]


async def test_loop_is_not_watched_before_the_service_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """A blocked loop during the start, such as by the first garbage collection, causes no warning."""
    monkeypatch.setattr(server, "collect_when_idle", asyncio.Event().wait)
    done: list[str] = []
    monkeypatch.setattr(server, "freeze_existing", lambda: done.append("garbage collected"))

    async def watch() -> None:
        done.append("watched")
        stop.set()
        await asyncio.Event().wait()

    async def ready(*_: Any) -> None:
        for _turn in range(10):  # the other tasks have their turns
            await asyncio.sleep(0)
        done.append("ready")

    stop, nothing = server.Stop(), cast(Any, None)
    app = App(
        settings=Settings(),
        role="worker",
        store=nothing,
        context=nothing,
        dispatcher=nothing,
        workers=[],
        inbound_server=None,
        submission_server=nothing,
        jobs={LOOP_WATCHDOG: watch},
        clients=[],
    )
    await server._run(app, [], stop, ready)
    assert done == ["garbage collected", "ready", "watched"]


async def test_single_process_has_no_process_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: list[int | None] = []

    def build(*args: Any) -> App:
        numbers.append(args[5])
        raise server.StopRequested

    async def on_ready(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(server, "build", build)
    monkeypatch.setattr("heliograph.runtime.logs.configure", lambda *_: None)
    settings = Settings(database=f"sqlite:///{tmp_path / 'heliograph.db'}", data=tmp_path / "data")
    await server.serve(settings, "worker", on_ready)
    assert numbers == [None]


def test_a_worker_answers_health_checks_on_a_port_of_their_own(tmp_path: Path) -> None:
    at = free_port()
    with Service(f"sqlite:///{tmp_path / 'heliograph.db'}", tmp_path / "data") as service:
        service.apply()
        service.start("worker", 0, "--health", f"127.0.0.1:{at}")
        paths = ("/healthz", "/readyz", "/metrics", "/v1/me", "/dashboard", "/")
        assert [service.get(path, port=at).status for path in paths] == [200, 200, 200, 404, 404, 404]


def test_single_process_drains_on_sighup_and_reports_not_ready(tmp_path: Path) -> None:
    at = free_port()
    database = f"sqlite:///{tmp_path / 'heliograph.db'}"
    with Service(database, tmp_path / "data", stop_delay_ms=30_000) as service:
        service.apply()
        process = service.start("api", 0, "--health", f"127.0.0.1:{at}")
        process.send_signal(signal.SIGHUP)
        until(lambda: service.get("/readyz", port=at).status == 503)
        assert service.get("/healthz").status == 200
        process.send_signal(signal.SIGINT)  # at once
        assert process.wait(PATIENCE_S) == 0
