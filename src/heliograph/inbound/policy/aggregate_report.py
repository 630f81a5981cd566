"""Parses DMARC aggregate reports (RFC 9990, RFC 7489) and TLS reports (RFC 8460) from untrusted senders.

Takes linear time and bounded memory; run it in a thread. XML with a document type is refused, so that it cannot define
entities.
"""

import ipaddress
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from typing import Annotated, Any
from xml.parsers import expat

import msgspec

from heliograph.domain.limits import DAY_MS, KIB, SECOND_MS
from heliograph.domain.mail.address import normalize_domain
from heliograph.domain.mail.verp import bounce_domain
from heliograph.inbound.policy.report_files import ReportTooLarge, UnreadableReport

ROWS_MAX = 100_000  # maximum records of a DMARC report; a report of 25 MiB has about 50,000
SOURCES_MAX = 50_000  # maximum distinct sources of a DMARC report
ELEMENTS_MAX = 1_000_000  # maximum XML elements; parsing one blocks the GIL for about two microseconds
DEPTH_MAX = 20
VALUES_MAX = 100_000  # maximum JSON objects and arrays
TEXT_MAX = 1000  # maximum characters of a value
COUNT_MAX = 10**12  # maximum mails or sessions of a report, so that the sum of millions of reports fits into 64 bits
PROLOG_MAX = 64 * KIB  # maximum bytes before the root element
PROLOG_STEP = 256  # bytes parsed at once before the root element: a document type is refused before most of it is read
CACHED_DOMAINS = 1000  # size of the cache of parsed domains: the rows of a report repeat the same few domains
DAY_MAX = 2_932_896  # 9999-12-31, in days since 1970

# RFC 8460, 4.3
TLS_FAILURES = frozenset(
    (
        *("starttls-not-supported", "certificate-host-mismatch", "certificate-expired", "certificate-not-trusted"),
        *("validation-failure", "tlsa-invalid", "dnssec-invalid", "dane-required"),
        *("sts-policy-fetch-error", "sts-policy-invalid", "sts-webpki-invalid"),
    )
)
OTHER_FAILURE = "other"


class DmarcSource(msgspec.Struct, kw_only=True):
    """The mails from one source address and From domain, as counted in a DMARC report."""

    domain: str  # the From domain, or the policy's domain if missing
    address: str
    known: bool  # SPF passed for our return path, so the address belongs to one of our servers
    total: int = 0
    aligned: int = 0  # mails that passed DMARC
    dkim: int = 0  # mails with aligned DKIM
    spf: int = 0  # mails with aligned SPF


class DmarcReport(msgspec.Struct, frozen=True, kw_only=True):
    submitter: str
    id: str
    day: int  # first day of the report, in days since 1970
    domain: str  # domain that published the policy
    sources: list[DmarcSource]


class TlsPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy in a TLS report (RFC 8460): a domain, with the numbers of successful and failed TLS sessions to it."""

    domain: str
    successful: int
    failed: int
    failures: dict[str, int]  # result type → number of failed sessions


class TlsReport(msgspec.Struct, frozen=True, kw_only=True):
    submitter: str
    id: str
    day: int
    policies: list[TlsPolicy]


def parse_report(pieces: Iterator[bytes]) -> DmarcReport | TlsReport:
    """Parse the report in a file.

    Raises ReportTooLarge or UnreadableReport if it is invalid; ReportTooLarge if both apply.
    """
    first_piece = next(pieces, b"")
    all_pieces = chain((first_piece,), pieces)
    is_json = first_piece.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
    try:
        return _parse_tls(b"".join(all_pieces)) if is_json else _parse_dmarc(all_pieces)
    except UnreadableReport:
        for _ in pieces:  # raises ReportTooLarge beyond the limit
            pass
        raise


# -- DMARC ---------------------------------------------------------------------------------------------------


class _DmarcReader:
    """Reads a DMARC report through the callbacks of the XML parser.

    Stores the texts of the elements at REPORT_PATHS and ROW_PATHS, and adds each record to `sources` when its element
    ends.
    """

    REPORT_PATHS = frozenset(
        (
            ("report_metadata", "org_name"),
            ("report_metadata", "email"),
            ("report_metadata", "report_id"),
            ("report_metadata", "date_range", "begin"),
            ("policy_published", "domain"),
        )
    )
    ROW_PATHS = frozenset(
        (
            ("record", "row", "source_ip"),
            ("record", "row", "count"),
            ("record", "row", "policy_evaluated", "dkim"),
            ("record", "row", "policy_evaluated", "spf"),
            ("record", "identifiers", "header_from"),
            ("record", "auth_results", "spf", "domain"),
            ("record", "auth_results", "spf", "result"),
        )
    )

    NAMES = frozenset(("record", *(path[-1] for path in REPORT_PATHS | ROW_PATHS)))

    def __init__(self) -> None:
        self.path: list[str] = []
        self.is_complete = False  # whether the root element has ended; the rest of the file is ignored
        self.elements = self.rows = self.total = 0
        self.values: dict[tuple[str, ...], str] = {}
        self._row: dict[tuple[str, ...], str] = {}
        self._text = ""
        self._spf_passes: list[str] = []  # domains in this record whose SPF passed
        self.sources: dict[tuple[str, str, bool], DmarcSource] = {}

    def refuse_doctype(self, *_: object) -> None:
        raise UnreadableReport("the XML has a document type")

    def start(self, name: str, _: object) -> None:
        self.path.append(name.rpartition(":")[2] if ":" in name else name)
        self.elements += 1
        self._text = ""
        if len(self.path) == 1:
            self._check_root()
        if len(self.path) > DEPTH_MAX:
            raise UnreadableReport("the XML is nested too deep")
        if self.elements > ELEMENTS_MAX:
            raise ReportTooLarge

    def _check_root(self) -> None:
        if self.elements == 1 and self.path == ["schema"]:  # some receivers wrap the report in the schema element
            self.path.pop()
        elif self.path != ["feedback"]:
            raise UnreadableReport("the XML is not a DMARC report")

    def text(self, data: str) -> None:
        if len(self._text) < TEXT_MAX:
            self._text += data[:TEXT_MAX]

    def end(self, _: str) -> None:
        if len(self.path) <= 1:
            self.is_complete = True
            return
        path = tuple(self.path[1:])
        if self.path.pop() not in self.NAMES:
            return
        text, self._text = self._text.strip(), ""
        if path in self.ROW_PATHS:
            self._row[path] = text
        elif path in self.REPORT_PATHS:
            self.values.setdefault(path, text)
        elif path == ("record", "auth_results", "spf"):
            if self._row.pop((*path, "result"), "").lower() == "pass":
                self._spf_passes.append(self._row.get((*path, "domain"), "").lower())
        elif path == ("record",):
            self._count_row()

    def _count_row(self) -> None:
        self.rows += 1
        if self.rows > ROWS_MAX:
            raise ReportTooLarge
        row, self._row = self._row, {}
        passes, self._spf_passes = self._spf_passes[:10], []
        count = _to_count(row.get(("record", "row", "count"), ""))
        self.total += count
        if self.total > COUNT_MAX:
            raise UnreadableReport("the records have too high counts")
        domain = _to_domain(row.get(("record", "identifiers", "header_from"), ""))
        address = _to_address(row.get(("record", "row", "source_ip"), ""))
        is_known = bool(domain) and any(_is_return_path_of(domain, passed) for passed in passes)
        key = (domain, address, is_known)
        if (source := self.sources.get(key)) is None:
            if len(self.sources) >= SOURCES_MAX:
                raise ReportTooLarge
            source = self.sources[key] = DmarcSource(domain=domain, address=address, known=is_known)
        dkim, spf = (
            row.get(("record", "row", "policy_evaluated", method), "").lower() == "pass" for method in ("dkim", "spf")
        )
        source.total += count
        source.dkim += count * dkim
        source.spf += count * spf
        source.aligned += count * (dkim or spf)


def _parse_dmarc(pieces: Iterator[bytes]) -> DmarcReport:
    reader = _DmarcReader()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = reader.refuse_doctype
    parser.StartElementHandler = reader.start
    parser.CharacterDataHandler = reader.text
    parser.EndElementHandler = reader.end
    try:
        for piece in pieces:
            if reader.is_complete:
                continue  # read on without parsing, because the end of the archive contains its checksum
            position = 0
            while not reader.elements and position < len(piece):
                parser.Parse(piece[position : position + PROLOG_STEP], False)
                position += PROLOG_STEP
                if not reader.elements and parser.CurrentByteIndex > PROLOG_MAX:
                    raise UnreadableReport("the XML has no root element")
            parser.Parse(piece[position:], False)
        if not reader.is_complete:
            parser.Parse(b"", True)
    except (expat.ExpatError, ValueError, LookupError) as error:  # ValueError and LookupError: unknown encoding
        raise UnreadableReport(f"the XML is damaged: {str(error)[:100]}") from None
    domain = _to_domain(reader.values.get(("policy_published", "domain"), ""))
    for source in reader.sources.values():
        if not source.domain or (domain and not _is_below(source.domain, domain)):
            source.domain = domain
    submitter = reader.values.get(("report_metadata", "org_name"))
    return DmarcReport(
        submitter=submitter or reader.values.get(("report_metadata", "email"), "").rpartition("@")[2],
        id=reader.values.get(("report_metadata", "report_id"), ""),
        day=_to_day(reader.values.get(("report_metadata", "date_range", "begin"), "")),
        domain=domain,
        sources=list(reader.sources.values()),
    )


def _is_below(domain: str, parent: str) -> bool:
    return bool(domain) and (domain == parent or domain.endswith(f".{parent}"))


def _is_return_path_of(domain: str, spf_domain: str) -> bool:
    """Return whether `spf_domain` is the return-path domain that we use for `domain` or for one of its parents."""
    parent = spf_domain.removeprefix(bounce_domain(""))
    return parent != spf_domain and _is_below(domain, parent)


def _to_count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > TEXT_MAX:
        raise UnreadableReport("a record has no valid count")
    return int(text)


@lru_cache(CACHED_DOMAINS)
def _to_domain(text: str) -> str:
    return normalize_domain(text.removesuffix(".")) or ""


def _to_address(text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise UnreadableReport("a record has no valid source address") from None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _to_day(seconds: str) -> int:
    try:
        day = int(float(seconds[:30])) * SECOND_MS // DAY_MS
    except (ValueError, OverflowError):
        raise UnreadableReport("the report has no valid date") from None
    if not 0 <= day <= DAY_MAX:
        raise UnreadableReport("the report has no valid date")
    return day


# -- TLS -----------------------------------------------------------------------------------------------------

_Count = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]


class _Json(msgspec.Struct, frozen=True, rename="kebab"):
    """An object of a TLS report, whose field names have hyphens."""


class _DateRange(_Json, frozen=True):
    start_datetime: str


class _Policy(_Json, frozen=True):
    policy_domain: str = ""


class _Summary(_Json, frozen=True):
    total_successful_session_count: _Count = 0
    total_failure_session_count: _Count = 0


class _Failure(_Json, frozen=True):
    result_type: str = ""
    failed_session_count: _Count = 0


class _PolicyResult(_Json, frozen=True):
    policy: _Policy
    summary: _Summary = _Summary()
    failure_details: tuple[_Failure, ...] | None = None


class _TlsJson(_Json, frozen=True):
    date_range: _DateRange
    organization_name: str = ""
    report_id: str = ""
    policies: tuple[_PolicyResult, ...] | None = None


_tls_report_decoder = msgspec.json.Decoder(_TlsJson, strict=False)


def _parse_tls(content: bytes) -> TlsReport:
    if content.count(b"{") + content.count(b"[") > VALUES_MAX:
        raise ReportTooLarge
    try:
        report = _tls_report_decoder.decode(content.removeprefix(b"\xef\xbb\xbf"))
        start = datetime.fromisoformat(report.date_range.start_datetime.strip())
        day = int((start if start.tzinfo else start.replace(tzinfo=UTC)).timestamp()) * SECOND_MS // DAY_MS
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise UnreadableReport(f"the JSON is not a TLS report: {str(error)[:100]}") from None
    if not 0 <= day <= DAY_MAX:
        raise UnreadableReport("the report has no valid date")
    policies = [_to_policy(result) for result in report.policies or ()]
    if sum(policy.successful + policy.failed + sum(policy.failures.values()) for policy in policies) > COUNT_MAX:
        raise UnreadableReport("the policies have too high counts")
    return TlsReport(
        submitter=report.organization_name[:TEXT_MAX].strip(),
        id=report.report_id[:TEXT_MAX].strip(),
        day=day,
        policies=policies,
    )


def _to_policy(result: Any) -> TlsPolicy:
    failures: dict[str, int] = {}
    for failure in result.failure_details or ():
        type_ = failure.result_type.strip().lower()
        type_ = type_ if type_ in TLS_FAILURES else OTHER_FAILURE
        failures[type_] = failures.get(type_, 0) + failure.failed_session_count
    return TlsPolicy(
        domain=_to_domain(result.policy.policy_domain.strip()),
        successful=result.summary.total_successful_session_count,
        failed=result.summary.total_failure_session_count,
        failures={type_: count for type_, count in failures.items() if count},
    )
