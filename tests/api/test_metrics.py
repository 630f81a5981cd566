"""The metrics: their values, who may read them, and that rules and dashboards in deploy/ use existing ones."""

import asyncio
import json
import re
import shutil
import subprocess
import threading
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from heliograph.accept.context import Context, HostMetrics
from heliograph.api import health
from heliograph.api.routes import ROUTES
from heliograph.compat.adapters import ADAPTERS
from heliograph.domain.delivery.circuit import open_circuit
from heliograph.domain.delivery.lanes import CONCURRENCY_MAX_BY_LANE
from heliograph.domain.refusals import NotFound, ServiceUnavailable
from heliograph.domain.setup.records import CarrierRecord
from heliograph.domain.setup.snapshot import to_row
from heliograph.runtime.metrics import ScrapeGauges
from heliograph.settings import BadSetting, Settings, read_settings
from heliograph.smtp.certificate import certificate_expiry
from heliograph.storage.engine.database import StoreUnavailable
from heliograph.storage.engine.health_probe import Probe
from heliograph.storage.outbox import LaneDepth
from heliograph.storage.store import Store
from heliograph.web.dispatcher import Dispatcher
from heliograph.web.request import Request
from tests.carriers.smtp_peer import Authority
from tests.clocks import TestClock
from tests.make_request import make_request
from tests.npm import miss
from tests.service import Service, until
from tests.setup_helpers import set_up

pytestmark = pytest.mark.anyio

TOKEN = "0123456789abcdef"


async def is_shown(address: str, allow: tuple[str, ...] = (), token: str = "", **headers: str) -> bool:
    context = SimpleNamespace(metrics_allow=allow, metrics_token=token, state=SimpleNamespace(metrics_future=None))
    raw_headers = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    call: Any = SimpleNamespace(context=context, request=SimpleNamespace(address=address, headers=raw_headers))
    try:
        with mock.patch.object(health, "_collect_gauges", mock.AsyncMock(return_value=ScrapeGauges())):
            await health.metrics(call)
    except NotFound:
        return False
    return True


@pytest.mark.parametrize(
    ("address", "allow", "shown"),
    [
        ("127.0.0.1", (), True),
        ("127.8.8.8", (), True),
        ("::1", (), True),
        ("::ffff:127.0.0.1", (), True),
        ("10.0.0.1", (), False),
        ("2001:db8::1", (), False),
        ("", (), False),
        ("10.0.0.1", ("10.0.0.0/8",), True),
        ("10.0.0.1", ("10.0.1.0/24", "2001:db8::/32"), False),
        ("2001:db8::1", ("10.0.1.0/24", "2001:db8::/32"), True),
    ],
)
async def test_metrics_are_shown_to_allowed_addresses_only(address: str, allow: tuple[str, ...], shown: bool) -> None:
    assert await is_shown(address, allow) is shown
    assert not await is_shown(address, allow, x_forwarded_for="127.0.0.1")  # the proxy is not trusted
    assert not await is_shown(address, allow, forwarded="for=127.0.0.1")


@pytest.mark.parametrize(
    ("token", "given", "shown"),
    [
        (TOKEN, f"Bearer {TOKEN}", True),
        (TOKEN, f"Bearer {TOKEN}x", False),
        (TOKEN, "Bearer ", False),
        (TOKEN, TOKEN, False),
        ("", "Bearer ", False),
        ("", "", False),
    ],
)
async def test_metrics_are_shown_with_the_right_token_only(token: str, given: str, shown: bool) -> None:
    assert await is_shown("203.0.113.7", token=token, authorization=given, x_forwarded_for="203.0.113.7") is shown


@pytest.mark.parametrize(
    ("trusted", "forwarded", "address", "shown"),
    [
        (("127.0.0.1",), "203.0.113.7", "203.0.113.7", False),
        (("127.0.0.1",), "10.1.2.3", "10.1.2.3", True),
        (("127.0.0.1",), "127.0.0.1", "127.0.0.1", False),  # the client behind an untrusted proxy is unknown
        (("192.0.2.1",), "10.1.2.3", "127.0.0.1", False),
        ((), "10.1.2.3", "127.0.0.1", False),
    ],
)
async def test_metrics_behind_a_proxy_are_shown_by_the_client_address(
    trusted: tuple[str, ...], forwarded: str, address: str, shown: bool
) -> None:
    calls: list[Any] = []

    async def api(request: Request) -> None:
        calls.append((request.address, request.headers))

    api.refused = api.reject_overload = None  # type: ignore[attr-defined]
    await Dispatcher(cast(Any, api), cast(Any, None), trusted)(
        make_request("GET", "/metrics", {"x-forwarded-for": forwarded})
    )
    [(client_address, headers_left)] = calls
    assert client_address == address
    assert await is_shown(client_address, ("10.0.0.0/8",), **{name.decode(): "x" for name in headers_left}) is shown


async def test_concurrent_requests_share_one_rendering(monkeypatch: pytest.MonkeyPatch) -> None:
    renderings: list[str] = []

    def write(_: ScrapeGauges) -> bytes:
        renderings.append(threading.current_thread().name)
        return b"# all"

    monkeypatch.setattr(health, "metrics_text", write)
    monkeypatch.setattr(health, "_collect_gauges", mock.AsyncMock(return_value=ScrapeGauges()))
    context = SimpleNamespace(metrics_allow=(), metrics_token="", state=SimpleNamespace(metrics_future=None))
    call: Any = SimpleNamespace(context=context, request=SimpleNamespace(address="127.0.0.1", headers={}))
    answers = await asyncio.gather(*(health.metrics(call) for _ in range(20)))
    assert {answer.body for answer in answers} == {b"# all"}
    assert len(renderings) == 1 and renderings[0].startswith("reading")
    await health.metrics(call)
    assert len(renderings) == 2


def test_metrics_settings_are_read_and_validated() -> None:
    environment = {"HELIOGRAPH_METRICS_ALLOW": "10.0.0.0/8, 2001:db8::/32", "HELIOGRAPH_METRICS_TOKEN": TOKEN}
    read = read_settings({}, environment)
    assert (read.metrics_allow, read.metrics_token) == (("10.0.0.0/8", "2001:db8::/32"), TOKEN)
    assert (Settings().metrics_allow, Settings().metrics_token) == ((), "")
    for name, value in (("METRICS_ALLOW", "10.0.0.1/8"), ("METRICS_TOKEN", "too short"), ("METRICS_TOKEN", "a b" * 9)):
        with pytest.raises(BadSetting) as refused:
            read_settings({}, {f"HELIOGRAPH_{name}": value})
        assert (value in str(refused.value)) == (name == "METRICS_ALLOW")  # secrets are not repeated


ROOT = Path(__file__).parents[2]
MAIL = {"from": "hi@acme.test", "to": "delivered@simulator.test", "subject": "Hi", "text": "Hi"}
BOUNDS = "0.005 0.01 0.025 0.05 0.075 0.1 0.25 0.5 0.75 1.0 2.5 5.0 7.5 10.0 +Inf".split()  # as in OpenTelemetry


def figures(service: Service) -> dict[str, float]:
    """Return sample with labels → value."""
    lines = service.get("/metrics", key=None).raw.decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


@pytest.fixture(scope="module")
def metric_values(shared_service: Service) -> dict[str, float]:
    """Return the metrics after a send, a replay of it, a refusal, and a request to an unknown path."""
    hook = shared_service.post("/v1/webhooks", {"url": "http://127.0.0.1:9/", "events": ["*"]}).json["id"]
    for _ in range(2):
        assert shared_service.post("/v1/emails", MAIL, headers={"Idempotency-Key": "metrics"}).status == 202
    assert shared_service.post("/v1/emails", MAIL | {"to": "nobody"}).code == "invalid_email"
    assert shared_service.ask("PATCH", "/nothing").status == 404
    until(lambda: figures(shared_service).get('heliograph_webhook_attempts_total{outcome="retried"}'))
    shared_service.ask("DELETE", f"/v1/webhooks/{hook}")
    return figures(shared_service)


def test_requests_and_messages_are_counted(metric_values: dict[str, float]) -> None:
    for name in (
        'heliograph_messages_accepted_total{channel="email",mode="direct",sandbox="false"}',
        "heliograph_idempotent_replays_total",
        'heliograph_refusals_total{code="invalid_email"}',
        'heliograph_handovers_total{carrier="simulator-email",channel="email",outcome="accepted"}',
        'heliograph_time_to_handover_seconds_bucket{channel="email",lane="email",le="1.0",priority="normal"}',
        "heliograph_commit_duration_seconds_count",
        "heliograph_commit_batch_size_sum",
        'heliograph_http_request_duration_seconds_count{method="POST",route="/v1/emails",status="202"}',
        'heliograph_http_request_duration_seconds_count{method="other",route="none",status="4xx"}',
        "heliograph_disk_free_bytes",
        "heliograph_worker_progress_timestamp_seconds",
    ):
        assert metric_values[name] > 0, name
    for name in (
        *(
            f'heliograph_outbox_{figure}{{lane="{lane}"}}'
            for figure in ("depth", "oldest_seconds")
            for lane in CONCURRENCY_MAX_BY_LANE
        ),
        'heliograph_held_messages{reason="paused"}',
        'heliograph_held_messages{reason="circuit"}',
        "heliograph_quarantined_messages",
        "heliograph_webhook_pending",
        "heliograph_webhook_lag_seconds",
        "heliograph_event_loop_lag_seconds",
    ):
        assert metric_values[name] >= 0, name
    assert [name for name in metric_values if name.startswith("heliograph_build_info{") and 'database="sqlite"' in name]
    served = [name for name in metric_values if 'bucket{le="' in name and 'route="/v1/emails",status="202"' in name]
    assert [re.findall('le="(.+?)"', name)[0] for name in served] == BOUNDS


def test_unauthenticated_requests_create_no_series(metric_values: dict[str, float], shared_service: Service) -> None:
    """Otherwise each requested route would add 17 lines."""
    unauthenticated = 'heliograph_http_request_duration_seconds_count{method="other",route="none",status="4xx"}'
    before = figures(shared_service)
    for path in ("/v1/test-clock", "/v1/templates/tpl_x/versions", "/compat/resend/api-keys"):
        assert shared_service.ask("GET", path, key=None).status == 401
    after = figures(shared_service)
    assert after[unauthenticated] == before[unauthenticated] + 3
    assert {name for name in after if "route=" in name} == {name for name in before if "route=" in name}


def test_route_labels_are_bounded_by_our_routes(metric_values: dict[str, float], shared_service: Service) -> None:
    for path in (
        "/compat/resend/api-keys",
        "/compat/resend/domains",
        "/compat/resend/emails/eml_x",
        "/v1/emails/eml_x",
    ):
        shared_service.ask("GET", path)
        shared_service.ask("PROPFIND", path)
    routes_shown = {re.findall('route="(.*?)"', name)[0] for name in figures(shared_service) if "route=" in name}
    assert routes_shown <= {route.path for route in ROUTES} | {adapter.prefix for adapter in ADAPTERS} | {"none"}
    assert "/compat/resend" in routes_shown


@pytest.fixture(scope="module")
def metric_names(metric_values: dict[str, float], shared_service: Service) -> set[str]:
    """Return the names of all metrics, including those without values."""
    lines = shared_service.get("/metrics", key=None).raw.decode().splitlines()
    return {line.split()[2] for line in lines if line.startswith("# TYPE heliograph_")}


def test_rules_and_dashboards_use_existing_metrics(metric_names: set[str]) -> None:
    """Every name in deploy/ is a metric of /metrics."""
    for file in ("alerts.yaml", "grafana.json"):
        text = (ROOT / "deploy" / file).read_text()
        used_names = {re.sub("_(bucket|count|sum)$", "", name) for name in re.findall(r"\bheliograph_\w+", text)}
        assert len(used_names) > 5 and used_names <= metric_names, used_names - metric_names
    panels = json.loads(text)["panels"]
    assert all(panel["targets"][0]["expr"] for panel in panels)


def test_promtool_reports_no_problems(metric_values: dict[str, float], shared_service: Service) -> None:
    promtool = shutil.which("promtool") or miss("rules and metrics are not judged", "promtool is not installed")
    rules = [promtool, "check", "rules", "--lint-fatal", str(ROOT / "deploy" / "alerts.yaml")]
    assert subprocess.run(rules, check=False, capture_output=True).returncode == 0
    metrics_text = shared_service.get("/metrics", key=None).raw
    process = subprocess.run([promtool, "check", "metrics"], input=metrics_text, check=False, capture_output=True)
    assert process.returncode == 0, process.stderr.decode() + process.stdout.decode()


def test_every_metric_is_documented(metric_names: set[str]) -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    documented = set(re.findall(r"`(heliograph_\w+)", page))
    assert metric_names == documented


# -- what is asked for when somebody looks -----------------------------------------------------------------


def knows(answer: Any) -> Any:
    """Return a probe with this result; an exception is raised."""
    return SimpleNamespace(get=mock.AsyncMock(side_effect=[answer]))


def context(store: Store, **overrides: Any) -> Any:
    fields = dict.fromkeys(("failover", "base_url", "code_key"), None) | {"store": store, "clock": store.clock}
    return Context(**cast(Any, fields | overrides))


async def read_gauges(store: Store, **overrides: Any) -> dict[str, float]:
    """Return (metric, label values) → value."""
    families = await health._collect_gauges(context(store, **overrides))
    samples = [sample for family in families.collect() for sample in family.samples]
    return {
        " ".join((metric_sample.name.removeprefix("heliograph_"), *metric_sample.labels.values())): metric_sample.value
        for metric_sample in samples
    }


async def test_a_failed_query_omits_only_its_own_gauges(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    all_well = await read_gauges(store)
    assert all_well["ready"] == 1
    unavailable = StoreUnavailable("away")
    monkeypatch.setattr(store.outbox, "depth_probe", knows(unavailable))
    without_queues = await read_gauges(store)
    assert {name.split()[0] for name in all_well.keys() - without_queues.keys()} == {
        *("outbox_depth", "outbox_oldest_seconds", "held_messages"),
    }
    monkeypatch.setattr(store.maintenance, "can_commit", knows(unavailable))
    monkeypatch.setattr(store.dead_letters, "backlog", knows(unavailable))
    monkeypatch.setattr(store.outbox, "depth_probe", knows(unavailable))
    without = await read_gauges(store)
    assert without["ready"] == 0
    assert {"disk_free_bytes", "clock_offset_seconds"} <= without.keys()
    assert "webhook_lag_seconds" not in without


async def test_host_gauges_have_the_measured_values(store: Store, clock: TestClock) -> None:
    now = clock.now()
    machine = HostMetrics(disk_free=lambda: 7, certificate_until=lambda: now + 90_000, backup_at=lambda: now - 60_000)
    clock.compare(clock.wall_ms() + 3_000, 0)
    gauges = await read_gauges(store, host_metrics=machine)
    assert gauges["disk_free_bytes"] == 7
    assert gauges["certificate_expiry_seconds"] == pytest.approx(90, abs=5)
    assert gauges["backup_age_seconds"] == pytest.approx(60, abs=5)
    assert gauges["clock_offset_seconds"] == pytest.approx(-3, abs=1)
    assert {"certificate_expiry_seconds", "backup_age_seconds"} & (await read_gauges(store)).keys() == set()


async def test_last_callback_gauge(store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch) -> None:
    await set_up(store, rows=[to_row("carrier", "c", CarrierRecord(id="c", channel="sms", kind="twilio"), None)])
    assert (await read_gauges(store))["carrier_last_callback_seconds c sms"] == inf  # Twilio always sends callbacks
    for carrier in ("c", "gone"):
        await store.carrier_stats.record_callback(carrier, clock.now() - 90_000)
    monkeypatch.setattr(store.carrier_stats, "last_callbacks", Probe(store.carrier_stats.read_callbacks))
    gauges = await read_gauges(store)
    assert gauges["carrier_last_callback_seconds c sms"] == pytest.approx(90, abs=5)
    assert not [name for name in gauges if "gone" in name]
    monkeypatch.setattr(store.carrier_stats, "last_callbacks", knows(StoreUnavailable("away")))
    gauges = await read_gauges(store)
    assert gauges["ready"] == 1 and "carrier_last_callback_seconds c sms" not in gauges


def test_certificate_expiry_gauge(tmp_path: Path) -> None:
    file = tmp_path / "cert.pem"
    pem, certificate = Authority().pem("mail.test")
    file.write_bytes(pem)
    assert certificate_expiry(file) == certificate.not_valid_after_utc.timestamp() * 1000
    assert certificate_expiry(None) is certificate_expiry(tmp_path / "none") is None


@pytest.mark.parametrize("is_worker", [False, True])
async def test_a_worker_that_claims_nothing_is_not_ready(store: Store, clock: TestClock, is_worker: bool) -> None:
    """Processes with another role still accept."""
    call: Any = SimpleNamespace(context=context(store, is_worker=is_worker))
    assert (await health.readyz(call)).status == 200
    clock.compare(clock.wall_ms() + 60_000, 0)
    if is_worker:
        with pytest.raises(ServiceUnavailable, match="clock is wrong"):
            await health.readyz(call)
    else:
        assert (await health.readyz(call)).status == 200


async def test_held_messages_gauge(store: Store, clock: TestClock) -> None:
    await set_up(store, [to_row("carrier", "relay", CarrierRecord(id="relay", channel="email", kind="smtp"), None)])

    async def held_gauges() -> tuple[float, float]:
        with mock.patch.object(store.outbox, "depth_probe", knows([LaneDepth("email", 1, clock.now())])):
            gauges = await read_gauges(store)
        return gauges["held_messages circuit"], gauges["carrier_reachable relay email"]

    assert await held_gauges() == (0, 1)
    circuit = open_circuit(None, "relay", "no answer", clock.now())
    await store.circuits.replace("relay", None, circuit)
    assert await held_gauges() == (1, 0)
    clock.forward(60_000)  # the carrier may be tried again, but was not yet
    assert await held_gauges() == (1, 0)
    await store.circuits.replace("relay", circuit, None)
    assert await held_gauges() == (0, 1)


def test_metrics_over_http(shared_service: Service) -> None:
    assert shared_service.get("/metrics", key=None).status == 200
    hidden = shared_service.get("/metrics", key=None, headers={"X-Forwarded-For": "127.0.0.1"})
    assert (hidden.status, hidden.code) == (404, "not_found")
    assert hidden.json["error"]["message"] == shared_service.get("/nothing", key=None).json["error"]["message"]
