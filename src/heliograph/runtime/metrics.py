"""What this process counts for Prometheus. What the database knows is asked for when somebody looks (api/health.py).

Several processes of one parent count in files that they share, so that each answers for all of them (ADR 0027).
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

SHARED = "PROMETHEUS_MULTIPROC_DIR"  # where the processes of one parent count; prometheus-client reads it when imported
TYPE = b"text/plain; version=0.0.4; charset=utf-8"

QUICK_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)  # as OpenTelemetry has them
PATIENT_S = (1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 4 * 3600, 24 * 3600)
BRIEF_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 10)
MANY = (1, 2, 5, 10, 20, 50, 100, 200, 512)

disable_created_metrics()  # type: ignore[no-untyped-call]  # as many series again, of no use


class _Count:
    """Counts in this process; the library hears of it when somebody looks, and every tenth of a second.

    Its own counting takes locks, and files where processes share them: 1 to 2 µs, and 2 to 4 for a histogram; this 0.1
    and 0.3. On the event loop alone, like all that is counted here.
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
    """The same of a histogram."""

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
        """Flush.

        The library has no public way to add several at once; tests/test_metrics.py fails when these names go.
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
    """Label values, in the order of the names → what counts them; made when it is first asked for."""

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
    """Make a gauge; `among` says what several processes make of theirs."""
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
under_way = {"read": 0, "write": 0}  # transactions, with those that wait for a connection
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
    """Tell the library what was counted: before somebody looks, and now and then for the other processes."""
    for one in _batches:
        one.flush()
    for name, count in under_way.items():
        _IN_USE.labels(name).set(count)


class Families:
    """Figures that were asked for just now."""

    def __init__(self) -> None:
        self._gauges: dict[str, GaugeMetricFamily] = {}

    def gauge(self, name: str, meaning: str, value: float, **labels: str) -> None:
        if name not in self._gauges:
            self._gauges[name] = GaugeMetricFamily(f"heliograph_{name}", meaning, labels=list(labels))
        self._gauges[name].add_metric(list(labels.values()), value)

    def declare(self, name: str, meaning: str, *labels: str) -> Callable[..., None]:
        """Takes values and their labels; it is there by name when none comes."""
        made = self._gauges[name] = GaugeMetricFamily(f"heliograph_{name}", meaning, labels=list(labels))
        return lambda value, *given: made.add_metric(list(given), value)

    def collect(self) -> Iterable[Metric]:
        return self._gauges.values()


def written(asked: Families) -> bytes:
    """Return all that was flushed and asked for, in Prometheus's text form. It takes a while, in any thread."""
    both = CollectorRegistry()
    for part in (_OfAll() if SHARED in os.environ else REGISTRY, asked):
        both.register(part)
    return generate_latest(both)


class _OfAll:
    """What the processes of one parent counted; as with one process, what none has counted yet is there by name."""

    def collect(self) -> Iterable[Metric]:
        counted = {one.name: one for one in MultiProcessCollector(None).collect()}  # type: ignore[no-untyped-call]
        yield from counted.values()
        for one in REGISTRY.collect():
            if one.name.startswith("heliograph_") and one.name not in counted:  # the library's own are of one process
                yield Metric(one.name, one.documentation, one.type)


def share(folder: Path) -> None:
    """Let processes that the parent starts from now on count there."""
    os.environ[SHARED] = str(folder)


def leave(pid: int) -> None:
    """Tell, in the parent, that a process ended: what it counted stays, what it was at does not."""
    if SHARED in os.environ:
        mark_process_dead(pid)  # type: ignore[no-untyped-call]
