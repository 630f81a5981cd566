"""Prometheus metrics of this process. Metrics from the database are queried at each scrape (api/health.py).

Processes of one parent keep their metrics in shared files, so that each process can report for all (ADR 0027).
"""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable
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

SHARED = "PROMETHEUS_MULTIPROC_DIR"  # folder of the shared metric files; prometheus-client reads it on import
TYPE = b"text/plain; version=0.0.4; charset=utf-8"

QUICK_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)  # OpenTelemetry's default buckets
PATIENT_S = (1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 4 * 3600, 24 * 3600)
BRIEF_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 10)
MANY = (1, 2, 5, 10, 20, 50, 100, 200, 512)

disable_created_metrics()  # type: ignore[no-untyped-call]  # they would double the number of series without benefit


class _Count:
    """Buffered counter, flushed to prometheus-client at each scrape and every tenth of a second.

    The library takes locks, and writes files if processes share them: 1 to 2 µs per count, 2 to 4 µs for a histogram.
    Buffering takes 0.1 and 0.3 µs. Use on the event loop only, like all metrics of this module.
    """

    __slots__ = ("_child", "_new")

    def __init__(self, child: Counter) -> None:
        self._child = child
        self._new = 0

    def inc(self, more: int = 1) -> None:
        self._new += more

    def flush(self) -> None:
        if self._new:
            self._child.inc(self._new)
            self._new = 0


class _Steps:
    """Buffered histogram, flushed like `_Count`."""

    __slots__ = ("_bounds", "_child", "_new", "_total")

    def __init__(self, child: Histogram, bounds: Iterable[float]) -> None:
        self._child = child
        self._bounds = [*bounds, inf]
        self._new = [0] * len(self._bounds)
        self._total = 0.0

    def observe(self, value: float) -> None:
        self._new[bisect_left(self._bounds, value)] += 1
        self._total += value

    def flush(self) -> None:
        """Add the buffered observations to the library's histogram.

        Uses private attributes, because the library has no public method to add several observations at once;
        tests/test_metrics.py fails if these attributes are removed.
        """
        if not any(self._new):
            return
        self._child._sum.inc(self._total)
        for bucket, new in zip(self._child._buckets, self._new, strict=True):
            if new:
                bucket.inc(new)
        self._new, self._total = [0] * len(self._bounds), 0.0


class _Batch(Protocol):
    def flush(self) -> None: ...


_Own = TypeVar("_Own", bound=_Batch)
Labels = str | tuple[str | int, ...]
_batches: list[_Batch] = []


class _Labelled(dict[Labels, _Own], Generic[_Own]):
    """Label values, in the order of the label names → buffered metric, created on first access."""

    def __init__(self, make: Callable[..., _Own]) -> None:
        self._make = make

    def __missing__(self, labels: Labels) -> _Own:
        made = self[labels] = self._make(*labels) if isinstance(labels, tuple) else self._make(labels)
        _batches.append(made)
        return made


def _counter(name: str, meaning: str, *labels: str) -> _Labelled[_Count]:
    metric = Counter(f"heliograph_{name}", meaning, labels)
    return _Labelled(lambda *values: _Count(metric.labels(*values) if values else metric))


def _histogram(name: str, meaning: str, *labels: str, bounds: Iterable[float]) -> _Labelled[_Steps]:
    limits = tuple(bounds)
    metric = Histogram(f"heliograph_{name}", meaning, labels, buckets=limits)
    return _Labelled(lambda *values: _Steps(metric.labels(*values) if values else metric, limits))


def _gauge(name: str, meaning: str, *labels: str, among: Literal["liveall", "livesum", "livemax"]) -> Gauge:
    """Return a gauge; `among` is how the values of several processes are combined."""
    return Gauge(f"heliograph_{name}", meaning, labels, multiprocess_mode=among)


# -- the API --
answered = _histogram(
    "http_request_duration_seconds", "Answers of the API, by route.", "route", "method", "status", bounds=QUICK_S
)
accepted = _counter("messages_accepted_total", "Messages accepted, durably.", "channel", "mode", "sandbox")
replayed = _counter("idempotent_replays_total", "Requests answered as the first one with their key was.")[()]
refused = _counter("refusals_total", "Requests refused, by error code.", "code")
verified = _counter("verifications_total", "Verifications that began, and how they ended.", "outcome")

# -- delivery --
to_handover = _histogram(
    "time_to_handover_seconds",
    "From when a message was due until a carrier took it.",
    "channel",
    "lane",
    "priority",
    bounds=PATIENT_S,
)
handed_over = _counter("handovers_total", "Answers of carriers at hand-over.", "channel", "carrier", "outcome")
handover_s = _histogram(
    "handover_duration_seconds",
    "How long carriers took to answer.",
    "channel",
    "carrier",
    "outcome",
    bounds=QUICK_S,
)
delivery_s = _histogram(
    "delivery_duration_seconds",
    "From when a message was accepted until it was delivered.",
    "channel",
    "provider",
    bounds=PATIENT_S,
)
bounced = _counter("bounces_total", "Emails that were refused or came back.", "provider", "category")
unclaimed_texts = _counter("unclaimed_texts_total", "Texts that came in for no team of ours.", "channel", "carrier")
unclaimed_templates = _counter(
    "unclaimed_templates_total", "What Meta told of templates that no team of ours sends.", "carrier"
)
complained = _counter("complaints_total", "Emails whose recipients complained.", "provider", "category")
provider_event = _counter(
    "provider_events_total", "What mail providers told by callback, by what became of it.", "carrier", "result"
)
smtp_replied = _counter("smtp_replies_total", "What mail servers said to a mail.", "provider", "class")
smtp_secured = _counter("smtp_tls_total", "Connections to mail servers, by what secures them.", "provider", "policy")
smtp_connections = _gauge(
    "smtp_connections", "Connections to mail servers that are open.", "provider", "source", among="livesum"
)
webhook_tried = _counter("webhook_attempts_total", "Tries to deliver an event to a webhook.", "outcome")

# -- the database --
COMMIT_S = _histogram("commit_duration_seconds", "Transactions that many sends or outcomes share.", bounds=QUICK_S)[()]
COMMIT_SIZE = _histogram("commit_batch_size", "Sends or outcomes in one of them.", bounds=MANY)[()]
transacted = _histogram("db_transaction_seconds", "Transactions, by what they are about.", "name", bounds=BRIEF_S)
found_busy = _counter("db_busy_total", "Transactions that had to wait for others, or to run again.", "name")
under_way = {"read": 0, "write": 0}  # transactions, including those waiting for a connection
_IN_USE = _gauge("db_pool_in_use", "Transactions that have or want a connection.", "name", among="livesum")
LEDGER_OFF = _gauge(
    "ledger_difference", "By how much the accounts differ from the sum of their ledgers.", among="livemax"
)

# -- the process --
LOOP_LAG = _gauge(
    "event_loop_lag_seconds", "The longest delay of the event loop in the last minute or two.", among="liveall"
)
STARTED = _gauge("start_timestamp_seconds", "When the newest process started.", among="livemax")
PROGRESS = _gauge(
    "worker_progress_timestamp_seconds", "When the lane that is furthest behind last looked for work.", among="liveall"
)


def flush() -> None:
    """Flush buffered metrics to the library: before each scrape, and periodically for the other processes."""
    for one in _batches:
        one.flush()
    for name, count in under_way.items():
        _IN_USE.labels(name).set(count)


class Families:
    """Gauges computed for one scrape."""

    def __init__(self) -> None:
        self._gauges: dict[str, GaugeMetricFamily] = {}

    def gauge(self, name: str, meaning: str, value: float, **labels: str) -> None:
        if name not in self._gauges:
            self._gauges[name] = GaugeMetricFamily(f"heliograph_{name}", meaning, labels=list(labels))
        self._gauges[name].add_metric(list(labels.values()), value)

    def declare(self, name: str, meaning: str, *labels: str) -> Callable[..., None]:
        """Return a function that adds a value with its labels. The gauge is listed even if no value is added."""
        made = self._gauges[name] = GaugeMetricFamily(f"heliograph_{name}", meaning, labels=list(labels))
        return lambda value, *given: made.add_metric(list(given), value)

    def collect(self) -> Iterable[Metric]:
        return self._gauges.values()


def written(asked: Families) -> bytes:
    """Return all flushed metrics and the gauges in `asked` in Prometheus text format. Slow; thread-safe."""
    both = CollectorRegistry()
    for part in (_OfAll() if SHARED in os.environ else REGISTRY, asked):
        both.register(part)
    return generate_latest(both)


class _OfAll:
    """Metrics of all processes of one parent. Metrics without values are listed by name, as with a single process."""

    def collect(self) -> Iterable[Metric]:
        counted = {one.name: one for one in MultiProcessCollector(None).collect()}  # type: ignore[no-untyped-call]
        yield from counted.values()
        for one in REGISTRY.collect():
            # The library's own metrics are left out: they describe a single process.
            if one.name.startswith("heliograph_") and one.name not in counted:
                yield Metric(one.name, one.documentation, one.type)


def share(folder: Path) -> None:
    """Make child processes started after this call write their metrics to `folder`."""
    os.environ[SHARED] = str(folder)


def leave(pid: int) -> None:
    """Record in the parent that a child process ended: its counters stay, its gauges are removed."""
    if SHARED in os.environ:
        mark_process_dead(pid)  # type: ignore[no-untyped-call]
