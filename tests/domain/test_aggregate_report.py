"""DMARC and TLS reports from untrusted senders: what is accepted, what is refused, and the cost of hostile input."""

import base64
import gzip
import json
import random
import tracemalloc
import zipfile
from collections.abc import Iterator
from io import BytesIO
from time import process_time
from typing import Any

import pytest

from heliograph.domain.limits import MIB
from heliograph.inbound.policy import aggregate_report, report_files
from heliograph.inbound.policy.aggregate_report import (
    VALUES_MAX,
    DmarcReport,
    DmarcSource,
    TlsPolicy,
    TlsReport,
    parse_report,
)
from heliograph.inbound.policy.report_files import (
    UNPACKED_MAX,
    ReportTooLarge,
    UnreadableReport,
    find_report_files,
    unpack,
)

DAY = 20_000
BEGIN = DAY * 86_400
RECORD = """<record><row><source_ip>{address}</source_ip><count>{count}</count>
<policy_evaluated><disposition>none</disposition><dkim>{dkim}</dkim><spf>{spf}</spf></policy_evaluated></row>
<identifiers><header_from>{domain}</header_from></identifiers>
<auth_results><dkim><domain>acme.test</domain><selector>hg1</selector><result>pass</result></dkim>
<spf><domain>{spf_domain}</domain><result>{spf}</result></spf></auth_results></record>"""
HEAD = """<report_metadata><org_name>Receiver</org_name><email>r@receiver.test</email><report_id>42</report_id>
<date_range><begin>{begin}</begin><end>{end}</end></date_range></report_metadata>
<policy_published><domain>acme.test</domain><p>none</p></policy_published>"""
TLS: dict[str, Any] = {
    "organization-name": "Receiver",
    "date-range": {"start-datetime": "2024-10-04T00:00:00Z", "end-datetime": "2024-10-04T23:59:59Z"},
    "contact-info": "tls@receiver.test",
    "report-id": "7",
    "policies": [
        {
            "policy": {"policy-type": "sts", "policy-domain": "acme.test", "policy-string": ["version: STSv1"]},
            "summary": {"total-successful-session-count": 10, "total-failure-session-count": 3},
            "failure-details": [
                {"result-type": "certificate-expired", "failed-session-count": 2, "sending-mta-ip": "192.0.2.9"},
                {"result-type": "made-up", "failed-session-count": 1},
            ],
        }
    ],
}


def record(
    address: str = "192.0.2.1", count: object = 1, dkim: str = "pass", spf: str = "pass", domain: str = "acme.test",
    spf_domain: str = "bounce.acme.test",
) -> str:  # fmt: skip
    return RECORD.format(address=address, count=count, dkim=dkim, spf=spf, domain=domain, spf_domain=spf_domain)


def dmarc(*records: str, root: str = "<feedback>", begin: object = BEGIN) -> bytes:
    head = HEAD.format(begin=begin, end=BEGIN + 86_399)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{root}{head}{"".join(records)}</feedback>'.encode()


def mail(content: bytes, type_: str = "application/gzip", filename: str = "report.xml.gz") -> bytes:
    return (
        (
            f"From: noreply@receiver.test\r\nSubject: Report Domain: acme.test\r\nMIME-Version: 1.0\r\n"
            f"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nA report.\r\n"
            f"--b\r\nContent-Type: {type_}\r\nContent-Transfer-Encoding: base64\r\n"
            f"Content-Disposition: attachment; filename={filename}\r\n\r\n"
        ).encode()
        + base64.encodebytes(content).replace(b"\n", b"\r\n")
        + b"--b--\r\n"
    )


def zipped(content: bytes, **options: Any) -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(file, "w", **({"compression": zipfile.ZIP_DEFLATED} | options)) as archive:
        archive.writestr("report.xml", content)
    return file.getvalue()


def streamed_zip(content: bytes) -> bytes:
    """Return a zip whose header has no sizes."""

    class Unseekable(BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise OSError

    file = Unseekable()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("report.xml", content)
    return file.getvalue()


def read(raw: bytes) -> list[DmarcReport | TlsReport]:
    return [parse_report(pieces) for pieces in unpack(find_report_files(raw))]


def parse(content: bytes) -> DmarcReport | TlsReport:
    return parse_report(iter([content]))


EXPECTED = DmarcReport(
    submitter="Receiver",
    id="42",
    day=DAY,
    domain="acme.test",
    sources=[
        DmarcSource(domain="acme.test", address="192.0.2.1", known=True, total=7, aligned=7, dkim=5, spf=7),
        DmarcSource(domain="acme.test", address="2001:db8::1", known=False, total=3, aligned=0, dkim=0, spf=0),
    ],
)
RECORDS = (
    record(count=5),
    record(address="2001:DB8:0::1", count=3, dkim="fail", spf="fail"),
    record(address="::ffff:192.0.2.1", count=2, dkim="fail"),
)


@pytest.mark.parametrize(
    "content",
    [
        dmarc(*RECORDS),
        gzip.compress(dmarc(*RECORDS)),
        gzip.compress(dmarc(*RECORDS)[:100]) + gzip.compress(dmarc(*RECORDS)[100:]),
        zipped(dmarc(*RECORDS)),
        zipped(dmarc(*RECORDS), compression=zipfile.ZIP_STORED),
        streamed_zip(dmarc(*RECORDS)),
        dmarc(*RECORDS, root='<feedback xmlns="urn:ietf:params:xml:ns:dmarc-2.0"><version>1.0</version>'),
        dmarc(*RECORDS, root='<xs:schema xmlns:xs="x"><feedback>'),
        dmarc(*RECORDS).decode().replace("UTF-8", "UTF-16").encode("utf-16"),
    ],
    ids=["xml", "gzip", "members", "zip", "stored", "streamed zip", "RFC 9990", "schema", "UTF-16"],
)
def test_dmarc_report_is_read_in_every_form(content: bytes) -> None:
    assert read(mail(content)) == [EXPECTED]


def test_report_that_is_the_whole_mail_is_read() -> None:
    packed = base64.encodebytes(zipped(dmarc(*RECORDS)))
    head = b"Content-Type: application/zip; name=r.zip\r\nContent-Transfer-Encoding: base64\r\n\r\n"
    assert read(head + packed) == [EXPECTED]


def test_rows_of_other_domains_keep_their_domain() -> None:
    report = parse(dmarc(record(domain="mail.acme.test"), record(domain="Other.test"), record(domain="")))
    assert isinstance(report, DmarcReport)
    assert {source.domain for source in report.sources} == {"mail.acme.test", "acme.test"}


def test_report_without_a_name_is_that_of_its_email_domain() -> None:
    assert parse(dmarc(record()).replace(b"Receiver", b"")).submitter == "receiver.test"


def test_tls_report_is_read() -> None:
    policy = TlsPolicy(domain="acme.test", successful=10, failed=3, failures={"certificate-expired": 2, "other": 1})
    expected = TlsReport(submitter="Receiver", id="7", day=DAY, policies=[policy])
    content = json.dumps(TLS).encode()
    assert read(mail(gzip.compress(content), "application/tlsrpt+gzip")) == [expected]
    assert read(mail(content, "application/tlsrpt+json")) == [expected]


@pytest.mark.parametrize(
    "content",
    [
        b'<?xml version="1.0"?><!DOCTYPE feedback><feedback></feedback>',
        b'<?xml version="1.0"?><!DOCTYPE f [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><feedback>&b;</feedback>',
        b'<?xml version="1.0"?>' + b" " * 5000 + b'<!DOCTYPE f SYSTEM "file:///etc/passwd"><feedback/>',
        b"<feedback>&undefined;</feedback>",
        b"<html></html>",
        b"<?xml version='1.0'?>" + b"<!-- -->" * 10_000 + b"<feedback/>",
        b'<?xml version="1.0" encoding="no-such"?><feedback/>',
        b"<feedback>" + b"<a>" * 100_000,
        dmarc(record())[:-30],
        dmarc(record(count=-1)),
        dmarc(record(count="9" * 5000)),
        dmarc(record(count="0" * 30 + "9" * 100)),
        dmarc(*[record(count=10**11)] * 11),
        dmarc(record(count="١")),
        dmarc(record(address="localhost")),
        dmarc(record(), begin="yesterday"),
        dmarc(record(), begin="-1"),
        dmarc(record(), begin="1e300"),
        dmarc(record(), begin="nan"),
        gzip.compress(dmarc(record()))[:-20],
        gzip.compress(dmarc(record()))[:40] + b"damage" + gzip.compress(dmarc(record()))[46:],
        zipped(dmarc(record()))[:60],
        zipped(dmarc(record())).replace(b"PK\x03\x04\x14\x00\x00\x00", b"PK\x03\x04\x14\x00\x01\x00"),
        zipped(dmarc(record()), compression=zipfile.ZIP_STORED).replace(b"<count>1<", b"<count>9<"),
        b"{}",
        b'{"date-range": {"start-datetime": "now"}}',
        b'{"date-range": ' + b"[" * 90_000,
        b'{"x": ' + b'{"x":' * 90_000,
        json.dumps(TLS).replace("10", "-10").encode(),
        json.dumps(TLS).replace("10", "1e400").encode(),
        json.dumps(TLS | {"policies": TLS["policies"] * 11}).replace("10,", f"{10**11},").encode(),
    ],
    ids=map(str, range(31)),
)  # fmt: skip
def test_damaged_or_hostile_report_is_refused(content: bytes) -> None:
    with pytest.raises(UnreadableReport):
        read(mail(content))


@pytest.mark.parametrize(
    "raw", [b"", b"\r\n", b"Subject: hi\r\n\r\nHello {name}\r\n", mail(b"x").replace(b"eA==", b"\x80\x81")]
)
def test_mail_without_a_report_is_refused(raw: bytes) -> None:
    with pytest.raises(UnreadableReport):
        read(raw)


def filler(size: int) -> bytes:
    head, tail = dmarc(record())[:-11], b"</feedback>"
    return head + b" " * (size - len(head) - len(tail)) + tail


@pytest.mark.parametrize("pack", [gzip.compress, zipped, bytes], ids=["gzip", "zip", "plain"])
def test_report_above_the_limit_is_refused(pack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert UNPACKED_MAX == 25 * MIB
    monkeypatch.setattr(report_files, "UNPACKED_MAX", MIB)
    assert len(read(mail(pack(filler(MIB))))) == 1
    with pytest.raises(ReportTooLarge):
        read(mail(pack(filler(MIB + 1))))


@pytest.mark.parametrize(
    "start",
    [b"", b"<?xml version='1.0'?>", b"<!DOCTYPE feedback>", b"<feedback><version>1</feedback>", b"<rss>"],
    ids=["blank", "prolog", "document type", "damaged", "other root"],
)
def test_file_above_the_limit_is_too_large_whatever_it_contains(start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_files, "UNPACKED_MAX", 3 * MIB)
    for size, refusal in ((3 * MIB, UnreadableReport), (3 * MIB + 1, ReportTooLarge)):
        with pytest.raises(refusal):
            read(mail(gzip.compress(start.ljust(size))))


def test_bomb_is_refused_while_it_is_unpacked() -> None:
    bomb = gzip.compress(bytes(64 * MIB)) * 20
    tracemalloc.start()
    with pytest.raises(ReportTooLarge):
        read(mail(bomb))
    with pytest.raises(ReportTooLarge):
        list(map(len, next(unpack([bomb]))))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 80 * MIB


def test_nested_archive_is_not_unpacked() -> None:
    inner = zipped(dmarc(record()))
    for archive in (zipped(inner), gzip.compress(inner), zipped(gzip.compress(dmarc(record()))), zipped(zipped(inner))):
        with pytest.raises(UnreadableReport):
            read(mail(archive))


@pytest.mark.slow
def test_ten_million_rows_are_refused_after_the_most() -> None:
    row, read_rows = record().encode() * 100, 0

    def pieces() -> Iterator[bytes]:
        nonlocal read_rows
        yield dmarc()[: -len("</feedback>")]
        while read_rows < 10_000_000:
            yield row
            read_rows += 100

    with pytest.raises(ReportTooLarge):
        parse_report(pieces())
    assert read_rows <= aggregate_report.ROWS_MAX


def test_reading_stops_after_the_most_elements() -> None:
    began = process_time()
    with pytest.raises(ReportTooLarge):
        parse(b"<feedback>" + b"<a/>" * 1_100_000)
    assert process_time() - began < 15  # measured: 2.3 s


@pytest.mark.parametrize("limit", ["ROWS_MAX", "SOURCES_MAX"])
def test_report_with_too_many_rows_is_refused(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregate_report, limit, 100)
    rows = [record(address=f"192.0.2.{number}") for number in range(101)]
    assert isinstance(parse(dmarc(*rows[:100])), DmarcReport)
    with pytest.raises(ReportTooLarge):
        parse(dmarc(*rows))


def test_tls_report_with_too_many_values_is_refused() -> None:
    with pytest.raises(ReportTooLarge):
        parse(b'{"date-range": {"start-datetime": "2024-10-04"}, "policies": [' + b"{}," * VALUES_MAX + b"{}]}")


def pieces_of(content: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


def test_report_is_read_alike_in_pieces_of_any_size() -> None:
    for size in (1, 7, 255, 4096):
        assert parse_report(pieces_of(dmarc(*RECORDS), size)) == EXPECTED


@pytest.mark.parametrize("seed", range(8))
def test_fuzzed_report_is_read_or_refused(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_files, "UNPACKED_MAX", MIB)
    chance = random.Random(seed)
    samples = [
        mail(dmarc(*RECORDS)),
        mail(gzip.compress(dmarc(*RECORDS), mtime=0)),
        mail(zipped(dmarc(*RECORDS))),
        mail(json.dumps(TLS).encode(), "application/json"),
        dmarc(*RECORDS),
        zipped(dmarc(*RECORDS)),
        gzip.compress(json.dumps(TLS).encode(), mtime=0),
        json.dumps(TLS).encode(),
    ]
    outcomes = {"read": 0, "refused": 0}
    for _ in range(150):
        raw = bytearray(chance.choice(samples))
        for _ in range(chance.randrange(6)):
            position = chance.randrange(len(raw) + 1)
            match chance.randrange(5):
                case 0:
                    del raw[position:]
                case 1:
                    raw[position : position + chance.randrange(20)] = b""
                case 2:
                    raw[position:position] = chance.randbytes(chance.randrange(9))
                case 3:
                    raw[position : position + 1] = bytes([chance.randrange(256)])
                case 4:
                    other = chance.choice(samples)
                    raw[position:position] = other[chance.randrange(len(other)) :][: chance.randrange(200)]
        prefix = b"" if chance.random() < 0.5 else b"Content-Type: application/octet-stream\r\n\r\n"
        try:
            read(prefix + bytes(raw))
            outcomes["read"] += 1
        except (ReportTooLarge, UnreadableReport):
            outcomes["refused"] += 1
    assert all(outcomes.values())
