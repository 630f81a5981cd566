"""Checks of the machine: folder, disk, memory, clock and ports."""

import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from heliograph.cli.checks.findings import Finding, Site, fail, ok, warn
from heliograph.cli.service_client import open_url
from heliograph.data_folder import read_instance
from heliograph.domain.operations.instance_name import public_instance_name
from heliograph.runtime.clock import Clock
from heliograph.server import HTTP, CannotListen, bind, listen
from heliograph.settings import Settings

REQUEST_TIMEOUT_S = 2  # timeout of a request to the running service
DISK_LOW = 1 << 30  # bytes free below which a warning is given
DISK_EMPTY = 100 << 20  # bytes free below which the check fails
OLDEST_YEAR = 2024  # a clock before this year has never been set
SYNC_COUNT = 50  # syncs per measurement
# Syncs per second below which a warning is given; each batch of accepted messages waits for one sync
SYNC_RATE_LOW = 100
IDLE_PROCESS_MB = 128  # memory of an idle process (docs/operations.md, memory)
BODY_MEMORY_FACTOR = 3  # a body may be in memory three times at once (web/budget.py)
CLOCK_UNSYNCHRONIZED = 5  # result of adjtimex(2) if the clock is not synchronized


def check_folder(data: Path) -> Finding:
    if not data.exists():
        return ok(f"{data} does not exist yet; it is created at the first start")
    if not data.is_dir() or not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        return fail(f"{data} is not a writable folder")
    return ok(f"{data} is writable")


def nearest_existing(path: Path) -> Path:
    """Return `path`, or its nearest existing parent folder."""
    return next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())


def check_disk(data: Path) -> Finding:
    free_bytes = shutil.disk_usage(nearest_existing(data)).free
    level = ok if free_bytes >= DISK_LOW else warn if free_bytes >= DISK_EMPTY else fail
    return level(f"{free_bytes / DISK_LOW:.1f} GiB free at {nearest_existing(data)}")


def check_sync_rate(folder: Path) -> Finding:
    timer = Clock()
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix="heliograph-preflight-") as file:
            started_ms = timer.monotonic_ms()
            for _ in range(SYNC_COUNT):
                file.write(bytes(4096))
                file.flush()
                os.fdatasync(file.fileno())
            sync_ms = max(timer.monotonic_ms() - started_ms, 1) / SYNC_COUNT
    except OSError as error:
        fix = "make it writable for the service's user, or choose another folder with --data"
        return fail(f"{folder}: {error.strerror}", fix)
    text = f"{1000 / sync_ms:,.0f} syncs a second at {folder}"
    if 1000 / sync_ms >= SYNC_RATE_LOW:
        return ok(text)
    return warn(f"{text}: each response takes at least {sync_ms:.0f} ms")


def available_mb() -> int:
    """Return the available memory in MB; at most the control group's limit."""
    mem_available = next(
        line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable")
    )
    limits = [int(mem_available.split()[1]) >> 10]
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # the file does not exist, or contains "max"
            limits.append(int(Path(limit).read_text()) >> 20)
    return min(limits)


def check_memory(settings: Settings, available: int) -> Finding:
    minimum_mb = settings.processes * IDLE_PROCESS_MB
    recommended_mb = minimum_mb + settings.processes * BODY_MEMORY_FACTOR * settings.body_memory_mb
    text = f"{available} MB for {settings.processes} process{'' if settings.processes == 1 else 'es'}"
    if available >= recommended_mb:
        return ok(text)
    return (warn if available >= minimum_mb else fail)(f"{text}, which may need up to {recommended_mb} MB")


def check_clock(now: int) -> Finding:
    today = datetime.fromtimestamp(now / 1000, UTC)
    if today.year < OLDEST_YEAR:
        return fail(f"the clock is set to {today:%Y-%m-%d}")
    return ok(f"{today:%Y-%m-%d %H:%M:%S} UTC")


def clock_state() -> int:
    return int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(256)))


def check_ntp(state: int) -> Finding:
    if state != CLOCK_UNSYNCHRONIZED:
        return ok("synchronized by NTP")
    return warn("the clock is not synchronized: codes, signatures and multiple processes need the correct time")


def check_http_port(settings: Settings) -> Finding:
    try:
        listen(settings).close()
    except CannotListen as error:
        running_instance = get_instance_name(settings, "/healthz")
        if running_instance is None:
            return fail(str(error))
        own_id = read_instance(settings.data)
        if running_instance and own_id and running_instance != public_instance_name(own_id):
            fix = "stop that service, choose another address with --listen, or use its --data"
            return fail(f"the service on {settings.listen} does not use {settings.data}", fix)
        return ok(f"the service is running on {settings.listen}")
    return ok(f"{settings.listen} is free")


def check_other_ports(site: Site) -> Iterator[Finding]:
    """Check that all ports except that of HTTP are free; a running service may already listen on that one."""
    if site.settings.bounce_listen is None:
        fix = "set HELIOGRAPH_BOUNCE_LISTEN, for example to 0.0.0.0:25, to receive them"
        yield warn("bounces and complaints sent by mail are not received", fix)
    try:
        sockets = bind(msgspec.structs.replace(site.settings, port=0), "all")
    except CannotListen as error:
        yield fail(f"{error} Ports below 1024 need CAP_NET_BIND_SERVICE.")
        return
    for purpose, sock in sockets:
        if purpose != HTTP:
            yield ok(f"{purpose}: {sock.getsockname()[1]} is free")
        sock.close()


def get_instance_name(settings: Settings, path: str) -> str | None:
    """GET `path` from the running service and return its instance name: empty if not sent, None if the GET failed."""
    try:
        with open_url(f"http://{settings.listen}{path}", timeout=REQUEST_TIMEOUT_S) as response:
            return str(response.headers.get("heliograph-instance", ""))
    except (OSError, ValueError):
        return None
