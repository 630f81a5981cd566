"""The client's address behind proxies: the last hop that is not trusted, whatever headers the client sends."""

import time
from ipaddress import ip_network

import pytest

from heliograph.domain.network.client_address import client_address, client_network

TRUSTED = [ip_network(text) for text in ("10.0.0.0/8", "127.0.0.1", "2001:db8:1::/48")]


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", [b"203.0.113.7"], "203.0.113.7"),
        ("127.0.0.1", [b"198.51.100.1, 203.0.113.7"], "203.0.113.7"),  # the first hop was written by the client
        ("127.0.0.1", [b"203.0.113.7, 10.1.2.3"], "203.0.113.7"),
        ("127.0.0.1", [b"198.51.100.1", b"203.0.113.7", b"10.1.2.3"], "203.0.113.7"),  # each proxy added a header
        ("127.0.0.1", [b"10.0.0.1, 10.0.0.2"], "10.0.0.1"),  # all hops are trusted: the first one counts
        ("192.0.2.1", [b"203.0.113.7"], "192.0.2.1"),  # not a trusted proxy
        ("10.9.9.9", [b"203.0.113.7:51000"], "203.0.113.7"),
        ("10.9.9.9", [b"[2001:db8:2::7]:443"], "2001:db8:2::7"),
        ("10.9.9.9", [b"2001:DB8:2:0::7"], "2001:db8:2::7"),
        ("2001:db8:1::1", [b"203.0.113.7"], "203.0.113.7"),
        ("::ffff:10.0.0.1", [b"::ffff:203.0.113.7"], "203.0.113.7"),
        ("10.0.0.1", [b"unknown"], "10.0.0.1"),
        ("10.0.0.1", [b"198.51.100.1, unknown"], "10.0.0.1"),
        ("10.0.0.1", [b""], "10.0.0.1"),
        ("10.0.0.1", [b",,,"], "10.0.0.1"),
        ("10.0.0.1", [b"203.0.113.7\xff"], "10.0.0.1"),
        ("10.0.0.1", [b"203.0.113.7" + b" " * 100], "10.0.0.1"),
        ("10.0.0.1", [b"198.51.100.1," + b"10.0.0.2," * 5000 + b"10.0.0.3"], "10.0.0.2"),
        ("", [b"203.0.113.7"], ""),  # a socket without addresses
    ],
)
def test_client_address_is_the_last_untrusted_hop(peer: str, forwarded: list[bytes], client: str) -> None:
    assert client_address(peer, forwarded, TRUSTED) == client


@pytest.mark.parametrize("shape", [b",", b"10.0.0.1,", b"[", b":", b" ", b"%", b"1."])
def test_hostile_values_cost_no_more_than_their_length(shape: bytes) -> None:
    def cost(size: int) -> int:
        value, runs = [(shape * size)[:size]], []
        for _ in range(5):
            started_at = time.thread_time_ns()
            for _ in range(20):
                client_address("10.0.0.1", value, TRUSTED)
            runs.append(time.thread_time_ns() - started_at)
        return min(runs)

    assert cost(256 * 1024) < 8 * cost(64 * 1024)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("::ffff:203.0.113.7", "::ffff:203.0.113.7"),
        ("", ""),
    ],
)
def test_addresses_of_one_client_count_as_one(address: str, network: str) -> None:
    assert client_network(address) == network
