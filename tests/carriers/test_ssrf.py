"""The SSRF block list: the first and last address of each denied range, and IPv4 addresses embedded in IPv6."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest

from heliograph.domain.network.ssrf import DENIED_NETWORKS, is_denied

# The deny list (reliability, SSRF), repeated here as the first and last address of each range.
RANGES = """
0.0.0.0 0.255.255.255
10.0.0.0 10.255.255.255
100.64.0.0 100.127.255.255
127.0.0.0 127.255.255.255
169.254.0.0 169.254.255.255
172.16.0.0 172.31.255.255
192.0.0.0 192.0.0.255
192.0.2.0 192.0.2.255
192.31.196.0 192.31.196.255
192.52.193.0 192.52.193.255
192.88.99.0 192.88.99.255
192.168.0.0 192.168.255.255
192.175.48.0 192.175.48.255
198.18.0.0 198.19.255.255
198.51.100.0 198.51.100.255
203.0.113.0 203.0.113.255
224.0.0.0 239.255.255.255
240.0.0.0 255.255.255.255
168.63.129.16 168.63.129.16
:: ::ffff:ffff
::1 ::1
::ffff:0:0:0 ::ffff:0:ffff:ffff
64:ff9b:: 64:ff9b::ffff:ffff
64:ff9b:1:: 64:ff9b:1:ffff:ffff:ffff:ffff:ffff
100:: 100::ffff:ffff:ffff:ffff
2001:: 2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff
2001:db8:: 2001:db8:ffff:ffff:ffff:ffff:ffff:ffff
2002:: 2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff
3fff:: 3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff
5f00:: 5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff
fc00:: fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff
fe80:: febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff
fec0:: feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff
ff00:: ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff
""".split()
FIRST_AND_LAST = list(zip(RANGES[::2], RANGES[1::2], strict=True))

PUBLIC = [
    "1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
    "168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0",
    "192.0.1.0", "192.0.3.0", "192.31.195.255", "192.52.194.0", "192.88.98.255", "192.167.255.255", "192.169.0.0",
    "192.175.49.0", "198.17.255.255", "198.20.0.0", "198.51.101.0", "203.0.112.255", "223.255.255.255",
    "64:ff9a:ffff::", "64:ff9b:2::", "100:0:0:1::", "2001:200::", "2001:db7::", "2001:db9::", "2003::",
    "3ffe::1", "3fff:1000::", "5eff::", "5f01::", "2606:4700:4700::1111", "fbff::1", "2a00:1450:4001::1a",
]  # fmt: skip


@pytest.mark.parametrize(("first", "last"), FIRST_AND_LAST)
def test_denied_range_is_denied_from_first_to_last_address(first: str, last: str) -> None:
    assert is_denied(first)
    assert is_denied(last)
    assert is_denied(ip_address(first))


def test_denied_ranges_equal_the_table() -> None:
    listed = {(str(network[0]), str(network[-1])) for network in DENIED_NETWORKS} | {("::1", "::1")}
    assert listed == set(FIRST_AND_LAST)


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_beside_denied_ranges_are_allowed(address: str) -> None:
    assert not is_denied(address)


@pytest.mark.parametrize(
    ("address", "denied"),
    [
        ("::ffff:127.0.0.1", True),
        ("::ffff:7f00:1", True),
        ("::ffff:169.254.169.254", True),
        ("::ffff:8.8.8.8", False),
        ("0:0:0:0:0:ffff:0808:0808", False),
        ("::127.0.0.1", True),  # v4-compatible
        ("::ffff:0:127.0.0.1", True),  # v4-translated, of SIIT
        ("::ffff:0:8.8.8.8", True),
        ("2002:7f00:1::", True),  # 6to4 of 127.0.0.1
        ("2002:808:808::", True),  # all 6to4 addresses
        ("64:ff9b::10.0.0.1", True),
        ("64:ff9b::8.8.8.8", True),
        ("fe80::1%eth0", True),
        ("::ffff:127.0.0.1%1", True),
    ],
)
def test_embedded_ipv4_addresses_are_denied(address: str, denied: bool) -> None:
    assert is_denied(address) == denied


@pytest.mark.parametrize("text", ["", "localhost", "2130706433", "0x7f.1", "127.1", "0177.0.0.1", "8.8.8.8\n"])
def test_invalid_address_is_denied(text: str) -> None:
    assert is_denied(text)


@pytest.mark.parametrize(
    ("address", "allow", "denied"),
    [
        ("127.0.0.2", "127.0.0.0/8", False),
        ("::ffff:127.0.0.2", "127.0.0.0/8", False),
        ("10.0.0.1", "127.0.0.0/8", True),
        ("fd00::1", "fd00::/8", False),
        ("64:ff9b::8.8.8.8", "64:ff9b::/96", False),  # an operator's NAT64
        ("64:ff9b::10.0.0.1", "64:ff9b::/96", True),  # … does not allow embedded private addresses
        ("2002:a00:1::", "2002::/16", True),
        ("2002:a00:1::", "10.0.0.0/8", True),
    ],
)
def test_ranges_allowed_by_the_operator_are_open(address: str, allow: str, denied: bool) -> None:
    assert is_denied(address, [ip_network(allow)]) == denied


def test_parsed_address_objects_are_accepted() -> None:
    assert is_denied(IPv4Address("127.0.0.1"))
    assert is_denied(IPv6Address("::1"))
    assert not is_denied(IPv4Address("8.8.8.8"))
