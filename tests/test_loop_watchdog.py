"""The event loop watchdog: it names what blocked the loop, and the delay is a metric."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import structlog

from heliograph.runtime import loop_watchdog
from heliograph.runtime.loop_watchdog import LoopWatch
from tests.service import PATIENCE_S

pytestmark = pytest.mark.anyio


async def held(by: str | None) -> tuple[LoopWatch, list[Any]]:
    """Return a watchdog that has noticed that a task of this name, or a callback, blocked the loop."""
    seen = LoopWatch()
    running = asyncio.create_task(seen.run())
    await asyncio.sleep(0)

    def hold() -> None:
        while seen._blocked_by is None:
            time.sleep(0.01)

    async def held_request() -> None:
        hold()

    with structlog.testing.capture_logs() as lines:
        if by is None:
            asyncio.get_running_loop().call_soon(hold)
        else:
            holder = asyncio.create_task(held_request(), name=by or None)
            assert not holder.done()
        while not lines:
            await asyncio.sleep(0.01)
    running.cancel()
    return seen, lines


@pytest.mark.parametrize(
    ("by", "named"), [("POST /v1/emails", "POST /v1/emails"), ("", "held.<locals>.held_request"), (None, "connections")]
)
async def test_watchdog_names_the_function_that_blocked_the_loop(by: str | None, named: str) -> None:
    seen, lines = await held(by)
    assert [(line["event"], line["by"]) for line in lines] == [("event loop blocked", named)]
    assert lines[0]["seconds"] > loop_watchdog.LOGGED_LAG_S and lines[0]["at"].count(":") == 1
    assert seen.lag() > loop_watchdog.LOGGED_LAG_S


def test_watchdog_reports_the_longest_lag_for_up_to_two_minutes() -> None:
    seen = LoopWatch()
    for now, lag, events in ((0, 0.1, 0.1), (1, 0.2, 0.2), (2, 0, 0.2), (61, 0.05, 0.2), (62, 0, 0.2), (122, 0, 0.05)):
        seen._due = now - lag
        seen._record_lag(now)
        assert seen.lag() == pytest.approx(events)


STUCK = """
import asyncio, os, sys, time
from heliograph.runtime import logs
from heliograph.runtime.loop_watchdog import LoopWatch

def hold_it(token):
    print("held", flush=True)
    while time.sleep(0.05) or not os.path.exists(token):
        pass

async def main():
    logs.configure(asyncio.get_running_loop().time, log_format="json")
    running = asyncio.create_task(LoopWatch(float(sys.argv[1])).run())
    await asyncio.sleep(0.2)
    hold_it(sys.argv[2])
    await asyncio.sleep(0.3)
    print("alive", flush=True)

asyncio.run(main())
"""


def stuck(stuck_s: float, token: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", STUCK, str(stuck_s), token]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "held\n"
    return process


def test_process_with_a_stuck_loop_exits_and_logs_the_code_location() -> None:
    process = stuck(1, "/nowhere/canary")
    _, output = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == loop_watchdog.STUCK_EXIT_CODE
    line = json.loads(output.splitlines()[-1])
    assert (line["event"], line["level"], line["by"]) == ("event loop stuck: ending the process", "error", "main")
    assert "in hold_it" in line["stack"] and line["seconds"] >= 1
    assert "canary" not in output


def test_suspended_process_is_not_ended_when_it_resumes(tmp_path: Path) -> None:
    process = stuck(2, str(tmp_path / "go on"))
    process.send_signal(signal.SIGSTOP)
    time.sleep(3)  # longer than it may be stuck
    (tmp_path / "go on").touch()
    process.send_signal(signal.SIGCONT)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, output) == (0, "alive\n")


BUSY = """
import asyncio, re, sys, time
from heliograph.runtime import loop_watchdog

loop_watchdog.BUSY_THREADS_MAX = 0.01  # shortens the CPU time after which the watchdog reports

def hold_everything():
    re.match("(a+)+$", "a" * 60 + "b")

async def main():
    running = asyncio.create_task(loop_watchdog.LoopWatch(60).run())
    ends = time.process_time() + 1.5
    while time.process_time() < ends:
        await asyncio.sleep(0)
    print("busy", flush=True)
    if sys.argv[1] == "hold":
        hold_everything()
    running.cancel()

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(("then", "code"), [("hold", -signal.SIGPROF), ("go on", 0)])
def test_process_is_ended_even_if_none_of_its_threads_can_run(then: str, code: int) -> None:
    done = subprocess.run([sys.executable, "-c", BUSY, then], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, "busy" in done.stdout) == (code, True)
    assert ("in hold_everything" in done.stderr) == (then == "hold")


def test_watchdog_without_a_limit_ends_no_process(tmp_path: Path) -> None:
    process = stuck(0, str(tmp_path / "go on"))
    time.sleep(1)
    (tmp_path / "go on").touch()
    assert process.communicate(timeout=PATIENCE_S)[0] == "alive\n"
