"""DNS records of a sending domain: which records a team must publish, and what is wrong with those found.

Names are lower-case A-labels without trailing dot. Found records are strings: TXT strings joined by `txt`, an MX
as `10 mail.example`. The text of a verdict is for people who edit DNS and ends with the value to copy.
"""

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import msgspec

from heliograph.domain.field_docs import says

FAILURES_MAX = 3  # consecutive failed checks before a domain is no longer verified
SPF_LOOKUPS_MAX = 10  # RFC 7208, 4.6.4: more is a permanent error
WALK_MAX = 8  # maximum names queried by a tree walk (RFC 9989, 4.10)
FOUND_MAX = 10  # maximum records shown per name
FOUND_CHARS_MAX = 1000  # maximum characters shown per record

Purpose = Literal["ownership", "dkim", "return_path", "spf", "dmarc"]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["TXT", "CNAME", "MX"]
    name: str
    value: str
    purpose: Purpose


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    ok: bool
    found: tuple[str, ...] = ()
    # What is wrong and how to fix it; empty if correct. Stored as `mend`, its former name.
    fix: str = msgspec.field(default="", name="mend")
    answered: bool = True  # False: the DNS query failed, so the result is unknown


class Alignment(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a receiver will see the From domain in what DKIM and SPF prove."""

    dkim: Annotated[bool, says("DKIM proves the From domain.")]
    spf: Annotated[bool, says("SPF proves the From domain.")]
    passes: Annotated[bool, says("One of the two is enough.")]
    adkim: Annotated[Literal["relaxed", "strict"], says("How DMARC compares for DKIM.")]
    aspf: Annotated[Literal["relaxed", "strict"], says("How DMARC compares for SPF.")]
    policy: Annotated[
        str | None, says("What receivers do with mail that fails; null without a policy.", example="none")
    ]


# -- records to publish ------------------------------------------------------------------------------------


def ownership_token(key: bytes, domain_id: str) -> str:
    """Return the token of a domain's ownership record, which only we can compute; `key` is derived from the master
    secret.
    """
    return hmac.new(key, domain_id.encode(), hashlib.sha256).hexdigest()[:32]


def expected(
    domain: str,
    *,
    domain_id: str,
    ownership: str,
    dkim: Sequence[tuple[str, str]],
    return_path_host: str,
    bounce_host: str,
    senders: Sequence[str] = (),
) -> list[Record]:
    """Return the records that a domain needs.

    `dkim` has (selector, TXT value) of every key in use; `return_path_host` is inside the domain, so that SPF aligns.
    `bounce_host` receives bounces, and its address may send. `senders` are additional senders: addresses or ranges,
    host names, or a relay's own SPF mechanism such as `include:_spf.relay.example`.
    """
    mechanisms = [f"a:{bounce_host}", *(_mechanism(sender) for sender in senders)]
    return [
        Record(
            type="TXT",
            name=f"_heliograph.{domain}",
            value=f"heliograph={domain_id} {ownership}",
            purpose="ownership",
        ),
        *(
            Record(type="TXT", name=f"{selector}._domainkey.{domain}", value=value, purpose="dkim")
            for selector, value in dkim
        ),
        Record(type="MX", name=return_path_host, value=f"10 {bounce_host}", purpose="return_path"),
        Record(type="TXT", name=return_path_host, value=f"v=spf1 {' '.join(mechanisms)} ~all", purpose="spf"),
        Record(type="TXT", name=f"_dmarc.{domain}", value="v=DMARC1; p=none", purpose="dmarc"),
    ]


def _mechanism(sender: str) -> str:
    try:
        network = ipaddress.ip_network(sender, strict=False)
    except ValueError:
        return sender if ":" in sender else f"a:{sender}"
    text = str(network.network_address) if network.num_addresses == 1 else str(network)
    return f"ip{network.version}:{text}"


# -- records found -----------------------------------------------------------------------------------------


def txt(strings: Iterable[bytes]) -> str:
    """Join the strings of a TXT record; characters other than printable ASCII are escaped for terminals."""
    return "".join(chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in b"".join(strings))


def judge(record: Record, found: Sequence[str]) -> Verdict:
    mend = _MEND[record.purpose](record, found) if found else _missing(record)
    if mend and record.type == "TXT":
        mend = _slips(found) + mend
    return Verdict(ok=not mend, found=tuple(text[:FOUND_CHARS_MAX] for text in found[:FOUND_MAX]), fix=mend)


def unanswered(reason: str) -> Verdict:
    return Verdict(ok=False, fix=reason, answered=False)


def _missing(record: Record) -> str:
    return (
        f"There is no {record.type} record at {record.name}. If your DNS panel appends the domain by itself, enter the "
        f"name without it. Add one with the value: {record.value}"
    )


def _slips(found: Sequence[str]) -> str:
    """Return a hint about a common mistake in DNS panels; empty if there is none."""
    if any('"' in text for text in found):
        return "Quotation marks have become part of the value: leave them out. "
    if any("\\;" in text for text in found):
        return "Backslashes have become part of the value: leave them out. "
    return ""


def _set(record: Record, fault: str) -> str:
    return f"{fault} Set the {record.type} record at {record.name} to: {record.value}" if fault else ""


def _list(values: Iterable[str]) -> str:
    return ", ".join(list(values)[:FOUND_MAX])[:FOUND_CHARS_MAX]


def _mend_ownership(record: Record, found: Sequence[str]) -> str:
    # Other records are allowed beside ours: a domain used by two teams has two.
    if record.value in (text.strip() for text in found):
        return ""
    return f"None of the TXT records at {record.name} is ours. Add one more with the value: {record.value}"


# -- the return path


def _mend_host(record: Record, found: Sequence[str]) -> str:
    others = [text for text in found if _host(text) != _host(record.value)]
    if not others:
        return ""
    if len(others) < len(found):
        return f"Bounces could go elsewhere. Remove the other {record.type} records at {record.name}: {_list(others)}."
    return _set(record, f"It points to another host: {_list(others)}.")


def _host(value: str) -> str:
    """Return the host of an MX value: `10 Mail.Example.` gives `mail.example`."""
    return (value.split() or [""])[-1].removesuffix(".").lower()


# -- DKIM (RFC 6376, 3.6.1)


def _mend_dkim(record: Record, found: Sequence[str]) -> str:
    if len(found) > 1:
        return _set(record, f"There are {len(found)} TXT records at {record.name}; a selector may have only one.")
    return _set(record, _key_fault(_tags(found[0]) or {}, _tags(record.value) or {}))


def _key_fault(tags: dict[str, str], wanted: dict[str, str]) -> str:
    kind, wanted_kind = tags.get("k", "rsa"), wanted.get("k", "rsa")
    if "p" not in tags:
        return "The value is not a list of tags such as k=rsa; p=…"
    if "v" in tags and next(iter(tags.items())) != ("v", "DKIM1"):
        return "v=DKIM1 must be the first tag, in capitals."
    if fault := _other_key(_bare(tags["p"]), _bare(wanted["p"])):
        return fault
    if kind != wanted_kind:
        return f"k={kind} does not fit the key, which is k={wanted_kind}."
    if "sha256" not in _options(tags.get("h", "sha256")):
        return f"h={tags['h']} forbids sha256, which the mail is signed with."
    if not {"*", "email"} & _options(tags.get("s", "*")):
        return f"s={tags['s']} forbids the key for email."
    if "y" in _options(tags.get("t", "")):
        return "t=y marks the key as a test: receivers may treat the mail as unsigned."
    return ""


def _other_key(key: str, wanted: str) -> str:
    if key == wanted:
        return ""
    if not key:
        return "p= is empty, which revokes the key."
    if wanted.startswith(key):
        return (
            f"The key is cut off after {len(key)} of {len(wanted)} characters: give a long value as several quoted "
            "strings of at most 255 characters each."
        )
    return "p= holds another key."


def _bare(text: str) -> str:
    return re.sub(r"\s", "", text)


def _options(text: str) -> set[str]:
    return {option.strip() for option in text.split(":")}


_TAG = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def _tags(text: str) -> dict[str, str] | None:
    """Parse `v=DKIM1; k=rsa` into an ordered dict (RFC 6376, 3.2); None if not a tag list or if a tag is repeated."""
    tags: dict[str, str] = {}
    for part in text.strip().removesuffix(";").split(";"):
        name, equals, value = part.partition("=")
        name = name.strip()
        if not equals or not _TAG.fullmatch(name) or name in tags:
            return None
        tags[name] = value.strip()
    return tags


# -- SPF (RFC 7208)

_ALL = re.compile(r"[+?~-]?all")
_LOOKUP = re.compile(r"[+?~-]?(?:include|exists|a|mx|ptr)(?:[:/].*)?|redirect=.*")


def _mend_spf(record: Record, found: Sequence[str]) -> str:
    policies = [text for text in found if text.lower().split(" ")[0] == "v=spf1"]
    if not policies:
        return f"None of the TXT records at {record.name} is an SPF policy. Add one with the value: {record.value}"
    if len(policies) > 1:
        return _set(record, f"There are {len(policies)} SPF policies, a permanent error to receivers. Keep one.")
    terms = policies[0].lower().split()[1:]
    lookups = sum(bool(_LOOKUP.fullmatch(term)) for term in terms)
    if lookups > SPF_LOOKUPS_MAX:
        return _set(record, f"The SPF policy takes {lookups} DNS look-ups, above {SPF_LOOKUPS_MAX} it is an error.")
    end = next((index for index, term in enumerate(terms) if _ALL.fullmatch(term)), len(terms))
    if terms[end : end + 1] in (["all"], ["+all"]):
        return _set(record, f"{terms[end]} lets the whole Internet send for the domain.")
    lacking = [term for term in record.value.split()[1:-1] if not any(_covers(given, term) for given in terms[:end])]
    if lacking:  # name only the missing terms, so that an extended policy can be kept
        return (
            f"The SPF policy does not allow {_list(lacking)}. Write {' '.join(lacking)} before its all, "
            f"or set the TXT record at {record.name} to: {record.value}"
        )
    return ""


def _covers(given: str, wanted: str) -> bool:
    """Return whether the found term allows everything that the wanted term allows; with -, ~ or ? it allows nothing."""
    kind, _, value = given.removeprefix("+").partition(":")
    wanted_kind, _, wanted_value = wanted.lower().partition(":")
    if kind != wanted_kind:
        return False
    if kind in ("ip4", "ip6"):
        return _inside(wanted_value, value)
    return value.partition("/")[0].removesuffix(".") == wanted_value.partition("/")[0]


def _inside(inner: str, outer: str) -> bool:
    try:
        narrow, wide = ipaddress.ip_network(inner), ipaddress.ip_network(outer, strict=False)
    except ValueError:
        return False
    if isinstance(wide, ipaddress.IPv4Network):
        return isinstance(narrow, ipaddress.IPv4Network) and narrow.subnet_of(wide)
    return isinstance(narrow, ipaddress.IPv6Network) and narrow.subnet_of(wide)


# -- DMARC (RFC 7489, 6.3)

_DMARC = re.compile(r"\s*v\s*=\s*DMARC1\s*(?:;.*)?", re.DOTALL)
_POLICY = re.compile(r"none|quarantine|reject", re.IGNORECASE)
_MODE = re.compile(r"[rs]", re.IGNORECASE)
_REPORTS = re.compile(r"[a-z]+:[^,\s]+(?:\s*,\s*[a-z]+:[^,\s]+)*", re.IGNORECASE)
_DMARC_TAGS = {  # other tags are ignored, as receivers do
    "p": _POLICY,
    "sp": _POLICY,
    "np": _POLICY,
    "adkim": _MODE,
    "aspf": _MODE,
    "pct": re.compile(r"100|[1-9]?[0-9]"),
    "rua": _REPORTS,
    "ruf": _REPORTS,
}


def _mend_dmarc(record: Record, found: Sequence[str]) -> str:
    policies = [text for text in found if _DMARC.fullmatch(text)]
    if not policies:
        return (
            f"None of the TXT records at {record.name} is a DMARC policy, which begins with v=DMARC1; in capitals. "
            f"Add one with the value: {record.value}"
        )
    if len(policies) > 1:
        return f"There are {len(policies)} DMARC policies at {record.name}, so receivers ignore them all. Keep one."
    tags = _tags(policies[0])
    if tags is None:
        return _set(record, "The DMARC policy is not a list of different tags such as v=DMARC1; p=none.")
    if "p" not in tags:
        return _set(record, "The DMARC policy has no p=.")
    unknown = [
        f"{tag}={tags[tag]}" for tag, form in _DMARC_TAGS.items() if tag in tags and not form.fullmatch(tags[tag])
    ]
    return _set(record, f"DMARC does not know {_list(unknown)}.") if unknown else ""


_MEND = {
    "ownership": _mend_ownership,
    "dkim": _mend_dkim,
    "return_path": _mend_host,
    "spf": _mend_spf,
    "dmarc": _mend_dmarc,
}


# -- overall result ----------------------------------------------------------------------------------------


def has_policy(found: Sequence[str]) -> bool:
    return any(_DMARC.fullmatch(text) for text in found)


def policies_above(name: str) -> list[str]:
    """Return the other names that may hold a domain's DMARC policy: RFC 9989 tree walk without the top-level domain."""
    labels = name.removeprefix("_dmarc.").split(".")
    above = [labels[at:] for at in range(1, len(labels) - 1)]
    return [f"_dmarc.{'.'.join(one)}" for one in above if len(one) < WALK_MAX]


def holds_below(record: Record, found: Sequence[str]) -> bool:
    """Return whether a policy found at a parent name is valid and the organisation's, not a registry's."""
    tags = _tags(found[0]) if len(found) == 1 else None
    return judge(record, found).ok and (tags or {}).get("psd", "u").lower() != "y"


def alignment(from_domain: str, dkim_domain: str, return_path_domain: str, dmarc: str | None) -> Alignment:
    """Return the DMARC alignment of mail from `from_domain`; `dmarc` is the policy as found.

    Relaxed alignment requires the same organisational domain, which a tree walk finds (RFC 9989). This function uses
    the From domain itself: a subdomain aligns, a parent or sibling does not. The result can only be too strict.
    """
    tags = (_tags(dmarc) if dmarc and _DMARC.fullmatch(dmarc) else None) or {}
    strict_dkim, strict_spf = (tags.get(tag, "r").lower() == "s" for tag in ("adkim", "aspf"))
    dkim = _aligned(from_domain, dkim_domain, strict_dkim)
    spf = _aligned(from_domain, return_path_domain, strict_spf)
    return Alignment(
        dkim=dkim,
        spf=spf,
        passes=dkim or spf,
        adkim="strict" if strict_dkim else "relaxed",
        aspf="strict" if strict_spf else "relaxed",
        policy=tags["p"].lower() if "p" in tags else None,
    )


def _aligned(from_domain: str, proven: str, strict: bool) -> bool:
    return proven == from_domain or (not strict and proven.endswith(f".{from_domain}"))


def together(verdicts: Iterable[Verdict]) -> bool | None:
    """Return True if every record is correct, False if one is known to be wrong, None if DNS queries failed."""
    judged = list(verdicts)
    if any(verdict.answered and not verdict.ok for verdict in judged):
        return False
    return True if all(verdict.ok for verdict in judged) else None


def next_state(verified: bool, failures: int, all_ok: bool | None) -> tuple[bool, int]:
    """Return (verified, consecutive failed checks) after a check.

    A check whose DNS queries failed changes nothing: the cause may be our own network.
    """
    if all_ok is None:
        return verified, failures
    if all_ok:
        return True, 0
    return verified and failures + 1 < FAILURES_MAX, failures + 1
