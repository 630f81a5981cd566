"""Summarizes what receivers report about a sending domain, and advises whether the DMARC policy p=reject is safe."""

from collections.abc import Iterable
from datetime import date, timedelta
from typing import Annotated

import msgspec

from heliograph.domain.field_docs import describe
from heliograph.domain.setup.records import CarrierRecord
from heliograph.inbound.policy.aggregate_report import DmarcSource

EPOCH = date(1970, 1, 1)
DEFAULT_DAYS = 30
# p=reject is not safe if more mail fails DMARC than these shares
KNOWN_FAILED_MAX = 0.001  # share of the mail of a known source; DNS errors of receivers can cause a few failures
UNKNOWN_FAILED_MAX = 0.01  # share of all mail; unknown sources may forge the sender
NAMED_MAX = 3  # maximum sources named in a reason
SUCCESSFUL, FAILED = "successful", "failed"  # TLS results that are stored in addition to the types of failures


class ReportSource(msgspec.Struct, frozen=True, kw_only=True):
    address: Annotated[str, describe("IP address that sent the mail.", example="192.0.2.1")]
    known: Annotated[
        bool, describe("Whether the address is a source address of this service, or passed SPF for its return path.")
    ]
    total: Annotated[int, describe("Number of emails.")]
    aligned: Annotated[int, describe("Emails that passed DMARC.")]
    dkim: Annotated[int, describe("Emails with aligned DKIM.")]
    spf: Annotated[int, describe("Emails with aligned SPF.")]


class RejectAdvice(msgspec.Struct, frozen=True, kw_only=True):
    safe: Annotated[bool, describe("Whether the policy `p=reject` would not affect mail that is sent correctly.")]
    reasons: Annotated[tuple[str, ...], describe("Why it is not safe; empty if it is.")]


class DmarcResults(msgspec.Struct, frozen=True, kw_only=True):
    total: Annotated[int, describe("Number of emails in all reports.")]
    aligned: Annotated[int, describe("Emails that passed DMARC.")]
    aligned_share: Annotated[
        float | None, describe("`aligned` divided by `total`; null without emails.", example=0.998)
    ]
    sources: Annotated[list[ReportSource], describe("Most emails first, at most 1,000.")]
    reject: Annotated[RejectAdvice, describe("Whether the domain is ready for `p=reject`.")]


class TlsFailureCount(msgspec.Struct, frozen=True, kw_only=True):
    type: Annotated[str, describe("Result type of RFC 8460, or `other`.", example="certificate-expired")]
    count: Annotated[int, describe("Number of sessions.")]


class TlsResults(msgspec.Struct, frozen=True, kw_only=True):
    successful: Annotated[int, describe("Sessions with TLS.")]
    failed: Annotated[int, describe("Sessions whose TLS failed.")]
    failures: Annotated[list[TlsFailureCount], describe("Failures by type, most first.")]


class DomainReports(msgspec.Struct, frozen=True, kw_only=True):
    object: Annotated[str, describe("Always `reports`.", example="reports")] = "reports"
    from_: Annotated[str, describe("First day, UTC.", example="2026-11-01")] = msgspec.field(name="from")
    to: Annotated[str, describe("Last day, UTC, inclusive.", example="2026-11-30")]
    dmarc: Annotated[DmarcResults, describe("DMARC aggregate reports: mail that claims to be from this domain.")]
    tls: Annotated[TlsResults, describe("TLS reports: connections for mail to this domain.")]


def to_day_number(day: date) -> int:
    return (day - EPOCH).days


def to_date(day_number: int) -> date:
    return EPOCH + timedelta(days=day_number)


def source_addresses(carriers: Iterable[CarrierRecord]) -> set[str]:
    """Return the source addresses that carriers are configured to send from."""
    addresses = set[str]()
    for carrier in carriers:
        pools = carrier.options.get("pools") or {}
        for options in (carrier.options, *pools.values()):
            for source in options.get("source_ips") or ():
                addresses.add(source["address"] if isinstance(source, dict) else source)
    return addresses


def dmarc_results(total: int, aligned: int, sources: Iterable[DmarcSource], own_addresses: set[str]) -> DmarcResults:
    """Return a domain's DMARC results in a period.

    `total`, `aligned`: numbers of mails from all sources; `sources`: the sources with the most mails.
    """
    report_sources = [
        ReportSource(
            address=source.address,
            known=source.known or source.address in own_addresses,
            total=source.total,
            aligned=source.aligned,
            dkim=source.dkim,
            spf=source.spf,
        )
        for source in sources
    ]
    reasons = tuple(_reasons_against_reject(total, aligned, report_sources))
    return DmarcResults(
        total=total,
        aligned=aligned,
        aligned_share=round(aligned / total, 4) if total else None,
        sources=report_sources,
        reject=RejectAdvice(safe=not reasons, reasons=reasons),
    )


def _reasons_against_reject(total: int, aligned: int, sources: list[ReportSource]) -> Iterable[str]:
    if not total:
        yield "No receiver has reported mail from this domain in this period."
        return
    failing = [source for source in sources if source.aligned < source.total]
    known = [
        source for source in failing if source.known and source.total - source.aligned > source.total * KNOWN_FAILED_MAX
    ]
    if known:
        failed = sum(source.total - source.aligned for source in known)
        yield (
            f"{failed} of {sum(source.total for source in known)} emails from this service's servers ({_names(known)}) "
            "failed DMARC. Check the domain's DNS records."
        )
    unknown = [source for source in failing if not source.known]
    failed = total - aligned - sum(source.total - source.aligned for source in failing if source.known)
    if failed > total * UNKNOWN_FAILED_MAX:
        addresses = f" ({_names(unknown)})" if unknown else ""
        yield (
            f"{failed} of {total} emails failed DMARC and came from sources outside this service{addresses}. "
            "If they are yours, set up DKIM or SPF for them first; if not, p=reject is meant for them."
        )


def _names(sources: list[ReportSource]) -> str:
    names = ", ".join(source.address for source in sources[:NAMED_MAX])
    return f"{names} and {len(sources) - NAMED_MAX} more" if len(sources) > NAMED_MAX else names


def tls_results(sessions: dict[str, int]) -> TlsResults:
    """Return a domain's TLS results in a period. `sessions`: stored result type → number, highest number first."""
    return TlsResults(
        successful=sessions.get(SUCCESSFUL, 0),
        failed=sessions.get(FAILED, 0),
        failures=[
            TlsFailureCount(type=type_, count=count)
            for type_, count in sessions.items()
            if type_ not in (SUCCESSFUL, FAILED)
        ],
    )
