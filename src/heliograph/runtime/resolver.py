"""DNS resolver: queries the system's or a configured name server, and caches answers for their TTL.

It uses no threads: slow lookups would exhaust a shared thread pool.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any

import dns.asyncresolver
import dns.exception
import dns.flags
import dns.name
import dns.resolver

CACHE_MAX = 20_000  # maximum cached answers
NEGATIVE_TTL_MAX_S = 300  # longest caching of an answer that a name does not exist

_parse_name = lru_cache(CACHE_MAX)(dns.name.from_text)

QueryDns = Callable[[str, str], Awaitable[list[str]]]  # (name, record type) → values; raises DnsTimeout


class DnsTimeout(Exception):
    """Raised if a DNS query failed or timed out. The message is the kind of failure."""


class NameNotFound(Exception):
    """Raised if a name does not exist or has no address."""


class DnsCache(dns.resolver.LRUCache):
    """Caches answers for their TTL, and negative answers for at most five minutes.

    Negative answers without an SOA record would otherwise be cached forever.
    """

    def put(self, key: Any, value: dns.resolver.Answer) -> None:
        if value.rrset is None:
            value.expiration -= max(0, value.chaining_result.minimum_ttl - NEGATIVE_TTL_MAX_S)
        super().put(key, value)


async def find_addresses(host: str, port: int) -> list[str]:
    """Return the host's addresses, IPv4 first, because servers often do not listen on the ::1 of `localhost`."""
    entries = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), port)
    return sorted({str(address[0]) for *_, address in entries}, key=lambda address: (":" in address, address))


class Resolver:
    def __init__(self, server: tuple[str, int] | None, lifetime_s: float) -> None:
        """Create a resolver that queries `server` (host, port), or the system's name servers if None.

        `lifetime_s`: timeout of a query including its retries.
        """
        self._server = server
        self._lifetime_s = lifetime_s
        self._resolver: dns.asyncresolver.Resolver | None = None

    async def query(self, name: str | dns.name.Name, record_type: str) -> Any:
        """Return an Answer, empty if the name has no record of this type; raises NameNotFound or DnsTimeout."""
        try:
            resolver = self._resolver = self._resolver or await self._make_resolver()
            parsed_name = _parse_name(name) if isinstance(name, str) else name
            return await resolver.resolve(parsed_name, record_type, raise_on_no_answer=False, search=False)
        except dns.resolver.NXDOMAIN:
            raise NameNotFound from None
        except (dns.exception.DNSException, OSError) as error:
            raise DnsTimeout(type(error).__name__) from None

    async def server_addresses(self) -> list[str]:
        """Return the addresses of the name servers in use; empty if they cannot be determined."""
        try:
            return [str(server) for server in (await self._make_resolver()).nameservers]
        except (dns.exception.DNSException, OSError):
            return []

    async def _make_resolver(self) -> dns.asyncresolver.Resolver:
        resolver = dns.asyncresolver.Resolver(configure=self._server is None)
        if self._server:
            host, port = self._server
            resolver.nameservers, resolver.port = await find_addresses(host, port), port
        resolver.cache = DnsCache(CACHE_MAX)
        resolver.lifetime = self._lifetime_s
        resolver.timeout = min(resolver.timeout, self._lifetime_s / 2)  # leaves time for a retry after a lost packet
        # AD in a query requests AD in the answer (RFC 6840). UDP answers of up to 1,232 bytes are the usual limit.
        resolver.flags = dns.flags.RD | dns.flags.AD
        resolver.use_edns(0, 0, 1232)
        return resolver
