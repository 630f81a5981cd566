"""OpenTelemetry tracing (an extra): one trace covers a request, its delivery attempts and its webhooks.

OpenTelemetry is imported only if the OTEL_* variables name an exporter. The caller's traceparent is stored and passed
on in any case.
"""

import asyncio
import os
import threading
from contextvars import ContextVar
from importlib.metadata import entry_points
from typing import Any, Literal, Self

from heliograph.domain.network.trace_context import parse_traceparent

EXPORTER_VARIABLES = ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
OTLP_EXPORTER = "otlp_proto_http"  # entry point for the name `otlp`, the only exporter that the extra installs
STOP_TIMEOUT_S = 5.0  # maximum time for exporting the remaining spans at shutdown

SpanKindName = Literal["SERVER", "PRODUCER", "CLIENT"]

_tracer: Any = None  # None if tracing is off
_provider: Any = None
_current_traceparent: ContextVar[str | None] = ContextVar("kept", default=None)


class TracingError(Exception):
    """Raised if tracing is configured but cannot start; the message says how to fix it."""


class Span:
    """A span, usable as a context manager. `traceparent` is passed to the operations that the span causes."""

    def __init__(self, traceparent: str | None, otel_span: Any = None) -> None:
        self.traceparent = traceparent
        self._otel_span = otel_span

    def set_attributes(self, **attributes: str | int) -> None:
        if self._otel_span is not None:
            self._otel_span.set_attributes({_dotted_name(name): value for name, value in attributes.items()})

    def end(self, name: str = "", *, failed: bool = False) -> None:
        if self._otel_span is not None:
            if name:
                self._otel_span.update_name(name)
            if failed:
                from opentelemetry.trace import StatusCode

                self._otel_span.set_status(StatusCode.ERROR)
            self._otel_span.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._otel_span is not None:
            self.end(failed=kind is not None)


def start(version: str, environment: dict[str, str] | None = None) -> None:
    """Start tracing as configured by the OTEL_* variables."""
    global _tracer, _provider
    variables = dict(os.environ) if environment is None else environment
    names = [name.strip() for name in variables.get(EXPORTER_VARIABLES[0], "otlp").split(",")]
    is_off = variables.get("OTEL_SDK_DISABLED", "").lower() == "true" or names == ["none"]
    if is_off or not any(variables.get(name) for name in EXPORTER_VARIABLES):
        return
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise TracingError("OTEL_* asks for traces, which need an extra: pip install 'heliograph[otel]'") from None
    has_service_name = "OTEL_SERVICE_NAME" in variables or "service.name=" in variables.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    resource_attributes = {"service.version": version} | ({} if has_service_name else {"service.name": "heliograph"})
    _provider = TracerProvider(resource=Resource.create(resource_attributes), shutdown_on_exit=False)
    for name in names:
        entry_point_name = OTLP_EXPORTER if name == "otlp" else name
        entry_points_found = list(entry_points(group="opentelemetry_traces_exporter", name=entry_point_name))
        if not entry_points_found:
            raise TracingError(f"OTEL_TRACES_EXPORTER={name}: there is no such exporter. Known: otlp, console, none")
        _provider.add_span_processor(BatchSpanProcessor(entry_points_found[0].load()()))
    _tracer = _provider.get_tracer("heliograph", version)


async def stop() -> None:
    """Stop tracing and export the remaining spans, waiting at most STOP_TIMEOUT_S."""
    global _tracer, _provider
    provider, _provider, _tracer = _provider, None, None
    if provider is not None:
        # an exporter that hangs must not block the shutdown
        shutdown_thread = threading.Thread(target=provider.shutdown, daemon=True)
        shutdown_thread.start()
        await asyncio.to_thread(shutdown_thread.join, STOP_TIMEOUT_S)


def begin_request(traceparent: bytes | None) -> Span | None:
    """Begin the span of a request, as a child of the caller's span if given.

    Returns None if tracing is off and the request has no traceparent. Stores the traceparent for the messages that the
    request sends.
    """
    if traceparent is None and _tracer is None:
        if _current_traceparent.get() is not None:  # set by the previous request of this connection
            _current_traceparent.set(None)
        return None
    caller_traceparent = parse_traceparent(traceparent.decode("latin-1")) if traceparent else None
    span = _start_span("request", caller_traceparent, "SERVER") if _tracer is not None else Span(caller_traceparent)
    _current_traceparent.set(span.traceparent)
    return span


def current_traceparent() -> str | None:
    """Return the traceparent of the current request, for the messages it sends."""
    return _current_traceparent.get()


def begin_span(name: str, parent: str | None, kind: SpanKindName, **attributes: str | int) -> Span:
    """Begin the span of work that a message with the traceparent `parent` caused, such as a delivery attempt."""
    if _tracer is None:
        return Span(parent)
    new_span = _start_span(name, parent, kind)
    new_span.set_attributes(**attributes)
    return new_span


def _start_span(name: str, parent: str | None, kind: SpanKindName) -> Span:
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    parent_context = Context()
    if parent:
        parent_context = TraceContextTextMapPropagator().extract({"traceparent": parent}, parent_context)
    otel_span = _tracer.start_span(name, context=parent_context, kind=SpanKind[kind])
    span_context = otel_span.get_span_context()
    return Span(
        f"00-{span_context.trace_id:032x}-{span_context.span_id:016x}-{span_context.trace_flags:02x}", otel_span
    )


def _dotted_name(name: str) -> str:
    """Return an attribute's name with dots: http_route → http.route. A double underscore becomes one: status__code."""
    return name.replace("__", "\0").replace("_", ".").replace("\0", "_")
