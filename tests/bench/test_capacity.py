"""`make bench-capacity`: the estimate, and a short measurement of a real service that leaves nothing behind."""

import asyncio
import json
import os
import signal
import smtplib
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench.capacity import Measurements, _measure_delivery, estimate_capacity, report
from bench.sink import Sink
from msgspec.structs import replace

from tests.service import PATIENCE_S

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "bench.capacity", "--seconds", "5")
QUICK = Measurements(
    syncs_per_s=10_000,
    signing_us=600,
    accept_us=200,
    accepted_per_s=4_000,
    hand_over_us=1_800,
    handed_over_per_s=500,
)


@pytest.mark.parametrize(
    ("changed", "limit", "per_s"),
    [
        ({}, "delivery", 350),  # 1 s / 2 ms, of which 70 %
        ({"accept_us": 2_200}, "accepting", 175),
        ({"syncs_per_s": 12}, "disk", 280),  # 12 × 100 / 3, of which 70 %
        ({"syncs_per_s": 15.1}, "delivery", 350),
    ],
)
def test_capacity_estimate_names_the_limiting_resource(changed: dict[str, float], limit: str, per_s: int) -> None:
    actual = estimate_capacity(replace(QUICK, **changed))
    assert (actual.limit, actual.per_s) == (limit, per_s)
    assert actual.advice


def test_a_day_is_ten_of_its_busiest_hours() -> None:
    actual = estimate_capacity(QUICK)
    assert (actual.per_hour, actual.per_day, actual.per_day_evenly) == (1_260_000, 12_600_000, 30_240_000)


def test_capacity_measures_and_leaves_no_files(tmp_path: Path) -> None:
    command = [*COMMAND, "--json", "--data", str(tmp_path / "data")]
    process = subprocess.run(command, capture_output=True, text=True, timeout=5 * PATIENCE_S, check=False, cwd=ROOT)
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    assert result["cores"] == len(os.sched_getaffinity(0))
    assert all(value > 0 for value in result["measured"].values()), result
    assert result["measured"]["hand_over_us"] > result["measured"]["signing_us"] / 10
    assert result["capacity"]["per_day"] >= result["capacity"]["per_s"] * 36_000 > 0
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_measurement_leaves_no_files(tmp_path: Path) -> None:
    command = [*COMMAND, "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        children, service = Path(f"/proc/{process.pid}/task/{process.pid}/children"), ""
        while process.poll() is None and not service:
            service = children.read_text().strip()
            time.sleep(0.01)
        process.terminate()
    assert process.returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == [] and not Path(f"/proc/{service}").exists()


@pytest.mark.anyio
async def test_a_late_first_mail_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first mail may take longer than the pause after which the queue counts as empty."""
    for name in ("WARM_UP_S", "EMPTY_S"):
        monkeypatch.setattr(f"bench.capacity.{name}", 0.0)
    sink, process = Sink(), subprocess.Popen(["sleep", "3600"], text=True)
    sink.count = 1
    asyncio.get_running_loop().call_later(0.3, setattr, sink, "count", 3)
    try:
        assert (await _measure_delivery(process, sink, PATIENCE_S)).per_s > 0
    finally:
        process.kill()
        process.wait()


def test_capacity_report_names_rates_and_bottleneck() -> None:
    text = "\n".join(report(QUICK, estimate_capacity(QUICK)))
    for phrase in (
        "5,000 a second per core (4,000 measured",
        "350 emails a second",
        "12,600,000 a day",
        "Bottleneck: delivery.",
    ):
        assert phrase in text, text


@pytest.mark.anyio
async def test_the_sink_counts_mails() -> None:
    sink = Sink()
    server = await sink.listen()
    port = server.sockets[0].getsockname()[1]

    def send() -> None:
        with smtplib.SMTP("127.0.0.1", port, timeout=PATIENCE_S) as client:
            for body in ("one", "two\r\n..\r\nof two parts", "three"):
                client.sendmail("a@example.test", ["b@example.test"], f"Subject: x\r\n\r\n{body}")

    await asyncio.to_thread(send)
    server.close()
    assert sink.count == 3
