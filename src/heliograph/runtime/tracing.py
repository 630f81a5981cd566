"""OpenTelemetry tracing (an extra): one trace covers a request, its delivery attempts and its webhooks.

Without an exporter in the OTEL_* variables, OpenTelemetry is not imported; a caller's traceparent is still stored and
passed on.
"""

import asyncio
import os
import threading
from contextvars import ContextVar
from importlib.metadata import entry_points
from typing import Any, Literal, Self

from heliograph.domain.network.trace_context import read_traceparent

NAMED = ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
OTLP = "otlp_proto_http"  # the exporter for `otlp`: the only one in the extra
STOP_S = 5.0

Kind = Literal["SERVER", "PRODUCER", "CLIENT"]

_tracer: Any = None  # None if tracing is off
_provider: Any = None
_kept: ContextVar[str | None] = ContextVar("kept", default=None)


class NoTraces(Exception):
    """Tracing is configured but cannot start; the message says how to fix it."""


class Span:
    """A span, usable as a context manager; `traceparent` is passed to the operations that follow from it."""

    def __init__(self, traceparent: str | None, own: Any = None) -> None:
        self.traceparent = traceparent
        self._own = own

    def note(self, **attributes: str | int) -> None:
        if self._own is not None:
            self._own.set_attributes({_dotted(name): value for name, value in attributes.items()})

    def end(self, name: str = "", *, failed: bool = False) -> None:
        if self._own is not None:
            if name:
                self._own.update_name(name)
            if failed:
                from opentelemetry.trace import StatusCode

                self._own.set_status(StatusCode.ERROR)
            self._own.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._own is not None:
            self.end(failed=kind is not None)


def start(version: str, environment: dict[str, str] | None = None) -> None:
    """Start tracing as configured by the OTEL_* variables."""
    global _tracer, _provider
    given = dict(os.environ) if environment is None else environment
    names = [name.strip() for name in given.get(NAMED[0], "otlp").split(",")]
    is_off = given.get("OTEL_SDK_DISABLED", "").lower() == "true" or names == ["none"]
    if is_off or not any(given.get(name) for name in NAMED):
        return
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise NoTraces("OTEL_* asks for traces, which need an extra: pip install 'heliograph[otel]'") from None
    named = "OTEL_SERVICE_NAME" in given or "service.name=" in given.get("OTEL_RESOURCE_ATTRIBUTES", "")
    own = {"service.version": version} | ({} if named else {"service.name": "heliograph"})
    _provider = TracerProvider(resource=Resource.create(own), shutdown_on_exit=False)
    for name in names:
        wanted = OTLP if name == "otlp" else name
        found = list(entry_points(group="opentelemetry_traces_exporter", name=wanted))
        if not found:
            raise NoTraces(f"OTEL_TRACES_EXPORTER={name}: there is no such exporter. Known: otlp, console, none")
        _provider.add_span_processor(BatchSpanProcessor(found[0].load()()))
    _tracer = _provider.get_tracer("heliograph", version)


async def stop() -> None:
    """Stop tracing and export the remaining spans, waiting at most STOP_S."""
    global _tracer, _provider
    provider, _provider, _tracer = _provider, None, None
    if provider is not None:
        ending = threading.Thread(target=provider.shutdown, daemon=True)  # shutdown must not hang if the exporter does
        ending.start()
        await asyncio.to_thread(ending.join, STOP_S)


def receive(traceparent: bytes | None) -> Span | None:
    """Begin the span of a request, in the caller's trace if given, and store its traceparent for what it sends.

    Returns None if there is no span and no traceparent.
    """
    if traceparent is None and _tracer is None:
        if _kept.get() is not None:  # left from the previous request on this connection
            _kept.set(None)
        return None
    given = read_traceparent(traceparent.decode("latin-1")) if traceparent else None
    span = _begin("request", given, "SERVER") if _tracer is not None else Span(given)
    _kept.set(span.traceparent)
    return span


def kept() -> str | None:
    """Return the traceparent of the current request, for the messages it sends."""
    return _kept.get()


def span(name: str, parent: str | None, kind: Kind, **attributes: str | int) -> Span:
    """Begin a span of work caused by a sent message, such as a delivery attempt; `parent` is its traceparent."""
    if _tracer is None:
        return Span(parent)
    begun = _begin(name, parent, kind)
    begun.note(**attributes)
    return begun


def _begin(name: str, parent: str | None, kind: Kind) -> Span:
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    before = Context()
    if parent:
        before = TraceContextTextMapPropagator().extract({"traceparent": parent}, before)
    own = _tracer.start_span(name, context=before, kind=SpanKind[kind])
    at = own.get_span_context()
    return Span(f"00-{at.trace_id:032x}-{at.span_id:016x}-{at.trace_flags:02x}", own)


def _dotted(name: str) -> str:
    """Return an attribute name with dots: http_route → http.route. Two underscores become one: status__code."""
    return name.replace("__", "\0").replace("_", ".").replace("\0", "_")
