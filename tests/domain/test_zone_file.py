"""DNS records for people: names relative to the zone, long texts, the zone file, and the times of checks."""

from typing import Any

import dns.rdatatype
import dns.zone
import pytest

from heliograph.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from heliograph.domain.setup import zone_file
from heliograph.domain.setup.domain_records import Record, expected_records, join_txt

LONG = "v=DKIM1; k=rsa; p=" + "MIIBIjANBgkq+/hkiG9w0BAQEFAAOC" * 13
AWKWARD = 'v=DMARC1; p=none; rua=mailto:"a\\b"@acme.test'


def records(domain: str) -> list[Record]:
    return expected_records(
        domain,
        domain_id="dom_1",
        ownership="f" * 32,
        dkim=[("h1r", LONG), ("h1e", "v=DKIM1; k=ed25519; p=abc")],
        return_path_host=f"bounce.{domain}",
        bounce_host="mx.heliograph.example",
    )


@pytest.mark.parametrize(
    ("domain", "origin"),
    [("acme.test", "acme.test"), ("shop.acme.test", "acme.test"), ("shop.acme.test", "shop.acme.test")],
)
def test_zone_file_contains_exactly_the_expected_records(domain: str, origin: str) -> None:
    local = Record(type="TXT", name=origin, value=AWKWARD, purpose="dmarc")  # at the apex, with escapes
    requested = [*records(domain), local]
    read = dns.zone.from_text(zone_file.zone_file(domain, origin, requested), check_origin=False, relativize=False)
    assert read.origin is not None and read.origin.to_text() == f"{origin}."
    result = {
        (name.to_text(omit_final_dot=True), dns.rdatatype.to_text(data.rdtype), _text(data))
        for name, _, data in read.iterate_rdatas()
    }
    assert result == {(item.name, item.type, item.value) for item in requested}
    assert {ttl for _, ttl, _ in read.iterate_rdatas()} == {zone_file.TTL_S}


def _text(data: Any) -> str:
    if data.rdtype == dns.rdatatype.TXT:
        assert all(len(part) <= zone_file.STRING_MAX for part in data.strings)
        return join_txt(data.strings)
    return f"{data.preference} {data.exchange.to_text(omit_final_dot=True)}"


@pytest.mark.parametrize(("length", "parts"), [(0, [0]), (255, [255]), (256, [255, 1]), (511, [255, 255, 1])])
def test_zone_file_splits_long_txt_values(length: int, parts: list[int]) -> None:
    value = ("ab" * length)[:length]
    assert [len(part) for part in zone_file.split_txt(value)] == parts
    assert "".join(zone_file.split_txt(value)) == value


def test_quotation_marks_and_backslashes_are_escaped() -> None:
    assert zone_file.quoted_strings('a"b\\c') == '"a\\"b\\\\c"'
    assert zone_file.quoted_strings("x" * 256) == f'"{"x" * 255}" "x"'


@pytest.mark.parametrize(
    ("domain", "likely"),
    [
        ("acme.test", "acme.test"),
        ("shop.acme.test", "acme.test"),
        ("mail.shop.acme.com", "acme.com"),
        ("acme.co.uk", "acme.co.uk"),
        ("shop.acme.com.au", "acme.com.au"),
        ("shop.acme.de", "acme.de"),
        ("co.uk", "co.uk"),
    ],
)
def test_zone_apex_is_guessed_from_the_name(domain: str, likely: str) -> None:
    assert zone_file.likely_zone(domain) == likely
    assert likely in zone_file.candidate_zones(domain)


def test_zone_names_are_relative_to_the_apex() -> None:
    assert zone_file.relative_name("_dmarc.shop.acme.test", "acme.test") == "_dmarc.shop"
    assert zone_file.relative_name("acme.test", "acme.test") == "@"
    assert zone_file.relative_name("bounce.notacme.test", "acme.test") == "bounce.notacme.test"
    assert zone_file.candidate_zones("a.b.test") == ["a.b.test", "b.test"]


@pytest.mark.parametrize(
    ("host", "public"),
    [
        ("mail.example.com", True),
        ("mail.acme.test.", True),
        ("localhost", False),
        ("app.localhost", False),
        ("printer.local", False),
        ("mail", False),
        ("", False),
        ("127.0.0.1", False),
        ("192.0.2.7", False),
        ("2001:db8::1", False),
        ("db.internal", False),
    ],
)
def test_public_domain_name_is_recognized(host: str, public: bool) -> None:
    assert zone_file.is_public(host) is public


@pytest.mark.parametrize(
    ("after", "next_"),
    [
        (0, 5 * SECOND_MS),
        (2 * MINUTE_MS, 15 * SECOND_MS),
        (10 * MINUTE_MS, MINUTE_MS),
        (HOUR_MS, 10 * MINUTE_MS),
        (3 * DAY_MS, None),
    ],
)
def test_domain_check_interval_grows_with_time(after: int, next_: int | None) -> None:
    now = 1_000 + after
    assert zone_file.next_check(1_000, now) == (None if next_ is None else now + next_)
