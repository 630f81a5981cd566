"""`heliograph preflight`: what a machine and its network lack, found before anything is set up."""

import asyncio
import ctypes
import ipaddress
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import apsw
import click
import dns.asyncresolver
import dns.exception
import dns.resolver
import dns.reversename
import msgspec

from heliograph.cli.findings import Finding, Level, attachments, clock, disk, folder, port, tell, there
from heliograph.cli.options import AS_JSON, SERVE_FLAGS, shown, with_settings
from heliograph.opening import sqlite_path
from heliograph.rules.mail.address import normal_domain
from heliograph.runtime.clock import OFF_MS, Clock
from heliograph.server import HTTP, CannotListen, bind
from heliograph.settings import Settings
from heliograph.storage.engine.database import StoreUnavailable
from heliograph.storage.engine.objects import Objects
from heliograph.storage.engine.postgres import Hosts, connect

PROBE_S = 5.0
TRIED_MAX = 2  # mail exchangers, before port 25 counts as blocked
# Of providers who take mail by SMTP with a password, each on a port that networks seldom block.
RELAYS = ("smtp.postmarkapp.com:2525", "email-smtp.eu-west-1.amazonaws.com:587", "smtp.mailgun.org:465")
SYNCS = 50
SYNCS_LOW = 100  # a second: what is accepted together waits for one
AT_REST_MB = 128  # of a process (docs/operations.md, memory)
TIMES_BODY = 3
TIME_ERROR = 5  # of adjtimex(2): nothing keeps the clock
POSTGRES_MIN = 130000
# Asked of PostgreSQL in one go.
ASKED = """SELECT current_setting('server_version_num')::int AS version, current_setting('fsync') AS fsync,
    current_setting('full_page_writes') AS full_page_writes, current_setting('server_encoding') AS encoding,
    current_setting('max_connections')::int AS connections, pg_is_in_recovery() AS standby,
    has_schema_privilege('public', 'CREATE') AS may_create,
    (date_part('epoch', clock_timestamp()) * 1000)::bigint AS now"""


class Outside(msgspec.Struct, frozen=True):
    """Whom to ask and to call."""

    resolver: dns.asyncresolver.Resolver
    probe: str
    port: int
    relays: Sequence[str]


@click.command()
@with_settings(*SERVE_FLAGS)
@click.option(
    "--probe", default="gmail.com", show_default=True, metavar="DOMAIN", help="Whose mail exchangers to greet."
)
@click.option("--relay", "relays", multiple=True, metavar="HOST:PORT", help="A relay to try when port 25 is blocked.")
@click.option("--smtp-port", default=25, hidden=True)
@AS_JSON
@click.pass_context
def preflight(
    context: click.Context, settings: Settings, probe: str, relays: tuple[str, ...], smtp_port: int, as_json: bool
) -> None:
    """Check machine, network and database before anything is set up, and say how to fix what is missing.

    Sends no mail and changes nothing: it writes and removes one small file where the data will be, and one where the
    attachments will be, and greets a mail server. Exit code 1 when something must be fixed.

    \b
    heliograph preflight --public-url https://mail.example.com
    heliograph preflight --public-url https://mail.example.com --database postgresql://heliograph@db/heliograph --json
    """
    outside = Outside(make_resolver(settings), probe, smtp_port, relays or RELAYS)
    tell(context, examine(settings, outside), as_json)


def examine(settings: Settings, outside: Outside) -> Iterator[Finding]:
    yield folder(settings.data)
    yield disk(settings.data)
    yield sync_rate(there(settings.data))
    yield memory(settings, available_mb())
    yield clock(Clock().now())
    yield kept_clock(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(256)))
    yield from asyncio.run(_all(database(settings)))
    yield from asyncio.run(attachments(settings, try_objects))
    yield port(settings)
    yield from other_ports(settings)
    yield from asyncio.run(_all(mail(settings, outside)))


async def _all(findings: AsyncIterator[Finding]) -> list[Finding]:
    return [finding async for finding in findings]


# -- the machine -------------------------------------------------------------------------------------------


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
        return Finding("disk sync", "FAIL", f"{place}: {error.strerror}", fix)
    said = f"{1000 / each_ms:,.0f} syncs a second at {place}"
    if 1000 / each_ms >= SYNCS_LOW:
        return Finding("disk sync", "ok", said)
    fix = "use a local SSD: every accepted message waits for one"
    return Finding("disk sync", "warn", f"{said}: an answer takes {each_ms:.0f} ms or more", fix)


def available_mb() -> int:
    """What is free, or what the control group leaves us."""
    free = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    found = [int(free.split()[1]) >> 10]
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # there is no such file, or it says "max"
            found.append(int(Path(limit).read_text()) >> 20)
    return min(found)


def memory(settings: Settings, available: int) -> Finding:
    least = settings.processes * AT_REST_MB
    enough = least + settings.processes * TIMES_BODY * settings.body_memory_mb
    said = f"{available} MB for {settings.processes} process{'' if settings.processes == 1 else 'es'}"
    if available >= enough:
        return Finding("memory", "ok", said)
    fix = "set HELIOGRAPH_BODY_MEMORY_MB lower, run fewer --processes, or add memory"
    return Finding("memory", "warn" if available >= least else "FAIL", f"{said}, which may need {enough} MB", fix)


def kept_clock(state: int) -> Finding:
    if state != TIME_ERROR:
        return Finding("clock", "ok", "it is kept by NTP")
    fix = "timedatectl set-ntp true, or install chrony"
    return Finding("clock", "warn", "nothing keeps it: codes, signatures and several processes need the time", fix)


def other_ports(settings: Settings) -> Iterator[Finding]:
    """Besides that of HTTP, which a service that runs already may have."""
    if settings.bounce_listen is None:
        fix = "set HELIOGRAPH_BOUNCE_LISTEN, for example to 0.0.0.0:25, to learn of them"
        yield Finding("mail ports", "warn", "bounces and complaints that come by mail are not received", fix)
    try:
        sockets = bind(msgspec.structs.replace(settings, port=0), "all")
    except CannotListen as error:
        yield Finding("mail ports", "FAIL", f"{error} Ports below 1024 need CAP_NET_BIND_SERVICE.")
        return
    for purpose, bound in sockets:
        if purpose != HTTP:
            yield Finding("mail ports", "ok", f"{purpose}: {bound.getsockname()[1]} is free")
        bound.close()


# -- the database ------------------------------------------------------------------------------------------


async def database(settings: Settings) -> AsyncIterator[Finding]:
    path = sqlite_path(settings)
    if path is not None:
        place = there(path.parent)
        if os.access(place, os.W_OK | os.X_OK):
            yield Finding("database", "ok", f"SQLite {apsw.sqlite_lib_version()} can write to {place}")
        else:
            yield Finding("database", "FAIL", f"{place} cannot be written", "choose another place with --database")
        return
    try:
        connection: Any = await connect(Hosts(settings.database, settings.database_connect_s))
    except (StoreUnavailable, OSError) as error:
        fix = "start PostgreSQL, open its port to this machine, or correct --database"
        yield Finding("database", "FAIL", f"{shown(settings.database)}: {error}", fix)
        return
    try:
        found = dict(await connection.fetchrow(ASKED))
    finally:
        connection.terminate()
    for finding in (*postgres(settings, found), off_clock(found["now"] - Clock().now())):
        yield finding


def postgres(settings: Settings, found: dict[str, Any]) -> Iterator[Finding]:
    """Its settings; what would lose an accepted message must be fixed."""
    needed = settings.processes * (settings.database_pool + 1)
    faults: list[tuple[bool, Level, str, str]] = [
        (found["version"] < POSTGRES_MIN, "FAIL", "it is older than PostgreSQL 13", "upgrade it"),
        (found["standby"], "FAIL", "it is a standby and takes no writes", "name the primary, or all hosts"),
        (found["fsync"] != "on", "FAIL", "fsync is off: a crash loses accepted messages", "fsync = on"),
        (found["full_page_writes"] != "on", "FAIL", "full_page_writes is off: a crash may destroy tables", "set it on"),
        (
            found["encoding"] != "UTF8",
            "FAIL",
            f"its encoding is {found['encoding']}",
            "CREATE DATABASE … ENCODING UTF8",
        ),
        (not found["may_create"], "FAIL", "this user may not make tables", "GRANT CREATE ON SCHEMA public TO the user"),
        (
            found["connections"] < needed + 3,  # the server keeps three for its superuser
            "warn",
            f"max_connections is {found['connections']}, {settings.processes} processes may take {needed}",
            "raise max_connections, or lower HELIOGRAPH_DATABASE_POOL or --processes",
        ),
    ]
    wrong = [Finding("database", level, message, fix) for is_wrong, level, message, fix in faults if is_wrong]
    yield from wrong or [Finding("database", "ok", f"PostgreSQL {found['version'] // 10000} is set up well")]


def off_clock(ahead_ms: int) -> Finding:
    if abs(ahead_ms) < OFF_MS:
        return Finding("clock", "ok", f"the database's differs by {abs(ahead_ms) / 1000:.1f} s")
    fix = "keep both by NTP: a process whose clock differs this much delivers nothing"
    return Finding("clock", "FAIL", f"the database's differs by {abs(ahead_ms) / 1000:.0f} s", fix)


# -- attachments -------------------------------------------------------------------------------------------


async def try_objects(objects: Objects) -> None:
    """All that is ever done there."""
    name = Clock().new_id("preflight-")
    await objects.put(name, name.encode())
    try:
        if b"".join([part async for part in objects.read(name)]) != name.encode():
            raise StoreUnavailable("what was put is not what is read")
        async for _ in objects.listed():
            break
    finally:
        await objects.drop([name])


# -- mail --------------------------------------------------------------------------------------------------


def make_resolver(settings: Settings) -> dns.asyncresolver.Resolver:
    """The system's, unless the settings name one."""
    try:
        resolver = dns.asyncresolver.Resolver(configure=settings.resolver is None)
    except dns.resolver.NoResolverConfiguration:
        resolver = dns.asyncresolver.Resolver(configure=False)
    if settings.resolver:
        host, resolver.port = settings.resolver
        resolver.nameservers = [host]
    resolver.lifetime = PROBE_S
    return resolver


async def mail(settings: Settings, outside: Outside) -> AsyncIterator[Finding]:
    try:
        answer = await outside.resolver.resolve(outside.probe, "MX")
    except dns.exception.DNSException as error:
        why = "no name server answers" if isinstance(error, dns.exception.Timeout) else str(error)
        fix = "name servers that work in /etc/resolv.conf, and let port 53 out, by UDP and TCP"
        yield Finding("dns", "FAIL", f"who takes mail for {outside.probe} cannot be found: {why}", fix)
        return
    hosts = [str(record.exchange) for record in sorted(answer, key=lambda record: record.preference)]
    yield Finding("dns", "ok", f"mail for {outside.probe} goes to {hosts[0]}")
    for host in hosts[:TRIED_MAX]:
        if source := await greet(outside, host, outside.port):
            yield Finding("port 25", "ok", f"{host} can be reached from {source}")
            break
    else:
        yield await blocked(outside)
    async for finding in name(settings, outside, source):
        yield finding


async def blocked(outside: Outside) -> Finding:
    """Which relay can be reached instead."""
    said = f"no mail exchanger of {outside.probe} answers: port 25 is blocked outward"
    for relay in outside.relays:
        host, _, number = relay.rpartition(":")
        if await greet(outside, host, int(number)):
            fix = f'send through a relay (carrier kind "smtp"), such as {relay}, which can be reached from here'
            return Finding("port 25", "warn", said, f"{fix}; or ask your provider to open port 25")
    fix = "ask your provider to open port 25, or the firewall to let 587, 465 or 2525 out to a relay"
    return Finding("port 25", "FAIL", f"{said}, and no relay can be reached", fix)


async def greet(outside: Outside, host: str, number: int) -> str | None:
    """Our address, when that server can be connected to."""
    for address in await addresses(outside, host):
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(PROBE_S):
                _, writer = await asyncio.open_connection(address, number)
                source: str = writer.get_extra_info("sockname")[0]
                writer.close()
                return source
    return None


async def addresses(outside: Outside, host: str) -> list[str]:
    with suppress(ValueError):
        return [str(ipaddress.ip_address(host))]
    return [text for kind in ("A", "AAAA") for text in await records(outside, host, kind)]


async def records(outside: Outside, host: str, kind: str) -> list[str]:
    try:
        return [record.to_text().rstrip(".").lower() for record in await outside.resolver.resolve(host, kind)]
    except dns.exception.DNSException:
        return []


async def name(settings: Settings, outside: Outside, source: str | None) -> AsyncIterator[Finding]:
    """The name that we greet with: it must lead to our address, and our address back to it."""
    host = normal_domain(urlsplit(settings.public_url).hostname or "")
    if host is None:
        fix = "set --public-url to https:// and the name by which mail servers and people shall know this machine"
        yield Finding("helo name", "warn", "there is no public name to greet mail servers with", fix)
        return
    found = await addresses(outside, host)
    if not found:
        fix = f"publish an A record for {host} with this machine's public address"
        yield Finding("helo name", "FAIL", f"{host} has no address in DNS", fix)
        return
    if source and ipaddress.ip_address(source).is_global and source not in found:
        fix = f"add it to the addresses of {host}, or send from one of them (source_ips of the carrier)"
        yield Finding("helo name", "warn", f"mail leaves from {source}, which is none of {', '.join(found)}", fix)
    else:
        yield Finding("helo name", "ok", f"{host} is at {', '.join(found)}")
    for address in found:
        names = await records(outside, str(dns.reversename.from_address(address)), "PTR")
        if host in names:
            yield Finding("ptr", "ok", f"{address} is called {host}")
            continue
        called = f"is called {', '.join(names)}, not {host}" if names else "has no name"
        fix = (
            f"set the PTR record of {address} to {host} where you rent the address; many servers refuse mail without it"
        )
        yield Finding("ptr", "FAIL" if source else "warn", f"{address} {called}", fix)
