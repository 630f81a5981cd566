"""Authenticates the sender of inbound mail by SPF, DKIM and DMARC (RFC 9989); DNS queries take at most five seconds."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

import msgspec

from heliograph.domain.mail.address import parse_address
from heliograph.domain.mail.mime_tree import LENIENT_LIMITS, normalize_line_ends, parse_header
from heliograph.domain.mail.smtp_to_request import parse_mailboxes
from heliograph.inbound.policy.dkim_verification import DkimSignature, parse_signatures, parse_tags, verify_signatures
from heliograph.inbound.policy.inbound_mail import Authentication, Verdict
from heliograph.inbound.server.spf import SmtpOrigin, check_spf
from heliograph.runtime.resolver import DnsTimeout, QueryDns

DNS_TIMEOUT_S = 5.0  # timeout of all DNS queries together (contract 17)
_VERDICT_ORDER: tuple[Verdict, ...] = ("pass", "temperror", "fail", "permerror")
LABELS_MAX = 8  # maximum labels of the names that the DMARC tree walk queries

T = TypeVar("T")
KeyRecords = dict[str, list[str] | None]  # name → TXT records, or None if DNS did not respond


class SenderLookups(msgspec.Struct, frozen=True, kw_only=True):
    """DNS results from which a mail's SPF, DKIM and DMARC verdicts are derived."""

    origin: SmtpOrigin
    author_domain: str  # domain of the From address; empty if there are no or several addresses
    spf: Verdict
    key_records: KeyRecords
    dmarc_records: dict[str, str] | None  # name → DMARC record; None if DNS did not respond

    def authenticate(self, raw: bytes, now_s: int) -> Authentication:
        """Return the SPF, DKIM and DMARC results. Slow for large mails: call it in a thread."""
        dkim_verdicts = verify_signatures(raw, self.key_records, now_s)
        passed_domains = [domain for domain, verdict in dkim_verdicts.items() if verdict == "pass"]
        dkim: Verdict = next((verdict for verdict in _VERDICT_ORDER if verdict in dkim_verdicts.values()), "none")
        spf_domains = [self.origin.domain] if self.spf == "pass" else []
        return Authentication(spf=self.spf, dkim=dkim, dmarc=self._dmarc_verdict(spf_domains, passed_domains, dkim))

    def _dmarc_verdict(self, spf_domains: Sequence[str], dkim_domains: Sequence[str], dkim_verdict: Verdict) -> Verdict:
        if not self.author_domain:
            return "permerror"
        if self.dmarc_records is None:
            return "temperror"
        if not self.dmarc_records:
            return "none"
        org_domain = min(self.dmarc_records, key=len)  # the organizational domain
        tags = parse_tags(self.dmarc_records[max(self.dmarc_records, key=len)])
        aligned = [
            *((domain, tags.get("aspf", "r")) for domain in spf_domains),
            *((domain, tags.get("adkim", "r")) for domain in dkim_domains),
        ]
        if any(_is_aligned(domain, self.author_domain, org_domain, mode) for domain, mode in aligned):
            return "pass"
        return "temperror" if "temperror" in (self.spf, dkim_verdict) else "fail"


async def lookup_sender(
    origin: SmtpOrigin, head: bytes, query_dns: QueryDns, timeout_s: float = DNS_TIMEOUT_S
) -> SenderLookups:
    """Run the DNS queries that are needed to authenticate a mail's sender. `head`: the mail's header."""
    signatures, author_domain = parse_signatures(head), find_author_domain(head)
    spf, key_records, dmarc_records = await asyncio.gather(
        _with_timeout(check_spf(origin, query_dns), timeout_s),
        _with_timeout(_find_keys(signatures, query_dns), timeout_s),
        _with_timeout(_find_dmarc_records(author_domain, query_dns), timeout_s),
    )
    return SenderLookups(
        origin=origin,
        author_domain=author_domain,
        spf=spf or "temperror",
        key_records={signature.key_name: None for signature in signatures} if key_records is None else key_records,
        dmarc_records=dmarc_records,
    )


def find_author_domain(head: bytes) -> str:
    """Return the domain of the address in the From fields; empty if there are no or several addresses.

    Header lines may end with LF alone.
    """
    mail = normalize_line_ends(head)
    values = [value for name, value in parse_header(mail, 1, len(mail), LENIENT_LIMITS)[0] if name.lower() == "from"]
    addresses = [parse_address(address) for value in values for _, address in parse_mailboxes(value)]
    return addresses[0].domain if len(addresses) == 1 and addresses[0] else ""


def _is_aligned(domain: str, author_domain: str, org_domain: str, mode: str) -> bool:
    return domain == author_domain or (mode.lower() != "s" and f".{domain}".endswith(f".{org_domain}"))


async def _find_dmarc_records(author_domain: str, query_dns: QueryDns) -> dict[str, str]:
    """Return the DMARC records of the author's domain and its parents below the top-level domain."""
    labels = author_domain.split(".")[-LABELS_MAX:]
    parents = [".".join(labels[i:]) for i in range(len(labels) - 1)]
    names = dict.fromkeys([author_domain, *parents]) if author_domain else {}
    answers = await asyncio.gather(*(query_dns(f"_dmarc.{name}", "TXT") for name in names))
    records: dict[str, str] = {}
    for name, texts in zip(names, answers, strict=True):
        dmarc_texts = [text for text in texts if text.startswith("v=DMARC1")]
        if len(dmarc_texts) == 1 and parse_tags(dmarc_texts[0]).get("psd") != "y":
            records[name] = dmarc_texts[0]
    return records


async def _find_keys(signatures: Sequence[DkimSignature], query_dns: QueryDns) -> KeyRecords:
    async def find_key(name: str) -> list[str] | None:
        try:
            return await query_dns(name, "TXT")
        except DnsTimeout:
            return None

    names = list(dict.fromkeys(signature.key_name for signature in signatures if signature.key_name))
    return dict(zip(names, await asyncio.gather(*map(find_key, names)), strict=True))


async def _with_timeout(lookup: Awaitable[T], timeout_s: float) -> T | None:
    try:
        async with asyncio.timeout(timeout_s):
            return await lookup
    except (TimeoutError, DnsTimeout):
        return None
