"""Stores the DMARC and TLS reports that mail servers send us about sending domains, and returns their results."""

import asyncio
import hashlib
import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import IO

import msgspec
import structlog

from heliograph.domain.limits import DAY_MS
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import Domain
from heliograph.domain.setup.snapshot import PLATFORM_TEAM, Setup
from heliograph.domain.text import quoted
from heliograph.inbound.policy.aggregate_report import DmarcReport, DmarcSource, TlsReport, parse_report
from heliograph.inbound.policy.domain_reports import (
    DEFAULT_DAYS,
    FAILED,
    SUCCESSFUL,
    DomainReports,
    dmarc_results,
    source_addresses,
    tls_results,
    to_date,
    to_day_number,
)
from heliograph.inbound.policy.report_files import ReportTooLarge, UnreadableReport, find_report_files, unpack
from heliograph.inbound.store.aggregate_reports import ReportKey
from heliograph.storage.store import Store

log = structlog.get_logger()

DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
LOCAL_PARTS = ("dmarc", "tlsrpt")  # local parts of the addresses that receive reports, at the mail host
DIGEST_CHARS = 32
STORED_REPLY = "250 2.0.0 Ok"
TOO_LARGE_REPLY = "552 5.3.4 The report is too large"
UNREADABLE_REPLY = "554 5.6.0 Cannot read the report: "
NOT_OURS_REPLY = "550 5.1.1 The report is about none of our domains"


class AggregateReportService:
    """Receives DMARC and TLS reports by mail."""

    def __init__(self, store: Store, mail_host: Callable[[], str]) -> None:
        self._store = store
        self._mail_host = mail_host
        self._one_at_a_time = asyncio.Semaphore()  # one report at a time, to limit threads and memory

    def is_report_address(self, address: str) -> bool:
        local, _, host = address.lower().partition("@")
        return local in LOCAL_PARTS and host == self._mail_host().lower()

    async def receive(self, file: IO[bytes]) -> str:
        """Store the reports in a mail and return the SMTP reply."""
        setup = self._store.setup.current
        try:
            async with self._one_at_a_time:
                domain_reports = await asyncio.to_thread(_read_domain_reports, file, setup)
        except ReportTooLarge:
            return TOO_LARGE_REPLY
        except UnreadableReport as error:
            return UNREADABLE_REPLY + str(error)
        for report in domain_reports:
            key = report.key
            if isinstance(report.results, list):
                is_new = await self._store.aggregate_reports.add_dmarc(key, report.results)
            else:
                is_new = await self._store.aggregate_reports.add_tls(key, report.results)
            log.info("aggregate report received", domain=key.domain, result="stored" if is_new else "known")
        return STORED_REPLY if domain_reports else NOT_OURS_REPLY


async def read_domain_reports(store: Store, domain: Domain, from_: str | None, to: str | None) -> DomainReports:
    """Return the results reported for a domain. `from_`, `to`: days as YYYY-MM-DD; default: the last 30 days."""
    today = store.clock.team_now(_team_ref(store.setup.current, domain)) // DAY_MS
    last_day = _parse_day("to", to) if to is not None else today
    first_day = _parse_day("from", from_) if from_ is not None else last_day - DEFAULT_DAYS + 1
    if first_day > last_day:
        raise InvalidRequest("from must not be after to.", param="from")
    totals = await store.aggregate_reports.dmarc_totals(domain.id, first_day, last_day)
    sessions = await store.aggregate_reports.tls_sessions(domain.id, first_day, last_day)
    own_addresses = source_addresses(store.setup.current.carriers)
    return DomainReports(
        from_=to_date(first_day).isoformat(),
        to=to_date(last_day).isoformat(),
        dmarc=dmarc_results(totals.total, totals.aligned, totals.sources, own_addresses),
        tls=tls_results(sessions),
    )


def _parse_day(name: str, text: str) -> int:
    try:
        day = to_day_number(date.fromisoformat(text))
    except ValueError:
        day = -1
    if day < DEFAULT_DAYS or not DAY.fullmatch(text):  # fromisoformat also parses 20261115 and 2026-W47-7
        raise InvalidRequest(f"{name} must be a day such as 2026-11-15, not {quoted(text)}.", param=name)
    return day


class DomainReport(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a report about one of our domains."""

    key: ReportKey
    results: list[DmarcSource] | dict[str, int]  # for a TLS report: result → number of sessions


def _read_domain_reports(file: IO[bytes], setup: Setup) -> list[DomainReport]:
    """Return the parts of the reports in a mail that are about our domains.

    Raises ReportTooLarge or UnreadableReport if the mail exceeds the limits or has no valid report.
    """
    file.seek(0)
    owned, domain_reports = _owned_domains(setup), list[DomainReport]()
    for pieces in unpack(find_report_files(file.read())):
        report = parse_report(pieces)
        results = _group_sources(report, owned) if isinstance(report, DmarcReport) else _group_sessions(report, owned)
        domain_reports += [
            DomainReport(key=_report_key(setup, owned[name], report), results=result)
            for name, result in results.items()
        ]
    return domain_reports


def _owned_domains(setup: Setup) -> dict[str, Domain]:
    """Return name → domain, for all domains whose reports are stored.

    A domain that is neither verified nor approved is excluded, because someone else may own it.
    """
    domains = [*setup.platform_domains.values(), *(d for team in setup.teams.values() for d in team.domains.values())]
    names = {domain.name for domain in domains if domain.verified or domain.approved}
    return {name: domain for name in names if (domain := setup.find_domain(name))}


def _find_owned(name: str, owned: Mapping[str, Domain]) -> str | None:
    """Return the name if it is in `owned`, otherwise its closest parent in `owned`; None if there is neither."""
    labels = name.split(".")
    parents = (".".join(labels[start:]) for start in range(len(labels) - 1))
    return next((parent for parent in parents if parent in owned), None)


def _group_sources(report: DmarcReport, owned: Mapping[str, Domain]) -> dict[str, list[DmarcSource]]:
    """Return domain name → sources in the report, one for each address.

    The domain that published the DMARC policy is included even if it has no sources.
    """
    policy_domain = _find_owned(report.domain, owned)
    groups: dict[str, dict[str, DmarcSource]] = {policy_domain: {}} if policy_domain else {}
    for source in report.sources:
        if name := _find_owned(source.domain, owned):
            by_address = groups.setdefault(name, {})
            by_address[source.address] = _add_counts(by_address.get(source.address), source)
    return {name: list(by_address.values()) for name, by_address in groups.items()}


def _group_sessions(report: TlsReport, owned: Mapping[str, Domain]) -> dict[str, dict[str, int]]:
    """Return domain name → result → number of TLS sessions."""
    groups: dict[str, dict[str, int]] = {}
    for policy in report.policies:
        if name := _find_owned(policy.domain, owned):
            counts = groups.setdefault(name, {})
            for type_, count in {SUCCESSFUL: policy.successful, FAILED: policy.failed, **policy.failures}.items():
                counts[type_] = counts.get(type_, 0) + count
    return groups


def _report_key(setup: Setup, domain: Domain, report: DmarcReport | TlsReport) -> ReportKey:
    kind = "dmarc" if isinstance(report, DmarcReport) else "tls"
    identity = msgspec.json.encode((kind, report.submitter.lower(), report.id or report.day))
    return ReportKey(
        domain=domain.id,
        team=_team_ref(setup, domain),
        day=report.day,
        digest=hashlib.sha256(identity).hexdigest()[:DIGEST_CHARS],
    )


def _team_ref(setup: Setup, domain: Domain) -> int:
    return setup.teams[domain.team].record.ref if domain.team != PLATFORM_TEAM else 0


def _add_counts(before: DmarcSource | None, source: DmarcSource) -> DmarcSource:
    if before is None:
        return source
    return msgspec.structs.replace(
        source,
        known=before.known or source.known,
        total=before.total + source.total,
        aligned=before.aligned + source.aligned,
        dkim=before.dkim + source.dkim,
        spf=before.spf + source.spf,
    )
