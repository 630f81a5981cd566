"""What this process counts for Prometheus. What the database knows is asked for when somebody looks (api/health.py).

Several processes of one parent count in files that they share, so that each answers for all of them (ADR 0027).
"""

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

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
MANY = (1, 2, 5, 10, 20, 50, 100, 200, 512)

disable_created_metrics()  # type: ignore[no-untyped-call]  # as many series again, of no use

_requests = Histogram(
    "heliograph_http_request_duration_seconds",
    "Answers of the API, by route.",
    ["route", "method", "status"],
    buckets=QUICK_S,
)
_accepted = Counter("heliograph_messages_accepted_total", "Messages accepted, durably.", ["channel", "mode", "sandbox"])
_replays = Counter("heliograph_idempotent_replays_total", "Requests answered as the first one with their key was.")
_refusals = Counter("heliograph_refusals_total", "Requests refused, by error code.", ["code"])
_to_handover = Histogram(
    "heliograph_time_to_handover_seconds",
    "From when a message was due until a carrier took it.",
    ["channel", "lane"],
    buckets=PATIENT_S,
)
_handovers = Counter(
    "heliograph_handovers_total", "Answers of carriers at hand-over.", ["channel", "carrier", "outcome"]
)
_handover_s = Histogram(
    "heliograph_handover_duration_seconds",
    "How long carriers took to answer.",
    ["channel", "carrier", "outcome"],
    buckets=QUICK_S,
)
_webhooks = Counter("heliograph_webhook_attempts_total", "Tries to deliver an event to a webhook.", ["outcome"])

COMMIT_S = Histogram(
    "heliograph_commit_duration_seconds", "Transactions that many sends or outcomes share.", buckets=QUICK_S
)
COMMIT_SIZE = Histogram("heliograph_commit_batch_size", "Sends or outcomes in one of them.", buckets=MANY)
LOOP_LAG = Gauge(
    "heliograph_event_loop_lag_seconds",
    "The longest delay of the event loop in the last minute or two.",
    multiprocess_mode="liveall",
)
PROGRESS = Gauge(
    "heliograph_worker_progress_timestamp_seconds",
    "When the lane that is furthest behind last looked for work.",
    multiprocess_mode="liveall",
)

# Label values are looked up once: that costs as much as counting.
answered = cache(_requests.labels)
accepted = cache(_accepted.labels)
refused = cache(_refusals.labels)
to_handover = cache(_to_handover.labels)
handed_over = cache(_handovers.labels)
handover_s = cache(_handover_s.labels)
webhook_tried = cache(_webhooks.labels)
replayed = _replays.inc


class Families:
    """Figures that were asked for just now."""

    def __init__(self) -> None:
        self._gauges: dict[str, GaugeMetricFamily] = {}

    def gauge(self, name: str, meaning: str, value: float, **labels: str) -> None:
        if name not in self._gauges:
            self._gauges[name] = GaugeMetricFamily(f"heliograph_{name}", meaning, labels=list(labels))
        self._gauges[name].add_metric(list(labels.values()), value)

    def collect(self) -> Iterable[Metric]:
        return self._gauges.values()


def written(asked: Families) -> bytes:
    """All of it in Prometheus's text form."""
    counted = REGISTRY
    if SHARED in os.environ:
        counted = CollectorRegistry()
        MultiProcessCollector(counted)  # type: ignore[no-untyped-call]
    both = CollectorRegistry()
    for part in (counted, asked):
        both.register(part)
    return generate_latest(both)


def share(folder: Path) -> None:
    """Of the parent: processes that it starts from now on count there."""
    os.environ[SHARED] = str(folder)


def leave(pid: int) -> None:
    """Of the parent: what a process that ended counted stays, what it was at does not."""
    if SHARED in os.environ:
        mark_process_dead(pid)  # type: ignore[no-untyped-call]
