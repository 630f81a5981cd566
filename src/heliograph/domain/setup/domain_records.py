"""DNS records of a sending domain: which records a team must publish, and what is wrong with the published ones.

Names are lower-case A-labels without trailing dot. Published records are strings: a TXT record joined by `join_txt`, an
MX record as `10 mail.example`. The text of a verdict is for people who edit DNS and ends with the value to copy.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Literal

import msgspec

from heliograph.domain.field_docs import describe

FAILURES_MAX = 3  # consecutive failed checks before a domain is no longer verified
SPF_LOOKUPS_MAX = 10  # maximum DNS lookups of an SPF check; more are a permanent error (RFC 7208, 4.6.4)
WALK_MAX = 8  # maximum names queried by a tree walk (RFC 9989, 4.10)
FOUND_MAX = 10  # maximum published records shown per name
FOUND_CHARS_MAX = 1000  # maximum characters shown per record

Purpose = Literal["ownership", "dkim", "return_path", "spf", "dmarc", "tls_reports", "report_consent"]
OPTIONAL_PURPOSES = frozenset(("tls_reports",))  # recommended, but not required to verify a domain


class Record(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["TXT", "CNAME", "MX"]
    name: str
    value: str
    purpose: Purpose

    @property
    def is_required(self) -> bool:
        """Return whether the domain needs this record to be verified."""
        return self.purpose not in OPTIONAL_PURPOSES


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    ok: bool
    found: tuple[str, ...] = ()
    # What is wrong and how to fix it; empty if correct. Stored as `mend`, its former name.
    fix: str = msgspec.field(default="", name="mend")
    answered: bool = True  # False if the DNS query failed, so that the result is unknown


class Alignment(msgspec.Struct, frozen=True, kw_only=True):
    """DMARC alignment: whether DKIM and SPF authenticate the From domain."""

    dkim: Annotated[bool, describe("Whether DKIM authenticates the From domain.")]
    spf: Annotated[bool, describe("Whether SPF authenticates the From domain.")]
    passes: Annotated[bool, describe("Whether DMARC passes: DKIM or SPF is sufficient.")]
    adkim: Annotated[Literal["relaxed", "strict"], describe("DMARC alignment mode for DKIM.")]
    aspf: Annotated[Literal["relaxed", "strict"], describe("DMARC alignment mode for SPF.")]
    policy: Annotated[str | None, describe("DMARC policy for mail that fails; null without a policy.", example="none")]


# -- records to publish ------------------------------------------------------------------------------------


def ownership_token(key: bytes, domain_id: str) -> str:
    """Return the token of a domain's ownership record. Only we have `key`, which is derived from the master secret."""
    return hmac.new(key, domain_id.encode(), hashlib.sha256).hexdigest()[:32]


def expected_records(
    domain: str,
    *,
    domain_id: str,
    ownership: str,
    dkim: Sequence[tuple[str, str]],
    dkim_cnames: Sequence[Record] = (),
    return_path_host: str,
    bounce_host: str,
) -> list[Record]:
    """Return the records that a domain needs.

    `dkim` has (selector, TXT value) of every key that the owner publishes, `dkim_cnames` the records that point to keys
    in our zone; `return_path_host` is inside the domain, so that SPF aligns.
    `bounce_host` receives bounces and reports, and its address may send.
    """
    txt = partial(Record, type="TXT")
    return [
        txt(name=f"_heliograph.{domain}", value=f"heliograph={domain_id} {ownership}", purpose="ownership"),
        *(txt(name=f"{selector}._domainkey.{domain}", value=value, purpose="dkim") for selector, value in dkim),
        *dkim_cnames,
        Record(type="MX", name=return_path_host, value=f"10 {bounce_host}", purpose="return_path"),
        txt(name=return_path_host, value=f"v=spf1 a:{bounce_host} ~all", purpose="spf"),
        txt(name=f"_dmarc.{domain}", value=f"v=DMARC1; p=none; rua=mailto:dmarc@{bounce_host}", purpose="dmarc"),
        txt(name=f"_smtp._tls.{domain}", value=f"v=TLSRPTv1; rua=mailto:tlsrpt@{bounce_host}", purpose="tls_reports"),
    ]


# -- published records -------------------------------------------------------------------------------------


def join_txt(strings: Iterable[bytes]) -> str:
    """Join the strings of a TXT record; characters other than printable ASCII are escaped for terminals."""
    return "".join(chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in b"".join(strings))


def check_record(record: Record, published: Sequence[str]) -> Verdict:
    fix = _FIX_BY_PURPOSE[record.purpose](record, published) if published else _fix_missing(record)
    if fix and record.type == "TXT":
        fix = _panel_mistake(published) + fix
    return Verdict(ok=not fix, found=tuple(text[:FOUND_CHARS_MAX] for text in published[:FOUND_MAX]), fix=fix)


def unanswered_verdict(reason: str) -> Verdict:
    return Verdict(ok=False, fix=reason, answered=False)


def _fix_missing(record: Record) -> str:
    return (
        f"There is no {record.type} record at {record.name}. If your DNS provider appends the domain automatically, "
        f"enter the name without the domain. Add a record with the value: {record.value}"
    )


def _panel_mistake(published: Sequence[str]) -> str:
    """Return a hint about a common mistake in DNS panels that explains the published values; empty if none does."""
    if any('"' in text for text in published):
        return "The value contains quotation marks. Remove them. "
    if any("\\;" in text for text in published):
        return "The value contains backslashes. Remove them. "
    return ""


def _set_record(record: Record, problem: str) -> str:
    return f"{problem} Set the {record.type} record at {record.name} to: {record.value}" if problem else ""


def _join_limited(values: Iterable[str]) -> str:
    return ", ".join(list(values)[:FOUND_MAX])[:FOUND_CHARS_MAX]


def _fix_ownership(record: Record, published: Sequence[str]) -> str:
    # Other ownership records are allowed beside ours: a domain that two teams use has two of them.
    if record.value in (text.strip() for text in published):
        return ""
    return f"The TXT records at {record.name} do not include ours. Add another one with the value: {record.value}"


# -- the return path


def _fix_return_path(record: Record, published: Sequence[str]) -> str:
    others = [text for text in published if _host(text) != _host(record.value)]
    if not others:
        return ""
    if len(others) < len(published):
        return f"Bounces could go elsewhere. Remove the other {record.type} records: {_join_limited(others)}."
    return _set_record(record, f"The {record.type} record points to another host: {_join_limited(others)}.")


def _host(value: str) -> str:
    """Return the host of an MX value: `10 Mail.Example.` gives `mail.example`."""
    return (value.split() or [""])[-1].removesuffix(".").lower()


# -- DKIM (RFC 6376, 3.6.1)


def _fix_dkim(record: Record, published: Sequence[str]) -> str:
    if record.type == "CNAME":
        others = [text for text in published if _host(text) != _host(record.value)]
        return _set_record(
            record, f"The CNAME record points to another name: {_join_limited(others)}." if others else ""
        )
    if len(published) > 1:
        return _set_record(
            record, f"There are {len(published)} TXT records at {record.name}; a selector can have only one."
        )
    return _set_record(record, _key_problem(_parse_tags(published[0]) or {}, _parse_tags(record.value) or {}))


def _key_problem(tags: dict[str, str], expected: dict[str, str]) -> str:
    key_type, expected_type = tags.get("k", "rsa"), expected.get("k", "rsa")
    if "p" not in tags:
        return "The value is not a list of tags such as k=rsa; p=…"
    if "v" in tags and next(iter(tags.items())) != ("v", "DKIM1"):
        return "v=DKIM1 must be the first tag, in upper case."
    if problem := _key_difference(_without_whitespace(tags["p"]), _without_whitespace(expected["p"])):
        return problem
    if key_type != expected_type:
        return f"k={key_type} is wrong; the key needs k={expected_type}."
    if "sha256" not in _colon_list(tags.get("h", "sha256")):
        return f"h={tags['h']} does not allow sha256, with which the mail is signed."
    if not {"*", "email"} & _colon_list(tags.get("s", "*")):
        return f"s={tags['s']} does not allow the key for email."
    if "y" in _colon_list(tags.get("t", "")):
        return "t=y marks the key as a test, so receivers may treat the mail as unsigned."
    return ""


def _key_difference(key: str, expected: str) -> str:
    if key == expected:
        return ""
    if not key:
        return "p= is empty, which revokes the key."
    if expected.startswith(key):
        return (
            f"The key is cut off after {len(key)} of {len(expected)} characters. Enter a long value as several quoted "
            "strings of at most 255 characters each."
        )
    return "p= contains a different key."


def _without_whitespace(text: str) -> str:
    return re.sub(r"\s", "", text)


def _colon_list(text: str) -> set[str]:
    return {option.strip() for option in text.split(":")}


_TAG_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def _parse_tags(text: str) -> dict[str, str] | None:
    """Parse `v=DKIM1; k=rsa` into an ordered dict (RFC 6376, 3.2); None if it is no tag list or repeats a tag."""
    tags: dict[str, str] = {}
    for part in text.strip().removesuffix(";").split(";"):
        name, equals, value = part.partition("=")
        name = name.strip()
        if not equals or not _TAG_NAME.fullmatch(name) or name in tags:
            return None
        tags[name] = value.strip()
    return tags


# -- SPF (RFC 7208)

_SPF_ALL = re.compile(r"[+?~-]?all")
_SPF_LOOKUP_TERM = re.compile(r"[+?~-]?(?:include|exists|a|mx|ptr)(?:[:/].*)?|redirect=.*")


def _fix_spf(record: Record, published: Sequence[str]) -> str:
    policies = [text for text in published if text.lower().split(" ")[0] == "v=spf1"]
    if not policies:
        return f"There is no SPF policy among the TXT records at {record.name}. Add one with the value: {record.value}"
    if len(policies) > 1:
        return _set_record(
            record, f"There are {len(policies)} SPF policies, a permanent error for receivers. Keep only one."
        )
    terms = policies[0].lower().split()[1:]
    lookups = sum(bool(_SPF_LOOKUP_TERM.fullmatch(term)) for term in terms)
    if lookups > SPF_LOOKUPS_MAX:
        return _set_record(record, f"The SPF policy needs {lookups} DNS lookups; the maximum is {SPF_LOOKUPS_MAX}.")
    end = next((index for index, term in enumerate(terms) if _SPF_ALL.fullmatch(term)), len(terms))
    if terms[end : end + 1] in (["all"], ["+all"]):
        return _set_record(record, f"{terms[end]} allows any server to send for the domain.")
    expected_term = record.value.split()[1]
    if any(_term_covers(term, expected_term) for term in terms[:end]):
        return ""
    return (  # names the missing term, so that an extended policy can be kept
        f"The SPF policy does not allow {expected_term}. Add {expected_term} before its all, "
        f"or set the TXT record at {record.name} to: {record.value}"
    )


def _term_covers(published_term: str, expected_term: str) -> bool:
    """Return whether the published SPF term allows the expected term; a term with -, ~ or ? allows nothing."""
    return published_term.removeprefix("+").partition("/")[0].removesuffix(".") == expected_term.lower()


# -- DMARC (RFC 7489, 6.3)

_DMARC_RECORD = re.compile(r"\s*v\s*=\s*DMARC1\s*(?:;.*)?", re.DOTALL)
_DMARC_POLICY = re.compile(r"none|quarantine|reject", re.IGNORECASE)
_DMARC_MODE = re.compile(r"[rs]", re.IGNORECASE)
_DMARC_REPORT_URIS = re.compile(r"[a-z]+:[^,\s]+(?:\s*,\s*[a-z]+:[^,\s]+)*", re.IGNORECASE)
_PATTERN_BY_DMARC_TAG = {  # other tags are ignored, as receivers do
    "p": _DMARC_POLICY,
    "sp": _DMARC_POLICY,
    "np": _DMARC_POLICY,
    "adkim": _DMARC_MODE,
    "aspf": _DMARC_MODE,
    "pct": re.compile(r"100|[1-9]?[0-9]"),
    "rua": _DMARC_REPORT_URIS,
    "ruf": _DMARC_REPORT_URIS,
}


def _fix_dmarc(record: Record, published: Sequence[str]) -> str:
    policies = [text for text in published if _DMARC_RECORD.fullmatch(text)]
    if not policies:
        return (
            f"There is no DMARC policy (v=DMARC1; in upper case) among the TXT records at {record.name}. "
            f"Add one with the value: {record.value}"
        )
    if len(policies) > 1:
        return f"There are {len(policies)} DMARC policies at {record.name}, so receivers ignore all. Keep only one."
    tags = _parse_tags(policies[0])
    if tags is None:
        return _set_record(record, "The DMARC policy is not a list of distinct tags such as v=DMARC1; p=none.")
    if "p" not in tags:
        return _set_record(record, "The DMARC policy has no p= tag.")
    unknown = [
        f"{tag}={tags[tag]}"
        for tag, pattern in _PATTERN_BY_DMARC_TAG.items()
        if tag in tags and not pattern.fullmatch(tags[tag])
    ]
    return _set_record(record, f"The DMARC policy has invalid tags: {_join_limited(unknown)}.") if unknown else ""


# -- TLS reports (RFC 8460, 3)

_TLS_REPORTS_RECORD = re.compile(r"v=TLSRPTv1\s*;.*\brua=.*", re.DOTALL)


def _fix_tls_reports(record: Record, published: Sequence[str]) -> str:
    policies = [text for text in published if text.startswith("v=TLSRPTv1")]
    if len(policies) != 1:
        return _set_record(record, f"There are {len(policies)} TLS report policies (v=TLSRPTv1); one is needed.")
    if not _TLS_REPORTS_RECORD.fullmatch(policies[0]):
        return _set_record(record, "The TLS report policy has no rua= tag.")
    return ""


_FIX_BY_PURPOSE = {
    "ownership": _fix_ownership,
    "dkim": _fix_dkim,
    "return_path": _fix_return_path,
    "spf": _fix_spf,
    "dmarc": _fix_dmarc,
    "tls_reports": _fix_tls_reports,
}


# -- overall result ----------------------------------------------------------------------------------------


def has_policy(published: Sequence[str]) -> bool:
    return any(_DMARC_RECORD.fullmatch(text) for text in published)


def dmarc_names_above(name: str) -> list[str]:
    """Return the other names that may hold a domain's DMARC policy: RFC 9989 tree walk without the top-level domain."""
    labels = name.removeprefix("_dmarc.").split(".")
    parents = [labels[start:] for start in range(1, len(labels) - 1)]
    return [f"_dmarc.{'.'.join(labels_above)}" for labels_above in parents if len(labels_above) < WALK_MAX]


def applies_to_subdomains(record: Record, published: Sequence[str]) -> bool:
    """Return whether a DMARC record at a parent name is valid and published by the organisation, not by a registry."""
    tags = _parse_tags(published[0]) if len(published) == 1 else None
    return check_record(record, published).ok and (tags or {}).get("psd", "u").lower() != "y"


def alignment(from_domain: str, dkim_domain: str, return_path_domain: str, dmarc: str | None) -> Alignment:
    """Return the DMARC alignment of mail from `from_domain`; `dmarc` is the published DMARC policy.

    Relaxed alignment requires the same organisational domain, which receivers find by a tree walk (RFC 9989). This
    function compares with the From domain instead: the same domain and its subdomains align, others do not. So the
    result may be stricter than that of a receiver, never laxer.
    """
    tags = (_parse_tags(dmarc) if dmarc and _DMARC_RECORD.fullmatch(dmarc) else None) or {}
    strict_dkim, strict_spf = (tags.get(tag, "r").lower() == "s" for tag in ("adkim", "aspf"))
    dkim = _is_aligned(from_domain, dkim_domain, strict_dkim)
    spf = _is_aligned(from_domain, return_path_domain, strict_spf)
    return Alignment(
        dkim=dkim,
        spf=spf,
        passes=dkim or spf,
        adkim="strict" if strict_dkim else "relaxed",
        aspf="strict" if strict_spf else "relaxed",
        policy=tags["p"].lower() if "p" in tags else None,
    )


def _is_aligned(from_domain: str, domain: str, strict: bool) -> bool:
    return domain == from_domain or (not strict and domain.endswith(f".{from_domain}"))


def all_correct(verdicts: Iterable[Verdict]) -> bool | None:
    """Return True if every record is correct, False if one is known to be wrong, None if DNS queries failed."""
    known = list(verdicts)
    if any(verdict.answered and not verdict.ok for verdict in known):
        return False
    return True if all(verdict.ok for verdict in known) else None


def next_verification_state(verified: bool, failures: int, all_ok: bool | None) -> tuple[bool, int]:
    """Return (verified, consecutive failed checks) after a check.

    A check whose DNS queries failed changes nothing: the cause may be our own network.
    """
    if all_ok is None:
        return verified, failures
    if all_ok:
        return True, 0
    return verified and failures + 1 < FAILURES_MAX, failures + 1
