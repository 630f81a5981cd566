"""Prometheus metrics of this process.

Metrics of the database are queried at each scrape (api/health.py). Processes of the same parent write their metrics to
shared files, so that each of them can report the metrics of all (ADR 0027).
"""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from math import inf
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar

from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

# Names the folder of the shared metric files; prometheus-client reads it on import
SHARED_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

# OpenTelemetry's default buckets
SHORT_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
LONG_BUCKETS_S = (1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 4 * 3600, 24 * 3600)
BRIEF_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 10)
BATCH_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 512)

# `_created` series would double the number of series without benefit
disable_created_metrics()  # type: ignore[no-untyped-call]


class _BufferedCounter:
    """Counter that buffers its increments, and passes their sum to prometheus-client ten times a second.

    prometheus-client takes locks, and writes files if several processes share metrics: 1 to 2 µs per count, 2 to 4 µs
    per histogram value. Buffering takes 0.1 µs per count, 0.3 µs per histogram value. Use on the event loop only, like
    all metrics of this module.
    """

    __slots__ = ("_metric", "_pending")

    def __init__(self, metric: Counter) -> None:
        self._metric = metric
        self._pending = 0

    def inc(self, amount: int = 1) -> None:
        self._pending += amount

    def flush(self) -> None:
        if self._pending:
            self._metric.inc(self._pending)
            self._pending = 0


class _BufferedHistogram:
    """Histogram that buffers its values, like `_BufferedCounter`."""

    __slots__ = ("_bounds", "_metric", "_pending", "_total")

    def __init__(self, metric: Histogram, bounds: Iterable[float]) -> None:
        self._metric = metric
        self._bounds = [*bounds, inf]
        self._pending = [0] * len(self._bounds)
        self._total = 0.0

    def observe(self, value: float) -> None:
        self._pending[bisect_left(self._bounds, value)] += 1
        self._total += value

    def flush(self) -> None:
        """Add the buffered observations to the library's histogram.

        Uses private attributes, because the library has no public method that adds several observations at once;
        tests/test_metrics.py detects their removal.
        """
        if not any(self._pending):
            return
        self._metric._sum.inc(self._total)
        for bucket, pending in zip(self._metric._buckets, self._pending, strict=True):
            if pending:
                bucket.inc(pending)
        self._pending, self._total = [0] * len(self._bounds), 0.0


class _Buffered(Protocol):
    def flush(self) -> None: ...


_BufferedT = TypeVar("_BufferedT", bound=_Buffered)
Labels = str | tuple[str | int, ...]
_buffered_metrics: list[_Buffered] = []


class _ByLabels(dict[Labels, _BufferedT], Generic[_BufferedT]):
    """Label values, in the order of the label names → buffered metric. A metric is created on first access."""

    def __init__(self, make: Callable[..., _BufferedT]) -> None:
        self._make = make

    def __missing__(self, labels: Labels) -> _BufferedT:
        metric = self[labels] = self._make(*labels) if isinstance(labels, tuple) else self._make(labels)
        _buffered_metrics.append(metric)
        return metric


def _counter(name: str, help_text: str, *labels: str) -> _ByLabels[_BufferedCounter]:
    metric = Counter(f"heliograph_{name}", help_text, labels)
    return _ByLabels(lambda *values: _BufferedCounter(metric.labels(*values) if values else metric))


def _histogram(name: str, help_text: str, *labels: str, bounds: Iterable[float]) -> _ByLabels[_BufferedHistogram]:
    bucket_bounds = tuple(bounds)
    metric = Histogram(f"heliograph_{name}", help_text, labels, buckets=bucket_bounds)
    return _ByLabels(lambda *values: _BufferedHistogram(metric.labels(*values) if values else metric, bucket_bounds))


def _gauge(name: str, help_text: str, *labels: str, mode: Literal["liveall", "livesum", "livemax"]) -> Gauge:
    """Return a gauge. `mode`: how the library combines the values of several processes."""
    return Gauge(f"heliograph_{name}", help_text, labels, multiprocess_mode=mode)


# -- API --
http_duration_s = _histogram(
    "http_request_duration_seconds",
    "Duration of API requests, by route.",
    "route",
    "method",
    "status",
    bounds=SHORT_BUCKETS_S,
)
messages_accepted = _counter(
    "messages_accepted_total", "Messages accepted and stored durably.", "channel", "mode", "sandbox"
)
idempotent_replays = _counter(
    "idempotent_replays_total", "Requests answered with the stored response of their Idempotency-Key."
)[()]
refusals = _counter("refusals_total", "Requests rejected, by error code.", "code")
verifications = _counter(
    "verifications_total", "Verifications started, and verifications ended, by outcome.", "outcome"
)

# -- delivery --
time_to_handover_s = _histogram(
    "time_to_handover_seconds",
    "Time from a message being due until a carrier accepted it.",
    "channel",
    "lane",
    "priority",
    bounds=LONG_BUCKETS_S,
)
handovers = _counter(
    "handovers_total", "Delivery attempts, by the response of the carrier.", "channel", "carrier", "outcome"
)
handover_duration_s = _histogram(
    "handover_duration_seconds",
    "Duration of delivery attempts until the carrier responded.",
    "channel",
    "carrier",
    "outcome",
    bounds=SHORT_BUCKETS_S,
)
delivery_duration_s = _histogram(
    "delivery_duration_seconds",
    "Time from accepting a message until it was delivered.",
    "channel",
    "provider",
    bounds=LONG_BUCKETS_S,
)
bounces = _counter("bounces_total", "Emails that bounced, at once or later.", "provider", "category")
unclaimed_texts = _counter(
    "unclaimed_texts_total", "Inbound SMS and WhatsApp messages that belong to no team.", "channel", "carrier"
)
unclaimed_templates = _counter(
    "unclaimed_templates_total", "Template events from Meta for templates that no team uses.", "carrier"
)
complaints = _counter("complaints_total", "Emails whose recipients complained.", "provider", "category")
provider_events = _counter(
    "provider_events_total",
    "Events received from mail providers by callback, by processing result.",
    "carrier",
    "result",
)
smtp_replies = _counter("smtp_replies_total", "SMTP replies of mail servers, by reply class.", "provider", "class")
smtp_tls = _counter("smtp_tls_total", "Connections to mail servers, by TLS policy.", "provider", "policy")
provider_rate_deferrals = _counter(
    "provider_rate_deferrals_total",
    "4xx replies about rate from providers with limits.",
    "carrier",
    "provider",
    "source",
)
smtp_connections = _gauge("smtp_connections", "Open connections to mail servers.", "provider", "source", mode="livesum")
webhook_attempts = _counter("webhook_attempts_total", "Webhook delivery attempts, by outcome.", "outcome")

# -- the database --
COMMIT_S = _histogram(
    "commit_duration_seconds",
    "Duration of group commits: transactions shared by several sends or outcomes.",
    bounds=SHORT_BUCKETS_S,
)[()]
COMMIT_SIZE = _histogram("commit_batch_size", "Number of sends or outcomes in one group commit.", bounds=BATCH_BUCKETS)[
    ()
]
db_transaction_s = _histogram(
    "db_transaction_seconds",
    "Duration of database transactions, by name of the operation.",
    "name",
    bounds=BRIEF_BUCKETS_S,
)
db_busy = _counter("db_busy_total", "Transactions that waited for a lock or were retried after a conflict.", "name")
standby_reads = _counter(
    "standby_reads_total",
    "Reads meant for the standby: answered by it, or by the primary because it was behind or unavailable.",
    "result",
)
open_transactions = {"read": 0, "write": 0}  # running transactions by kind, including those that wait for a connection
_POOL_IN_USE = _gauge("db_pool_in_use", "Transactions that use or wait for a connection.", "name", mode="livesum")
LEDGER_DIFFERENCE = _gauge(
    "ledger_difference", "Difference between the accounts and the sums of their ledgers; must be 0.", mode="livemax"
)

# -- the process --
LOOP_LAG = _gauge("event_loop_lag_seconds", "Longest event loop delay in the last one to two minutes.", mode="liveall")
START_TIME = _gauge("start_timestamp_seconds", "Start time of the newest process.", mode="livemax")
WORKER_PROGRESS = _gauge(
    "worker_progress_timestamp_seconds",
    "Time of the last poll for work, of the lane that polled longest ago.",
    mode="liveall",
)


def flush() -> None:
    """Pass all buffered values to prometheus-client; called before each scrape and ten times a second."""
    for buffered in _buffered_metrics:
        buffered.flush()
    for name, count in open_transactions.items():
        _POOL_IN_USE.labels(name).set(count)


class ScrapeGauges:
    """Gauges computed for one scrape."""

    def __init__(self) -> None:
        self._gauges: dict[str, GaugeMetricFamily] = {}

    def gauge(self, name: str, help_text: str, value: float, **labels: str) -> None:
        if name not in self._gauges:
            self._gauges[name] = GaugeMetricFamily(f"heliograph_{name}", help_text, labels=list(labels))
        self._gauges[name].add_metric(list(labels.values()), value)

    def declare(self, name: str, help_text: str, *labels: str) -> Callable[..., None]:
        """Return a function that adds a value with its labels. The gauge is also listed if it has no values."""
        gauge = self._gauges[name] = GaugeMetricFamily(f"heliograph_{name}", help_text, labels=list(labels))
        return lambda value, *label_values: gauge.add_metric(list(label_values), value)

    def collect(self) -> Iterable[Metric]:
        return self._gauges.values()


def render(gauges: ScrapeGauges) -> bytes:
    """Return all metrics and the scrape's gauges in Prometheus text format. Slow, but thread-safe."""
    registry = CollectorRegistry()
    for collector in (_AllProcessesCollector() if SHARED_FOLDER_VARIABLE in os.environ else REGISTRY, gauges):
        registry.register(collector)
    return generate_latest(registry)


class _AllProcessesCollector:
    """Collects the metrics of all processes with the same parent, for prometheus-client.

    Metrics without a value are included with name and help text, as they are with a single process.
    """

    def collect(self) -> Iterable[Metric]:
        by_name = {family.name: family for family in MultiProcessCollector(None).collect()}  # type: ignore[no-untyped-call]
        yield from by_name.values()
        for family in REGISTRY.collect():
            # omit the library's own metrics, which describe a single process
            if family.name.startswith("heliograph_") and family.name not in by_name:
                yield Metric(family.name, family.documentation, family.type)


def shared_folder_environment(folder: Path) -> dict[str, str]:
    """Return the environment variable that makes child processes write their metrics to `folder`."""
    return {SHARED_FOLDER_VARIABLE: str(folder)}


def mark_ended(pid: int, environment: Mapping[str, str]) -> None:
    """Record in the parent that a child process ended: its counters are kept, its gauges removed."""
    if folder := environment.get(SHARED_FOLDER_VARIABLE):
        mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]
