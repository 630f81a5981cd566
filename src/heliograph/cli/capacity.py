"""`heliograph capacity`: benchmarks this machine and estimates how many messages a day it can send."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import click
import msgspec

from heliograph.app import CARRIERS, make_signature
from heliograph.bootstrap import open_store
from heliograph.cli.apply import apply_file
from heliograph.cli.checks.machine import there
from heliograph.cli.load import END, Load, Loaded, Turns, cpu_s, request
from heliograph.cli.options import AS_JSON, clear_mistakes, with_settings
from heliograph.cli.sink import Sink
from heliograph.domain.operations.capacity import PEAK_SHARE, SPARE, Capacity, Measured, judge
from heliograph.domain.setup.keys import make_token
from heliograph.domain.setup.setup_file import read_setup_file
from heliograph.runtime.processes import COMMAND
from heliograph.settings import PREFIX, Settings

CONNECTIONS = 32
TURN_S = 0.25
TURNS = {"sync": 0.1, "signing": 0.1, "accepting": 0.35, "hand-over": 0.45}  # share of the measuring time per phase
FIRST_S = 30.0  # maximum wait for the first mail; the domain's DKIM keys are generated before it
GONE_S = 0.5  # the queue counts as empty after this long without another mail
AHEAD_S = 1.0  # warm-up of a process before measuring: connections, caches, keys
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
    "to": "somebody@example.test",
    "subject": "Your order is on its way",
    "html": f"<p>{'It will arrive on Thursday. ' * 15}</p>",
    "text": "It will arrive on Thursday. " * 15,
}


@click.command()
@with_settings("data")
@click.option("--seconds", type=click.IntRange(5, 600), default=20, show_default=True, help="How long to measure.")
@AS_JSON
def capacity(settings: Settings, seconds: int, as_json: bool) -> None:
    """Measure this machine for about 20 seconds, and say how many messages a day it carries and what limits it.

    It syncs files, signs mails, and runs a real service on a new SQLite database in a temporary folder beside --data:
    it accepts emails over HTTP, and a worker hands them over to a mail server on loopback that keeps nothing. Your own
    database is not touched, and nothing leaves the machine. Other work on it makes the figures smaller.

    \b
    heliograph capacity
    heliograph capacity --data /srv/heliograph --json
    """
    with (
        clear_mistakes(settings),
        _ending(),
        tempfile.TemporaryDirectory(prefix="heliograph-capacity-", dir=there(settings.data)) as folder,
    ):
        found = asyncio.run(measure(Path(folder), seconds, (lambda _: None) if as_json else _tell))
    told = judge(found)
    if as_json:
        click.echo(msgspec.json.encode({"cores": len(os.sched_getaffinity(0)), "measured": found, "capacity": told}))
    else:
        click.echo("\n".join(report(found, told)))


@contextmanager
def _ending() -> Iterator[None]:
    """Exit on SIGTERM as on Ctrl-C, after the measured service was stopped and its folder deleted."""
    try:
        yield
    except asyncio.CancelledError:
        sys.exit(128 + signal.SIGTERM)


def _tell(line: str) -> None:
    click.echo(f"Measuring {line} …", err=True)


def report(found: Measured, told: Capacity) -> list[str]:
    return [
        f"disk sync        {found.syncs_per_s:>10,.0f} a second",
        f"signing          {1e6 / found.signing_us:>10,.0f} mails a second on a core, RSA and Ed25519",
        _on_a_core("accepting", found.accept_us, found.accepted_per_s),
        _on_a_core("hand-over", found.hand_over_us, found.handed_over_per_s),
        "",
        f"One process on SQLite carries {told.per_s:,} emails a second, {told.per_hour:,} an hour, with "
        f"{1 - SPARE:.0%} to spare.",
        f"That is {told.per_day:,} a day when the busiest hour has one in {PEAK_SHARE} of them "
        f"({told.per_day_evenly:,} if they come evenly).",
        f"What limits it: {told.limit}. To carry more: {told.advice}.",
    ]


def _on_a_core(what: str, cpu_us: float, came: float) -> str:
    return f"{what:<17}{1e6 / cpu_us:>10,.0f} a second on a core ({came:,.0f} came through)"


async def measure(folder: Path, seconds: float, tell: Callable[[str], None]) -> Measured:
    task = asyncio.current_task()
    assert task
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    share = {name: part * seconds for name, part in TURNS.items()}
    tell("disk sync")
    with tempfile.NamedTemporaryFile(dir=folder) as file:

        def sync() -> None:
            file.write(bytes(4096))
            file.flush()
            os.fdatasync(file.fileno())

        syncs = _repeat(sync, share["sync"])[0] / share["sync"]
    tell("signing")
    signed, cpu = _repeat(make_signature(), share["signing"])
    sink = Sink()
    server = await sink.listen()
    try:
        settings = Settings(database=f"sqlite:///{folder / 'heliograph.db'}", data=folder / "data")
        text = SETUP.format(port=server.sockets[0].getsockname()[1], token=TOKEN)
        async with open_store(settings) as store:
            await apply_file(store, settings, read_setup_file(text, {}, name="capacity", runnable=CARRIERS))
        tell("accepting")
        async with _service(settings, "api") as (process, port):
            accepted = await _accept(process.pid, port, share["accepting"])
        tell("hand-over")
        async with _service(settings, "worker") as (process, _):
            handed = await _hand_over(process, sink, share["hand-over"])
    finally:
        server.close()
    return Measured(
        syncs_per_s=syncs,
        signing_us=cpu * 1e6 / signed,
        accept_us=accepted.cpu_us,
        accepted_per_s=accepted.per_s,
        hand_over_us=handed.cpu_us,
        handed_over_per_s=handed.per_s,
    )


class Work(msgspec.Struct, frozen=True):
    per_s: float
    cpu_us: float


def _repeat(work: Callable[[], object], seconds: float) -> tuple[int, float]:
    """Call `work` for `seconds`; return the number of calls and their CPU time in seconds."""
    time, before = asyncio.get_running_loop().time, os.times()
    ends, count = time() + seconds, 0
    while time() < ends or not count:
        work()
        count += 1
    after = os.times()
    return count, max(0.01, after.user + after.system - before.user - before.system)


async def _accept(pid: int, port: int, seconds: float) -> Work:
    """Measure accepting: each connection sends its next request when the previous one is answered.

    SIGTERM takes effect between two rounds.
    """
    turns, load = Turns(Loaded(ports=[port], pids=[pid]), CONNECTIONS, [request(TOKEN, MAIL)]), Load()
    for into, spent in ((Load(), AHEAD_S), (load, seconds)):
        while into.seconds < spent:
            turns.take(TURN_S, into)
            await asyncio.sleep(0)
    if load.wrong:
        raise click.ClickException(f"the service answered {load.wrong.partition(END.decode())[2][:200]}")
    return Work(load.answers / load.seconds, load.cpu_s * 1e6 / load.answers)


async def _hand_over(process: "subprocess.Popen[str]", sink: Sink, seconds: float) -> Work:
    time = asyncio.get_running_loop().time
    ends = time() + FIRST_S
    while not sink.count and time() < ends:
        await asyncio.sleep(0.05)
    await asyncio.sleep(AHEAD_S)
    before, cpu, at = sink.count, cpu_s([process.pid]), time()
    last, last_at = before, at
    while time() < at + seconds:
        await asyncio.sleep(0.1)
        if sink.count > last:
            last, last_at = sink.count, time()
        elif last > before and time() - last_at > GONE_S:
            break
    count = last - before
    if not count:
        raise click.ClickException("nothing was handed over: measure for longer with --seconds")
    return Work(count / (last_at - at), (cpu_s([process.pid]) - cpu) * 1e6 / count)


@asynccontextmanager
async def _service(settings: Settings, role: str) -> AsyncIterator[tuple["subprocess.Popen[str]", int]]:
    """Run a service process with `role`; yield the process and its HTTP port (0 if it has none)."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith((PREFIX, "OTEL_"))}
    environment |= {
        f"{PREFIX}DATABASE": settings.database,
        f"{PREFIX}DATA": str(settings.data),
        f"{PREFIX}STOP_DELAY_MS": "0",
        f"{PREFIX}PROCESSES": "1",
        "PYTHONUNBUFFERED": "1",
    }
    command = [*COMMAND, "serve", "--role", role, "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout
        line = await asyncio.to_thread(process.stdout.readline)
        if not line.startswith("Heliograph is "):
            raise click.ClickException(f"the service did not start: {line.strip() or 'it said nothing'}")
        _, found, rest = line.partition("http://127.0.0.1:")
        yield process, int(rest.split()[0]) if found else 0
    finally:
        process.terminate()
        try:
            await asyncio.wait_for(asyncio.to_thread(process.wait), 10)
        except TimeoutError:
            process.kill()
            process.wait()
