"""Checks a sending domain's DNS records at its authoritative servers, bypassing all caches.

If the operator configured a resolver, that is queried instead: for private DNS and networks that block other DNS.
"""

import asyncio
from collections.abc import Sequence
from ipaddress import ip_address
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
    has_policy,
    holds_below,
    judge,
    policies_above,
    txt,
    unanswered,
)
from heliograph.runtime.resolver import DnsSilent, NameServers, Unknown

ALL_S = 15.0  # timeout for all records of a domain
LOOK_UP_S = 5.0  # timeout for one query to the system's resolver, including retries
SERVER_S = 2.5  # timeout for one query to one server by UDP, and for its repetition by TCP
HOSTS_MAX = 6  # maximum number of a zone's name servers whose addresses are looked up
SERVERS_MAX = 3  # maximum number of servers queried per zone and IP version, in sequence
ALIASES_MAX = 8  # maximum length of a CNAME chain

ANSWERS = (dns.rcode.NOERROR, dns.rcode.NXDOMAIN)


class NotAnswered(Exception):
    """Raised if no server gave a usable response; the message names the servers and reasons."""


class Source(Protocol):
    """A source of DNS responses: the authoritative servers, or one resolver."""

    async def ask(self, name: dns.name.Name, type: str) -> dns.message.QueryMessage: ...


async def check(
    records: Sequence[Record], resolver: tuple[str, int] | None = None, *, allow: Sequence[Network] = ()
) -> list[tuple[Record, Verdict]]:
    """Return each record with its verdict, within 15 seconds.

    `allow`: private address ranges in which name servers are permitted.
    """
    return await check_at(OneResolver(*resolver) if resolver else Authorities(allow=allow), records)


async def check_at(source: Source, records: Sequence[Record]) -> list[tuple[Record, Verdict]]:
    """Return each record with its verdict from `source`; records not resolved in time are `unanswered`."""
    tasks = [asyncio.create_task(_verdict(source, record)) for record in records]
    try:
        if tasks:
            await asyncio.wait(tasks, timeout=ALL_S)
        late = unanswered(f"DNS did not answer within {ALL_S:.0f} seconds.")
        return [(record, task.result() if task.done() else late) for record, task in zip(records, tasks, strict=True)]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def zone_of(domain: str, resolver: tuple[str, int] | None = None) -> str:
    """Return the name of the zone that contains the domain, from its SOA record; empty if not found."""
    name, source = dns.name.from_text(domain), OneResolver(*resolver) if resolver else Authorities()
    try:
        async with asyncio.timeout(LOOK_UP_S):
            response = await source.ask(name, "SOA")
    except (NotAnswered, DnsSilent, dns.exception.DNSException, TimeoutError):
        return ""
    owners = [one.name for one in (*response.answer, *response.authority) if one.rdtype == dns.rdatatype.SOA]
    return next((one.to_text(omit_final_dot=True) for one in owners if name.is_subdomain(one) and len(one) > 2), "")


async def _verdict(source: Source, record: Record) -> Verdict:
    try:
        found = await _found(source, record)
        if record.purpose == "dmarc" and not has_policy(found):
            found = await _above(source, record) or found
        return judge(record, found)
    except NotAnswered as error:
        return unanswered(f"{record.type} {record.name} could not be looked up: {error}")
    except DnsSilent as error:
        return unanswered(f"{record.type} {record.name} could not be looked up ({error}).")
    except dns.exception.DNSException as error:  # the error text is omitted because it names our resolvers
        return unanswered(f"{record.type} {record.name} could not be looked up ({type(error).__name__}).")


async def _above(source: Source, record: Record) -> list[str]:
    """Return the DMARC policy of the nearest parent domain with one; empty if none exists or it does not apply."""
    for name in policies_above(record.name):
        found = [text for text in await _found(source, replace(record, name=name)) if has_policy([text])]
        if found:
            return found if holds_below(record, found) else []
    return []


async def _found(source: Source, record: Record) -> list[str]:
    """Return the record's values, following CNAMEs, also into other zones."""
    name = dns.name.from_text(record.name)
    for _ in range(ALIASES_MAX):
        response = await source.ask(name, record.type)
        chain = response.resolve_chaining()
        if chain.answer is not None:
            return [_text(rdata) for rdata in chain.answer]
        if chain.canonical_name == name:
            return []
        name = chain.canonical_name
    raise NotAnswered(f"it has more than {ALIASES_MAX} aliases in a row.")


def _text(rdata: dns.rdata.Rdata) -> str:
    match rdata:
        case TXT():
            return txt(rdata.strings)
        case MX():
            return f"{rdata.preference} {rdata.exchange.to_text(omit_final_dot=True)}"
        case CNAME():
            return rdata.target.to_text(omit_final_dot=True)
    raise NotAnswered(f"the answer cannot be read: {rdata.to_text()[:100]}")


async def _ask(query: dns.message.Message, address: str, port: int) -> dns.message.QueryMessage:
    try:
        response, _ = await dns.asyncquery.udp_with_fallback(
            query, address, SERVER_S, port, ignore_unexpected=True, ignore_errors=True
        )
    except dns.exception.Timeout:
        raise NotAnswered(f"{address} did not answer in time.") from None
    except (dns.exception.DNSException, OSError, EOFError) as error:
        raise NotAnswered(f"{address} could not be asked ({error or type(error).__name__}).") from None
    if not isinstance(response, dns.message.QueryMessage) or response.rcode() not in ANSWERS:
        raise NotAnswered(f"{address} answered {dns.rcode.to_text(response.rcode())}.")
    return response


class OneResolver:
    """Queries the resolver that the operator configured."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port

    async def ask(self, name: dns.name.Name, type: str) -> dns.message.QueryMessage:
        query = dns.message.make_query(name, type, use_edns=True)
        try:
            found = await asyncio.get_running_loop().getaddrinfo(self._host, self._port)
        except OSError as error:
            raise NotAnswered(f"the resolver {self._host} has no address ({error}).") from None
        address = str(found[0][4][0])
        try:
            return await _ask(query, address, self._port)
        except NotAnswered:  # repeat once, because a packet may be lost and there is no other server
            return await _ask(query, address, self._port)


class Authorities:
    """Queries the authoritative servers of each zone. The system's resolver is used only to find the servers."""

    def __init__(
        self,
        system: NameServers | None = None,
        *,
        port: int = 53,
        allow: Sequence[Network] = (),
    ) -> None:
        self._system = system or NameServers(None, LOOK_UP_S)
        self._port = port
        self._allow = allow
        self._known: dict[dns.name.Name, asyncio.Task[list[str]]] = {}

    async def ask(self, name: dns.name.Name, type: str) -> dns.message.QueryMessage:
        query = dns.message.make_query(name, type, flags=0, use_edns=True)  # no flags, so no recursion
        failures = []
        for address in await self._servers(name):
            try:
                response = await _ask(query, address, self._port)
            except NotAnswered as error:
                failures.append(str(error))
                continue
            if response.flags & dns.flags.AA:
                return response
            failures.append(f"{address} does not answer for this zone.")
        raise NotAnswered(" ".join(failures))

    def _servers(self, name: dns.name.Name) -> asyncio.Task[list[str]]:
        """Return a shared lookup of the name's servers: concurrent queries are mostly for the same zone."""
        if name not in self._known:
            self._known[name] = asyncio.create_task(self._find(name))
        return self._known[name]

    async def _find(self, name: dns.name.Name) -> list[str]:
        """Return the server addresses of the closest enclosing zone."""
        hosts = await self._name_servers(name)
        if not hosts and name == dns.name.root:
            raise NotAnswered("the system's resolver knows no zone for it.")
        if not hosts:
            return await self._servers(name.parent())
        resolved = await asyncio.gather(*(self._addresses(host) for host in hosts))
        addresses = [address for of_host in resolved for address in of_host]
        # An untrusted zone names these hosts, so their addresses must not be in our own network (SSRF).
        reachable = [address for address in addresses if not is_denied(address, self._allow)]
        if not reachable:
            named = ", ".join(host.to_text(omit_final_dot=True) for host in hosts)
            raise NotAnswered(f"its name servers ({named}) have {'only private' if addresses else 'no'} addresses.")
        return [
            address
            for version in (4, 6)
            for address in [address for address in reachable if ip_address(address).version == version][:SERVERS_MAX]
        ]

    async def _name_servers(self, name: dns.name.Name) -> list[dns.name.Name]:
        try:
            answer = await self._system.ask(name, "NS")
        except Unknown:
            return []
        if answer.rrset is None or answer.rrset.name != name:  # for an alias, the answer is about another zone
            return []
        return sorted(rdata.target for rdata in answer.rrset)[:HOSTS_MAX]

    async def _addresses(self, host: dns.name.Name) -> list[str]:
        """Return the host's addresses. Failed lookups are ignored, because other hosts may have addresses."""
        answers = await asyncio.gather(
            *(self._system.ask(host, kind) for kind in ("A", "AAAA")), return_exceptions=True
        )
        return [record.address for answer in answers if not isinstance(answer, BaseException) for record in answer]
