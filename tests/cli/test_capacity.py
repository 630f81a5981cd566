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

from heliograph.cli.capacity import _hand_over, report
from heliograph.cli.sink import Sink
from heliograph.domain.operations.capacity import judge
from tests.domain.test_capacity import QUICK
from tests.service import COMMAND, PATIENCE_S


def test_it_measures_and_leaves_nothing(tmp_path: Path) -> None:
    command = [*COMMAND, "capacity", "--seconds", "5", "--json", "--data", str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=5 * PATIENCE_S, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["cores"] == len(os.sched_getaffinity(0))
    assert all(value > 0 for value in told["measured"].values()), told
    assert told["measured"]["hand_over_us"] > told["measured"]["signing_us"] / 10
    assert told["capacity"]["per_day"] >= told["capacity"]["per_s"] * 36_000 > 0
    assert list(tmp_path.iterdir()) == []


def test_ended_early_it_leaves_nothing_either(tmp_path: Path) -> None:
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
async def test_a_busy_machine_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first mail may come later than it takes until no more of them seem to."""
    for name in ("AHEAD_S", "GONE_S"):
        monkeypatch.setattr(f"heliograph.cli.capacity.{name}", 0.0)
    sink, process = Sink(), subprocess.Popen(["sleep", "3600"], text=True)
    sink.count = 1
    asyncio.get_running_loop().call_later(0.3, setattr, sink, "count", 3)
    try:
        assert (await _hand_over(process, sink, PATIENCE_S)).per_s > 0
    finally:
        process.kill()
        process.wait()


def test_the_words() -> None:
    said = "\n".join(report(QUICK, judge(QUICK)))
    for words in ("5,000 a second on a core (4,000 came", "350 emails a second", "12,600,000 a day", "hand-over."):
        assert words in said, said


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
