"""DNS checks query a domain's authoritative servers, despite caches, aliases and broken servers."""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from ipaddress import ip_network
from typing import Any, cast

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest

from heliograph.carriers.email import dns_check
from heliograph.carriers.email.dns_check import AuthoritativeServers, check_records, check_records_at, zone_of
from heliograph.domain.setup.domain_records import Record, Verdict, expected_records
from heliograph.runtime.resolver import Resolver

pytestmark = pytest.mark.anyio

LOOPBACK = (ip_network("127.0.0.0/8"),)
KEY = "A" * 392
RECORDS = expected_records(
    "acme.test",
    domain_id="dom_acme",
    ownership="token",
    dkim=[("h1", f"v=DKIM1; k=rsa; p={KEY}"), ("h2", "v=DKIM1; k=ed25519; p=QUJD")],
    return_path_host="bounce.acme.test",
    bounce_host="mx.heliograph.test",
)
_, DKIM, _, RETURN_PATH, SPF, DMARC, _ = RECORDS

Zone = dict[tuple[str, str], list[str]]

GOOD: Zone = {
    ("_heliograph.acme.test.", "TXT"): ['"heliograph=dom_acme token"'],
    ("h1._domainkey.acme.test.", "TXT"): [f'"v=DKIM1; k=rsa; p={KEY[:200]}" "{KEY[200:]}"'],
    ("h2._domainkey.acme.test.", "TXT"): ['"v=DKIM1; k=ed25519; p=QUJD"'],
    ("bounce.acme.test.", "MX"): ["10 mx.heliograph.test."],
    ("bounce.acme.test.", "TXT"): ['"v=spf1 a:mx.heliograph.test ~all"'],
    ("_dmarc.acme.test.", "TXT"): ['"v=DMARC1; p=reject"'],
    ("_smtp._tls.acme.test.", "TXT"): ['"v=TLSRPTv1; rua=mailto:reports@acme.test"'],
}
# Records of the system's resolver: the name servers of the zones, and outdated, wrong copies of their records.
DELEGATIONS: Zone = {
    ("acme.test.", "NS"): ["ns1.acme.test.", "ns2.acme.test."],
    ("ns1.acme.test.", "A"): ["127.0.0.2"],
    ("ns2.acme.test.", "A"): ["127.0.0.3"],
    ("_dmarc.acme.test.", "TXT"): ['"stale"'],
}


class Peer:
    """A DNS server over UDP and TCP that answers from a zone."""

    def __init__(
        self, zone: Zone, *, authoritative: bool = True, rcode: int = 0, silent: int = 0, small: bool = False
    ) -> None:
        self.zone = zone
        self.authoritative = authoritative
        self.rcode = rcode
        self.silent = silent  # UDP queries that get no answer
        self.small = small  # every UDP answer is truncated
        self.queries: list[tuple[str, str]] = []
        self.recursion: set[bool] = set()
        self.tcp = 0

    def answer(self, wire: bytes, truncated: bool) -> bytes:
        query = dns.message.from_wire(wire)
        name = query.question[0].name
        question = (name.to_text(), dns.rdatatype.to_text(query.question[0].rdtype))
        self.queries.append(question)
        self.recursion.add(bool(query.flags & dns.flags.RD))
        response = dns.message.make_response(query)
        if self.authoritative:
            response.flags |= dns.flags.AA
        response.set_rcode(dns.rcode.Rcode(self.rcode))
        if truncated:
            response.flags |= dns.flags.TC
        elif not self.rcode:
            type = "CNAME" if (question[0], "CNAME") in self.zone else question[1]
            if records := self.zone.get((question[0], type)):
                response.answer.append(dns.rrset.from_text(name, 60, "IN", type, *records))
            elif not any(f".{known}".endswith(f".{question[0]}") for known, _ in self.zone):
                response.set_rcode(dns.rcode.NXDOMAIN)
            if not response.answer:  # as servers do, with the zone that has no such record
                apexes = [apex for apex, kind in self.zone if kind == "SOA" and f".{question[0]}".endswith(f".{apex}")]
                response.authority += [
                    dns.rrset.from_text(apex, 60, "IN", "SOA", *self.zone[apex, "SOA"]) for apex in apexes
                ]
        return response.to_wire()

    async def stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tcp += 1
        size = int.from_bytes(await reader.readexactly(2))
        wire = self.answer(await reader.readexactly(size), False)
        writer.write(len(wire).to_bytes(2) + wire)
        await writer.drain()
        writer.close()


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if self.peer.silent:
            self.peer.silent -= 1
        else:
            self.transport.sendto(self.peer.answer(data, self.peer.small), addr)


@asynccontextmanager
async def serving(*peers: Peer) -> AsyncIterator[int]:
    """Run the servers at 127.0.0.1, 127.0.0.2, …, all on the given port."""
    for _ in range(20):
        async with AsyncExitStack() as stack:
            try:
                port = await _start(peers, stack)
            except OSError:  # the port is taken at one of the addresses
                continue
            yield port
            return
    raise AssertionError("no port is free at all addresses")


async def _start(peers: Sequence[Peer], stack: AsyncExitStack) -> int:
    port = 0
    for number, peer in enumerate(peers, 1):
        server = await asyncio.start_server(peer.stream, f"127.0.0.{number}", port)
        stack.callback(server.close)
        port = server.sockets[0].getsockname()[1]
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            partial(Datagrams, peer), (f"127.0.0.{number}", port)
        )
        stack.callback(transport.close)
    return port


def system_at(port: int) -> Resolver:
    return Resolver(("127.0.0.1", port), dns_check.RESOLVER_TIMEOUT_S)


async def check_authorities(records: list[Record], port: int) -> dict[str, Verdict]:
    source = AuthoritativeServers(system_at(port), port=port, allowed_networks=LOOPBACK)
    return {record.name + " " + record.type: verdict for record, verdict in await check_records_at(source, records)}


async def test_all_records_are_found_at_the_configured_resolver() -> None:
    async with serving(Peer(GOOD, authoritative=False)) as port:
        checked = await check_records(RECORDS, ("127.0.0.1", port))
        assert [record for record, _ in checked] == RECORDS
        assert [verdict.fix for _, verdict in checked] == [""] * len(RECORDS)


async def test_resolver_with_an_unused_ipv6_address_is_used_by_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(host: str, port: int, *_: Any) -> list[Any]:
        return [(socket.AF_INET6, 0, 0, "", ("::1", port, 0, 0)), (socket.AF_INET, 0, 0, "", ("127.0.0.1", port))]

    async with serving(Peer(GOOD, authoritative=False)) as port:
        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        checked = await check_records(RECORDS, ("localhost", port))
        assert all(verdict.ok for _, verdict in checked)
        answer = await Resolver(("localhost", port), 5).query(RECORDS[0].name, RECORDS[0].type)
        assert answer.nameserver == "127.0.0.1"


async def test_nonexistent_record_is_missing_not_unanswered() -> None:
    async with serving(Peer({})) as port:
        for record, verdict in await check_records(RECORDS, ("127.0.0.1", port)):
            assert verdict.answered and not verdict.ok and verdict.found == ()
            assert verdict.fix.startswith(f"There is no {record.type} record at {record.name}.")


async def test_authoritative_servers_are_queried_instead_of_the_cache() -> None:
    system, first, second = Peer(DELEGATIONS), Peer(GOOD), Peer(GOOD)
    async with serving(system, first, second) as port:
        verdicts = await check_authorities(RECORDS, port)
    assert all(verdict.ok for verdict in verdicts.values()), verdicts
    assert {type for _, type in system.queries} == {"NS", "A", "AAAA"}
    per_query = Counter(system.queries)
    assert max(per_query.values()) <= 2  # the servers are found once for all records, and once for the DKIM records
    assert first.recursion == {False}
    dkim_records = sum(record.purpose == "dkim" for record in RECORDS)  # queried at every server
    assert (len(first.queries), len(second.queries)) == (len(RECORDS) + dkim_records, dkim_records)


@pytest.mark.parametrize(
    ("first", "expected_words"),
    [
        (lambda: Peer(GOOD, silent=99), "127.0.0.2 did not answer in time."),
        (lambda: Peer(GOOD, rcode=dns.rcode.REFUSED), "127.0.0.2 answered REFUSED."),
        (lambda: Peer({}, authoritative=False), "127.0.0.2 does not answer for this zone."),
    ],
)
async def test_broken_server_is_skipped(
    first: Callable[[], Peer], expected_words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dns_check, "SERVER_TIMEOUT_S", 0.2)
    async with serving(Peer(DELEGATIONS), first(), Peer(GOOD)) as port:
        assert (await check_authorities([DMARC], port))["_dmarc.acme.test TXT"].ok
    async with serving(Peer(DELEGATIONS), first(), first()) as port:
        [verdict] = (await check_authorities([DMARC], port)).values()
    assert not verdict.ok and not verdict.answered and expected_words in verdict.fix


@pytest.mark.parametrize(
    ("above", "ok"),
    [
        (['"v=DMARC1; p=reject; sp=quarantine"'], True),
        (['"v=spf1 -all"', '"v=DMARC1; p=none"'], True),
        (['"v=DMARC1; p=what"'], False),
        (['"v=DMARC1; p=none"', '"v=DMARC1; p=reject"'], False),
        (['"v=DMARC1; p=none; psd=y"'], False),
        ([], False),
    ],
)
@pytest.mark.parametrize("name", ["_dmarc.mail.acme.test", "_dmarc.a.b.c.d.e.f.g.h.i.mail.acme.test"])
async def test_dmarc_policy_of_the_parent_domain_is_accepted(name: str, above: list[str], ok: bool) -> None:
    record = Record(type="TXT", name=name, value="v=DMARC1; p=none", purpose="dmarc")
    zone: Zone = {("_dmarc.acme.test.", "TXT"): above, ("acme.test.", "TXT"): ['"x"']}
    peer = Peer(zone)
    async with serving(peer) as port:
        [(_, verdict)] = await check_records([record], ("127.0.0.1", port))
    assert verdict.ok is ok
    assert len(peer.queries) <= 8


async def test_truncated_answer_is_queried_again_by_tcp() -> None:
    peer = Peer(GOOD, small=True)
    async with serving(peer) as port:
        [(_, verdict)] = await check_records([DKIM], ("127.0.0.1", port))
    assert verdict.ok and peer.tcp == 1


async def test_query_is_repeated_after_a_lost_packet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns_check, "SERVER_TIMEOUT_S", 0.2)
    peer = Peer(GOOD, silent=1)
    async with serving(peer) as port:
        [(_, verdict)] = await check_records([DMARC], ("127.0.0.1", port))
    assert verdict.ok


async def test_cname_is_followed_into_its_own_zone() -> None:
    system = Peer(
        DELEGATIONS | {("example.test.", "NS"): ["ns.example.test."], ("ns.example.test.", "A"): ["127.0.0.3"]}
    )
    here = Peer({("_dmarc.acme.test.", "CNAME"): ["policy.example.test."]})
    other_server = Peer({("policy.example.test.", "TXT"): ['"v=DMARC1; p=none"']})
    async with serving(system, here, other_server) as port:
        assert (await check_authorities([DMARC], port))["_dmarc.acme.test TXT"].ok
    assert other_server.queries == [("policy.example.test.", "TXT")]


async def test_cname_loop_ends() -> None:
    circle = Peer({("_dmarc.acme.test.", "CNAME"): ["a.test."], ("a.test.", "CNAME"): ["_dmarc.acme.test."]})
    async with serving(circle) as port:
        [(_, verdict)] = await check_records([DMARC], ("127.0.0.1", port))
    assert not verdict.answered and "aliases" in verdict.fix and len(circle.queries) == dns_check.CNAMES_MAX


async def test_delegated_subdomain_is_queried_at_its_own_servers() -> None:
    system = Peer(DELEGATIONS | {("bounce.acme.test.", "NS"): ["ns2.acme.test."]})
    parent, child = Peer({}), Peer(GOOD)
    async with serving(system, parent, child) as port:
        verdicts = await check_authorities([RETURN_PATH, SPF, DMARC], port)
    assert [verdict.ok for verdict in verdicts.values()] == [True, True, False]
    assert parent.queries == [("_dmarc.acme.test.", "TXT")]


async def test_name_servers_with_private_addresses_are_not_queried() -> None:
    inside = Peer(GOOD)
    async with serving(Peer(DELEGATIONS), inside, inside) as port:
        [(_, verdict)] = await check_records_at(AuthoritativeServers(system_at(port), port=port), [DMARC])
    assert not verdict.answered and "only private addresses" in verdict.fix and inside.queries == []


async def test_failing_system_resolver_is_not_a_missing_record() -> None:
    async with serving(Peer({}, rcode=dns.rcode.SERVFAIL)) as port:
        [verdict] = (await check_authorities([DMARC], port)).values()
    assert not verdict.answered and "127.0.0.1" not in verdict.fix


async def test_system_resolver_without_an_answer_is_not_a_missing_record() -> None:
    async with serving(Peer({})) as port:
        [verdict] = (await check_authorities([DMARC], port)).values()
    assert not verdict.answered and "knows no zone" in verdict.fix


async def test_check_ends_in_time_and_leaves_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns_check, "TOTAL_TIMEOUT_S", 0.3)
    silent = Peer(GOOD, silent=99)
    before = asyncio.all_tasks()
    async with serving(Peer(DELEGATIONS), silent, silent) as port:
        async with asyncio.timeout(60):  # the silent servers alone would take minutes
            verdicts = await check_authorities(RECORDS, port)
        assert asyncio.all_tasks() == before
    assert not any(verdict.answered for verdict in verdicts.values())


async def test_check_without_records_sends_no_query() -> None:
    assert await check_records([], ("127.0.0.1", 1)) == []


async def test_name_that_is_invalid_in_dns_is_reported() -> None:
    record = Record(type="TXT", name=f"{'x' * 64}.acme.test", value="v", purpose="ownership")
    [(_, verdict)] = await check_records([record], ("127.0.0.1", 1))
    assert not verdict.answered and "LabelTooLong" in verdict.fix


def test_check_timeouts_fit_into_the_total() -> None:
    assert 2 * dns_check.SERVER_TIMEOUT_S <= 5 >= dns_check.RESOLVER_TIMEOUT_S
    assert dns_check.TOTAL_TIMEOUT_S <= 15


SOA = ["ns1.acme.test. root.acme.test. 1 3600 600 86400 60"]


@pytest.mark.parametrize(
    ("domain", "zone", "told"),
    [
        ("acme.test", {("acme.test.", "SOA"): SOA}, "acme.test"),
        ("mail.shop.acme.test", {("acme.test.", "SOA"): SOA}, "acme.test"),
        ("mail.shop.acme.test", {("shop.acme.test.", "SOA"): SOA}, "shop.acme.test"),
        ("acme.test", {("test.", "SOA"): SOA}, ""),  # the domain is not registered
        ("acme.test", {("other.test.", "SOA"): SOA}, ""),
        ("acme.test", {}, ""),
    ],
)
async def test_zone_is_the_one_in_dns(domain: str, zone: Zone, told: str) -> None:
    async with serving(Peer(zone)) as port:
        assert await zone_of(domain, ("127.0.0.1", port)) == told


async def test_zone_is_unknown_without_a_dns_answer() -> None:
    async with serving(Peer({}, rcode=dns.rcode.SERVFAIL)) as port:
        assert await zone_of("acme.test", ("127.0.0.1", port)) == ""


ZONE_KEY = Record(type="TXT", name="hg1.d1.acme.test", value="v=DKIM1; k=ed25519; p=a2V5", purpose="dkim")
PUBLISHED = {("hg1.d1.acme.test.", "TXT"): ['"v=DKIM1; k=ed25519; p=a2V5"']}
TWO_SERVERS: Zone = {
    ("acme.test.", "NS"): ["ns1.acme.test.", "ns2.acme.test."],
    ("ns1.acme.test.", "A"): ["127.0.0.2"],
    ("ns2.acme.test.", "A"): ["127.0.0.3"],
}


@pytest.mark.parametrize(
    ("second", "ttl"),
    [
        (Peer(PUBLISHED), 60),
        (Peer({}), None),
        (Peer({("hg1.d1.acme.test.", "TXT"): ['"v=DKIM1; k=ed25519; p=b2xk"']}), None),
        (Peer(PUBLISHED, rcode=2), None),
        (Peer(PUBLISHED, authoritative=False), None),
    ],
)
async def test_key_is_published_when_every_server_answers_it(second: Peer, ttl: int | None) -> None:
    async with serving(Peer(TWO_SERVERS), Peer(PUBLISHED), second) as port:
        servers = AuthoritativeServers(system_at(port), port=port, allowed_networks=LOOPBACK)
        assert await dns_check.published_ttl([ZONE_KEY], servers=servers) == ttl


async def test_key_is_published_when_the_configured_resolver_answers_it() -> None:
    async with serving(Peer(PUBLISHED)) as port:
        assert await dns_check.published_ttl([ZONE_KEY], ("127.0.0.1", port)) == 60


CNAME_KEY = Record(type="CNAME", name="hg1._domainkey.acme.test", value="hg1.d1.heliograph.test", purpose="dkim")
HAS_ALIAS: Zone = {("hg1._domainkey.acme.test.", "CNAME"): ["hg1.d1.heliograph.test."]}


@pytest.mark.parametrize(
    ("second", "is_ok"),
    [(Peer(HAS_ALIAS), True), (Peer({}), False), (Peer(HAS_ALIAS, rcode=2), True), (Peer(HAS_ALIAS, silent=9), True)],
)
async def test_dkim_record_is_correct_when_every_server_that_answers_has_it(second: Peer, is_ok: bool) -> None:
    async with serving(Peer(TWO_SERVERS), Peer(HAS_ALIAS), second) as port:
        servers = AuthoritativeServers(system_at(port), port=port, allowed_networks=LOOPBACK)
        ((_, verdict),) = await check_records_at(servers, [CNAME_KEY])
        assert verdict.ok == is_ok
        assert is_ok or ("not at all name servers" in verdict.fix and not verdict.answered)


async def test_key_is_published_when_more_than_six_servers_answer_it() -> None:
    hosts = [f"ns{number}.acme.test." for number in range(1, 8)]
    zone: Zone = {("acme.test.", "NS"): hosts} | {(host, "A"): ["127.0.0.2"] for host in hosts[:6]}
    zone[hosts[6], "A"] = ["127.0.0.3"]
    async with serving(Peer(zone), Peer(PUBLISHED), Peer({})) as port:
        servers = AuthoritativeServers(system_at(port), port=port, allowed_networks=LOOPBACK)
        assert await dns_check.published_ttl([ZONE_KEY], servers=servers) is None
