"""Client address of a request behind proxies, and address ranges that count as one client in rate limits."""

from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address, ip_network

from heliograph.domain.network.ssrf import Address, Network

HOPS_MAX = 32
HOP_LENGTH_MAX = 64  # characters of an IPv6 address with brackets and a port


def client_address(peer: str, forwarded: Sequence[bytes], trusted: Sequence[Network]) -> str:
    """Return the client's address: the last hop that is not a trusted proxy.

    Searches `X-Forwarded-For` backwards from the peer, because earlier hops are untrusted. If a trusted proxy names no
    client, the proxy itself counts as the client.
    """
    client = _parse_ip(peer)
    if client is None:
        return peer
    for hop in reversed(b",".join(forwarded).rsplit(b",", HOPS_MAX)[-HOPS_MAX:]):
        if not any(client in network for network in trusted):
            break
        hop_address = (
            _parse_ip(_without_port(hop.strip(b" \t").decode("latin-1"))) if len(hop) <= HOP_LENGTH_MAX else None
        )
        if hop_address is None:
            break
        client = hop_address
    return str(client)


def client_network(address: str) -> str:
    """Return the address range that counts as one client: an IPv4 address, or the /64 of an IPv6 address."""
    client = _parse_ip(address)
    return str(ip_network((client, 64), strict=False)) if isinstance(client, IPv6Address) else address


def is_loopback_or_in(address: str, ranges: Sequence[str]) -> bool:
    """Return whether the address is loopback or in one of the ranges."""
    client = _parse_ip(address)
    return client is not None and (client.is_loopback or is_in_ranges(address, ranges))


def is_in_ranges(address: str, ranges: Sequence[str]) -> bool:
    client = _parse_ip(address)
    return client is not None and any(client in ip_network(text) for text in ranges)


def is_network(text: str) -> bool:
    try:
        ip_network(text)
    except ValueError:
        return False
    return True


def _parse_ip(text: str) -> Address | None:
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def _without_port(hop: str) -> str:
    """Remove the port of a forwarded address: some proxies write `192.0.2.1:4711` or `[2001:db8::1]:4711`."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
