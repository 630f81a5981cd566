"""Traces: the caller's trace continues through accept, delivery and webhook, to a real OTLP receiver over HTTP."""

import gzip
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.service import Service, until

MAIL = {"from": "hi@acme.test", "to": "delivered@simulator.test", "subject": "Hi", "text": "Hi"}
TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{CALLER}-01"


class World:
    """Receives spans at /v1/traces and events at /hook."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.services: set[str] = set()
        self.posts: list[str | None] = []  # the traceparent of each
        world = self

        class Taking(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.path == "/hook":
                    world.posts.append(self.headers["traceparent"])
                else:
                    world.take(gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Taking)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self, body: bytes) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        for part in ExportTraceServiceRequest.FromString(body).resource_spans:
            names = {one.key: one.value.string_value for one in part.resource.attributes}
            self.services.add(names["service.name"])
            self.spans += [span for scope in part.scope_spans for span in scope.spans]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def serve(database: str, folder: Path) -> Service:
    service = Service(database, folder / "data")
    service.apply()
    service.start()
    return service


def hook(service: Service, world: World) -> None:
    assert service.post("/v1/webhooks", {"url": f"{world.url}/hook", "events": ["*"]}).status == 201


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


def test_trace_covers_request_delivery_and_webhook(
    database_url: str, tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", world.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    with serve(database_url, tmp_path) as service:
        hook(service, world)
        sent = service.post("/v1/emails", MAIL, headers={"Traceparent": GIVEN})
        until(lambda: len(world.posts) >= 2)  # sent, delivered
        service.post("/v1/emails", MAIL)
        until(lambda: len(world.posts) >= 4)
        service.stop()  # the remaining spans are exported
    named = {span.name: span for span in world.spans if span.trace_id.hex() == TRACE}
    assert named.keys() == {"POST /v1/emails", "send email", "webhook"}
    accept, handover = named["POST /v1/emails"], named["send email"]
    assert accept.parent_span_id.hex() == CALLER
    assert handover.parent_span_id == accept.span_id == named["webhook"].parent_span_id
    told = attributes(accept)
    assert (told["http.route"], told["http.response.status_code"]) == ("/v1/emails", 202)
    assert told["heliograph.request_id"] == sent.headers["x-request-id"]
    told = attributes(handover)
    assert (told["heliograph.message_id"], told["heliograph.outcome"]) == (sent.json["id"], "accepted")
    webhooks = [span.span_id.hex() for span in world.spans if span.name == "webhook"]
    assert sorted(webhooks) == sorted(str(post).split("-")[2] for post in world.posts)
    others = {span.trace_id for span in world.spans if span.name == "send email"}
    assert len(others) == 2  # a request without a traceparent begins a trace
    assert world.services == {"heliograph"}
    assert not any(b"simulator.test" in span.SerializeToString() for span in world.spans)


def test_trace_context_without_an_exporter_is_propagated(database_url: str, tmp_path: Path, world: World) -> None:
    with serve(database_url, tmp_path) as service:
        hook(service, world)
        for given in ({"Traceparent": GIVEN}, {"Traceparent": "nonsense"}, {}):
            before = len(world.posts)
            assert service.post("/v1/emails", MAIL, headers=given).status == 202
            until(lambda before=before: len(world.posts) >= before + 2)
    assert world.posts == [GIVEN, GIVEN, None, None, None, None]
    assert world.spans == []


def test_trace_context_is_kept_for_a_batch(database_url: str, tmp_path: Path, world: World) -> None:
    with serve(database_url, tmp_path) as service:
        hook(service, world)
        sent = service.post("/v1/emails/batch", {"messages": [MAIL, MAIL]}, headers={"Traceparent": GIVEN})
        assert sent.status == 202, sent.raw
        until(lambda: world.posts.count(GIVEN) == 4)


def test_hanging_collector_does_not_delay_the_shutdown() -> None:
    """Each export waits up to ten seconds for the collector and is retried."""
    program = (
        "import asyncio\nfrom heliograph.runtime import tracing\n"
        "async def main():\n    tracing.start('1')\n    tracing.begin_request(None).end()\n    await tracing.stop()\n"
        "tracing.STOP_TIMEOUT_S = 0.5\nasyncio.run(main())\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"http://127.0.0.1:{silent.getsockname()[1]}"
        given = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": place}
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", program], env=given, check=True, timeout=60)
        assert time.monotonic() - began < 9


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"OTEL_TRACES_EXPORTER": "pigeon"}, "OTEL_TRACES_EXPORTER=pigeon: there is no such exporter"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "WITHOUT": "1"}, "pip install 'heliograph[otel]'"),
    ],
)
def test_tracing_with_an_invalid_setting_reports_the_error(given: dict[str, str], said: str) -> None:
    program = (
        "import sys\nfrom heliograph.runtime import tracing\n"
        f"given = {given!r}\nif 'WITHOUT' in given: sys.modules['opentelemetry'] = None\n"
        "try:\n    tracing.start('1', given)\nexcept tracing.TracingError as error:\n    print(error)\n"
    )
    assert said in subprocess.check_output([sys.executable, "-c", program], text=True)


def test_tracing_without_an_endpoint_is_off() -> None:
    cases = [{}, {"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}]
    program = (
        "from heliograph.runtime import tracing\n"
        f"for given in {cases}:\n    tracing.start('1', given)\n    print(tracing._tracer)"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True).split() == ["None"] * 3
