"""The complete set of metrics with their labels, of a service whose mail is delivered and bounces."""

import re
import smtplib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.smtp_sink import Sink
from tests.journeys.test_email import ARF, CARRIER, DSN, send, status
from tests.service import PATIENCE_S, Service, until

# Metric → its labels, on which operators' rules and charts depend.
METRICS: dict[str, set[str]] = {
    "heliograph_build_info": {"version", "python", "database"},
    "heliograph_http_request_duration_seconds": {"route", "method", "status"},
    "heliograph_messages_accepted_total": {"channel", "mode", "sandbox"},
    "heliograph_commit_duration_seconds": set(),
    "heliograph_commit_batch_size": set(),
    "heliograph_outbox_depth": {"lane"},
    "heliograph_outbox_oldest_seconds": {"lane"},
    "heliograph_time_to_handover_seconds": {"channel", "lane", "priority"},
    "heliograph_handovers_total": {"channel", "carrier", "outcome"},
    "heliograph_handover_duration_seconds": {"channel", "carrier", "outcome"},
    "heliograph_delivery_duration_seconds": {"channel", "provider"},
    "heliograph_smtp_replies_total": {"provider", "class"},
    "heliograph_smtp_connections": {"provider", "source"},
    "heliograph_smtp_tls_total": {"provider", "policy"},
    "heliograph_unclaimed_texts_total": {"channel", "carrier"},
    "heliograph_unclaimed_templates_total": {"carrier"},
    "heliograph_bounces_total": {"provider", "category"},
    "heliograph_complaints_total": {"provider", "category"},
    "heliograph_held_messages": {"reason"},
    "heliograph_verifications_total": {"outcome"},
    "heliograph_webhook_attempts_total": {"outcome"},
    "heliograph_webhook_lag_seconds": set(),
    "heliograph_webhook_pending": set(),
    "heliograph_idempotent_replays_total": set(),
    "heliograph_refusals_total": {"code"},
    "heliograph_db_transaction_seconds": {"name"},
    "heliograph_db_pool_in_use": {"name"},
    "heliograph_db_busy_total": {"name"},
    "heliograph_standby_reads_total": {"result"},
    "heliograph_event_loop_lag_seconds": set(),
    "heliograph_worker_progress_timestamp_seconds": set(),
    "heliograph_ledger_difference": set(),
    "heliograph_disk_free_bytes": set(),
    "heliograph_ready": set(),
    "heliograph_start_timestamp_seconds": set(),
    "heliograph_clock_offset_seconds": set(),
}
SERIES_MOST = 1500  # of the whole service: a label that grows with its users would pass this soon


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as running:
        yield running


@pytest.fixture
def mailing(database_url: str, tmp_path: Path, sink: Sink) -> Iterator[tuple[Service, int]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        bounces: int = probe.getsockname()[1]
    with Service(database_url, tmp_path / "data", bounce_listen=f"127.0.0.1:{bounces}") as running:
        running.apply()
        (tmp_path / "carrier.toml").write_text(CARRIER.format(port=sink.port))
        running.apply(tmp_path / "carrier.toml")
        running.start()
        yield running, bounces


def lines(service: Service) -> list[str]:
    return service.get("/metrics", key=None).raw.decode().splitlines()


def value(service: Service, sample: str) -> float:
    return next((float(line.split()[-1]) for line in lines(service) if line.startswith(f"{sample} ")), 0)


def test_metrics_endpoint_has_the_documented_set(mailing: tuple[Service, int], sink: Sink) -> None:
    service, bounces = mailing
    hook = service.post("/v1/webhooks", {"url": "http://127.0.0.1:9/", "events": ["*"]}).json["id"]
    for to, what in (("one@gmail.com", DSN), ("two@example.com", ARF)):
        id_ = send(service, to=to)
        until(lambda id_=id_: status(service, id_) == "sent")
        (sender,) = (sender for sender, (given,), _ in sink.mails if given == to)
        with smtplib.SMTP("127.0.0.1", bounces, timeout=PATIENCE_S) as client:
            client.sendmail("", [sender], what.replace("someone@example.com", to).format(to=sender))
        until(lambda id_=id_: status(service, id_) in ("bounced", "complained"))
    delivered = send(service, to="delivered@simulator.test")
    until(lambda: status(service, delivered) == "delivered")
    verification = service.post("/v1/verify", {"to": "+15005550006", "channel": "sms"}).json["id"]
    assert service.post(f"/v1/verify/{verification}/check", {"code": "000000"}).json["status"] == "verified"

    for sample in (
        'heliograph_smtp_replies_total{class="2xx",provider="other"}',
        'heliograph_smtp_tls_total{policy="none",provider="other"}',
        'heliograph_bounces_total{category="recipient",provider="google"}',
        'heliograph_complaints_total{category="recipient",provider="other"}',
        'heliograph_delivery_duration_seconds_count{channel="email",provider="simulator"}',
        'heliograph_verifications_total{outcome="started"}',
        'heliograph_verifications_total{outcome="verified"}',
        'heliograph_db_transaction_seconds_count{name="messages"}',
        'heliograph_db_transaction_seconds_count{name="dead_letters"}',
    ):
        assert until(lambda sample=sample: value(service, sample)) >= 1, sample
    until(lambda: value(service, 'heliograph_smtp_connections{provider="other",source="default"}') == 0)
    assert value(service, "heliograph_ledger_difference") == 0
    service.ask("DELETE", f"/v1/webhooks/{hook}")
    shown = lines(service)
    there = {line.split()[2] for line in shown if line.startswith("# TYPE")}
    assert METRICS.keys() <= there, METRICS.keys() - there
    named = [re.fullmatch(r"(heliograph_\w+?)(?:_bucket|_count|_sum)?(?:\{(.*)\})? \S+", line) for line in shown]
    for found in filter(None, named):
        labels = set(re.findall(r"(\w+)=", found[2] or "")) - {"le"}
        assert labels == METRICS.get(found[1], labels), found[0]
    assert len([line for line in shown if line.startswith("heliograph_")]) < SERIES_MOST
