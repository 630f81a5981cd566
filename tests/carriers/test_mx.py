"""The carrier mx: name server and mail servers on loopback, each host on its own address."""

import asyncio
import contextlib
import hashlib
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from heliograph.carriers.contract import OutboundMessage
from heliograph.carriers.email import connection_pool
from heliograph.carriers.email.connection_pool import PoolLimits, PreparedMail
from heliograph.carriers.email.mta_sts import Policy, PolicyCache, https_policy_fetcher, parse_policy, parse_policy_id
from heliograph.carriers.email.mx import Mx
from heliograph.carriers.email.mx_lookup import MxResolver, parse_networks
from heliograph.carriers.email.smtp import SmtpOptions, Timeouts
from heliograph.domain.delivery.outcome import Accepted, Deferred, Outcome, Refused
from heliograph.domain.setup.carrier_kinds import MxOptions
from heliograph.runtime.resolver import DnsCache, NameNotFound
from tests.carriers.dns_peer import DnsPeer, Zone
from tests.carriers.smtp_peer import DROP, HANG, Answer, Authority, Peer, Script

pytestmark = pytest.mark.anyio

BODY = b"Subject: hi\r\n\r\nhello\r\n"
SHORT = Timeouts(greeting=0.3, command=0.3, final=0.3)  # for servers that hang
PATIENT = Timeouts(connect=20, greeting=20, command=20, data=20, block=20, final=20)
CA = Authority()
GOOD, CERTIFICATE = CA.server("a.test", "mail.x.test")
BAD, _ = Authority().server("a.test")
CHAIN, ROLLED = CA.server("a.test", chain=True)
ONE_HOST: Zone = {("x.test", "MX"): ["10 a.test."], ("a.test", "A"): ["127.0.0.2"]}


async def prepare(message: OutboundMessage) -> PreparedMail:
    return PreparedMail(envelope_from="from@y.test", chunks=lambda: [BODY], size=len(BODY))


async def no_policy(domain: str) -> str:
    raise OSError("no policy host")


class MxNetwork:
    """The DNS server, the mail servers, and the carrier under test."""

    def __init__(self, dns: DnsPeer, hosts: dict[str, Peer], mx: Mx) -> None:
        self.dns, self.hosts, self.mx = dns, hosts, mx

    async def send(self, address: str = "to@x.test", original_address: str = "") -> Outcome:
        message = OutboundMessage(
            message_id="eml_1", position=3, address=address, original_address=original_address, content=b"{}", attempt=0
        )
        return await self.mx.send_message(message)

    def hosts_used(self) -> list[str]:
        return [host for host, peer in self.hosts.items() for _ in peer.received]


@asynccontextmanager
async def net(
    zone: Zone,
    hosts: dict[str, Script | Peer] | None = None,
    *,
    validated: bool = False,
    limits: PoolLimits | None = None,
    fetch: Any = no_policy,
    timeouts: Timeouts = PATIENT,
    **options: Any,
) -> AsyncIterator[MxNetwork]:
    """Run the mail servers.

    `hosts`: last number of the address 127.0.0.x → script of its server.
    """
    async with AsyncExitStack() as stack:
        dns = await stack.enter_async_context(DnsPeer(zone, validated=validated))
        peers: dict[str, Peer] = {}
        port = 0
        for number, script in (hosts or {}).items():
            peer = script if isinstance(script, Peer) else Peer(script)
            peer.host, peer.port = f"127.0.0.{number}", port
            peers[number] = await stack.enter_async_context(peer)
            port = peer.port
        settings = {"resolver": dns.address, "port": port or 9, "allow_private": ("127.0.0.0/8",), "helo": "us.test"}
        mx = Mx(
            msgspec.convert(settings | options, MxOptions),
            prepare,
            smtp_options=SmtpOptions(timeouts=timeouts, roots=CA.trusted()),
            limits=limits or PoolLimits(),
            fetch=fetch,
            random=Random(7),
        )
        stack.push_async_callback(mx.close)
        yield MxNetwork(dns, peers, mx)


# -- sixty scripts, sixty actions (P8) ---------------------------------------------------------------------

DELIVERED, BOUNCED, FAILED, DEFERRED, UNCERTAIN = "delivered", "bounced", "failed", "deferred", "uncertain"
REFUSED = "bounced, not suppressed"


def action(outcome: Outcome) -> str:
    match outcome:
        case Accepted(delivered=True):
            return DELIVERED
        case Refused(bounced=bounced, by_inbox=by_inbox):
            return BOUNCED if bounced else REFUSED if by_inbox else FAILED
        case Deferred(detail=detail):
            return UNCERTAIN if "uncertain" in detail else DEFERRED
        case _:
            return "sent"


SCRIPTS: list[tuple[Script, list[str]]] = [
    ({}, [DELIVERED]),
    ({"rcpt": "251 2.1.5 will forward"}, [DELIVERED]),
    ({"rcpt": "252 2.1.5 cannot verify"}, [DELIVERED]),
    ({"final": "250 queued as 1"}, [DELIVERED]),
    ({"final": "250-2.0.0 thank\n250 2.0.0 you"}, [DELIVERED]),
    ({"connect": "220-welcome\n220-to\n220 us"}, [DELIVERED]),
    ({"ehlo": "502 5.5.1 what?"}, [DELIVERED]),
    ({"ehlo": "250 peer"}, [DELIVERED]),
    # greeting and EHLO: a problem of the host
    ({"connect": "421 4.3.2 too busy"}, [DEFERRED]),
    ({"connect": "450 4.3.2 not now"}, [DEFERRED]),
    ({"connect": "554 5.7.1 blocked"}, [DEFERRED]),
    ({"connect": "521 5.3.2 no mail here"}, [DEFERRED]),
    ({"connect": ["554 5.7.1 blocked", "220 welcome"]}, [DEFERRED, DELIVERED]),
    ({"connect": DROP}, [DEFERRED]),
    ({"connect": HANG}, [DEFERRED]),
    ({"ehlo": "421 4.3.2 too busy"}, [DEFERRED]),
    ({"ehlo": "451 4.3.0 oops"}, [DEFERRED]),
    ({"ehlo": "550 5.7.1 bad name", "helo": "550 5.7.1 bad name"}, [DEFERRED]),
    ({"ehlo": DROP}, [DEFERRED]),
    # MAIL: about the sender, never about the recipient
    ({"mail": "421 4.7.0 too many"}, [DEFERRED]),
    ({"mail": "451 4.7.1 greylisted"}, [DEFERRED]),
    ({"mail": ["451 4.7.1 greylisted", "250 ok"], "rcpt": ["503 no", "250 ok"], "data": ["503 no", "354 go"]},
     [DEFERRED, DELIVERED]),
    ({"mail": "452 4.3.1 no space"}, [DEFERRED]),
    ({"mail": "550 5.7.1 sender refused"}, [FAILED]),
    ({"mail": "550 sender refused"}, [FAILED]),
    ({"mail": "553 5.1.8 bad sender"}, [FAILED]),
    ({"mail": "552 5.3.4 too big"}, [FAILED]),
    ({"mail": DROP}, [DEFERRED]),
    ({"mail": HANG}, [DEFERRED]),
    # RCPT: bad address
    ({"rcpt": "550 5.1.1 no such user"}, [BOUNCED]),
    ({"rcpt": "550-5.1.1 no such\n550 5.1.1 user"}, [BOUNCED]),
    ({"rcpt": "550 5.1.2 no such host"}, [BOUNCED]),
    ({"rcpt": "501 5.1.3 bad syntax"}, [BOUNCED]),
    ({"rcpt": "551 5.1.6 moved"}, [BOUNCED]),
    ({"rcpt": "556 5.1.10 null MX"}, [BOUNCED]),
    ({"rcpt": "550 5.2.1 disabled"}, [BOUNCED]),
    ({"rcpt": "550 no such user"}, [BOUNCED]),
    ({"rcpt": "551 user not here"}, [BOUNCED]),
    ({"rcpt": "553 no such mailbox"}, [BOUNCED]),
    # RCPT: other permanent rejections
    ({"rcpt": "550 5.7.1 policy"}, [REFUSED]),
    ({"rcpt": "554 5.7.1 blocked"}, [REFUSED]),
    ({"rcpt": "552 5.2.2 mailbox full"}, [REFUSED]),
    ({"rcpt": "552 mailbox full"}, [REFUSED]),
    ({"rcpt": "554 no"}, [REFUSED]),
    ({"rcpt": "550 no"}, [REFUSED]),
    ({"rcpt": "550 blocked using zen"}, [REFUSED]),
    ({"rcpt": "552 5.1.1 over quota"}, [REFUSED]),
    # RCPT: temporary rejections
    ({"rcpt": "421 4.7.0 too many"}, [DEFERRED]),
    ({"rcpt": "450 4.2.1 busy"}, [DEFERRED]),
    ({"rcpt": "452 4.2.2 mailbox full"}, [DEFERRED]),
    ({"rcpt": ["451 4.7.1 greylisted", "250 ok"], "data": ["503 no", "354 go"]}, [DEFERRED, DELIVERED]),
    ({"rcpt": ["451 4.7.1 later", "451 4.7.1 later", "550 5.1.1 no"], "data": "503 no"}, [DEFERRED, DEFERRED, BOUNCED]),
    ({"rcpt": DROP}, [DEFERRED]),
    # DATA
    ({"data": "451 4.3.0 oops"}, [DEFERRED]),
    ({"data": "554 5.5.1 no valid recipients"}, [REFUSED]),
    ({"data": "250 what now"}, [DEFERRED]),
    ({"data": DROP}, [DEFERRED]),
    # after the final dot
    ({"final": "451 4.3.0 later"}, [DEFERRED]),
    ({"final": ["452 4.3.1 no space", "250 ok"]}, [DEFERRED, DELIVERED]),
    ({"final": "421 4.3.2 closing"}, [DEFERRED]),
    ({"final": "554 5.7.1 spam"}, [REFUSED]),
    ({"final": "552 5.3.4 too big"}, [REFUSED]),
    ({"final": "550 5.1.1 no such user"}, [BOUNCED]),
    ({"final": [DROP, "250 ok"]}, [UNCERTAIN, DELIVERED]),
    ({"final": [HANG, "250 ok"]}, [UNCERTAIN, DELIVERED]),
    ({"final": "354 more"}, [DEFERRED]),
]  # fmt: skip


def test_mx_script_table_has_at_least_sixty_scripts() -> None:
    assert len(SCRIPTS) >= 60


@pytest.mark.parametrize(("script", "expected"), SCRIPTS)
async def test_mx_script_gives_the_expected_outcome(script: Script, expected: list[str]) -> None:
    hangs = any(HANG in answer for answer in script.values() if not isinstance(answer, bytes))
    async with net(ONE_HOST, {"2": script}, timeouts=SHORT if hangs else PATIENT) as network:
        outcomes = [await network.send() for _ in expected]
    assert [action(outcome) for outcome in outcomes] == expected
    for outcome in outcomes:
        assert outcome.detail["host"] == "a.test"
        assert outcome.detail["address"] == "127.0.0.2"
        assert outcome.detail["carrier"] == "mx"
        assert outcome.detail["text"]
        assert outcome.detail["duration_ms"] >= 0
        assert outcome.detail.keys() >= {"tls", "code", "enhanced"}


async def test_accepted_mail_returns_the_carrier_id_for_later_reports() -> None:
    async with net(ONE_HOST, {"2": {}}) as network:
        outcome = await network.send()
    assert isinstance(outcome, Accepted)
    assert outcome.carrier_id == "eml_1/3"
    assert network.hosts["2"].received[0].mail == BODY
    assert network.hosts["2"].lines[0] == "EHLO us.test"


async def test_recipient_is_sent_as_the_caller_wrote_it() -> None:
    async with net(ONE_HOST, {"2": {}}) as network:
        await network.send("to@x.test", original_address="To@X.test")
        assert network.hosts["2"].received[0].recipient == "To@x.test"


# -- who takes the mail ------------------------------------------------------------------------------------

THREE_HOSTS: Zone = {
    ("x.test", "MX"): ["30 c.test.", "10 a.test.", "20 b.test."],
    ("a.test", "A"): ["127.0.0.2"],
    ("b.test", "A"): ["127.0.0.3"],
    ("c.test", "A"): ["127.0.0.4"],
}


@pytest.mark.parametrize(
    ("first", "second", "taken"),
    [
        ({}, {}, ["2"]),
        ({"connect": DROP}, {}, ["3"]),
        ({"connect": "421 4.3.2 busy"}, {}, ["3"]),
        ({"connect": "554 5.7.1 blocked"}, {}, ["3"]),
        ({"ehlo": "451 4.3.0 oops"}, {}, ["3"]),
        ({"mail": "451 4.3.0 oops"}, {}, ["3"]),
        ({"rcpt": "451 4.7.1 greylisted"}, {}, ["3"]),
        ({"data": DROP}, {}, ["3"]),
        ({"final": "451 4.3.0 oops"}, {}, ["2", "3"]),  # first rejected after the mail, then accepted
        ({"connect": DROP}, {"rcpt": "451 4.7.1 greylisted"}, ["4"]),
        ({"rcpt": "550 5.1.1 no such user"}, {}, []),  # a permanent rejection ends the attempts
        ({"final": DROP}, {}, ["2"]),  # the mail may have arrived, so no other host is tried now
    ],
)
async def test_mx_hosts_are_tried_by_preference(first: Script, second: Script, taken: list[str]) -> None:
    async with net(THREE_HOSTS, {"2": first, "3": second, "4": {}}) as network:
        await network.send()
        assert network.hosts_used() == taken


async def test_timeline_lists_the_hosts_tried_before() -> None:
    async with net(THREE_HOSTS, {"2": {"connect": "421 4.3.2 busy"}, "3": {}}) as network:
        outcome = await network.send()
    assert isinstance(outcome, Accepted)
    assert outcome.detail["host"] == "b.test"
    assert outcome.detail["tried"] == [{"host": "a.test", "address": "127.0.0.2", "text": "421 4.3.2 busy"}]


async def test_mx_hosts_of_equal_preference_share_the_mail() -> None:
    zone: Zone = {**THREE_HOSTS, ("x.test", "MX"): ["10 a.test.", "10 b.test.", "20 c.test."]}
    async with net(zone, {"2": {}, "3": {}, "4": {}}) as network:
        for _ in range(30):
            await network.send()
        hosts_used = network.hosts_used()
    assert hosts_used.count("2") > 5
    assert hosts_used.count("3") > 5
    assert hosts_used.count("4") == 0


async def test_a_421_sends_later_mail_to_the_next_host_until_the_pause_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = PoolLimits(host_pause_s=600)
    async with net(THREE_HOSTS, {"2": {"connect": ["421 4.3.2 busy", "220 back"]}, "3": {}}, limits=limits) as network:
        for _ in range(3):
            assert isinstance(await network.send(), Accepted)
        assert len(network.hosts["2"].talks) == 1
        later = asyncio.get_running_loop().time() + 601
        monkeypatch.setattr(connection_pool, "_now", lambda: later)
        await network.send()
        assert network.hosts_used() == ["2", "3", "3", "3"]


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ({("x.test", "A"): ["127.0.0.2"]}, DELIVERED),  # no MX: the domain itself
        ({("x.test", "CNAME"): ["a.test."], ("a.test", "A"): ["127.0.0.2"]}, DELIVERED),
        (
            {("x.test", "MX"): ["10 b.test."], ("b.test", "CNAME"): ["a.test."], ("a.test", "A"): ["127.0.0.2"]},
            DELIVERED,
        ),
        ({("x.test", "MX"): ["10 gone.test.", "20 a.test."], ("a.test", "A"): ["127.0.0.2"]}, DELIVERED),
        ({("x.test", "MX"): ["0 ."]}, BOUNCED),
        ({("x.test", "MX"): ["0 ."], ("x.test", "A"): ["127.0.0.2"]}, BOUNCED),
        ({("other.test", "A"): ["127.0.0.2"]}, BOUNCED),  # NXDOMAIN
        ({("x.test", "TXT"): ["hello"]}, BOUNCED),  # exists, without any address
        ({("x.test", "MX"): ["10 gone.test."]}, FAILED),
        ({("x.test", "MX"): ["10 a.test."], ("a.test", "TXT"): ["hello"]}, FAILED),
    ],
)
async def test_dns_answer_gives_the_expected_outcome(zone: Zone, expected: str) -> None:
    async with net(zone, {"2": {}}) as network:
        outcome = await network.send()
        assert action(outcome) == expected
        assert network.hosts_used() == (["2"] if expected == DELIVERED else [])
    assert outcome.detail["text"]


@pytest.mark.parametrize("zone", [{}, {("x.test", "TXT"): ["hello"]}])
async def test_nonexistent_domain_is_reported_as_absent(zone: Zone) -> None:
    async with net(zone) as network:
        outcome = await network.send()
    assert isinstance(outcome, Refused)
    assert (outcome.bounced, outcome.absent, outcome.detail["enhanced"]) == (True, True, "5.1.2")


async def test_nonexistent_name_is_cached_for_five_minutes() -> None:
    async with DnsPeer({("here.test", "TXT"): ["hello"]}) as dns:  # without SOA records
        resolver = MxResolver(dns.address, (), Random(1))
        for name in ("gone.test", "gone.test", "here.test"):
            with contextlib.suppress(NameNotFound):
                await resolver.addresses(name)
        assert dns.query_counts["gone.test", "A"] == 1
        dns_resolver = resolver._resolver._resolver
        assert dns_resolver and isinstance(dns_resolver.cache, DnsCache)
        remaining_s = [node.value.expiration - time.time() for node in dns_resolver.cache.data.values()]
    assert len(remaining_s) >= 3
    assert all(0 < seconds <= 300 for seconds in remaining_s)


@pytest.mark.parametrize(("failing", "expected"), [("x.test", DEFERRED), ("a.test", DEFERRED), ("b.test", DELIVERED)])
async def test_failing_name_server_is_queried_again_later(failing: str, expected: str) -> None:
    zone: Zone = {("x.test", "MX"): ["10 a.test."], ("a.test", "A"): ["127.0.0.2"]}
    async with net(zone, {"2": {}}) as network:
        network.dns.failing_names.add(failing)
        assert action(await network.send()) == expected


async def test_missing_name_server_defers_the_mail() -> None:
    async with net({}, {}, resolver="127.0.0.1:9") as network:
        network.mx._resolver._resolver._lifetime_s = 0.3
        assert action(await network.send()) == DEFERRED


async def test_configured_resolver_is_used() -> None:
    async with net(ONE_HOST, {"2": {}}) as network:
        resolver_by_name = MxResolver(network.dns.address.replace("127.0.0.1", "localhost"), (), Random(1))
        assert (await resolver_by_name.mx_records("x.test")).hosts == ("a.test",)


# -- where mail may not go ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "allow", "expected"),
    [
        ({"A": ["127.0.0.2"]}, (), FAILED),
        ({"A": ["127.0.0.2"]}, ("10.0.0.0/8",), FAILED),
        ({"A": ["127.0.0.2"]}, ("127.0.0.2/32",), DELIVERED),
        ({"A": ["127.0.0.2", "169.254.169.254"]}, ("127.0.0.0/8",), FAILED),  # one denied address excludes the host
        ({"A": ["127.0.0.2"], "AAAA": ["::1"]}, ("127.0.0.0/8",), FAILED),
        ({"AAAA": ["::ffff:127.0.0.2"]}, (), FAILED),
    ],
)
async def test_mx_with_a_private_address_is_refused(
    records: dict[str, list[str]], allow: tuple[str, ...], expected: str
) -> None:
    zone: Zone = {
        ("x.test", "MX"): ["10 a.test."],
        **{("a.test", kind): addresses for kind, addresses in records.items()},
    }
    async with net(zone, {"2": {}}, allow_private=allow) as network:
        assert action(await network.send()) == expected
        assert bool(network.hosts["2"].talks) == (expected == DELIVERED)


async def test_mx_after_a_forbidden_host_is_used() -> None:
    zone: Zone = {**THREE_HOSTS, ("a.test", "A"): ["10.0.0.1"]}
    async with net(zone, {"3": {}}) as network:
        assert action(await network.send()) == DELIVERED


async def test_changed_address_of_a_name_is_checked_at_every_attempt() -> None:
    async with net(dict(ONE_HOST), {"2": {}}, allow_private=("127.0.0.2/32",)) as network:
        assert action(await network.send()) == DELIVERED
        network.dns.zone["a.test", "A"] = ["127.0.0.1"]
        assert action(await network.send()) == FAILED


# -- TLS, MTA-STS, DANE ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tls", "server", "expected", "shown"),
    [
        ("opportunistic", BAD, DELIVERED, "TLSv1.3"),
        ("opportunistic", None, DELIVERED, None),
        ("required", GOOD, DELIVERED, "TLSv1.3 verified"),
        ("required", BAD, DEFERRED, None),
        ("required", None, DEFERRED, None),
    ],
)
async def test_tls_mode_gives_the_expected_outcome(tls: str, server: Any, expected: str, shown: str | None) -> None:
    async with net(ONE_HOST, {"2": Peer(tls=server)}, tls=tls) as network:
        outcome = await network.send()
    assert action(outcome) == expected
    assert outcome.detail["tls"] == shown


def policy_text(mode: str, *hosts: str) -> str:
    return "\r\n".join(["version: STSv1", f"mode: {mode}", *(f"mx: {host}" for host in hosts), "max_age: 86400", ""])


STS: Zone = {**ONE_HOST, ("_mta-sts.x.test", "TXT"): ['"v=STSv1; id=1;"']}


@pytest.mark.parametrize(
    ("policy", "server", "expected"),
    [
        (policy_text("enforce", "a.test"), GOOD, DELIVERED),
        (policy_text("enforce", "a.test"), BAD, DEFERRED),
        (policy_text("enforce", "a.test"), None, DEFERRED),
        (policy_text("enforce", "b.test"), GOOD, DEFERRED),
        (policy_text("enforce", "*.test"), GOOD, DELIVERED),
        (policy_text("testing", "a.test"), BAD, DELIVERED),
        (policy_text("none"), BAD, DELIVERED),
        ("<html>not a policy</html>", BAD, DELIVERED),
    ],
)
async def test_mta_sts_policy_gives_the_expected_outcome(policy: str, server: Any, expected: str) -> None:
    async def fetch(domain: str) -> str:
        assert domain == "x.test"
        return policy

    async with net(STS, {"2": Peer(tls=server)}, fetch=fetch) as network:
        outcome = await network.send()
        assert action(outcome) == expected
        assert len(network.hosts_used()) == (expected == DELIVERED)


async def test_mta_sts_skips_hosts_that_it_does_not_list() -> None:
    zone: Zone = {**STS, **THREE_HOSTS, ("x.test", "MX"): ["5 b.test.", "10 a.test."]}

    async def fetch(domain: str) -> str:
        return policy_text("enforce", "a.test")

    async with net(zone, {"2": Peer(tls=GOOD), "3": {}}, fetch=fetch) as network:
        assert action(await network.send()) == DELIVERED
        assert network.hosts_used() == ["2"]


async def test_mta_sts_policy_is_fetched_once_per_id_and_outlives_its_record() -> None:
    fetched: list[str] = []

    async def fetch(domain: str) -> str:
        fetched.append(domain)
        if len(fetched) == 2:
            raise OSError("away")
        return policy_text("enforce", "a.test")

    zone = dict(STS)
    async with DnsPeer(zone) as dns:
        policies = PolicyCache(MxResolver(dns.address, (), Random(1)), fetch)
        expected = Policy(mode="enforce", max_age=86400, mx=("a.test",))
        burst = await asyncio.gather(*(policies.enforced_policy("x.test") for _ in range(5)))
        assert burst == [expected] * 5
        assert len(fetched) == 1
        zone["_mta-sts.x.test", "TXT"] = ['"v=STSv1; id=2;"']
        assert await policies.enforced_policy("x.test") == expected  # the fetch fails, so the cached policy is used
        assert len(fetched) == 2
        assert await policies.enforced_policy("x.test") == expected
        assert len(fetched) == 3
        del zone["_mta-sts.x.test", "TXT"]
        assert await policies.enforced_policy("x.test") == expected
        dns.failing_names.add("_mta-sts.x.test")
        assert await policies.enforced_policy("x.test") == expected
        assert len(fetched) == 3
        assert await policies.enforced_policy("y.test") is None


POLICY = policy_text("enforce", "a.test")
POLICY_HOST = "mta-sts.x.test"


@pytest.mark.parametrize(
    ("head", "body", "server", "allow", "fetched"),
    [
        ("200 OK\r\nContent-Type: text/plain", POLICY, CA.server(POLICY_HOST)[0], "127.0.0.0/8", True),
        ("200 OK\r\nContent-Type: text/plain; charset=utf-8", POLICY, CA.server(POLICY_HOST)[0], "127.0.0.0/8", True),
        ("200 OK\r\nContent-Type: text/html", POLICY, CA.server(POLICY_HOST)[0], "127.0.0.0/8", False),
        ("200 OK\r\nContent-Type: text/plain", POLICY + "x" * 70_000, CA.server(POLICY_HOST)[0], "127.0.0.0/8", False),
        ("302 Found\r\nLocation: /.well-known/mta-sts.txt", POLICY, CA.server(POLICY_HOST)[0], "127.0.0.0/8", False),
        ("404 Not Found\r\nContent-Type: text/plain", POLICY, CA.server(POLICY_HOST)[0], "127.0.0.0/8", False),
        ("200 OK\r\nContent-Type: text/plain", POLICY, CA.server("x.test")[0], "127.0.0.0/8", False),
        ("200 OK\r\nContent-Type: text/plain", POLICY, Authority().server(POLICY_HOST)[0], "127.0.0.0/8", False),
        ("200 OK\r\nContent-Type: text/plain", POLICY, CA.server(POLICY_HOST)[0], "10.0.0.0/8", False),
    ],
)
async def test_mta_sts_policy_is_fetched_by_https_only(
    head: str, body: str, server: Any, allow: str, fetched: bool
) -> None:
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            requests.append(b"")  # a connection was made
            await writer.start_tls(server)
            requests[-1] = await reader.readuntil(b"\r\n\r\n")
            writer.write(f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    web = await asyncio.start_server(serve, "127.0.0.5", 0)
    zone: Zone = {**STS, (POLICY_HOST, "A"): ["127.0.0.5"]}
    async with web, DnsPeer(zone) as dns:
        resolver = MxResolver(dns.address, parse_networks([allow]), Random(1))
        fetch = https_policy_fetcher(resolver, CA.trusted(), web.sockets[0].getsockname()[1])
        policy = await PolicyCache(resolver, fetch).enforced_policy("x.test")
    assert (policy is not None) == fetched
    assert len(requests) == (allow == "127.0.0.0/8")  # once, and never at a forbidden address
    if fetched:
        assert requests[0].startswith(b"GET /.well-known/mta-sts.txt HTTP/1.1\r\nHost: mta-sts.x.test")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["v=STSv1; id=20160831085700Z;"], "20160831085700Z"),
        (["v=STSv1;id=a"], "a"),
        (["v=spf1 -all", "v=STSv1; id=a; x=y"], "a"),
        (["v=STSv1; id=a", "v=STSv1; id=b"], None),
        (["v=STSv1; id="], None),
        (["v=STSv2; id=a"], None),
        ([], None),
    ],
)
def test_mta_sts_record_is_parsed(texts: list[str], expected: str | None) -> None:
    assert parse_policy_id(texts) == expected


@pytest.mark.parametrize(
    ("patterns", "host", "allowed"),
    [
        (("mail.x.test",), "mail.x.test", True),
        (("mail.x.test",), "mail2.x.test", False),
        (("*.x.test",), "mail.x.test", True),
        (("*.x.test",), "a.mail.x.test", False),
        (("*.x.test",), "x.test", False),
        (("*",), "test", False),
    ],
)
def test_mta_sts_policy_matches_its_hosts(patterns: tuple[str, ...], host: str, allowed: bool) -> None:
    assert Policy(mode="enforce", max_age=1, mx=patterns).allows(host) == allowed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: STSv2\nmode: none\nmax_age: 1",
        "version: STSv1\nmode: strict\nmax_age: 1",
        "version: STSv1\nmode: enforce\nmax_age: 1",
        "version: STSv1\nmode: none",
        "version: STSv1\nmode: none\nmax_age: -1",
    ],
)
def test_invalid_mta_sts_policy_is_ignored(text: str) -> None:
    with pytest.raises(ValueError, match="MTA-STS"):
        parse_policy(text)


def tlsa(usage: int, selector: int, matching: int, certificate: x509.Certificate = CERTIFICATE) -> str:
    key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    selected = key if selector else certificate.public_bytes(Encoding.DER)
    value = {0: selected, 1: hashlib.sha256(selected).digest(), 2: hashlib.sha512(selected).digest()}[matching]
    return f"{usage} {selector} {matching} {value.hex()}"


UNUSABLE = (
    *(tlsa(0, 1, 1), tlsa(1, 1, 1), "3 2 1 " + "ab" * 32, "3 1 9 " + "ab" * 32),
    *("3 1 1 " + "ab" * 31, "3 1 1 " + "ab" * 64, "3 1 2 " + "ab" * 32, "2 1 1 ab"),  # digests of the wrong length
)


@pytest.mark.parametrize(
    ("record", "validated", "server", "expected", "shown"),
    [
        (tlsa(3, 1, 1), True, GOOD, DELIVERED, "TLSv1.3 dane"),
        (tlsa(3, 0, 1), True, GOOD, DELIVERED, "TLSv1.3 dane"),
        (tlsa(3, 1, 2), True, GOOD, DELIVERED, "TLSv1.3 dane"),
        (tlsa(3, 1, 0), True, GOOD, DELIVERED, "TLSv1.3 dane"),
        (tlsa(3, 1, 1), True, BAD, DEFERRED, None),
        (tlsa(3, 1, 1), True, None, DEFERRED, None),
        (tlsa(3, 1, 1), False, BAD, DELIVERED, "TLSv1.3"),  # not validated by DNSSEC
        # an authority: in the chain or in the record itself, for the host or the domain
        (tlsa(2, 0, 1, CA.certificate), True, CHAIN, DELIVERED, "TLSv1.3 dane"),
        (tlsa(2, 1, 1, CA.certificate), True, CHAIN, DELIVERED, "TLSv1.3 dane"),
        (tlsa(2, 1, 2, CA.certificate), True, CHAIN, DELIVERED, "TLSv1.3 dane"),
        (tlsa(2, 0, 0, CA.certificate), True, GOOD, DELIVERED, "TLSv1.3 dane"),
        (tlsa(2, 1, 1, CA.certificate), True, CA.server("x.test", chain=True)[0], DELIVERED, "TLSv1.3 dane"),
        (tlsa(2, 1, 1, CA.certificate), True, CA.server("other.test", chain=True)[0], DEFERRED, None),
        (tlsa(2, 1, 1, CA.certificate), True, CA.server("a.test", chain=True, days=-1)[0], DEFERRED, None),
        (tlsa(2, 1, 1, CA.certificate), True, Authority().server("a.test", chain=True)[0], DEFERRED, None),
        (tlsa(2, 1, 1, CA.certificate), True, GOOD, DEFERRED, None),  # no certificate has that key
        (tlsa(2, 1, 1), True, GOOD, DEFERRED, None),  # the server's own certificate is not an authority
        (tlsa(2, 1, 1, CA.certificate), True, None, DEFERRED, None),
        # validated but unusable records still require TLS
        *((record, True, BAD, DELIVERED, "TLSv1.3") for record in UNUSABLE),
        *((record, True, None, DEFERRED, None) for record in UNUSABLE),
        *((record, False, None, DELIVERED, None) for record in UNUSABLE),
    ],
    ids=map(str, itertools.count()),  # the certificate differs in every process
)
async def test_tlsa_records_give_the_expected_outcome(
    record: str, validated: bool, server: Any, expected: str, shown: str | None
) -> None:
    async with net({}, {"2": Peer(tls=server)}, validated=validated) as network:
        port = network.hosts["2"].port
        network.dns.zone.update({**ONE_HOST, (f"_{port}._tcp.a.test", "TLSA"): [record]})
        outcome = await network.send()
    assert action(outcome) == expected
    assert outcome.detail["tls"] == shown


@pytest.mark.parametrize("doubtful", ["x.test", "_{port}._tcp.a.test"])
async def test_dane_requires_every_answer_to_be_validated(doubtful: str) -> None:
    async with net({}, {"2": Peer(tls=BAD)}, validated=True) as network:
        port = network.hosts["2"].port
        network.dns.zone.update({**ONE_HOST, (f"_{port}._tcp.a.test", "TLSA"): [tlsa(3, 1, 1)]})
        network.dns.unvalidated_names.add(doubtful.format(port=port))
        outcome = await network.send()
    assert action(outcome) == DELIVERED
    assert outcome.detail["tls"] == "TLSv1.3"


@pytest.mark.parametrize(("server", "expected"), [(GOOD, DELIVERED), (BAD, DEFERRED), (None, DEFERRED)])
async def test_one_usable_tlsa_record_is_enough_and_counts(server: Any, expected: str) -> None:
    async with net({}, {"2": Peer(tls=server)}, validated=True) as network:
        records = [*UNUSABLE, tlsa(3, 1, 1, ROLLED), tlsa(3, 1, 1)]
        network.dns.zone.update({**ONE_HOST, (f"_{network.hosts['2'].port}._tcp.a.test", "TLSA"): records})
        assert action(await network.send()) == expected


async def test_unreadable_tlsa_record_defers_the_mail() -> None:
    async with net(ONE_HOST, {"2": Peer(tls=GOOD)}, validated=True) as network:
        network.dns.failing_names.add(f"_{network.hosts['2'].port}._tcp.a.test")
        assert action(await network.send()) == DEFERRED
        assert network.hosts_used() == []


# -- connections -------------------------------------------------------------------------------------------


async def test_domains_of_one_host_share_its_connections() -> None:
    zone: Zone = {**ONE_HOST, ("z.test", "MX"): ["10 a.test."]}
    async with net(zone, {"2": {}}) as network:
        await network.send("to@x.test")
        await network.send("to@z.test")
        assert len(network.hosts["2"].talks) == 1
        assert [mail.recipient for mail in network.hosts["2"].received] == ["to@x.test", "to@z.test"]


async def test_domain_with_a_stricter_tls_policy_gets_no_weaker_connection() -> None:
    zone: Zone = {**STS, ("z.test", "MX"): ["10 a.test."]}

    async def fetch(domain: str) -> str:
        return policy_text("enforce", "a.test")

    async with net(zone, {"2": Peer(tls=GOOD)}, fetch=fetch, per_host=1) as network:
        weak, strong = await network.send("to@z.test"), await network.send("to@x.test")
        assert (weak.detail["tls"], strong.detail["tls"]) == ("TLSv1.3", "TLSv1.3 verified")
        assert len(network.hosts["2"].talks) == 2
        assert network.hosts["2"].most_connections == 1  # the idle connection was closed for the other


@pytest.mark.parametrize("per_host", [1, 3])
async def test_connection_limit_applies_per_host(per_host: int) -> None:
    zone: Zone = {**THREE_HOSTS, ("z.test", "MX"): ["10 b.test."]}
    hosts: dict[str, Script | Peer] = {"2": Peer(final_delay=0.01), "3": Peer(final_delay=0.01)}
    async with net(zone, hosts, per_host=per_host) as network:
        outcomes = await asyncio.gather(*(network.send(f"to{n}@{'xz'[n % 2]}.test") for n in range(20)))
        assert [peer.most_connections for peer in network.hosts.values()] == [per_host, per_host]
    assert all(isinstance(outcome, Accepted) for outcome in outcomes)


@pytest.mark.parametrize(
    ("sources", "expected"), [(("127.0.0.77",), DELIVERED), (("::1",), DEFERRED), (("203.0.113.9",), DEFERRED)]
)
async def test_source_address_is_used_as_configured(sources: tuple[str, ...], expected: str) -> None:
    async with net(ONE_HOST, {"2": {}}, source_ips=sources, helo="") as network:
        assert action(await network.send()) == expected
        if expected == DELIVERED:
            assert network.hosts["2"].lines[0] == "EHLO [127.0.0.77]"


async def test_greylisting_passes_on_the_second_attempt() -> None:
    rcpt: list[Answer] = ["451 4.7.1 greylisted", "250 2.1.5 ok"]
    async with net(ONE_HOST, {"2": {"rcpt": rcpt, "data": ["503 5.5.1 no", "354 go"]}}) as network:
        first, second = await network.send(), await network.send()
    assert isinstance(first, Deferred)
    assert first.detail["text"] == "451 4.7.1 greylisted"
    assert isinstance(second, Accepted)
    assert second.delivered
