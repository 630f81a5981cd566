"""The network to PostgreSQL breaks and hangs: no process dies, no request waits long, and service resumes by itself."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from heliograph.dashboard.page_request import SESSION_COOKIE
from tests.conftest import fresh_database
from tests.service import Service, until
from tests.storage.hanging import Network

MAIL = {"from": "hello@acme.test", "to": "delivered@simulator.test", "subject": "Hello", "text": "Hello."}
READY = "heliograph_ready {}.0\n"
QUEUES = 'heliograph_outbox_depth{lane="email"}'


class Wire:
    """A network in its own thread."""

    def __init__(self, url: str) -> None:
        self.network = Network(url)
        self.url: Future[str] = Future()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(),))
        self._thread.start()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self.network.open() as through:
            self.url.set_result(through)
            await self._end.wait()

    def do(self, *changes: Callable[[], Any]) -> None:
        self.url.result()
        for change in changes:
            self._loop.call_soon_threadsafe(change)

    def close(self) -> None:
        self.do(self.network.flow, self._end.set)
        self._thread.join()


@pytest.fixture
def wire(postgres: str) -> Iterator[Wire]:
    wire = Wire(fresh_database(postgres))
    yield wire
    wire.close()


def test_service_recovers_from_a_database_outage_without_loss(wire: Wire, tmp_path: Path) -> None:
    network, away = wire.network, Service(wire.url.result(), tmp_path / "data", database_timeout_s="2")
    with away as service, ThreadPoolExecutor(1) as pool:
        service.apply()

        def refuse(refuses: bool) -> None:
            network.refuses = refuses

        def status(path: str) -> int:
            return service.get(path, key=None).status

        def told(ready: int) -> bool:
            """Return whether /metrics shows this readiness, and metrics of the database only if it is ready."""
            text = service.get("/metrics", key=None).raw.decode()
            return READY.format(ready) in text and (QUEUES in text) == bool(ready)

        wire.do(lambda: refuse(True))
        before = network.connections
        starting = pool.submit(service.start)
        until(lambda: network.connections > before + 1)  # connects again, so the service waits
        wire.do(lambda: refuse(False))
        process = starting.result()
        until(lambda: status("/readyz") == 200)

        wire.do(lambda: refuse(True), network.drop)
        until(lambda: status("/readyz") == 503 and told(ready=0))
        refused = service.post("/v1/emails", MAIL)
        assert (refused.status, refused.code) == (503, "service_unavailable")
        page = service.get("/dashboard", key=None, headers={"Cookie": f"{SESSION_COOKIE}=x"})
        assert page.status == 503
        assert "retry-after" in refused.headers and "retry-after" in page.headers
        wire.do(lambda: refuse(False))
        until(lambda: status("/readyz") == 200)

        wire.do(network.hang)
        until(lambda: status("/readyz") == 503 and told(ready=0))
        assert status("/healthz") == 200
        wire.do(network.drop, network.flow)  # a failover: the old primary is gone, another answers
        until(lambda: status("/readyz") == 200 and told(ready=1))
        assert service.post("/v1/emails", MAIL).status == 202
        assert process.poll() is None

        wire.do(network.hang)
        until(lambda: status("/readyz") == 503)
        assert service.stop() == 0
