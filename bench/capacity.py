"""Benchmarks this machine and estimates how many messages a day it can send: `make bench-capacity`."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Literal

import click
import msgspec
from bench.load_generator import END, Load, LoadRounds, LoadTarget, cpu_s, request
from bench.sink import Sink

from heliograph.app import CARRIER_FACTORIES
from heliograph.bootstrap import open_store
from heliograph.cli.apply import apply_file
from heliograph.cli.checks.machine import nearest_existing
from heliograph.domain.limits import DAY_MS, HOUR_MS
from heliograph.domain.mail import dkim
from heliograph.domain.setup.keys import make_token
from heliograph.domain.setup.setup_file import parse_setup_file
from heliograph.runtime.processes import COMMAND
from heliograph.settings import VARIABLE_PREFIX, Settings

CONNECTIONS = 32
ROUND_S = 0.25
# Share of the measuring time per phase
TIME_SHARES = {"sync": 0.1, "signing": 0.1, "accepting": 0.35, "delivery": 0.45}
FIRST_MAIL_S = 30.0  # maximum wait for the first mail; the domain's DKIM keys are generated before it
EMPTY_S = 0.5  # the queue counts as empty after this long without another mail
WARM_UP_S = 1.0  # warm-up of a process before measuring: connections, caches, keys
# A message is written when it is accepted, when it is claimed and when its outcome is recorded.
COMMITS_PER_MESSAGE = 3
MESSAGES_PER_COMMIT = 100  # under load: waiting messages are committed together, and a claim takes as many
PEAK_SHARE = 10  # the busiest hour has a tenth of a day's messages
USABLE_SHARE = 0.7  # usable share of a machine; the rest is for retries, dashboard, webhooks, backups

TOKEN = make_token(b"capacity" * 8)
SETUP = """
[[carriers]]
id = "sink"
channel = "email"
kind = "smtp"
host = "127.0.0.1"
port = {port}
tls = "none"
connections = 8
[[teams]]
id = "team_capacity"
name = "Capacity"
mode = "live"
email_quota = 100000000
rate_limit = 0
  [[teams.domains]]
  id = "dom_capacity"
  name = "capacity.test"
  brand = "Capacity"
  verified = true
  approved = true
  [[teams.keys]]
  name = "Capacity"
  token = "{token}"
"""
MAIL = {
    "from": "hello@capacity.test",
    "to": "ada@example.test",
    "subject": "Your order is on its way",
    "html": f"<p>{'It will arrive on Thursday. ' * 15}</p>",
    "text": "It will arrive on Thursday. " * 15,
}

Limit = Literal["accepting", "delivery", "disk"]

ADVICE_BY_LIMIT: dict[Limit, str] = {
    "accepting": "a faster core; or PostgreSQL, with a process for each core, then machines for the API alone",
    "delivery": "a faster core; or PostgreSQL, with a process for each core, then machines for workers alone",
    "disk": "a disk that syncs faster: a local SSD, or one with a protected write cache",
}


class Measurements(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of a machine. CPU times are microseconds of one core per message."""

    syncs_per_s: float
    signing_us: float
    accept_us: float
    accepted_per_s: float  # measured rate, with the load generator on the same machine
    hand_over_us: float
    handed_over_per_s: float


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    per_s: int  # sustained rate of one process
    per_hour: int
    per_day: int  # such that the busiest hour fits
    per_day_evenly: int
    limit: Limit
    advice: str


def estimate_capacity(measured: Measurements) -> Capacity:
    by_core = 1e6 / (measured.accept_us + measured.hand_over_us)
    by_disk = measured.syncs_per_s * MESSAGES_PER_COMMIT / COMMITS_PER_MESSAGE
    if by_disk < by_core:
        limit: Limit = "disk"
    else:
        limit = "accepting" if measured.accept_us > measured.hand_over_us else "delivery"
    per_s = USABLE_SHARE * min(by_core, by_disk)
    per_hour = per_s * HOUR_MS / 1000
    return Capacity(
        per_s=int(per_s),
        per_hour=int(per_hour),
        per_day=int(per_hour * PEAK_SHARE),
        per_day_evenly=int(per_s * DAY_MS / 1000),
        limit=limit,
        advice=ADVICE_BY_LIMIT[limit],
    )


@click.command()
@click.option("--data", type=Path, default=".", help="A folder on the disk to measure.")
@click.option(
    "--seconds", type=click.IntRange(5, 600), default=20, show_default=True, help="Duration of the measurement."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def capacity(data: Path, seconds: int, as_json: bool) -> None:
    """Benchmark this machine for about 20 seconds: how many messages a day it can send, and what limits it.

    Measures file syncs and mail signing, and runs a real service on a new SQLite database in a temporary folder next
    to --data: it accepts emails over HTTP, and a worker sends them to a mail server on loopback that discards them.
    Your database is not touched, and nothing leaves the machine. Other load on the machine lowers the results.
    """
    with (
        _exit_on_cancel(),
        tempfile.TemporaryDirectory(prefix="heliograph-capacity-", dir=nearest_existing(data)) as folder,
    ):
        measured = asyncio.run(measure(Path(folder), seconds, (lambda _: None) if as_json else _print_progress))
    estimate = estimate_capacity(measured)
    if as_json:
        click.echo(
            msgspec.json.encode({"cores": len(os.sched_getaffinity(0)), "measured": measured, "capacity": estimate})
        )
    else:
        click.echo("\n".join(report(measured, estimate)))


@contextmanager
def _exit_on_cancel() -> Iterator[None]:
    """Exit on SIGTERM as on Ctrl-C, after the measured service was stopped and its folder deleted."""
    try:
        yield
    except asyncio.CancelledError:
        sys.exit(128 + signal.SIGTERM)


def _print_progress(line: str) -> None:
    click.echo(f"Measuring {line} …", err=True)


def report(measured: Measurements, estimate: Capacity) -> list[str]:
    return [
        f"disk sync        {measured.syncs_per_s:>10,.0f} a second",
        f"signing          {1e6 / measured.signing_us:>10,.0f} mails a second per core, RSA and Ed25519",
        _rate_line("accepting", measured.accept_us, measured.accepted_per_s),
        _rate_line("delivery", measured.hand_over_us, measured.handed_over_per_s),
        "",
        f"One process on SQLite can send {estimate.per_s:,} emails a second, {estimate.per_hour:,} an hour, with "
        f"{1 - USABLE_SHARE:.0%} in reserve.",
        f"That is {estimate.per_day:,} a day if the busiest hour has 1/{PEAK_SHARE} of the day's messages "
        f"({estimate.per_day_evenly:,} if evenly distributed).",
        f"Bottleneck: {estimate.limit}. To send more: {estimate.advice}.",
    ]


def _rate_line(phase: str, cpu_us: float, reached_per_s: float) -> str:
    return f"{phase:<17}{1e6 / cpu_us:>10,.0f} a second per core ({reached_per_s:,.0f} measured)"


async def measure(folder: Path, seconds: float, progress: Callable[[str], None]) -> Measurements:
    task = asyncio.current_task()
    assert task
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    phase_seconds = {name: share * seconds for name, share in TIME_SHARES.items()}
    progress("disk sync")
    with tempfile.NamedTemporaryFile(dir=folder) as file:

        def sync() -> None:
            file.write(bytes(4096))
            file.flush()
            os.fdatasync(file.fileno())

        syncs = _measure_calls(sync, phase_seconds["sync"])[0] / phase_seconds["sync"]
    progress("signing")
    signed, signing_cpu_s = _measure_calls(make_signature(), phase_seconds["signing"])
    sink = Sink()
    server = await sink.listen()
    try:
        settings = Settings(database=f"sqlite:///{folder / 'heliograph.db'}", data=folder / "data")
        text = SETUP.format(port=server.sockets[0].getsockname()[1], token=TOKEN)
        async with open_store(settings) as store:
            await apply_file(store, settings, parse_setup_file(text, {}, name="capacity", supported=CARRIER_FACTORIES))
        progress("accepting")
        async with _service(settings, "api") as (process, port):
            accepted = await _measure_accepting(process.pid, port, phase_seconds["accepting"])
        progress("delivery")
        async with _service(settings, "worker") as (process, _):
            delivered = await _measure_delivery(process, sink, phase_seconds["delivery"])
    finally:
        server.close()
    return Measurements(
        syncs_per_s=syncs,
        signing_us=signing_cpu_s * 1e6 / signed,
        accept_us=accepted.cpu_us,
        accepted_per_s=accepted.per_s,
        hand_over_us=delivered.cpu_us,
        handed_over_per_s=delivered.per_s,
    )


def make_signature() -> Callable[[], bytes]:
    """Return a function that signs a typical mail with both key types, as sending does."""
    algorithms: tuple[dkim.Algorithm, ...] = ("rsa-sha256", "ed25519-sha256")
    keys = [
        dkim.SigningKey(selector=algorithm[:3], algorithm=algorithm, private=dkim.generate_key(algorithm))
        for algorithm in algorithms
    ]
    signer = dkim.Signer("example.test", keys)
    headers = b"From: <a@example.test>\r\nTo: <b@example.test>\r\nSubject: Hello\r\n"
    return lambda: signer.sign(headers, [b"It will arrive on Thursday.\r\n" * 100], time_ms=0)


class PhaseResult(msgspec.Struct, frozen=True):
    per_s: float
    cpu_us: float


def _measure_calls(work: Callable[[], object], seconds: float) -> tuple[int, float]:
    """Call `work` for `seconds`; return the number of calls and their CPU time in seconds."""
    time, before = asyncio.get_running_loop().time, os.times()
    deadline, count = time() + seconds, 0
    while time() < deadline or not count:
        work()
        count += 1
    after = os.times()
    return count, max(0.01, after.user + after.system - before.user - before.system)


async def _measure_accepting(pid: int, port: int, seconds: float) -> PhaseResult:
    """Measure accepting: each connection sends its next request when the previous one is answered.

    SIGTERM takes effect between two rounds.
    """
    rounds, load = LoadRounds(LoadTarget(ports=[port], pids=[pid]), CONNECTIONS, [request(TOKEN, MAIL)]), Load()
    for target, duration in ((Load(), WARM_UP_S), (load, seconds)):
        while target.seconds < duration:
            rounds.run(ROUND_S, target)
            await asyncio.sleep(0)
    if load.wrong:
        raise click.ClickException(f"the service responded with {load.wrong.partition(END.decode())[2][:200]}")
    return PhaseResult(load.answers / load.seconds, load.cpu_s * 1e6 / load.answers)


async def _measure_delivery(process: "subprocess.Popen[str]", sink: Sink, seconds: float) -> PhaseResult:
    time = asyncio.get_running_loop().time
    deadline = time() + FIRST_MAIL_S
    while not sink.count and time() < deadline:
        await asyncio.sleep(0.05)
    await asyncio.sleep(WARM_UP_S)
    before, cpu_before, started = sink.count, cpu_s([process.pid]), time()
    last, last_at = before, started
    while time() < started + seconds:
        await asyncio.sleep(0.1)
        if sink.count > last:
            last, last_at = sink.count, time()
        elif last > before and time() - last_at > EMPTY_S:
            break
    count = last - before
    if not count:
        raise click.ClickException("no mail was delivered: measure longer with --seconds")
    return PhaseResult(count / (last_at - started), (cpu_s([process.pid]) - cpu_before) * 1e6 / count)


@asynccontextmanager
async def _service(settings: Settings, role: str) -> AsyncIterator[tuple["subprocess.Popen[str]", int]]:
    """Run a service process with `role`; yield the process and its HTTP port (0 if it has none)."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith((VARIABLE_PREFIX, "OTEL_"))}
    environment |= {
        f"{VARIABLE_PREFIX}DATABASE": settings.database,
        f"{VARIABLE_PREFIX}DATA": str(settings.data),
        f"{VARIABLE_PREFIX}STOP_DELAY_MS": "0",
        f"{VARIABLE_PREFIX}PROCESSES": "1",
        "PYTHONUNBUFFERED": "1",
    }
    command = [*COMMAND, "serve", "--role", role, "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout
        line = await asyncio.to_thread(process.stdout.readline)
        if not line.startswith("Heliograph is "):
            raise click.ClickException(f"the service did not start: {line.strip() or 'no output'}")
        _, separator, rest = line.partition("http://127.0.0.1:")
        yield process, int(rest.split()[0]) if separator else 0
    finally:
        process.terminate()
        try:
            async with asyncio.timeout(10):
                await asyncio.to_thread(process.wait)
        except TimeoutError:
            process.kill()
            process.wait()


if __name__ == "__main__":
    capacity()
