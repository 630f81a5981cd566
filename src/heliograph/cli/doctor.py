"""`heliograph doctor`: checks what the service depends on, changes nothing, and says how to fix each."""

import asyncio
import base64
import binascii
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress

import click
import dns.exception
import dns.resolver

from heliograph.app import CARRIERS, make_certificate
from heliograph.cli.findings import Finding, answers, attachments, clock, disk, folder, port, tell
from heliograph.cli.options import AS_JSON, DATABASE_ERRORS, FLAGS, shown, with_settings
from heliograph.datafolder import LOST, Secrets
from heliograph.opening import (
    MEND_LOG,
    log_fault,
    log_size,
    make_secrets,
    schema_version,
    secret_fault,
    sqlite_path,
)
from heliograph.opening import examine as look_into
from heliograph.rules.client_address import is_inside
from heliograph.rules.delivery.callbacks import calls_back, is_silent
from heliograph.rules.ids import timestamp
from heliograph.rules.mail.address import parse_address
from heliograph.rules.setup.records import CHANNELS
from heliograph.rules.setup.snapshot import Setup
from heliograph.runtime.clock import Clock
from heliograph.settings import BadSetting, Settings
from heliograph.storage.audit import Chain
from heliograph.storage.carrier_use import RecentUse
from heliograph.storage.engine.database import reason_of
from heliograph.storage.engine.migrate import ForeignSchema
from heliograph.storage.engine.objects import Objects
from heliograph.storage.examination import Examination

OTHERS = 0o077  # bits of a mode that let in anybody but the owner


@click.command()
@with_settings(*FLAGS)
@click.option("--ready", is_flag=True, help="Only ask the service on --listen whether it is ready.")
@AS_JSON
@click.pass_context
def doctor(context: click.Context, settings: Settings, ready: bool, as_json: bool) -> None:
    """Check database, audit log, data folder, attachments, access, disk, secret, clock, DNS, carriers, port and SMTP.

    Changes nothing and can run beside the service. Exit code 1 when something must be fixed.

    \b
    heliograph doctor
    heliograph doctor --database postgresql://heliograph@db/heliograph --json
    heliograph doctor --ready
    """
    tell(context, [is_ready(settings)] if ready else examine(settings), as_json)


def is_ready(settings: Settings) -> Finding:
    """For the health check of a container."""
    if answers(settings, "/readyz"):
        return Finding("ready", "ok", f"the service on {settings.listen} takes requests")
    return Finding("ready", "FAIL", f"the service on {settings.listen} takes no requests", "its log says why")


def examine(settings: Settings) -> Iterator[Finding]:
    seen, found = asyncio.run(_database(settings))
    yield from found
    yield folder(settings.data)
    yield from asyncio.run(attachments(settings, _list_objects))
    yield from _log(settings)
    yield from _open_to_others(settings)
    yield disk(settings.data)
    secret = _secret(settings)
    if secret.level != "ok" or all(finding.check != secret.check for finding in found):
        yield secret
    yield clock(Clock().now())
    yield _dns()
    if seen is not None:
        yield from carriers(seen.setup)
        yield from callbacks(seen.setup, seen.callbacks, seen.uses, Clock().now())
        yield from platform_sender(seen.setup)
    yield port(settings)
    yield from _submission(settings)


async def _database(settings: Settings) -> tuple[Examination | None, list[Finding]]:
    """What was found, and what the database holds when it can be read."""
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
    except ForeignSchema as error:
        return None, [Finding("database", "FAIL", str(error), "install that version, or restore a backup")]
    except (*DATABASE_ERRORS, OSError) as error:
        fix = "start the database, correct the URL, or give this user the right to write"
        return None, [Finding("database", "FAIL", f"{name}: {reason_of(error)}", fix)]
    findings = [Finding("database", "ok", f"{name} can be read and written, schema {schema.found}")]
    with suppress(OSError, ValueError):  # a file that cannot be read is a separate finding
        secrets, known = make_secrets(settings), examination.secret
        if fault := secret_fault(secrets, known):
            findings.append(Finding("secret", "FAIL", fault))
        elif secrets.adopt(known.digest, known.kept) and examination.sealed:
            findings.append(sealed(secrets, examination.sealed))
    return examination, [*findings, audit_log(examination.audit)]


def sealed(secrets: Secrets, texts: dict[str, str]) -> Finding:
    """How much is under which master secret."""
    counted = secrets.count(texts)
    told = ", ".join(f"{many} under {name}" for name, many in counted.items() if many)
    if counted.get(LOST):
        return Finding("sealed", "warn", told, "operations.md says how each of them is set again")
    if secrets.under_others(texts):
        return Finding("sealed", "warn", told, "heliograph secret rotate goes on with the rest")
    return Finding("sealed", "ok", told)


def audit_log(chain: Chain) -> Finding:
    """Whether all is as it was written. The end, noted elsewhere, also shows a log that somebody hashed anew."""
    if chain.broken and chain.broken.is_unlinked:
        fix = "ask again in a minute: the service brings it in, and an entry says so"
        message = f"{chain.broken.why} yet: a process of the version before wrote it, or somebody did by hand"
        return Finding("audit log", "warn", message, fix)
    if chain.broken:
        fix = "compare it with a backup; operations.md says what each means"
        return Finding("audit log", "FAIL", f"it was changed by hand: {chain.broken.why}", fix)
    older = ", older ones are brought in by the service" if chain.waiting else ""
    end = f", which ends with {chain.link[:16]}" if chain.link else ""
    return Finding("audit log", "ok", f"{chain.entries} entries are an unbroken chain{end}{older}")


async def _list_objects(objects: Objects) -> None:
    async for _ in objects.listed():
        return


def _log(settings: Settings) -> Iterator[Finding]:
    """Of SQLite: it grows for ever when nobody brings it into the file."""
    if fault := log_fault(settings):
        yield Finding("checkpoints", "warn", f"{fault}: nobody brings it into the database", MEND_LOG)
    elif found := log_size(settings):
        yield Finding("checkpoints", "ok", found[0])


def _open_to_others(settings: Settings) -> Iterator[Finding]:
    """Messages are in the database and in the attachments as they were sent. Its log has the database's mode."""
    database = sqlite_path(settings)
    for path, mode in ((settings.data, "700"), *([(database, "600")] if database else [])):
        if path.exists() and (found := stat.S_IMODE(path.stat().st_mode)) & OTHERS:
            yield Finding("access", "FAIL", f"{path} has mode {found:04o}: others can read it", f"chmod {mode} {path}")


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


def callbacks(setup: Setup, heard: Mapping[str, int], uses: Mapping[str, RecentUse], now: int) -> Iterator[Finding]:
    """Of carriers that should report what became of messages."""
    for carrier in filter(calls_back, setup.carriers):
        use, last_at = uses.get(carrier.id, RecentUse()), heard.get(carrier.id)
        if is_silent(use.day.accepted, use.hour.accepted, last_at, now):
            message = f"{carrier.id}: {use.day.accepted} sent in 24 hours, and no callback came"
            fix = "give it the callback address on its page in the dashboard; the log says which were refused"
            yield Finding("callbacks", "warn", message, fix)
        elif last_at is not None:
            yield Finding("callbacks", "ok", f"{carrier.id} called back at {timestamp(last_at)}")


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


def _submission(settings: Settings) -> Iterator[Finding]:
    """Where it is to listen, and whether others than this machine's programs can use it."""
    if not (settings.submission_listen or settings.submission_tls_listen):
        return
    where = ", ".join(settings.submission())
    try:
        certificate = make_certificate(settings)
    except BadSetting as error:
        yield Finding("smtp", "FAIL", str(error), "give the service's user the right to read both files")
        return
    if certificate is None and not all(is_inside(host, ()) for host, _ in settings.submission_listen):
        fix = "set HELIOGRAPH_SUBMISSION_CERT and HELIOGRAPH_SUBMISSION_KEY"
        yield Finding("smtp", "warn", f"{where}: without a certificate nobody else can send", fix)
    else:
        yield Finding("smtp", "ok", f"mail is taken on {where}")
