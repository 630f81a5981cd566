"""The DNS resolver of the service: queries the system's or a configured name server and caches answers for their TTL.

It uses no threads: slow lookups must not exhaust a shared thread pool.
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

CACHED_MAX = 20_000  # maximum cached answers
NO_S = 300  # maximum seconds to cache that a name does not exist

_name = lru_cache(CACHED_MAX)(dns.name.from_text)


Ask = Callable[[str, str], Awaitable[list[str]]]  # (name, record type) → values; raises DnsSilent


class DnsSilent(Exception):
    """The DNS query failed or timed out. The message is the kind of failure, without the server's name."""


class Unknown(Exception):
    """The name does not exist or has no address."""


class Answers(dns.resolver.LRUCache):
    """Cache of answers for their TTL, of negative answers for at most five minutes: without an SOA record they would
    never expire.
    """

    def put(self, key: Any, value: dns.resolver.Answer) -> None:
        if value.rrset is None:
            value.expiration -= max(0, value.chaining_result.minimum_ttl - NO_S)
        super().put(key, value)


class NameServers:
    def __init__(self, server: tuple[str, int] | None, lifetime_s: float) -> None:
        """Query `server` (host, port), or the system's name servers if None. `lifetime_s`: limit of one query with all
        its retries.
        """
        self._server = server
        self._lifetime_s = lifetime_s
        self._asked: dns.asyncresolver.Resolver | None = None

    async def ask(self, name: str | dns.name.Name, kind: str) -> Any:
        """Return an Answer, empty if the name has no record of this type. Raises Unknown or DnsSilent."""
        try:
            resolver = self._asked = self._asked or await self._make()
            asked = _name(name) if isinstance(name, str) else name
            return await resolver.resolve(asked, kind, raise_on_no_answer=False, search=False)
        except dns.resolver.NXDOMAIN:
            raise Unknown from None
        except (dns.exception.DNSException, OSError) as error:
            raise DnsSilent(type(error).__name__) from None

    async def servers(self) -> list[str]:
        """Return the addresses of the name servers in use; empty if they cannot be determined."""
        try:
            return [str(server) for server in (await self._make()).nameservers]
        except (dns.exception.DNSException, OSError):
            return []

    async def _make(self) -> dns.asyncresolver.Resolver:
        resolver = dns.asyncresolver.Resolver(configure=self._server is None)
        if self._server:
            host, port = self._server
            found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), port)
            resolver.nameservers, resolver.port = [str(found[0][4][0])], port
        resolver.cache = Answers(CACHED_MAX)
        resolver.lifetime = self._lifetime_s
        resolver.timeout = min(resolver.timeout, self._lifetime_s / 2)  # leaves time for a retry after a lost packet
        # AD in a query requests AD in the answer (RFC 6840); UDP answers may have up to 1,232 bytes, the usual limit.
        resolver.flags = dns.flags.RD | dns.flags.AD
        resolver.use_edns(0, 0, 1232)
        return resolver
