"""SSRF check of webhook URLs: resolves the host and rejects it if any of its addresses is denied."""

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from ipaddress import ip_network

import msgspec

from heliograph.domain.network.ssrf import is_denied, loopback_address
from heliograph.runtime.resolver import DnsTimeout, NameNotFound, Resolver
from heliograph.webhooks.policy.bin import is_bin
from heliograph.webhooks.policy.retry import NoResponseReason
from heliograph.webhooks.policy.webhook_url import Target, parse_target

DNS_TIMEOUT_S = 5.0  # timeout of one DNS query including retries
CACHED_MAX = 20_000  # maximum cached decisions

Resolve = Callable[[str], Awaitable[Sequence[str]]]  # host → all of its addresses


class PostFailed(Exception):
    """Raised if a request got no response. The message explains why and is shown to users."""

    def __init__(self, reason: NoResponseReason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class TargetDenied(PostFailed):
    """Raised if the target is not allowed. Users see the message, so it contains no address of our network."""


class HostUnresolved(PostFailed):
    """Raised if the host has no address, or the DNS server did not respond."""


class CheckedUrl(msgspec.Struct, frozen=True, kw_only=True):
    target: Target
    addresses: tuple[str, ...]  # the only addresses to connect to


class SsrfGuard:
    """Resolves webhook URLs and rejects denied addresses."""

    def __init__(
        self, allow_private: Sequence[str] = (), resolve: Resolve | None = None, own_base_url: str = ""
    ) -> None:
        """Create the guard. `allow_private`: private networks that the operator allows.

        `resolve`: by default, queries the system's name servers. `own_base_url`: URL of this service. Its test
        endpoints for webhooks (webhook bins) are allowed even at a private address; its other paths are not.
        """
        self._own_base_url = own_base_url
        allow = tuple(ip_network(text) for text in allow_private)
        self._is_denied = lru_cache(CACHED_MAX)(lambda address: is_denied(address, allow))
        self._resolve = resolve or AddressResolver().resolve

    async def check(self, url: str) -> CheckedUrl:
        """Check a URL and resolve its host. Raises TargetDenied (also for a malformed URL) or HostUnresolved."""
        try:
            target = parse_target(url)
        except ValueError as error:
            raise TargetDenied("bad_url", str(error)) from None
        addresses = (target.ip,) if target.ip else tuple(await self._resolve(target.host))
        if not addresses:
            raise HostUnresolved("no_address", f"{target.host} has no address")
        if any(map(self._is_denied, addresses)) and not (self._own_base_url and is_bin(self._own_base_url, url)):
            raise TargetDenied(
                "private_address",
                f"{target.host} is or resolves to a private or reserved address, which webhooks may not connect to "
                "(an operator can allow ranges with HELIOGRAPH_WEBHOOK_ALLOW_PRIVATE)",
            )
        return CheckedUrl(target=target, addresses=addresses)


class AddressResolver:
    """DNS resolver for webhook hosts."""

    def __init__(self, server: tuple[str, int] | None = None) -> None:
        """Use the DNS `server` (host, port), or the system's servers if None."""
        self._dns = Resolver(server, DNS_TIMEOUT_S)

    async def resolve(self, host: str) -> list[str]:
        """Return addresses, IPv4 first. If one address family cannot be queried, those of the other suffice."""
        if loopback := loopback_address(host):
            return [loopback]
        addresses: list[str] = []
        failure: DnsTimeout | None = None
        # One after the other: usually both are cached, and parallel tasks would cost more
        for record_type in ("A", "AAAA"):
            try:
                addresses += [record.address for record in await self._dns.query(host, record_type)]
            except NameNotFound:
                break
            except DnsTimeout as error:
                failure = error
        if failure and not addresses:
            raise HostUnresolved("dns_silent", f"DNS did not respond for {host} ({failure})") from None
        return addresses
