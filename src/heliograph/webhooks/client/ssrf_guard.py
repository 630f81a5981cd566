"""Where a webhook's URL leads, and whether we may connect (reliability, SSRF): one denied address refuses them all."""

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from ipaddress import ip_network

import msgspec

from heliograph.domain.network.ssrf import is_denied, loopback_address
from heliograph.runtime.resolver import DnsSilent, NameServers, Unknown
from heliograph.webhooks.policy.bin import is_bin
from heliograph.webhooks.policy.retry import Silence
from heliograph.webhooks.policy.webhook_url import Target, parse_target

LIFETIME_S = 5.0  # of one query with all its retries
CACHED_MAX = 20_000  # verdicts

Resolve = Callable[[str], Awaitable[Sequence[str]]]  # a host's addresses, all of them


class Failed(Exception):
    """There is no answer; the text says why, for people."""

    def __init__(self, reason: Silence, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Denied(Failed):
    """A target that is not allowed; the text is shown to its owner and names no address of our network."""


class Unresolved(Failed):
    """The host has no address, or DNS did not answer."""


class CheckedUrl(msgspec.Struct, frozen=True, kw_only=True):
    target: Target
    addresses: tuple[str, ...]  # the only ones to connect to


class Guard:
    def __init__(self, allow_private: Sequence[str] = (), resolve: Resolve | None = None, own: str = "") -> None:
        """Allow the operator's ranges, `allow_private`; `resolve` is by default DNS with the system's name servers.

        Webhook bins of the service at `own` may be reached wherever it is: no other path of it.
        """
        self._own = own
        allow = tuple(ip_network(text) for text in allow_private)
        self._is_denied = lru_cache(CACHED_MAX)(lambda address: is_denied(address, allow))
        self._resolve = resolve or Names().addresses

    async def check(self, url: str) -> CheckedUrl:
        """Check a URL; raises Denied, also for a malformed one, or Unresolved."""
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
    def __init__(self, server: tuple[str, int] | None = None) -> None:
        """Ask `server`, host and port, or the system's when it is None."""
        self._servers = NameServers(server, LIFETIME_S)

    async def addresses(self, host: str) -> list[str]:
        """Return addresses, IPv4 first. If the query for one family fails, the other family's answer is enough."""
        if loopback := loopback_address(host):
            return [loopback]
        found: list[str] = []
        failed: DnsSilent | None = None
        for kind in ("A", "AAAA"):  # in turn: usually both are cached, and two tasks would cost more than the answers
            try:
                found += [record.address for record in await self._servers.ask(host, kind)]
            except Unknown:
                break
            except DnsSilent as error:
                failed = error
        if failed and not found:
            raise Unresolved("dns_silent", f"DNS gives no answer for {host} ({failed})") from None
        return found
