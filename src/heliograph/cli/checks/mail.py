"""Checks of outgoing and incoming mail: carriers, name servers, port 25, host name, and SMTP submission."""

import asyncio
import ipaddress
from collections.abc import Iterator, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

import dns.name
import dns.reversename

from heliograph.app import CARRIER_FACTORIES, make_certificate
from heliograph.cli.checks.findings import Finding, Site, fail, ok, warn
from heliograph.domain.delivery.callbacks import expects_callbacks, lacks_callbacks
from heliograph.domain.ids import timestamp
from heliograph.domain.mail.address import normalize_domain, parse_address
from heliograph.domain.network.client_address import is_loopback_or_in
from heliograph.domain.setup.records import CHANNELS
from heliograph.domain.setup.snapshot import Setup
from heliograph.domain.setup.source_options import address_of
from heliograph.runtime.resolver import DnsTimeout, NameNotFound
from heliograph.settings import BadSetting, Settings
from heliograph.storage.carrier_stats import RecentCarrierCounts

TIMEOUT_S = 5.0  # timeout of a DNS query, and of a connection to a mail server
BLOCKLISTS = ("zen.spamhaus.org", "bl.spamcop.net")
LISTED_PREFIX = "127."  # answers without this prefix were made up by the name server (RFC 5782, 2.1)
QUERY_REFUSED_PREFIX = "127.255.255."  # answer of a blocklist that refuses queries from our name server
EXCHANGERS_MAX = 2  # mail servers that are tried; if none of them responds, port 25 counts as blocked


# -- configuration -----------------------------------------------------------------------------------------


async def check_name_servers(site: Site) -> list[Finding]:
    servers = await site.resolver.server_addresses()
    return [ok(f"name servers: {', '.join(servers)}") if servers else warn("no name server is configured")]


def check_carriers(setup: Setup) -> Iterator[Finding]:
    for channel in CHANNELS:
        configured = [carrier for carrier in setup.carriers if carrier.channel == channel]
        enabled = [carrier for carrier in configured if carrier.enabled]
        if configured and not enabled:
            effect = "emails are accepted and deferred" if channel == "email" else "sends are refused with 503"
            yield fail(f"every {channel} carrier is disabled: {effect}", "enable one with heliograph apply")
        elif not enabled:
            yield ok(f"{channel} uses the built-in simulator: nothing leaves this machine")
        for carrier in enabled:
            if (channel, carrier.kind) in CARRIER_FACTORIES:
                yield ok(f"{channel} is sent with {carrier.id} ({carrier.kind})")
            else:
                yield fail(f"{carrier.id}: {carrier.kind!r} is not supported by this version")


def check_delivery(setup: Setup) -> Iterator[Finding]:
    if setup.platform.paused:
        yield warn(f"paused ({setup.platform.paused_reason or 'by an operator'}): messages stay queued")


def check_callbacks(
    setup: Setup, last_callbacks: Mapping[str, int], usage: Mapping[str, RecentCarrierCounts], now: int
) -> Iterator[Finding]:
    for carrier in filter(expects_callbacks, setup.carriers):
        carrier_usage, last_at = usage.get(carrier.id, RecentCarrierCounts()), last_callbacks.get(carrier.id)
        if lacks_callbacks(carrier_usage.day.accepted, carrier_usage.hour.accepted, last_at, now):
            yield warn(f"{carrier.id}: {carrier_usage.day.accepted} sent in 24 hours without a callback")
        elif last_at is not None:
            yield ok(f"{carrier.id} sent a callback at {timestamp(last_at)}")


def check_platform_sender(setup: Setup) -> Iterator[Finding]:
    """Check the DNS records of the platform's sender domain, unless all enabled email carriers are simulators."""
    address = parse_address(setup.platform.sender)
    sends_real_mail = any(
        carrier.channel == "email" and carrier.enabled and carrier.kind != "simulator" for carrier in setup.carriers
    )
    if address is None or not sends_real_mail:
        return
    name, domain = address.domain, setup.find_domain(address.domain)
    if domain and domain.verified:
        yield ok(f"{address.original}: the DNS records of {name} were found")
    else:
        fix = f"heliograph domain dns {name} prints them, heliograph domain check {name} checks again"
        yield warn(f"{address.original}: the DNS records of {name} were not found", fix)


def check_submission(site: Site) -> Iterator[Finding]:
    settings = site.settings
    if not (settings.submission_listen or settings.submission_tls_listen):
        return
    where = ", ".join(settings.submission())
    try:
        certificate = make_certificate(settings)
    except BadSetting as error:
        yield fail(str(error), "make both files readable for the service's user")
        return
    if certificate is None and not all(is_loopback_or_in(host, ()) for host, _ in settings.submission_listen):
        yield warn(f"{where}: without a certificate, only local clients can send")
    else:
        yield ok(f"mail is accepted on {where}")


# -- network -----------------------------------------------------------------------------------------------


async def check_exchangers(site: Site) -> list[Finding]:
    try:
        answer, reason = await site.resolver.query(site.probe, "MX"), "there are no MX records"
    except NameNotFound:
        answer, reason = (), "the domain does not exist"
    except DnsTimeout as silence:
        answer, reason = (), f"no name server responds ({silence})"
    hosts = [str(record.exchange) for record in sorted(answer, key=lambda record: record.preference)]
    if not hosts:
        return [fail(f"the mail exchangers of {site.probe} cannot be determined: {reason}")]
    site.exchangers = hosts
    return [ok(f"mail for {site.probe} goes to {hosts[0]}")]


async def check_port_25(site: Site) -> list[Finding]:
    for host in site.exchangers[:EXCHANGERS_MAX]:
        if source := await connect_to(site, host, site.port):
            site.source = source
            return [ok(f"{host} is reachable from {source}")]
    if not site.exchangers:
        return []
    problem = f"no mail exchanger of {site.probe} responds: outgoing port 25 is blocked"
    for relay in site.relays:
        host, _, port = relay.rpartition(":")
        if await connect_to(site, host, int(port)):
            fix = f'send through a relay (carrier kind "smtp"), such as {relay}, which is reachable from here'
            return [warn(problem, f"{fix}; or ask your provider to open port 25")]
    return [fail(f"{problem}, and no relay is reachable")]


async def connect_to(site: Site, host: str, port: int) -> str | None:
    """Connect to `host`; return our local IP address, or None if the connection failed."""
    for address in await resolve_addresses(site, host):
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(TIMEOUT_S):
                _, writer = await asyncio.open_connection(address, port)
                source: str = writer.get_extra_info("sockname")[0]
                writer.close()
                return source
    return None


async def resolve_addresses(site: Site, host: str) -> list[str]:
    with suppress(ValueError):
        return [str(ipaddress.ip_address(host))]
    return [text for kind in ("A", "AAAA") for text in await query_records(site, host, kind)]


async def query_records(site: Site, host: str, kind: str) -> list[str]:
    try:
        return await _query_or_raise(site, host, kind)
    except DnsTimeout:
        return []


async def _query_or_raise(site: Site, host: str, kind: str) -> list[str]:
    """Return the records; empty if not found. Raises DnsTimeout if no name server answers."""
    try:
        return [record.to_text().rstrip(".").lower() for record in await site.resolver.query(host, kind)]
    except NameNotFound:
        return []


async def check_source_addresses(site: Site) -> list[Finding]:
    """Check reverse DNS and blocklists for the source addresses of enabled carriers that use MX hosts directly."""
    carriers = site.diagnostics.setup.carriers if site.diagnostics else ()
    findings = list[Finding]()
    for carrier in carriers:
        if carrier.kind == "mx" and carrier.enabled:
            helo = carrier.options.get("helo") or helo_name(site.settings)
            for address in map(address_of, carrier.options.get("source_ips", ())):
                findings += await _check_source_address(site, address, helo)
    return findings


async def _check_source_address(site: Site, address: str, helo: str | None) -> list[Finding]:
    name = dns.reversename.from_address(address)
    try:
        findings = [await _check_source_name(site, address, str(name), helo)]
    except DnsTimeout as error:
        findings = [warn(f"the reverse DNS of {address} cannot be looked up ({error})", "check again later")]
    reversed_address = name.relativize(dns.name.from_text("in-addr.arpa" if "." in address else "ip6.arpa"))
    for blocklist in BLOCKLISTS:
        try:
            replies = await _query_or_raise(site, f"{reversed_address}.{blocklist}", "A")
        except DnsTimeout as error:
            findings.append(warn(f"{blocklist} cannot be asked about {address} ({error})", "check again later"))
            continue
        listings = [reply for reply in replies if reply.startswith(LISTED_PREFIX)]
        if any(reply.startswith(QUERY_REFUSED_PREFIX) for reply in replies):
            fix = "use a name server of your own, not a public one"
            findings.append(warn(f"{blocklist} refuses queries of this name server", fix))
        elif listings:
            fix = f"look up the reason at {blocklist.split('.', 1)[1]} and ask for removal after fixing it"
            findings.append(fail(f"{address} is listed by {blocklist} ({', '.join(listings)})", fix))
        elif replies:
            fix = "use a name server that does not change answers"
            findings.append(warn(f"the answer of {blocklist} is not from a blocklist ({', '.join(replies)})", fix))
    return findings


async def _check_source_name(site: Site, address: str, reverse_name: str, helo: str | None) -> Finding:
    """Check the reverse DNS of a source address. Raises DnsTimeout."""
    hosts, kind = await _query_or_raise(site, reverse_name, "PTR"), "AAAA" if ":" in address else "A"
    confirmed = [host for host in hosts if address in await _query_or_raise(site, host, kind)]
    if not hosts:
        return fail(f"{address} has no PTR record", "set it at your hosting provider")
    if not confirmed:
        fix = f"publish an address record for {hosts[0]} with {address}"
        return fail(f"{address} has the PTR record {hosts[0]}, which does not resolve back to it", fix)
    if helo and helo not in confirmed:
        fix = f"set the PTR record to {helo}, or the carrier's greeting name (helo) to {confirmed[0]}"
        return warn(f"{address} has the PTR record {confirmed[0]}, but the carrier greets with {helo}", fix)
    return ok(f"{address} has the PTR record {confirmed[0]}")


def helo_name(settings: Settings) -> str | None:
    """Return the host name for EHLO; None if the public URL has none that is valid."""
    return normalize_domain(urlsplit(settings.public_url).hostname or "")


async def check_helo_name(site: Site) -> list[Finding]:
    host = helo_name(site.settings)
    if not site.exchangers:
        return []
    if host is None:
        return [warn("there is no public host name for the SMTP greeting (EHLO)")]
    site.addresses = own_addresses = await resolve_addresses(site, host)
    if not own_addresses:
        fix = f"publish an A record for {host} with this machine's public address"
        return [fail(f"{host} has no address record in DNS", fix)]
    if site.source and ipaddress.ip_address(site.source).is_global and site.source not in own_addresses:
        fix = f"add this address to the records of {host}, or send from a listed address (source_ips of the carrier)"
        return [warn(f"mail leaves from {site.source}, which is not among {', '.join(own_addresses)}", fix)]
    return [ok(f"{host} resolves to {', '.join(own_addresses)}")]


async def check_reverse_dns(site: Site) -> list[Finding]:
    return [await _check_reverse_name(site, address, helo_name(site.settings) or "") for address in site.addresses]


async def _check_reverse_name(site: Site, address: str, host: str) -> Finding:
    names = await query_records(site, str(dns.reversename.from_address(address)), "PTR")
    if host in names:
        return ok(f"the PTR record of {address} is {host}")
    actual = f"has the PTR record {', '.join(names)}, not {host}" if names else "has no PTR record"
    fix = f"set the PTR record of {address} to {host} at your hosting provider; many servers reject mail without it"
    return (fail if site.source else warn)(f"{address} {actual}", fix)
