"""Checks of outgoing and incoming mail: carriers, name servers, port 25, our host name, and SMTP submission."""

import asyncio
import ipaddress
from collections.abc import Iterator, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

import dns.reversename

from heliograph.app import CARRIERS, make_certificate
from heliograph.cli.checks.findings import Finding, Site, fail, ok, warn
from heliograph.domain.delivery.callbacks import calls_back, is_silent
from heliograph.domain.ids import timestamp
from heliograph.domain.mail.address import normal_domain, parse_address
from heliograph.domain.network.client_address import is_inside
from heliograph.domain.setup.records import CHANNELS
from heliograph.domain.setup.snapshot import Setup
from heliograph.runtime.resolver import DnsSilent, Unknown
from heliograph.settings import BadSetting, Settings
from heliograph.storage.carrier_stats import RecentUse

PROBE_S = 5.0
TRIED_MAX = 2  # mail exchangers to try before port 25 counts as blocked


# -- configuration -----------------------------------------------------------------------------------------


async def name_servers(site: Site) -> list[Finding]:
    servers = await site.resolver.servers()
    return [ok(f"name servers: {', '.join(servers)}") if servers else warn("no name server is configured")]


def carriers(setup: Setup) -> Iterator[Finding]:
    for channel in CHANNELS:
        configured = [carrier for carrier in setup.carriers if carrier.channel == channel]
        enabled = [carrier for carrier in configured if carrier.enabled]
        if configured and not enabled:
            what = "emails are accepted and wait, deferred" if channel == "email" else "sends are refused with 503"
            yield fail(f"every {channel} carrier is disabled: {what}", "enable one with heliograph apply")
        elif not enabled:
            yield ok(f"{channel} is served by the built-in simulator: nothing leaves this machine")
        for carrier in enabled:
            if (channel, carrier.kind) in CARRIERS:
                yield ok(f"{channel} goes to {carrier.id} ({carrier.kind})")
            else:
                yield fail(f"{carrier.id}: {carrier.kind!r} is not built into this version")


def delivery(setup: Setup) -> Iterator[Finding]:
    if setup.platform.paused:
        yield warn(f"paused ({setup.platform.paused_reason or 'by an operator'}): messages wait as queued")


def callbacks(setup: Setup, heard: Mapping[str, int], uses: Mapping[str, RecentUse], now: int) -> Iterator[Finding]:
    for carrier in filter(calls_back, setup.carriers):
        use, last_at = uses.get(carrier.id, RecentUse()), heard.get(carrier.id)
        if is_silent(use.day.accepted, use.hour.accepted, last_at, now):
            yield warn(f"{carrier.id}: {use.day.accepted} sent in 24 hours, and no callback came")
        elif last_at is not None:
            yield ok(f"{carrier.id} called back at {timestamp(last_at)}")


def platform_sender(setup: Setup) -> Iterator[Finding]:
    """Check the DNS records of the platform's sender domain, if any enabled email carrier is not a simulator."""
    address = parse_address(setup.platform.sender)
    leaves = any(c.channel == "email" and c.enabled and c.kind != "simulator" for c in setup.carriers)
    if address is None or not leaves:
        return
    name, domain = address.domain, setup.domain_named(address.domain)
    if domain and domain.verified:
        yield ok(f"{address.given}: the DNS records of {name} are there")
    else:
        fix = f"heliograph domain dns {name} prints them, heliograph domain check {name} looks again"
        yield warn(f"{address.given}: the DNS records of {name} were not found", fix)


def submission(site: Site) -> Iterator[Finding]:
    settings = site.settings
    if not (settings.submission_listen or settings.submission_tls_listen):
        return
    where = ", ".join(settings.submission())
    try:
        certificate = make_certificate(settings)
    except BadSetting as error:
        yield fail(str(error), "give the service's user the right to read both files")
        return
    if certificate is None and not all(is_inside(host, ()) for host, _ in settings.submission_listen):
        yield warn(f"{where}: without a certificate nobody else can send")
    else:
        yield ok(f"mail is taken on {where}")


# -- network -----------------------------------------------------------------------------------------------


async def exchangers(site: Site) -> list[Finding]:
    try:
        answer, why = await site.resolver.ask(site.probe, "MX"), "it has no MX records"
    except Unknown:
        answer, why = (), "there is no such name"
    except DnsSilent as silence:
        answer, why = (), f"no name server answers ({silence})"
    hosts = [str(record.exchange) for record in sorted(answer, key=lambda record: record.preference)]
    if not hosts:
        return [fail(f"who takes mail for {site.probe} cannot be found: {why}")]
    site.exchangers = hosts
    return [ok(f"mail for {site.probe} goes to {hosts[0]}")]


async def way_out(site: Site) -> list[Finding]:
    for host in site.exchangers[:TRIED_MAX]:
        if source := await greet(site, host, site.port):
            site.source = source
            return [ok(f"{host} can be reached from {source}")]
    if not site.exchangers:
        return []
    said = f"no mail exchanger of {site.probe} answers: port 25 is blocked outward"
    for relay in site.relays:
        host, _, number = relay.rpartition(":")
        if await greet(site, host, int(number)):
            fix = f'send through a relay (carrier kind "smtp"), such as {relay}, which can be reached from here'
            return [warn(said, f"{fix}; or ask your provider to open port 25")]
    return [fail(f"{said}, and no relay can be reached")]


async def greet(site: Site, host: str, number: int) -> str | None:
    """Connect to `host`; return the local IP address of the connection, or None if it fails."""
    for address in await addresses(site, host):
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(PROBE_S):
                _, writer = await asyncio.open_connection(address, number)
                source: str = writer.get_extra_info("sockname")[0]
                writer.close()
                return source
    return None


async def addresses(site: Site, host: str) -> list[str]:
    with suppress(ValueError):
        return [str(ipaddress.ip_address(host))]
    return [text for kind in ("A", "AAAA") for text in await records(site, host, kind)]


async def records(site: Site, host: str, kind: str) -> list[str]:
    try:
        return [record.to_text().rstrip(".").lower() for record in await site.resolver.ask(host, kind)]
    except (Unknown, DnsSilent):
        return []


def greeting(settings: Settings) -> str | None:
    """Return the host name that we send in EHLO; None if the public URL has no valid one."""
    return normal_domain(urlsplit(settings.public_url).hostname or "")


async def own_name(site: Site) -> list[Finding]:
    host = greeting(site.settings)
    if not site.exchangers:
        return []
    if host is None:
        return [warn("there is no public name to greet mail servers with")]
    site.addresses = found = await addresses(site, host)
    if not found:
        fix = f"publish an A record for {host} with this machine's public address"
        return [fail(f"{host} has no address in DNS", fix)]
    if site.source and ipaddress.ip_address(site.source).is_global and site.source not in found:
        fix = f"add it to the addresses of {host}, or send from one of them (source_ips of the carrier)"
        return [warn(f"mail leaves from {site.source}, which is none of {', '.join(found)}", fix)]
    return [ok(f"{host} is at {', '.join(found)}")]


async def way_back(site: Site) -> list[Finding]:
    return [await _called(site, address, greeting(site.settings) or "") for address in site.addresses]


async def _called(site: Site, address: str, host: str) -> Finding:
    names = await records(site, str(dns.reversename.from_address(address)), "PTR")
    if host in names:
        return ok(f"{address} is called {host}")
    called = f"is called {', '.join(names)}, not {host}" if names else "has no name"
    fix = f"set the PTR record of {address} to {host} where you rent the address; many servers refuse mail without it"
    return (fail if site.source else warn)(f"{address} {called}", fix)
