"""Client address of a request behind proxies, and address ranges that count as one client in rate limits."""

from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address, ip_network

from heliograph.domain.network.ssrf import Address, Network

HOPS_MAX = 32
LONGEST = 64  # characters of an IPv6 address with brackets and a port


def client_address(peer: str, forwarded: Sequence[bytes], trusted: Sequence[Network]) -> str:
    """Return the last hop that is not a trusted proxy: from the peer backwards through the values of `X-Forwarded-For`.

    Hops before that one are untrusted. If a trusted proxy names no client, the proxy itself counts as the client.
    """
    client = _read(peer)
    if client is None:
        return peer
    for hop in reversed(b",".join(forwarded).rsplit(b",", HOPS_MAX)[-HOPS_MAX:]):
        if not any(client in network for network in trusted):
            break
        named = _read(_without_port(hop.strip(b" \t").decode("latin-1"))) if len(hop) <= LONGEST else None
        if named is None:
            break
        client = named
    return str(client)


def network_of(address: str) -> str:
    """Return the range of addresses of one client: an IPv4 address, or the /64 of an IPv6 address."""
    client = _read(address)
    return str(ip_network((client, 64), strict=False)) if isinstance(client, IPv6Address) else address


def is_inside(address: str, ranges: Sequence[str]) -> bool:
    """Return whether the address is loopback or in one of the ranges."""
    client = _read(address)
    return client is not None and (client.is_loopback or is_in(address, ranges))


def is_in(address: str, ranges: Sequence[str]) -> bool:
    client = _read(address)
    return client is not None and any(client in ip_network(text) for text in ranges)


def is_network(text: str) -> bool:
    try:
        ip_network(text)
    except ValueError:
        return False
    return True


def _read(text: str) -> Address | None:
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found


def _without_port(hop: str) -> str:
    """Remove the port: some proxies write `192.0.2.1:4711` or `[2001:db8::1]:4711`."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
