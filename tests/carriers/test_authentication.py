"""Sender authentication by SPF, DKIM and DMARC, compared with dkimpy and the examples in the RFCs."""

import asyncio
from typing import Any

import dkim
import pytest

from heliograph.domain.mail.dkim import Signer, SigningKey, generate_key, public_record
from heliograph.inbound.policy.dkim_verification import parse_signatures, verify_signatures
from heliograph.inbound.server.authentication import lookup_sender
from heliograph.inbound.server.spf import SmtpOrigin, check_spf
from heliograph.runtime.resolver import DnsTimeout

pytestmark = pytest.mark.anyio

SILENT = "silent"
Zone = dict[tuple[str, str], list[str]]

ZONE: Zone = {
    ("example.org", "TXT"): ["other", "v=spf1 ip4:192.0.2.0/24 ip6:2001:db8::/32 -all"],
    ("soft.test", "TXT"): ["v=spf1 ~all"],
    ("neutral.test", "TXT"): ["v=spf1 ?all"],
    ("open.test", "TXT"): ["v=spf1 ip4:198.51.100.1"],
    ("twice.test", "TXT"): ["v=spf1 -all", "v=spf1 +all"],
    ("bad.test", "TXT"): ["v=spf1 foo:bar -all"],
    ("bad-net.test", "TXT"): ["v=spf1 ip4:1.2.3.4/99 -all"],
    ("include.test", "TXT"): ["v=spf1 include:example.org -all"],
    ("lost.test", "TXT"): ["v=spf1 include:nothing.test -all"],
    ("redirect.test", "TXT"): ["v=spf1 redirect=example.org"],
    ("redirect-neutral.test", "TXT"): ["v=spf1 redirect=neutral.test"],
    ("redirect-lost.test", "TXT"): ["v=spf1 redirect=nothing.test"],
    ("a.test", "TXT"): ["v=spf1 a mx/24 -all"],
    ("a.test", "A"): ["203.0.113.1"],
    ("a.test", "MX"): ["mx.a.test"],
    ("mx.a.test", "A"): ["192.0.2.200"],
    ("exists.test", "TXT"): ["v=spf1 exists:%{ir}.%{l1r-}.%{v}.spf.%{d2} -all"],
    ("9.2.0.192.ann.in-addr.spf.exists.test", "A"): ["127.0.0.2"],
    ("loop.test", "TXT"): ["v=spf1 include:loop.test -all"],
    ("silent.test", "TXT"): [SILENT],
    ("_dmarc.example.org", "TXT"): ["v=DMARC1; p=reject"],
    ("_dmarc.strict.test", "TXT"): ["v=DMARC1; p=reject; adkim=s; aspf=s"],
}


def dns_query_function(more: Zone | None = None) -> Any:
    zone = ZONE | (more or {})

    async def query(name: str, kind: str) -> list[str]:
        values = zone.get((name, kind), [])
        if values == [SILENT]:
            raise DnsTimeout("timeout")
        return values

    return query


def sending(sender: str = "ann@example.org", peer: str = "192.0.2.9", helo: str = "mail.example.org") -> SmtpOrigin:
    return SmtpOrigin(peer=peer, helo=helo, sender=sender)


@pytest.mark.parametrize(
    ("sender", "peer", "verdict"),
    [
        ("ann@example.org", "192.0.2.9", "pass"),
        ("ann@example.org", "::ffff:192.0.2.9", "pass"),
        ("ann@example.org", "2001:db8::1", "pass"),
        ("ann@example.org", "198.51.100.1", "fail"),
        ("", "192.0.2.9", "none"),  # SPF of the HELO name
        ("ann@soft.test", "192.0.2.9", "fail"),
        ("ann@neutral.test", "192.0.2.9", "none"),
        ("ann@open.test", "192.0.2.9", "none"),
        ("ann@nowhere.test", "192.0.2.9", "none"),
        ("ann@twice.test", "192.0.2.9", "permerror"),
        ("ann@bad.test", "192.0.2.9", "permerror"),
        ("ann@bad-net.test", "192.0.2.9", "permerror"),
        ("ann@include.test", "192.0.2.9", "pass"),
        ("ann@include.test", "198.51.100.1", "fail"),
        ("ann@lost.test", "192.0.2.9", "permerror"),
        ("ann@redirect.test", "192.0.2.9", "pass"),
        ("ann@redirect-neutral.test", "192.0.2.9", "none"),
        ("ann@redirect-lost.test", "192.0.2.9", "permerror"),
        ("ann@a.test", "203.0.113.1", "pass"),
        ("ann@a.test", "192.0.2.9", "pass"),
        ("ann@a.test", "203.0.113.2", "fail"),
        ("ann-x@exists.test", "192.0.2.9", "pass"),
        ("x-ann@exists.test", "192.0.2.9", "fail"),
        ("ann@exists.test", "192.0.2.9", "pass"),
        ("ann@loop.test", "192.0.2.9", "permerror"),
        ("ann@silent.test", "192.0.2.9", "temperror"),
    ],
)
async def test_spf_record_gives_the_expected_result(sender: str, peer: str, verdict: str) -> None:
    assert await check_spf(sending(sender, peer), dns_query_function()) == verdict


RSA, ED = generate_key("rsa-sha256"), generate_key("ed25519-sha256")
KEYS: Zone = {
    ("s1._domainkey.example.org", "TXT"): [public_record(RSA)],
    ("s1._domainkey.mail.example.org", "TXT"): [public_record(RSA)],
    ("s1._domainkey.other.test", "TXT"): [public_record(RSA)],
}
MAIL = (
    b"From: Ann <ann@example.org>\r\nTo: support@acme.test\r\nSubject:  Hello \t there\r\n\tand more\r\n"
    b"Message-ID: <1@example.org>\r\n\r\nHi  \t you,\r\n\r\n  \t\r\nhow are you? \r\n\r\n\r\n"
)

BARE = MAIL.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


def signed(form: str = "relaxed/relaxed", domain: str = "example.org", mail: bytes = MAIL, **more: Any) -> bytes:
    header, body = form.encode().split(b"/")
    signature: bytes = dkim.sign(
        mail, b"s1", domain.encode(), RSA, canonicalize=(header, body), include_headers=[b"from", b"subject"], **more
    )
    return signature + mail


async def judge(raw: bytes, peer_info: SmtpOrigin | None = None, more: Zone | None = None) -> tuple[str, str, str]:
    evidence = await lookup_sender(
        peer_info or sending(), raw.partition(b"\r\n\r\n")[0], dns_query_function(KEYS | (more or {}))
    )
    authentication = evidence.authenticate(raw, 1_800_000_000)
    return authentication.spf, authentication.dkim, authentication.dmarc


@pytest.mark.parametrize("form", ["relaxed/relaxed", "relaxed/simple", "simple/relaxed", "simple/simple"])
@pytest.mark.parametrize(
    "mail", [MAIL, MAIL.partition(b"\r\n\r\n")[0] + b"\r\n\r\n", MAIL + b"x" * 3_000_000 + b"\r\n"]
)
async def test_dkim_signature_by_dkimpy_passes(form: str, mail: bytes) -> None:
    raw = signed(form, mail=mail)
    assert dkim.verify(raw, dnsfunc=lambda *_, **__: KEYS["s1._domainkey.example.org", "TXT"][0].encode())
    assert await judge(raw) == ("pass", "pass", "pass")


@pytest.mark.parametrize(
    ("raw", "verdict"),
    [
        (MAIL, "none"),
        (signed().replace(b"how are", b"who are"), "fail"),
        (signed().replace(b"Hello", b"Hallo"), "fail"),
        (signed().replace(b"Ann <ann", b"Bob <ann"), "fail"),
        (signed("simple/simple").replace(b"Subject:  Hello", b"Subject: Hello"), "fail"),
        (signed().replace(b"Subject:  Hello", b"Subject: Hello"), "pass"),
        (signed(length=True), "permerror"),
        (signed().replace(b"a=rsa-sha256", b"a=rsa-sha1"), "permerror"),
        (signed().replace(b"s=s1", b"s=s2"), "permerror"),
        (signed(domain="other.test"), "pass"),
        (b"DKIM-Signature: v=1; a=rsa-sha256\r\n" + MAIL, "permerror"),
        (signed().replace(b"v=1;", b"v=1; x=" + b"9" * 5000 + b";"), "fail"),  # more digits than Python converts
    ],
)
async def test_dkim_signature_gives_the_expected_result(raw: bytes, verdict: str) -> None:
    assert (await judge(raw))[1] == verdict


async def test_dkim_signature_of_ours_passes() -> None:
    head, _, body = MAIL.partition(b"\r\n\r\n")
    keys = [SigningKey(selector="e", algorithm="ed25519-sha256", private=ED)]
    raw = Signer("example.org", keys).sign(head + b"\r\n", [body], time_ms=0) + MAIL
    result = verify_signatures(raw, {"e._domainkey.example.org": [public_record(ED)]}, 0)
    assert (result, len(parse_signatures(raw))) == ({"example.org": "pass"}, 1)


@pytest.mark.parametrize(
    ("raw", "sender", "more", "verdict"),
    [
        (MAIL, "ann@example.org", {}, "pass"),  # by SPF
        (MAIL, "ann@open.test", {}, "fail"),
        (signed(), "ann@open.test", {}, "pass"),
        (signed(domain="mail.example.org"), "ann@open.test", {}, "pass"),  # the same organisation
        (signed(domain="other.test"), "ann@open.test", {}, "fail"),
        (MAIL.replace(b"example.org", b"news.example.org"), "ann@example.org", {}, "pass"),
        (MAIL.replace(b"example.org", b"nowhere.test"), "ann@example.org", {}, "none"),
        (MAIL.replace(b"ann@example.org", b"ann@x.strict.test"), "ann@strict.test", {}, "fail"),
        (MAIL.replace(b"ann@example.org", b"a@b.test, c@d.test"), "ann@example.org", {}, "permerror"),
        (MAIL.replace(b"From:", b"X-From:"), "ann@example.org", {}, "permerror"),
        (MAIL.replace(b"\r\n", b"\n"), "ann@example.org", {}, "pass"),
        (MAIL.replace(b"To:", b"X: y\nFrom: eve@evil.test\r\nTo:"), "ann@example.org", {}, "permerror"),
        (MAIL, "ann@open.test", {("_dmarc.example.org", "TXT"): [SILENT]}, "temperror"),
        (signed(), "ann@open.test", {("s1._domainkey.example.org", "TXT"): [SILENT]}, "temperror"),
    ],
)
async def test_dmarc_policy_gives_the_expected_result(raw: bytes, sender: str, more: Zone, verdict: str) -> None:
    assert (await judge(raw, sending(sender), more))[2] == verdict


async def test_authentication_lookups_are_bounded_in_time() -> None:
    async def ask(name: str, kind: str) -> list[str]:
        await asyncio.Event().wait()
        raise AssertionError

    evidence = await lookup_sender(sending(), signed().partition(b"\r\n\r\n")[0], ask, timeout_s=0.01)
    result = evidence.authenticate(signed(), 0)
    assert (result.spf, result.dkim, result.dmarc) == ("temperror", "temperror", "temperror")
