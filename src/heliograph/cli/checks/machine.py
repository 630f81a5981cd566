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
from heliograph.cli.send import open_url
from heliograph.data_folder import kept_instance
from heliograph.domain.operations.instance_name import name_of_instance
from heliograph.runtime.clock import Clock
from heliograph.server import HTTP, CannotListen, bind, listen
from heliograph.settings import Settings

PROBE_S = 2
DISK_LOW = 1 << 30  # bytes
DISK_EMPTY = 100 << 20
OLDEST_YEAR = 2024  # a clock before this year was never set
SYNCS = 50
SYNCS_LOW = 100  # syncs per second; each batch of accepted messages waits for one sync
AT_REST_MB = 128  # memory of an idle process (docs/operations.md, memory)
TIMES_BODY = 3
TIME_ERROR = 5  # return value of adjtimex(2): the clock is not synchronized


def folder(data: Path) -> Finding:
    if not data.exists():
        return ok(f"{data} does not exist yet and is made at the first start")
    if not data.is_dir() or not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        return fail(f"{data} is not a folder that can be written")
    return ok(f"{data} can be written")


def there(path: Path) -> Path:
    """Return `path`, or its nearest existing parent folder."""
    return next(one for one in (path.absolute(), *path.absolute().parents) if one.exists())


def disk(data: Path) -> Finding:
    free = shutil.disk_usage(there(data)).free
    level = ok if free >= DISK_LOW else warn if free >= DISK_EMPTY else fail
    return level(f"{free / DISK_LOW:.1f} GiB free at {there(data)}")


def sync_rate(place: Path) -> Finding:
    counter = Clock()
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix="heliograph-preflight-") as file:
            began = counter.count()
            for _ in range(SYNCS):
                file.write(bytes(4096))
                file.flush()
                os.fdatasync(file.fileno())
            each_ms = max(counter.count() - began, 1) / SYNCS
    except OSError as error:
        fix = "give it to the user that runs the service, or choose another folder with --data"
        return fail(f"{place}: {error.strerror}", fix)
    said = f"{1000 / each_ms:,.0f} syncs a second at {place}"
    if 1000 / each_ms >= SYNCS_LOW:
        return ok(said)
    return warn(f"{said}: an answer takes {each_ms:.0f} ms or more")


def available_mb() -> int:
    """Return the available memory in MB, or the control group's limit if that is lower."""
    free = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    found = [int(free.split()[1]) >> 10]
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # the file does not exist, or contains "max"
            found.append(int(Path(limit).read_text()) >> 20)
    return min(found)


def memory(settings: Settings, available: int) -> Finding:
    least = settings.processes * AT_REST_MB
    enough = least + settings.processes * TIMES_BODY * settings.body_memory_mb
    said = f"{available} MB for {settings.processes} process{'' if settings.processes == 1 else 'es'}"
    if available >= enough:
        return ok(said)
    return (warn if available >= least else fail)(f"{said}, which may need {enough} MB")


def clock(now: int) -> Finding:
    today = datetime.fromtimestamp(now / 1000, UTC)
    if today.year < OLDEST_YEAR:
        return fail(f"it says {today:%Y-%m-%d}")
    return ok(f"{today:%Y-%m-%d %H:%M:%S} UTC")


def clock_state() -> int:
    return int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(256)))


def kept_clock(state: int) -> Finding:
    if state != TIME_ERROR:
        return ok("it is kept by NTP")
    return warn("nothing keeps it: codes, signatures and several processes need the time")


def port(settings: Settings) -> Finding:
    try:
        listen(settings).close()
    except CannotListen as error:
        found = asked(settings, "/healthz")
        if found is None:
            return fail(str(error))
        ours = kept_instance(settings.data)
        if found and ours and found != name_of_instance(ours):
            fix = "stop it, choose another address with --listen, or give this command its --data"
            return fail(f"the service on {settings.listen} is not that of {settings.data}", fix)
        return ok(f"the service is running on {settings.listen}")
    return ok(f"{settings.listen} is free")


def other_ports(site: Site) -> Iterator[Finding]:
    """Check that every port except HTTP is free; a running service may already listen on the HTTP port."""
    if site.settings.bounce_listen is None:
        fix = "set HELIOGRAPH_BOUNCE_LISTEN, for example to 0.0.0.0:25, to learn of them"
        yield warn("bounces and complaints that come by mail are not received", fix)
    try:
        sockets = bind(msgspec.structs.replace(site.settings, port=0), "all")
    except CannotListen as error:
        yield fail(f"{error} Ports below 1024 need CAP_NET_BIND_SERVICE.")
        return
    for purpose, bound in sockets:
        if purpose != HTTP:
            yield ok(f"{purpose}: {bound.getsockname()[1]} is free")
        bound.close()


def asked(settings: Settings, path: str) -> str | None:
    """GET `path` from the running service; return its instance name, empty if not sent, None if the request fails."""
    try:
        with open_url(f"http://{settings.listen}{path}", timeout=PROBE_S) as answer:
            return str(answer.headers.get("heliograph-instance", ""))
    except (OSError, ValueError):
        return None
