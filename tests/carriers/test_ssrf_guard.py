"""Webhook targets that must be rejected: hostile URLs, and names whose addresses change; no connection is attempted."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import dns.message
import dns.name
import dns.rdatatype
import pytest

from heliograph.webhooks.client.http_post import WebhookHttpClient
from heliograph.webhooks.client.ssrf_guard import AddressResolver, CheckedUrl, HostUnresolved, SsrfGuard, TargetDenied
from heliograph.webhooks.policy.webhook_url import parse_target
from tests.carriers.dns_peer import DnsPeer, Zone
from tests.carriers.hook_receiver import Receiver
from tests.carriers.test_ssrf import FIRST_AND_LAST

pytestmark = pytest.mark.anyio

PUBLIC = "8.8.8.8"
LOOPBACKS = {"127.0.0.1", "::1", str(IPv6Address("::ffff:127.0.0.1"))}
EVERYTHING = ("0.0.0.0/0", "::/0")
DENIED_4 = [ip for pair in FIRST_AND_LAST for ip in map(ip_address, pair) if isinstance(ip, IPv4Address)]
DENIED_6 = [ip for pair in FIRST_AND_LAST for ip in map(ip_address, pair) if isinstance(ip, IPv6Address)]
NAMES = {f"n{i}.example.com": str(ip) for i, ip in enumerate([*DENIED_4, *DENIED_6, IPv4Address("127.0.0.1")])}


# -- 400 and more hostile URLs -----------------------------------------------------------------------------


def disguises(ip: IPv4Address) -> list[str]:
    """Return hosts that some parsers read as this IPv4 address."""
    a, b, c, d = ip.packed
    number, wide = int(ip), str(ip).translate({48 + digit: 0xFF10 + digit for digit in range(10)})
    plain = [
        f"{ip}",
        f"{ip}.",
        f"{ip}..",
        wide,
        str(ip).replace(".", "。"),
        "".join(f"%{octet:02x}" for octet in str(ip).encode()),
    ]
    numbers = [f"{number}", f"{number:#x}", f"0{number:o}", f"{a}.{b}.{c * 256 + d}", f"{a}.{number & 0xFFFFFF}"]
    dotted = [
        f"{a:#x}.{b:#x}.{c:#x}.{d:#x}",
        f"0{a:o}.0{b:o}.0{c:o}.0{d:o}",
        f"{a:#x}.{b}.0{c:o}.{d}",
        f"{a}.{b}.{c}.{d:#x}",
    ]
    wrapped = [f"[::ffff:{ip}]", f"[::ffff:{number >> 16:x}:{number & 0xFFFF:x}]", f"[::{ip}]", f"[64:ff9b::{ip}]"]
    wrapped += [f"[2002:{number >> 16:x}:{number & 0xFFFF:x}::1]", f"[0:0:0:0:0:FFFF:{ip}]", f"[::ffff:{ip}%25lo]"]
    tricks = [f"example.com@{ip}", f"example.com:80@{ip}", f"{ip}#@example.com", f"example.com\\@{ip}", f"user:pw@{ip}"]
    return plain + numbers + dotted + wrapped + tricks  # fmt: skip


def hosts() -> list[str]:
    disguised_hosts = [disguise for ip in [*DENIED_4, IPv4Address("127.0.0.1")] for disguise in disguises(ip)]
    for six in DENIED_6:
        disguised_hosts += [
            f"[{six}]",
            f"[{six.exploded.upper()}]",
            f"[{six}%25lo]",
            f"[{six}%lo]",
            f"{six}",
            f"a@[{six}]",
        ]
    for name in NAMES:
        disguised_hosts += [name, f"{name}.", name.upper(), f"a:b@{name}"]
    return [
        *disguised_hosts,
        "localhost",
        "LOCALHOST.",
        "localhost..",
        "ⓛocalhost",
        "127.0.0.1\n",
        "bücher.example.com",
    ]


def hostile(port: int) -> list[str]:
    ports = [f":{port}", f":0{port}", f":{port}:80", ":0", ":65536", f":-{port}", ":"]
    on_ports = [f"http://127.0.0.1{text}/" for text in ports]
    schemes = [
        f"{scheme}://127.0.0.1:{port}/" for scheme in ("ftp", "file", "gopher", "dict", "ldap", "unix", "httpſ", "")
    ]
    return [*(f"http://{host}:{port}/" for host in hosts()), *on_ports, *schemes]


class Reach:
    """Counts attempted connections; those to other machines fail immediately."""

    def __init__(self, loop: Any) -> None:
        self.tried: list[str] = []
        self._connect = loop.sock_connect
        loop.sock_connect = self.connect

    async def connect(self, sock: Any, address: tuple[str, int]) -> None:
        self.tried.append(address[0])
        if address[0] not in LOOPBACKS:
            raise ConnectionRefusedError
        await self._connect(sock, address)


@pytest.fixture
async def reach() -> Reach:
    return Reach(asyncio.get_running_loop())


@pytest.fixture
async def loopback() -> AsyncIterator[list[Receiver]]:
    """Run listeners on the same port of both loopback addresses."""
    async with Receiver() as four, Receiver(host="::1", port=four.port) as six:
        yield [four, six]


async def from_table(host: str) -> list[str]:
    """Return a public address, followed by the host's address in a table."""
    return ["127.0.0.1"] if host == "localhost" else [PUBLIC, NAMES.get(host, "127.0.0.1")]


async def test_hostile_url_is_not_requested(loopback: list[Receiver], reach: Reach) -> None:
    urls = hostile(loopback[0].port)
    assert len(set(urls)) >= 400
    poster = WebhookHttpClient(SsrfGuard((), from_table))
    answers = {url: await poster.post(url, {}, b"{}") for url in urls}
    await poster.close()
    assert [url for url, answer in answers.items() if answer.status is not None or not answer.error] == []
    assert reach.tried == []
    assert [receiver.accepted for receiver in loopback] == [0, 0]


async def test_test_listeners_are_reachable(loopback: list[Receiver], reach: Reach) -> None:
    """Control: if the operator allows everything, the same URLs are reached."""
    poster = WebhookHttpClient(SsrfGuard(EVERYTHING, from_table))
    port = loopback[0].port
    for host in ("127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "localhost", "127.0.0.1."):
        assert (await poster.post(f"http://{host}:{port}/", {}, b"{}")).status == 200
    await poster.close()
    assert all(receiver.accepted for receiver in loopback)
    assert reach.tried


# -- 200 names that change ---------------------------------------------------------------------------------


class Rebinding(DnsPeer):
    """Each kind of name resolves to a public address once, and afterwards, or at the same time, to loopback."""

    def _answer(self, response: dns.message.Message, name: dns.name.Name, kind: dns.rdatatype.RdataType) -> None:
        text = name.to_text(omit_final_dot=True)
        first = not self.query_counts[text, dns.rdatatype.to_text(kind)]
        self.zone = self.zone_of(text, first)
        super()._answer(response, name, kind)

    def zone_of(self, name: str, first: bool) -> Zone:
        match name.split(".")[-3]:
            case "flips":  # public for the check, loopback for a second query
                return {(name, "A"): [PUBLIC if first else "127.0.0.1"]}
            case "six":
                return {(name, "A"): [PUBLIC], (name, "AAAA"): ["::1"]}
            case "mapped":
                return {(name, "A"): [PUBLIC], (name, "AAAA"): ["::ffff:127.0.0.1"]}
            case "both":
                return {(name, "A"): [PUBLIC, "127.0.0.1"]}
            case "alias" if name.startswith("x"):
                return {(name, "CNAME"): [f"to.{name}."]}
            case _:
                return {(name, "A"): ["127.0.0.1"]}


@pytest.mark.parametrize("kind", ["flips", "six", "mapped", "both", "alias"])
async def test_dns_rebinding_does_not_reach_loopback(kind: str, loopback: list[Receiver], reach: Reach) -> None:
    async with Rebinding({}) as peer:
        poster = WebhookHttpClient(
            SsrfGuard((), AddressResolver(("127.0.0.1", int(peer.address.rpartition(":")[2]))).resolve)
        )
        for n in range(20):
            url = f"http://x{n}.{kind}.example.com:{loopback[0].port}/"
            errors = [(await poster.post(url, {}, b"{}")).error or "" for _ in range(2)]
            assert ("no connection" in errors[0]) == (kind == "flips")
            assert "webhooks may not connect to" in errors[1]
        await poster.close()
    assert set(reach.tried) == ({PUBLIC} if kind == "flips" else set())
    assert [receiver.accepted for receiver in loopback] == [0, 0]
    assert len(peer.query_counts) >= 20


async def test_each_attempt_resolves_its_addresses(reach: Reach) -> None:
    answers = iter([["8.8.8.8"], ["9.9.9.9"]])

    async def resolve(host: str) -> list[str]:
        addresses = next(answers)
        await asyncio.sleep(0)
        return addresses

    poster = WebhookHttpClient(SsrfGuard((), resolve))
    await asyncio.gather(*(poster.post("http://a.example.com/", {}, b"{}") for _ in range(2)))
    await poster.close()
    assert sorted(reach.tried) == ["8.8.8.8", "9.9.9.9"]


@pytest.mark.parametrize("host", ["a.example.com", "127.0.0.1", "[::1]"])
async def test_only_checked_addresses_are_connected(
    host: str, loopback: list[Receiver], reach: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for any host in the URL."""

    async def check(self: SsrfGuard, url: str) -> CheckedUrl:
        return CheckedUrl(target=parse_target(url), addresses=(PUBLIC,))

    monkeypatch.setattr(SsrfGuard, "check", check)
    poster = WebhookHttpClient(SsrfGuard())
    answer = await poster.post(f"http://{host}:{loopback[0].port}/", {}, b"{}")
    await poster.close()
    assert "no connection" in (answer.error or "")
    assert reach.tried == [PUBLIC]


async def test_pooled_connection_is_dropped_when_the_name_resolves_elsewhere(loopback: list[Receiver]) -> None:
    addresses = iter(["127.0.0.1", "127.0.0.1", "::1", "::1"])

    async def resolve(host: str) -> list[str]:
        return [next(addresses)]

    poster = WebhookHttpClient(SsrfGuard(EVERYTHING, resolve))
    for _ in range(4):
        assert (await poster.post(f"http://a.example.com:{loopback[0].port}/", {}, b"{}")).status == 200
    await poster.close()
    assert [(receiver.accepted, len(receiver.received)) for receiver in loopback] == [(1, 2), (1, 2)]


# -- the guard alone ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("addresses", "allow", "passes"),
    [
        ([PUBLIC], [], True),
        ([PUBLIC, "2606:4700:4700::1111"], [], True),
        ([PUBLIC, "10.0.0.1"], [], False),
        (["10.0.0.1"], ["10.0.0.0/8"], True),
        ([PUBLIC, "10.0.0.1"], ["10.0.0.0/8"], True),
        (["10.0.0.1", "127.0.0.1"], ["10.0.0.0/8"], False),
        (["fd00::1"], ["fd00::/8", "10.0.0.0/8"], True),
        (["not an address"], EVERYTHING, False),
    ],
)
async def test_name_with_any_denied_address_is_refused(
    addresses: list[str], allow: Sequence[str], passes: bool
) -> None:
    async def resolve(host: str) -> list[str]:
        return addresses

    guard = SsrfGuard(allow, resolve)
    if passes:
        checked = await guard.check("https://hooks.example.com:8443/x")
        assert (checked.target.host, checked.addresses) == ("hooks.example.com", tuple(addresses))
    else:
        with pytest.raises(TargetDenied, match="webhooks may not connect to") as caught:
            await guard.check("https://hooks.example.com:8443/x")
        assert not any(address in str(caught.value) for address in addresses)


async def test_ip_literal_is_not_resolved() -> None:
    async def resolve(host: str) -> list[str]:
        raise AssertionError(host)

    assert (await SsrfGuard((), resolve).check("https://[2606:4700:4700::1111]/")).addresses == (
        "2606:4700:4700::1111",
    )


ZONE: Zone = {
    ("both.test", "A"): ["8.8.8.8", "9.9.9.9"],
    ("both.test", "AAAA"): ["2606:4700:4700::1111"],
    ("six.test", "AAAA"): ["2606:4700:4700::1111"],
    ("alias.test", "CNAME"): ["both.test."],
    ("texts.test", "TXT"): ['"hello"'],
    ("app", "A"): ["10.0.0.9"],
}


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        ("both.test", ["2606:4700:4700::1111", "8.8.8.8", "9.9.9.9"]),
        ("alias.test", ["2606:4700:4700::1111", "8.8.8.8", "9.9.9.9"]),
        ("six.test", ["2606:4700:4700::1111"]),
        ("app", ["10.0.0.9"]),
        ("texts.test", []),
        ("nowhere.test", []),
        ("localhost", ["127.0.0.1"]),
        ("foo.localhost", ["127.0.0.1"]),
        ("localhost.localdomain", ["127.0.0.1"]),
        ("ip6-localhost", ["::1"]),
        ("ip6-loopback", ["::1"]),
    ],
)
async def test_resolved_name_has_all_its_addresses(host: str, addresses: list[str]) -> None:
    async with DnsPeer(ZONE) as peer:
        names = AddressResolver(("127.0.0.1", int(peer.address.rpartition(":")[2])))
        assert sorted(await names.resolve(host)) == addresses


LOOPBACK_NAMES = (
    *("localhost", "LOCALHOST", "foo.localhost", "a.b.localhost", "localhost.localdomain", "localhost4"),
    *("localhost4.localdomain4", "ip6-localhost", "ip6-loopback", "localhost6", "localhost6.localdomain6"),
)


@pytest.mark.parametrize("dot", ["", "."])
@pytest.mark.parametrize("host", LOOPBACK_NAMES)
async def test_loopback_name_is_refused_unless_the_operator_allows_its_range(host: str, dot: str) -> None:
    async with DnsPeer({}) as peer:  # these names do not exist in DNS
        resolve = AddressResolver(("127.0.0.1", int(peer.address.rpartition(":")[2]))).resolve
        url = f"http://{host}{dot}/hook"
        with pytest.raises(TargetDenied, match="HELIOGRAPH_WEBHOOK_ALLOW_PRIVATE"):
            await SsrfGuard((), resolve).check(url)
        assert (await SsrfGuard(("127.0.0.0/8", "::1/128"), resolve).check(url)).addresses in (("127.0.0.1",), ("::1",))


async def test_name_without_an_answer_is_an_error() -> None:
    async with DnsPeer(ZONE) as peer:
        peer.failing_names.add("both.test")
        guard = SsrfGuard((), AddressResolver(("127.0.0.1", int(peer.address.rpartition(":")[2]))).resolve)
        with pytest.raises(HostUnresolved, match="DNS did not respond for both.test"):
            await guard.check("https://both.test/")
        with pytest.raises(HostUnresolved, match="nowhere.test has no address"):
            await guard.check("https://nowhere.test/")


# -- our own bins ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "is_open"),
    [(f"/bin/team_a/{'0a' * 16}", True), ("/bin/team_a/x", False), ("/", False), (f"/bin/a/../{'0a' * 16}", False)],
)
async def test_service_reaches_only_its_own_bins(path: str, is_open: bool) -> None:
    extra = "http://127.0.0.1:8700"
    if is_open:
        assert (await SsrfGuard(own_base_url=extra).check(extra + path)).addresses == ("127.0.0.1",)
    for guard, url in ((SsrfGuard(), extra + path), (SsrfGuard(own_base_url=extra), f"http://127.0.0.1:22{path}")):
        with pytest.raises(TargetDenied):
            await guard.check(url)
    if not is_open:
        with pytest.raises(TargetDenied):
            await SsrfGuard(own_base_url=extra).check(extra + path)
