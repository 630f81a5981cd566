"""SSRF check of webhook URLs (see reliability): resolves the host and rejects it if any of its addresses is denied."""

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from ipaddress import ip_network

import msgspec

from heliograph.domain.network.ssrf import is_denied, loopback_address
from heliograph.runtime.resolver import DnsSilent, NameServers, Unknown
from heliograph.webhooks.policy.bin import is_bin
from heliograph.webhooks.policy.retry import Silence
from heliograph.webhooks.policy.webhook_url import Target, parse_target

LIFETIME_S = 5.0  # timeout of one DNS query including retries
CACHED_MAX = 20_000  # cached verdicts

Resolve = Callable[[str], Awaitable[Sequence[str]]]  # host → all of its addresses


class Failed(Exception):
    """The request got no response; the message says why, for people."""

    def __init__(self, reason: Silence, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Denied(Failed):
    """Target not allowed. The message is shown to the webhook's owner and names no address of our network."""


class Unresolved(Failed):
    """The host has no address, or DNS did not respond."""


class CheckedUrl(msgspec.Struct, frozen=True, kw_only=True):
    target: Target
    addresses: tuple[str, ...]  # the only addresses to connect to


class Guard:
    """Resolves webhook URLs and rejects denied addresses."""

    def __init__(self, allow_private: Sequence[str] = (), resolve: Resolve | None = None, own: str = "") -> None:
        """Allow the operator's ranges `allow_private`. `resolve` defaults to DNS with the system's name servers.

        Webhook bins of the service at base URL `own` are allowed at any address; its other paths are not.
        """
        self._own = own
        allow = tuple(ip_network(text) for text in allow_private)
        self._is_denied = lru_cache(CACHED_MAX)(lambda address: is_denied(address, allow))
        self._resolve = resolve or Names().addresses

    async def check(self, url: str) -> CheckedUrl:
        """Check a URL and resolve its host. Raises Denied (also if malformed) or Unresolved."""
        try:
            target = parse_target(url)
        except ValueError as error:
            raise Denied("bad_url", str(error)) from None
        addresses = (target.ip,) if target.ip else tuple(await self._resolve(target.host))
        if not addresses:
            raise Unresolved("no_address", f"{target.host} has no address")
        if any(map(self._is_denied, addresses)) and not (self._own and is_bin(self._own, url)):
            raise Denied(
                "private_address",
                f"{target.host} is, or leads to, a private or reserved address, which webhooks may not reach "
                "(an operator can allow ranges: HELIOGRAPH_WEBHOOK_ALLOW_PRIVATE)",
            )
        return CheckedUrl(target=target, addresses=addresses)


class Names:
    """DNS resolver for webhook hosts."""

    def __init__(self, server: tuple[str, int] | None = None) -> None:
        """Use the DNS `server` (host, port), or the system's servers if None."""
        self._servers = NameServers(server, LIFETIME_S)

    async def addresses(self, host: str) -> list[str]:
        """Return addresses, IPv4 first. If the query for one family fails, the other family's answer is enough."""
        if loopback := loopback_address(host):
            return [loopback]
        found: list[str] = []
        failed: DnsSilent | None = None
        for kind in ("A", "AAAA"):  # sequential: usually both are cached, and two tasks would cost more
            try:
                found += [record.address for record in await self._servers.ask(host, kind)]
            except Unknown:
                break
            except DnsSilent as error:
                failed = error
        if failed and not found:
            raise Unresolved("dns_silent", f"DNS gives no answer for {host} ({failed})") from None
        return found
