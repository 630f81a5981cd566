"""The one DNS resolver: it asks the system's name servers, or one that is named, and keeps answers for their time.

Without threads: names that hang must not use up a pool that all share.
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

CACHED_MAX = 20_000  # answers
NO_S = 300  # how long to believe that a name does not exist

_name = lru_cache(CACHED_MAX)(dns.name.from_text)


Ask = Callable[[str, str], Awaitable[list[str]]]  # name, type → values; raises DnsSilent


class DnsSilent(Exception):
    """DNS did not answer; the text says how it failed and names no server."""


class Unknown(Exception):
    """The name does not exist, or has no address."""


class Answers(dns.resolver.LRUCache):
    """Caches answers for their TTL, "no such name" for at most five minutes: without a SOA record it would last."""

    def put(self, key: Any, value: dns.resolver.Answer) -> None:
        if value.rrset is None:
            value.expiration -= max(0, value.chaining_result.minimum_ttl - NO_S)
        super().put(key, value)


class NameServers:
    def __init__(self, server: tuple[str, int] | None, lifetime_s: float) -> None:
        """Ask `server`, host and port, or the system's if None; `lifetime_s` is of one query with all its retries."""
        self._server = server
        self._lifetime_s = lifetime_s
        self._asked: dns.asyncresolver.Resolver | None = None

    async def ask(self, name: str | dns.name.Name, kind: str) -> Any:
        """Return an Answer, empty when the name has no such record. Raises Unknown or DnsSilent."""
        try:
            resolver = self._asked = self._asked or await self._make()
            asked = _name(name) if isinstance(name, str) else name
            return await resolver.resolve(asked, kind, raise_on_no_answer=False, search=False)
        except dns.resolver.NXDOMAIN:
            raise Unknown from None
        except (dns.exception.DNSException, OSError) as error:
            raise DnsSilent(type(error).__name__) from None

    async def servers(self) -> list[str]:
        """Return the addresses of those that are asked."""
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
        resolver.timeout = min(resolver.timeout, self._lifetime_s / 2)  # a lost packet is sent once more
        # AD in a query asks for AD in the answer (RFC 6840); large answers come over UDP up to the usual size.
        resolver.flags = dns.flags.RD | dns.flags.AD
        resolver.use_edns(0, 0, 1232)
        return resolver
