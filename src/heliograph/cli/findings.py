"""What `doctor` and `preflight` share: a finding with its fix, how findings are told, and checks of the machine."""

import os
import shutil
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import click
import msgspec

from heliograph.cli.send import open_url
from heliograph.datafolder import kept_instance
from heliograph.opening import make_objects
from heliograph.rules.instance import name_of_instance
from heliograph.server import CannotListen, listen
from heliograph.settings import BadSetting, Settings
from heliograph.storage.engine.database import StoreUnavailable
from heliograph.storage.engine.objects import Objects

PROBE_S = 2
DISK_LOW = 1 << 30  # bytes
DISK_EMPTY = 100 << 20
OLDEST_YEAR = 2024  # a clock before this was never set

LOOKS = {"ok": "green", "warn": "yellow", "FAIL": "red"}

Level = Literal["ok", "warn", "FAIL"]


class Finding(msgspec.Struct, frozen=True):
    check: str
    level: Level
    message: str
    fix: str | None = None


def tell(context: click.Context, findings: Iterable[Finding], as_json: bool) -> None:
    """Each when it is found; exit code 1 when something must be fixed."""
    told = []
    for finding in findings:
        told.append(finding)
        if not as_json:
            level = click.style(finding.level.ljust(4), fg=LOOKS[finding.level])
            click.echo(f"{level}  {finding.check}: {finding.message}" + (f" → {finding.fix}" if finding.fix else ""))
    failed = any(finding.level == "FAIL" for finding in told)
    if as_json:
        click.echo(msgspec.json.encode({"ok": not failed, "findings": told}))
    context.exit(1 if failed else 0)


def folder(data: Path) -> Finding:
    if not data.exists():
        return Finding("data folder", "ok", f"{data} does not exist yet and is made at the first start")
    if not data.is_dir() or not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        fix = "give it to the user that runs the service, or choose another with --data"
        return Finding("data folder", "FAIL", f"{data} is not a folder that can be written", fix)
    return Finding("data folder", "ok", f"{data} can be written")


def there(path: Path) -> Path:
    """It, or the nearest folder above that exists."""
    return next(one for one in (path.absolute(), *path.absolute().parents) if one.exists())


def disk(data: Path) -> Finding:
    free = shutil.disk_usage(there(data)).free
    level: Level = "ok" if free >= DISK_LOW else "warn" if free >= DISK_EMPTY else "FAIL"
    fix = None if level == "ok" else "make room, or move --data and the database to a larger disk"
    return Finding("disk", level, f"{free / DISK_LOW:.1f} GiB free at {there(data)}", fix)


async def attachments(settings: Settings, probe: Callable[[Objects], Awaitable[None]]) -> list[Finding]:
    """Where they are kept, when that is a store of objects."""
    try:
        if (objects := make_objects(settings)) is None:
            return []
        await probe(objects)
    except (BadSetting, StoreUnavailable) as error:
        fix = "correct HELIOGRAPH_ATTACHMENTS and HELIOGRAPH_S3_…, or let this machine reach the store"
        return [Finding("attachments", "FAIL", str(error), fix)]
    return [Finding("attachments", "ok", f"{settings.attachments} answers")]


def clock(now: int) -> Finding:
    today = datetime.fromtimestamp(now / 1000, UTC)
    if today.year < OLDEST_YEAR:
        return Finding("clock", "FAIL", f"it says {today:%Y-%m-%d}", "set the clock, and keep it with NTP")
    return Finding("clock", "ok", f"{today:%Y-%m-%d %H:%M:%S} UTC")


def port(settings: Settings) -> Finding:
    try:
        listen(settings).close()
    except CannotListen as error:
        found = asked(settings, "/healthz")
        if found is None:
            return Finding("port", "FAIL", str(error))
        ours = kept_instance(settings.data)
        if found and ours and found != name_of_instance(ours):
            fix = "stop it, choose another address with --listen, or give this command its --data"
            return Finding("port", "FAIL", f"the service on {settings.listen} is not that of {settings.data}", fix)
        return Finding("port", "ok", f"the service is running on {settings.listen}")
    return Finding("port", "ok", f"{settings.listen} is free")


def answers(settings: Settings, path: str) -> bool:
    """Whether a service on the address of these settings says that all is well."""
    return asked(settings, path) is not None


def asked(settings: Settings, path: str) -> str | None:
    """The name of the instance that says so, empty where it has none; None: nobody does."""
    try:
        with open_url(f"http://{settings.listen}{path}", timeout=PROBE_S) as answer:
            return str(answer.headers.get("heliograph-instance", ""))
    except (OSError, ValueError):
        return None
