"""`heliograph doctor`: checks what the service depends on, changes nothing, and says how to fix each."""

import asyncio
import base64
import binascii
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import click
import dns.exception
import dns.resolver
import msgspec

from heliograph.app import CARRIERS
from heliograph.cli.options import DATABASE_ERRORS, FLAGS, shown, with_settings
from heliograph.cli.send import open_url
from heliograph.clock import Clock
from heliograph.opening import examine as look_into
from heliograph.opening import make_secrets, schema_version, secret_fault, sqlite_path
from heliograph.rules.address import parse_address
from heliograph.rules.setup.file import CHANNELS
from heliograph.rules.setup.snapshot import Setup
from heliograph.server import CannotListen, listen
from heliograph.settings import Settings
from heliograph.storage.engine.database import reason_of
from heliograph.storage.engine.migrate import NewerSchema

PROBE_S = 2
DISK_LOW = 1 << 30  # bytes
DISK_EMPTY = 100 << 20
OTHERS = 0o077  # bits of a mode that let in anybody but the owner
OLDEST_YEAR = 2024  # a clock before this was never set

LOOKS = {"ok": "green", "warn": "yellow", "FAIL": "red"}


class Finding(msgspec.Struct, frozen=True):
    check: str
    level: Literal["ok", "warn", "FAIL"]
    message: str
    fix: str | None = None


@click.command()
@with_settings(*FLAGS)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_context
def doctor(context: click.Context, settings: Settings, as_json: bool) -> None:
    """Check database, data folder, access, disk, secret, clock, DNS, carriers and port.

    Changes nothing and can run beside the service. Exit code 1 when something must be fixed.

    \b
    heliograph doctor
    heliograph doctor --database postgresql://heliograph@db/heliograph --json
    """
    findings = []
    for finding in examine(settings):
        findings.append(finding)
        if not as_json:
            _tell(finding)
    failed = any(finding.level == "FAIL" for finding in findings)
    if as_json:
        click.echo(msgspec.json.encode({"ok": not failed, "findings": findings}))
    context.exit(1 if failed else 0)


def _tell(finding: Finding) -> None:
    level = click.style(finding.level.ljust(4), fg=LOOKS[finding.level])
    click.echo(f"{level}  {finding.check}: {finding.message}" + (f" → {finding.fix}" if finding.fix else ""))


def examine(settings: Settings) -> Iterator[Finding]:
    setup, found = asyncio.run(_database(settings))
    yield from found
    yield _folder(settings.data)
    yield from _open_to_others(settings)
    yield _disk(settings.data)
    secret = _secret(settings)
    if secret.level != "ok" or all(finding.check != secret.check for finding in found):
        yield secret
    yield _clock(Clock().now())
    yield _dns()
    if setup is not None:
        yield from carriers(setup)
        yield from platform_sender(setup)
    yield _port(settings)


async def _database(settings: Settings) -> tuple[Setup | None, list[Finding]]:
    """What was found, and the setup when it can be read."""
    name = shown(settings.database)
    path = sqlite_path(settings)
    if path is not None and not path.exists():
        fix = "heliograph migrate makes it, and so does the first start"
        return None, [Finding("database", "warn", f"{name} does not exist yet", fix)]
    try:
        schema = await schema_version(settings)
        if schema.found < schema.needed:
            found = Finding(
                "database",
                "warn",
                f"{name} has schema {schema.found}, this version needs {schema.needed}",
                "heliograph migrate, or start the service",
            )
            return None, [found]
        examination = await look_into(settings)
    except NewerSchema as error:
        return None, [Finding("database", "FAIL", str(error), "install that version, or restore a backup")]
    except (*DATABASE_ERRORS, OSError) as error:
        fix = "start the database, correct the URL, or give this user the right to write"
        return None, [Finding("database", "FAIL", f"{name}: {reason_of(error)}", fix)]
    findings = [Finding("database", "ok", f"{name} can be read and written, schema {schema.found}")]
    with suppress(OSError, ValueError):  # a file that cannot be read is a separate finding
        if fault := secret_fault(make_secrets(settings), examination.secret):
            findings.append(Finding("secret", "FAIL", fault))
    return examination.setup, findings


def _folder(data: Path) -> Finding:
    if not data.exists():
        return Finding("data folder", "ok", f"{data} does not exist yet and is made at the first start")
    if not data.is_dir() or not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        fix = "give it to the user that runs the service, or choose another with --data"
        return Finding("data folder", "FAIL", f"{data} is not a folder that can be written", fix)
    return Finding("data folder", "ok", f"{data} can be written")


def _open_to_others(settings: Settings) -> Iterator[Finding]:
    """Messages are in the database and in the attachments as they were sent. Its log has the database's mode."""
    database = sqlite_path(settings)
    for path, mode in ((settings.data, "700"), *([(database, "600")] if database else [])):
        if path.exists() and (found := stat.S_IMODE(path.stat().st_mode)) & OTHERS:
            yield Finding("access", "FAIL", f"{path} has mode {found:04o}: others can read it", f"chmod {mode} {path}")


def _disk(data: Path) -> Finding:
    there = next(folder for folder in (data.absolute(), *data.absolute().parents) if folder.exists())
    free = shutil.disk_usage(there).free
    level: Literal["ok", "warn", "FAIL"] = "ok" if free >= DISK_LOW else "warn" if free >= DISK_EMPTY else "FAIL"
    fix = None if level == "ok" else "make room, or move --data and the database to a larger disk"
    return Finding("disk", level, f"{free / DISK_LOW:.1f} GiB free at {there}", fix)


def _secret(settings: Settings) -> Finding:
    if settings.secret is not None:
        return Finding("secret", "ok", "given by the settings")
    path = settings.data / "secret"
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        key = base64.b64decode(path.read_text().strip(), validate=True)
    except FileNotFoundError:
        return Finding("secret", "ok", f"{path} does not exist yet and is made at the first start")
    except (OSError, binascii.Error, ValueError):
        key = b""
    if len(key) != 32:
        return Finding("secret", "FAIL", f"{path} cannot be read as 32 bytes in base64", "restore it from a backup")
    if mode & OTHERS:
        return Finding("secret", "FAIL", f"{path} has mode {mode:04o}: others can read it", f"chmod 600 {path}")
    return Finding("secret", "ok", f"{path} is there, mode {mode:04o}")


def _clock(now: int) -> Finding:
    today = datetime.fromtimestamp(now / 1000, UTC)
    if today.year < OLDEST_YEAR:
        return Finding("clock", "FAIL", f"it says {today:%Y-%m-%d}", "set the clock, and keep it with NTP")
    return Finding("clock", "ok", f"{today:%Y-%m-%d %H:%M:%S} UTC")


def _dns() -> Finding:
    try:
        servers = dns.resolver.Resolver().nameservers
    except dns.exception.DNSException:
        servers = []
    if not servers:
        fix = "name a server in /etc/resolv.conf; only the simulator works without"
        return Finding("dns", "warn", "no name server is configured", fix)
    return Finding("dns", "ok", f"name servers: {', '.join(map(str, servers))}")


def carriers(setup: Setup) -> Iterator[Finding]:
    for channel in CHANNELS:
        configured = [carrier for carrier in setup.carriers if carrier.channel == channel]
        enabled = [carrier for carrier in configured if carrier.enabled]
        if configured and not enabled:
            fix = "enable one with heliograph apply"
            what = "emails are accepted and wait, deferred" if channel == "email" else "sends are refused with 503"
            yield Finding("carriers", "FAIL", f"every {channel} carrier is disabled: {what}", fix)
        elif not enabled:
            yield Finding(
                "carriers",
                "ok",
                f"{channel} is served by the built-in simulator: nothing leaves this machine",
            )
        for carrier in enabled:
            if (channel, carrier.kind) in CARRIERS:
                yield Finding("carriers", "ok", f"{channel} goes to {carrier.id} ({carrier.kind})")
            else:
                fix = "install a version that has it, or disable the carrier with heliograph apply"
                message = f"{carrier.id}: {carrier.kind!r} is not built into this version"
                yield Finding("carriers", "FAIL", message, fix)
    if setup.platform.paused:
        why = setup.platform.paused_reason or "by an operator"
        yield Finding("delivery", "warn", f"paused ({why}): messages wait as queued", "heliograph resume")


def platform_sender(setup: Setup) -> Iterator[Finding]:
    """Only where its mail leaves this machine."""
    address = parse_address(setup.platform.sender)
    leaves = any(c.channel == "email" and c.enabled and c.kind != "simulator" for c in setup.carriers)
    if address is None or not leaves:
        return
    domain = setup.domain_named(address.domain)
    if domain and domain.verified:
        yield Finding("sender", "ok", f"{address.given}: the DNS records of {address.domain} are there")
    else:
        message = f"{address.given}: the DNS records of {address.domain} were not found"
        fix = (
            f"heliograph domain dns {address.domain} prints them, heliograph domain check {address.domain} looks again"
        )
        yield Finding("sender", "warn", message, fix)


def _port(settings: Settings) -> Finding:
    where = f"{settings.host}:{settings.port}"
    try:
        listen(settings).close()
    except CannotListen as error:
        try:
            with open_url(f"http://{where}/healthz", timeout=PROBE_S):
                return Finding("port", "ok", f"the service is running on {where}")
        except (OSError, ValueError):
            return Finding("port", "FAIL", str(error))
    return Finding("port", "ok", f"{where} is free")
