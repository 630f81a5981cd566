"""Checks a sending domain's DNS records at its authoritative servers, bypassing all caches.

If the operator configured a resolver, only the resolver is queried: for private DNS and networks that block other DNS.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import dns.asyncquery
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdata
import dns.rdatatype
from dns.rdtypes.ANY.CNAME import CNAME
from dns.rdtypes.ANY.MX import MX
from dns.rdtypes.ANY.TXT import TXT
from msgspec.structs import replace

from heliograph.domain.network.ssrf import Network, is_denied
from heliograph.domain.setup.domain_records import (
    Record,
    Verdict,
    applies_to_subdomains,
    check_record,
    dmarc_names_above,
    has_policy,
    join_txt,
    unanswered_verdict,
)
from heliograph.runtime.resolver import DnsTimeout, NameNotFound, Resolver, find_addresses

TOTAL_TIMEOUT_S = 15.0  # timeout for all records of a domain
RESOLVER_TIMEOUT_S = 5.0  # timeout for one query to the system's resolver, including retries
SERVER_TIMEOUT_S = 2.5  # timeout for one query to one server by UDP, and for its repetition by TCP
NAME_SERVERS_MAX = 6  # maximum name servers of a zone that are tried until one responds
ALL_NAME_SERVERS_MAX = 16  # maximum name servers of a zone if all are queried
ADDRESSES_PER_FAMILY_MAX = 3  # maximum number of servers queried per zone and IP version, in sequence
CNAMES_MAX = 8  # maximum length of a CNAME chain

USABLE_RCODES = (dns.rcode.NOERROR, dns.rcode.NXDOMAIN)


class NoUsableResponse(Exception):
    """Raised if no server gave a usable response; the message names the servers and reasons."""


class DnsSource(Protocol):
    """A source of DNS responses: the authoritative servers, or one resolver."""

    async def query(self, name: dns.name.Name, rdtype: str) -> dns.message.QueryMessage: ...

    async def query_all(
        self, name: dns.name.Name, rdtype: str, *, skip_silent: bool = False
    ) -> list[dns.message.QueryMessage]: ...


async def check_records(
    records: Sequence[Record], resolver: tuple[str, int] | None = None, *, allowed_networks: Sequence[Network] = ()
) -> list[tuple[Record, Verdict]]:
    """Check each DNS record and return it with its verdict, within 15 seconds.

    `allowed_networks`: private address ranges in which name servers are permitted.
    """
    return await check_records_at(
        ConfiguredResolver(*resolver) if resolver else AuthoritativeServers(allowed_networks=allowed_networks), records
    )


async def check_records_at(source: DnsSource, records: Sequence[Record]) -> list[tuple[Record, Verdict]]:
    """Check each record with DNS queries to `source`; records not checked in time get `unanswered_verdict`."""
    tasks = [asyncio.create_task(_check_record(source, record)) for record in records]
    try:
        if tasks:
            await asyncio.wait(tasks, timeout=TOTAL_TIMEOUT_S)
        timed_out = unanswered_verdict(f"DNS did not answer within {TOTAL_TIMEOUT_S:.0f} seconds.")
        return [
            (record, task.result() if task.done() else timed_out) for record, task in zip(records, tasks, strict=True)
        ]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def published_ttl(
    records: Sequence[Record],
    resolver: tuple[str, int] | None = None,
    servers: DnsSource | None = None,
) -> int | None:
    """Return the highest TTL in seconds if every server of the zone answers all TXT records correctly, else None.

    If the operator configured a resolver, only the resolver is queried.
    """
    source = ConfiguredResolver(*resolver) if resolver else servers or AuthoritativeServers()
    ttls = [0]
    try:
        async with asyncio.timeout(TOTAL_TIMEOUT_S):
            for record in records:
                for response in await source.query_all(dns.name.from_text(record.name), record.type):
                    answer = response.resolve_chaining().answer
                    if answer is None or not check_record(record, [_rdata_text(rdata) for rdata in answer]).ok:
                        return None
                    ttls.append(answer.ttl)
    except (NoUsableResponse, DnsTimeout, dns.exception.DNSException, TimeoutError):
        return None
    return max(ttls)


async def zone_of(domain: str, resolver: tuple[str, int] | None = None) -> str:
    """Return the name of the zone that contains the domain, from its SOA record; empty if not found."""
    name, source = dns.name.from_text(domain), ConfiguredResolver(*resolver) if resolver else AuthoritativeServers()
    try:
        async with asyncio.timeout(RESOLVER_TIMEOUT_S):
            response = await source.query(name, "SOA")
    except (NoUsableResponse, DnsTimeout, dns.exception.DNSException, TimeoutError):
        return ""
    owners = [owner.name for owner in (*response.answer, *response.authority) if owner.rdtype == dns.rdatatype.SOA]
    return next(
        (owner.to_text(omit_final_dot=True) for owner in owners if name.is_subdomain(owner) and len(owner) > 2), ""
    )


async def _check_record(source: DnsSource, record: Record) -> Verdict:
    try:
        values = await _query_values(source, record)
        if record.purpose == "dmarc" and not has_policy(values):
            values = await _parent_policy(source, record) or values
        verdict = check_record(record, values)
        asks_servers = not isinstance(source, ConfiguredResolver)
        if verdict.ok and record.purpose == "dkim" and asks_servers and not await _is_at_all_servers(source, record):
            return unanswered_verdict(
                f"{record.type} {record.name} is not at all name servers of its zone yet. Wait until each has it."
            )
        return verdict
    except NoUsableResponse as error:
        return unanswered_verdict(f"{record.type} {record.name} could not be looked up: {error}")
    except DnsTimeout as error:
        return unanswered_verdict(f"{record.type} {record.name} could not be looked up ({error}).")
    except dns.exception.DNSException as error:  # the error text is omitted because it names our resolvers
        return unanswered_verdict(f"{record.type} {record.name} could not be looked up ({type(error).__name__}).")


async def _is_at_all_servers(source: DnsSource, record: Record) -> bool:
    """Return whether each name server of the zone that responds has the record, or an alias in its place.

    A receiver that queries a server without the key cannot verify mail that is signed with the key.
    """
    name = dns.name.from_text(record.name)
    for response in await source.query_all(name, record.type, skip_silent=True):
        resolved = response.resolve_chaining()
        values = [_rdata_text(rdata) for rdata in resolved.answer or ()]
        if resolved.canonical_name == name and not check_record(record, values).ok:
            return False
    return True


async def _parent_policy(source: DnsSource, record: Record) -> list[str]:
    """Return the DMARC policy of the nearest parent domain that has one; empty if none exists or it does not apply."""
    for name in dmarc_names_above(record.name):
        policies = [text for text in await _query_values(source, replace(record, name=name)) if has_policy([text])]
        if policies:
            return policies if applies_to_subdomains(record, policies) else []
    return []


async def _query_values(source: DnsSource, record: Record) -> list[str]:
    """Return the DNS record's current values, following CNAMEs, also into other zones."""
    name = dns.name.from_text(record.name)
    for _ in range(CNAMES_MAX):
        response = await source.query(name, record.type)
        resolved = response.resolve_chaining()
        if resolved.answer is not None:
            return [_rdata_text(rdata) for rdata in resolved.answer]
        if resolved.canonical_name == name:
            return []
        name = resolved.canonical_name
    raise NoUsableResponse(f"it has more than {CNAMES_MAX} aliases in a row.")


def _rdata_text(rdata: dns.rdata.Rdata) -> str:
    match rdata:
        case TXT():
            return join_txt(rdata.strings)
        case MX():
            return f"{rdata.preference} {rdata.exchange.to_text(omit_final_dot=True)}"
        case CNAME():
            return rdata.target.to_text(omit_final_dot=True)
    raise NoUsableResponse(f"the answer cannot be read: {rdata.to_text()[:100]}")


async def _query_server(query: dns.message.Message, address: str, port: int) -> dns.message.QueryMessage:
    try:
        response, _ = await dns.asyncquery.udp_with_fallback(
            query, address, SERVER_TIMEOUT_S, port, ignore_unexpected=True, ignore_errors=True
        )
    except dns.exception.Timeout:
        raise NoUsableResponse(f"{address} did not answer in time.") from None
    except (dns.exception.DNSException, OSError, EOFError) as error:
        raise NoUsableResponse(f"{address} could not be queried ({error or type(error).__name__}).") from None
    if not isinstance(response, dns.message.QueryMessage) or response.rcode() not in USABLE_RCODES:
        raise NoUsableResponse(f"{address} answered {dns.rcode.to_text(response.rcode())}.")
    return response


class ConfiguredResolver:
    """Queries the resolver that the operator configured."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port

    async def query(self, name: dns.name.Name, rdtype: str) -> dns.message.QueryMessage:
        request = dns.message.make_query(name, rdtype, use_edns=True)
        try:
            addresses = await find_addresses(self._host, self._port)
        except OSError as error:
            raise NoUsableResponse(f"the resolver {self._host} has no address ({error}).") from None
        failures = []
        for address in addresses * 2:  # each twice, because a packet may be lost
            try:
                return await _query_server(request, address, self._port)
            except NoUsableResponse as error:
                failures.append(str(error))
        raise NoUsableResponse(" ".join(dict.fromkeys(failures)))

    async def query_all(
        self, name: dns.name.Name, rdtype: str, *, skip_silent: bool = False
    ) -> list[dns.message.QueryMessage]:
        return [await self.query(name, rdtype)]


class AuthoritativeServers:
    """Queries the authoritative servers of each zone. The system's resolver is used only to find the servers."""

    def __init__(
        self,
        system_resolver: Resolver | None = None,
        *,
        port: int = 53,
        allowed_networks: Sequence[Network] = (),
    ) -> None:
        self._system_resolver = system_resolver or Resolver(None, RESOLVER_TIMEOUT_S)
        self._port = port
        self._allowed_networks = allowed_networks
        self._lookups: dict[dns.name.Name, asyncio.Task[list[str]]] = {}
        self._host_lookups: dict[dns.name.Name, asyncio.Task[dict[dns.name.Name, list[str]]]] = {}

    async def query(self, name: dns.name.Name, rdtype: str) -> dns.message.QueryMessage:
        request = dns.message.make_query(name, rdtype, flags=0, use_edns=True)  # no flags, so no recursion
        failures = []
        for address in await self._servers(name):
            try:
                response = await _query_server(request, address, self._port)
            except NoUsableResponse as error:
                failures.append(str(error))
                continue
            if response.flags & dns.flags.AA:
                return response
            failures.append(f"{address} does not answer for this zone.")
        raise NoUsableResponse(" ".join(failures))

    async def query_all(
        self, name: dns.name.Name, rdtype: str, *, skip_silent: bool = False
    ) -> list[dns.message.QueryMessage]:
        """Return the response of every server. A server without a response raises NoUsableResponse, or is skipped.

        One responding address per server suffices, because this machine may have no IPv6.
        """
        request = dns.message.make_query(name, rdtype, flags=0, use_edns=True)
        responses = []
        for host, addresses in (await self._servers_by_host(name)).items():
            results = await asyncio.gather(
                *(_query_server(request, address, self._port) for address in addresses), return_exceptions=True
            )
            usable = [
                result for result in results
                if isinstance(result, dns.message.QueryMessage) and result.flags & dns.flags.AA
            ]  # fmt: skip
            if not usable and not skip_silent:
                raise NoUsableResponse(f"{host.to_text(omit_final_dot=True)} does not answer.")
            responses += usable
        return responses

    def _servers_by_host(self, name: dns.name.Name) -> asyncio.Task[dict[dns.name.Name, list[str]]]:
        """Return a shared lookup of all name servers of the name's zone."""
        if name not in self._host_lookups:
            self._host_lookups[name] = asyncio.create_task(self._find_servers_by_host(name))
        return self._host_lookups[name]

    async def _find_servers_by_host(self, name: dns.name.Name) -> dict[dns.name.Name, list[str]]:
        """Return host name → addresses of the name servers of the closest enclosing zone."""
        hosts = (await self._name_servers(name))[:ALL_NAME_SERVERS_MAX]
        if not hosts and name == dns.name.root:
            raise NoUsableResponse("the system's resolver knows no zone for it.")
        if not hosts:
            return await self._servers_by_host(name.parent())
        resolved = await asyncio.gather(*map(self._addresses, hosts))
        return {
            host: [address for address in addresses if not is_denied(address, self._allowed_networks)]
            for host, addresses in zip(hosts, resolved, strict=True)
        }

    def _servers(self, name: dns.name.Name) -> asyncio.Task[list[str]]:
        """Return a shared lookup of the name's servers, because concurrent queries are mostly for the same zone."""
        if name not in self._lookups:
            self._lookups[name] = asyncio.create_task(self._find_servers(name))
        return self._lookups[name]

    async def _find_servers(self, name: dns.name.Name) -> list[str]:
        """Return the addresses of the name servers of the closest enclosing zone."""
        hosts = (await self._name_servers(name))[:NAME_SERVERS_MAX]
        if not hosts and name == dns.name.root:
            raise NoUsableResponse("the system's resolver knows no zone for it.")
        if not hosts:
            return await self._servers(name.parent())
        resolved = await asyncio.gather(*(self._addresses(host) for host in hosts))
        addresses = [address for host_addresses in resolved for address in host_addresses]
        # An untrusted zone names these hosts, so their addresses must not be in our own network (SSRF).
        reachable = [address for address in addresses if not is_denied(address, self._allowed_networks)]
        if not reachable:
            host_names = ", ".join(host.to_text(omit_final_dot=True) for host in hosts)
            raise NoUsableResponse(
                f"its name servers ({host_names}) have {'only private' if addresses else 'no'} addresses."
            )
        families = [[address for address in reachable if (":" in address) == is_ipv6] for is_ipv6 in (False, True)]
        return [address for family in families for address in family[:ADDRESSES_PER_FAMILY_MAX]]

    async def _name_servers(self, name: dns.name.Name) -> list[dns.name.Name]:
        try:
            answer = await self._system_resolver.query(name, "NS")
        except NameNotFound:
            return []
        if answer.rrset is None or answer.rrset.name != name:  # an alias: the servers are those of another zone
            return []
        return sorted(rdata.target for rdata in answer.rrset)

    async def _addresses(self, host: dns.name.Name) -> list[str]:
        """Return the host's addresses. Failed lookups are ignored, because other hosts may have addresses."""
        answers = await asyncio.gather(
            *(self._system_resolver.query(host, kind) for kind in ("A", "AAAA")), return_exceptions=True
        )
        return [record.address for answer in answers if not isinstance(answer, BaseException) for record in answer]
