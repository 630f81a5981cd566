"""`heliograph capacity`: a short measurement of the real thing, which leaves nothing behind."""

import asyncio
import json
import os
import signal
import smtplib
import subprocess
import time
from pathlib import Path

import pytest

from heliograph.cli.capacity import _measure_delivery, report
from heliograph.cli.sink import Sink
from heliograph.domain.operations.capacity import estimate_capacity
from tests.domain.test_capacity import QUICK
from tests.service import COMMAND, PATIENCE_S


def test_capacity_measures_and_leaves_no_files(tmp_path: Path) -> None:
    command = [*COMMAND, "capacity", "--seconds", "5", "--json", "--data", str(tmp_path / "data")]
    process = subprocess.run(command, capture_output=True, text=True, timeout=5 * PATIENCE_S, check=False, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    assert result["cores"] == len(os.sched_getaffinity(0))
    assert all(value > 0 for value in result["measured"].values()), result
    assert result["measured"]["hand_over_us"] > result["measured"]["signing_us"] / 10
    assert result["capacity"]["per_day"] >= result["capacity"]["per_s"] * 36_000 > 0
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_measurement_leaves_no_files(tmp_path: Path) -> None:
    command = [*COMMAND, "capacity", "--seconds", "5", "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        children, service = Path(f"/proc/{process.pid}/task/{process.pid}/children"), ""
        while process.poll() is None and not service:
            service = children.read_text().strip()
            time.sleep(0.01)
        process.terminate()
    assert process.returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == [] and not Path(f"/proc/{service}").exists()


@pytest.mark.anyio
async def test_a_late_first_mail_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first mail may come later than it takes until no more of them seem to."""
    for name in ("WARM_UP_S", "EMPTY_S"):
        monkeypatch.setattr(f"heliograph.cli.capacity.{name}", 0.0)
    sink, process = Sink(), subprocess.Popen(["sleep", "3600"], text=True)
    sink.count = 1
    asyncio.get_running_loop().call_later(0.3, setattr, sink, "count", 3)
    try:
        assert (await _measure_delivery(process, sink, PATIENCE_S)).per_s > 0
    finally:
        process.kill()
        process.wait()


def test_report_text() -> None:
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
