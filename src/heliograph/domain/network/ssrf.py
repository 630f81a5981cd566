"""SSRF block list: addresses to which untrusted DNS must not direct us (docs/internals/reliability.md).

`ipaddress.is_global` is not sufficient: it allows multicast, 6to4 and NAT64.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

DENIED_NETWORKS: tuple[Network, ...] = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 "
        "192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 "
        "198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 168.63.129.16/32 "
        "::/96 ::ffff:0:0:0/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 2001::/23 2001:db8::/32 2002::/16 3fff::/20 "
        "5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8"
    ).split()
)
NAT64 = IPv6Network("64:ff9b::/96")
# Names of the local machine: RFC 6761, and the hosts files of Debian and Red Hat.
LOOPBACK_BY_HOST = {
    **dict.fromkeys(("localhost", "localhost.localdomain", "localhost4", "localhost4.localdomain4"), "127.0.0.1"),
    **dict.fromkeys(("ip6-localhost", "ip6-loopback", "localhost6", "localhost6.localdomain6"), "::1"),
}


def loopback_address(host: str) -> str | None:
    """Return the loopback address that a host name always denotes, regardless of DNS; None for other names."""
    return "127.0.0.1" if host.endswith(".localhost") else LOOPBACK_BY_HOST.get(host)


def is_denied(ip: str | Address, allow: Sequence[Network] = ()) -> bool:
    """Return whether an address is in a denied range and in no range of `allow`; invalid addresses are denied."""
    try:
        parsed = ip_address(ip)
    except ValueError:
        return True
    return any(
        any(address in network for network in DENIED_NETWORKS) and not any(address in network for network in allow)
        for address in _reachable_addresses(parsed)
    )


def _reachable_addresses(ip: Address) -> tuple[Address, ...]:
    """Return all addresses that a packet to this address may reach: itself, and an embedded IPv4 address."""
    if isinstance(ip, IPv4Address):
        return (ip,)
    if ip.ipv4_mapped:
        return (ip.ipv4_mapped,)
    if ip.sixtofour:
        return ip, ip.sixtofour
    if ip in NAT64:
        return ip, IPv4Address(int(ip) & 0xFFFFFFFF)
    return (ip,)
