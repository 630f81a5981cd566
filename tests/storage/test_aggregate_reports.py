"""DMARC and TLS reports by mail: stored parts, SMTP replies, reads and deletion."""

import asyncio
import gzip
from io import BytesIO
from itertools import pairwise
from time import monotonic

import msgspec
import pytest

from heliograph.domain.limits import DAY_MS, MIB
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import CarrierRecord, Domain, TeamRecord
from heliograph.domain.setup.snapshot import to_row
from heliograph.inbound import aggregate_report_service
from heliograph.inbound.aggregate_report_service import AggregateReportService, read_domain_reports
from heliograph.inbound.policy.domain_reports import DomainReports
from heliograph.inbound.policy.report_files import ReportTooLarge
from heliograph.inbound.store import aggregate_reports
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.domain.test_aggregate_report import BEGIN, DAY, TLS, dmarc, mail, record, zipped
from tests.setup_helpers import set_up

TEAM = "team_acme"
pytestmark = pytest.mark.anyio

OURS = Domain(id="dom_acme", team=TEAM, name="acme.test", brand="Acme", verified=True, approved=True)
UNVERIFIED = Domain(id="dom_claimed", team=TEAM, name="claimed.test", brand="Claimed")
FIRST, LAST = "2024-10-01", "2024-10-31"
assert DAY == 20_000  # 2024-10-04
PAUSE_MAX_S = 1.0  # maximum pause of the event loop on a busy machine; measured: 0.05
LAUGHS = b'<!ENTITY l0 "ha">' + b"".join(
    f'<!ENTITY l{number} "{f"&l{number - 1};" * 10}">'.encode() for number in range(1, 10)
)


@pytest.fixture
async def reports(store: Store) -> AggregateReportService:
    team = TeamRecord(ref=1, id=TEAM, name="Acme")
    rows = [to_row("domain", domain.id, domain, TEAM) for domain in (OURS, UNVERIFIED)]
    await set_up(store, rows=[to_row("team", TEAM, team, TEAM), *rows])
    return AggregateReportService(store, lambda: "mx.heliograph.test")


async def receive(reports: AggregateReportService, content: bytes) -> str:
    return await reports.receive(BytesIO(mail(content)))


async def read(store: Store, first: str = FIRST, last: str = LAST) -> DomainReports:
    return await read_domain_reports(store, OURS, first, last)


async def test_reports_are_accepted_at_two_addresses_of_the_mail_host(reports: AggregateReportService) -> None:
    assert reports.is_report_address("DMARC@mx.heliograph.test")
    assert reports.is_report_address("tlsrpt@MX.heliograph.test")
    assert not reports.is_report_address("dmarc@acme.test")
    assert not reports.is_report_address("other@mx.heliograph.test")


async def test_same_report_counts_once_and_days_add_up(reports: AggregateReportService, store: Store) -> None:
    first = dmarc(record(count=3), record(address="198.51.100.7", count=1, dkim="fail", spf="fail"))
    for content in (first, first, first.replace(b"<count>3<", b"<count>4<"), first.replace(b">42<", b">43<")):
        assert await receive(reports, content) == "250 2.0.0 Ok"
    later = dmarc(record(count=10, spf="fail"), begin=BEGIN + 86_400).replace(b">42<", b">44<")
    assert await receive(reports, later) == "250 2.0.0 Ok"
    dmarc_results = (await read(store)).dmarc
    assert (dmarc_results.total, dmarc_results.aligned, dmarc_results.aligned_share) == (18, 16, 0.8889)
    assert [(source.address, source.known, source.total, source.dkim, source.spf) for source in dmarc_results.sources]\
        == [("192.0.2.1", True, 16, 16, 6), ("198.51.100.7", False, 2, 0, 0)]  # fmt: skip
    assert (await read(store, "2024-10-05", "2024-10-05")).dmarc.total == 10
    assert (await read(store, "2024-10-06")).dmarc.total == 0


async def test_rows_about_others_are_ignored_and_subdomains_count(
    reports: AggregateReportService, store: Store
) -> None:
    content = dmarc(record(domain="mail.acme.test"), record(domain="other.test")).replace(
        b"<policy_published><domain>acme.test<", b"<policy_published><domain>test<"
    )
    assert await receive(reports, content) == "250 2.0.0 Ok"
    assert (await read(store)).dmarc.total == 1


@pytest.mark.parametrize("name", ["other.test", "claimed.test", "test", "notacme.test"])
async def test_report_about_none_of_ours_is_refused(reports: AggregateReportService, name: str) -> None:
    content = dmarc(record(domain=name)).replace(b"<domain>acme.test<", f"<domain>{name}<".encode())
    assert (await receive(reports, content)).startswith("550 5.1.1 ")
    tls = msgspec.json.encode(TLS).replace(b"acme.test", name.encode())
    assert (await receive(reports, tls)).startswith("550 5.1.1 ")


async def test_unreadable_and_large_reports_are_refused(
    reports: AggregateReportService, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await receive(reports, b"<!DOCTYPE a><feedback/>")).startswith("554 5.6.0 ")
    monkeypatch.setattr(aggregate_report_service, "unpack", _too_large)
    assert (await receive(reports, dmarc(record()))).startswith("552 5.3.4 ")


def _too_large(_: object) -> object:
    raise ReportTooLarge


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(bytes(200 * MIB)),
        zipped(bytes(200 * MIB)),
        zipped(zipped(dmarc(record()))),
        dmarc(record()).replace(b"<feedback>", b"<!DOCTYPE f [" + LAUGHS + b"]><feedback>&l9;"),
        dmarc(record()).replace(b"<feedback>", b'<!DOCTYPE f SYSTEM "file:///etc/passwd"><feedback>'),
        pytest.param(gzip.compress(dmarc(*[record()] * 60_000)), marks=pytest.mark.slow),
        gzip.compress(dmarc(record()))[:-30],
        dmarc(record()).replace(b"acme.test", b"other.test"),
    ],
    ids=["gzip bomb", "zip bomb", "nested zip", "entities", "external entity", "rows", "truncated", "wrong domain"],
)
async def test_hostile_report_is_refused_while_others_are_served(
    reports: AggregateReportService, store: Store, content: bytes
) -> None:
    receiving = asyncio.ensure_future(receive(reports, content))
    pauses = [monotonic()]
    while not receiving.done():
        await asyncio.sleep(0.01)
        pauses.append(monotonic())
    assert (await receiving)[0] == "5"
    assert max(after - before for before, after in pairwise(pauses)) < PAUSE_MAX_S
    assert (await read(store)).dmarc.total == 0
    assert await receive(reports, dmarc(record())) == "250 2.0.0 Ok"


async def test_tls_results_are_summed_by_type(reports: AggregateReportService, store: Store) -> None:
    for _ in range(2):
        assert await receive(reports, msgspec.json.encode(TLS)) == "250 2.0.0 Ok"
    tls = (await read(store)).tls
    assert (tls.successful, tls.failed) == (10, 3)
    assert [(failure.type, failure.count) for failure in tls.failures] == [("certificate-expired", 2), ("other", 1)]


@pytest.mark.parametrize(
    ("records", "reasons"),
    [
        ([], ["No receiver"]),
        ([record(count=1000)], []),
        ([record(count=1000), record(address="198.51.100.7", count=10, dkim="fail", spf="fail")], []),  # forged
        ([record(count=100), record(address="198.51.100.7", count=10, dkim="fail", spf="fail")], ["10 of 110 emails"]),
        ([record(count=97), record(count=3, dkim="fail", spf="pass"), record(address="198.51.100.7")], []),
        (
            [record(count=97), record(count=3, dkim="fail", spf="fail")],
            ["3 of 100 emails from this service's servers (192.0.2.1) failed"],
        ),
        (
            [record(count=97), record(count=1, dkim="fail", spf="fail", address="203.0.113.5")],
            ["1 of 1 emails from this service's servers (203.0.113.5)"],
        ),
    ],
    ids=range(7),
)
async def test_reject_is_safe_only_if_own_mail_passes(
    reports: AggregateReportService, store: Store, records: list[str], reasons: list[str]
) -> None:
    relay = CarrierRecord(id="mx", channel="email", kind="mx", options={"source_ips": ["203.0.113.5"]})
    await set_up(store, rows=[to_row("carrier", "mx", relay, None)])
    if records:
        await receive(reports, dmarc(*records))
    advice = (await read(store)).dmarc.reject
    assert advice.safe == (not reasons)
    assert len(advice.reasons) == len(reasons)
    assert all(expected in reason for expected, reason in zip(reasons, advice.reasons, strict=True))


@pytest.mark.parametrize(
    ("first", "last", "param"),
    [("2024-10-1", LAST, "from"), ("20241001", LAST, "from"), ("2024-W40-2", LAST, "from"), ("", LAST, "from"),
     (FIRST, "2024-13-01", "to"), ("2024-11-01", LAST, "from"), ("0001-01-01", LAST, "from")],
)  # fmt: skip
async def test_invalid_period_is_refused(
    reports: AggregateReportService, store: Store, first: str, last: str, param: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await read_domain_reports(store, OURS, first, last)
    assert refused.value.param == param


async def test_default_period_is_the_last_30_days(
    reports: AggregateReportService, store: Store, clock: TestClock
) -> None:
    today = store.clock.now() // DAY_MS * 86_400
    for age in (0, 29, 30):
        content = dmarc(record(), begin=today - age * 86_400).replace(b">42<", f">{age}<".encode())
        await receive(reports, content)
    assert (await read_domain_reports(store, OURS, None, None)).dmarc.total == 2


async def test_interrupted_report_is_completed_when_it_is_sent_again(
    reports: AggregateReportService, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aggregate_reports, "BATCH", 2)
    content = dmarc(*(record(address=f"192.0.2.{number}") for number in range(5)))
    write = store.database.write
    calls = 0

    async def fail_second(function: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError("database")
        return await write(function)  # type: ignore[arg-type]

    monkeypatch.setattr(type(store.database), "write", lambda _, function: fail_second(function))
    with pytest.raises(OSError, match="database"):
        await receive(reports, content)
    for _ in range(2):
        assert await receive(reports, content) == "250 2.0.0 Ok"
    assert (await read(store)).dmarc.total == 5


async def test_reports_are_deleted_after_retention_and_with_their_domain(
    reports: AggregateReportService, store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aggregate_reports, "BATCH", 1)
    await receive(reports, dmarc(record(), record(address="198.51.100.7")))
    await receive(reports, msgspec.json.encode(TLS))
    clock.forward(80 * DAY_MS)
    await store.maintenance.purge()
    assert (await read(store)).dmarc.total == 2
    clock.forward(20 * DAY_MS)
    await store.maintenance.purge()
    after = await read(store)
    assert (after.dmarc.total, after.tls.successful) == (0, 0)
    await receive(reports, dmarc(record(), record(address="198.51.100.7")))
    assert (await read(store)).dmarc.total == 2
    await store.aggregate_reports.delete(OURS.id)
    assert (await read(store)).dmarc.total == 0
